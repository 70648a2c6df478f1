package agent

import (
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/x509"
	"encoding/base64"
	"encoding/json"
	"encoding/pem"
	"fmt"
	"log/slog"
	"math/big"
	"net/http"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"lbd.dev/lbd/api/v1alpha1"
	"lbd.dev/lbd/internal/tenants"
)

const secretsOf = "v1/secrets"

// shown is all that an agent says in its log.
type shown struct {
	mu sync.Mutex
	b  strings.Builder
}

func (s *shown) Write(p []byte) (int, error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.b.Write(p)
}

func (s *shown) String() string {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.b.String()
}

// tlsSecret is one with a certificate.
func tlsSecret(t *testing.T, name string) *corev1.Secret {
	t.Helper()
	key, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	if err != nil {
		t.Fatal(err)
	}
	template := &x509.Certificate{SerialNumber: big.NewInt(1), DNSNames: []string{"shop.example.com"}, NotAfter: time.Now().Add(time.Hour)}
	der, err := x509.CreateCertificate(rand.Reader, template, template, &key.PublicKey, key)
	if err != nil {
		t.Fatal(err)
	}
	private, err := x509.MarshalPKCS8PrivateKey(key)
	if err != nil {
		t.Fatal(err)
	}
	return &corev1.Secret{ObjectMeta: metav1.ObjectMeta{Namespace: "default", Name: name}, Type: corev1.SecretTypeTLS, Data: map[string][]byte{
		corev1.TLSCertKey:       pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE", Bytes: der}),
		corev1.TLSPrivateKeyKey: pem.EncodeToMemory(&pem.Block{Type: "PRIVATE KEY", Bytes: private}),
		"ca.crt":                []byte("more"),
	}}
}

// copyOf is the name of a Secret in the hub.
func copyOf(s *corev1.Secret) string {
	return tenants.HubSecretName(s.Namespace, s.Name, s.Data[corev1.TLSCertKey], s.Data[corev1.TLSPrivateKeyKey])
}

// newTLSBed has the Ingress shop, which names the Secret cert, and runs an agent that says all in its log.
func newTLSBed(t *testing.T, more ...func(*bed)) (*bed, *shown) {
	t.Helper()
	b := newIngressBed(t)
	b.hub.Serve(secretsOf, "Secret")
	b.ingress("shop", "lbd", "shop.example.com")
	b.names("shop", "cert")
	for _, f := range more {
		f(b)
	}
	log := new(shown)
	a, err := New(Options{
		Logger: slog.New(slog.NewTextHandler(log, &slog.HandlerOptions{Level: slog.LevelDebug})), Tenant: clientOf(t, b.tenant), Hub: clientOf(t, b.hub),
		HubNamespace: namespace, Class: "lbd.dev/hub", Ingress: true, TLSNamespaces: []string{"default"}, Namespace: "lbd-agent", LeaseName: Manager, Identity: "one",
	})
	if err != nil {
		t.Fatal(err)
	}
	b.run(a)
	b.allocate(31234)
	return b, log
}

// names has an Ingress name a Secret.
func (b *bed) names(ingress, secret string) {
	o := b.tenant.Get(ingressesOf, "default", ingress)
	o["spec"].(map[string]any)["tls"] = []any{map[string]any{"hosts": []any{ingress + ".example.com"}, "secretName": secret}}
	b.tenant.Put(ingressesOf, o)
}

// hubNames is the Secret that the TenantRoute of an Ingress names.
func (b *bed) hubNames(ingress string) string {
	var s v1alpha1.TenantRouteSpec
	if err := json.Unmarshal([]byte(b.spec(hubRoutes, "ingress.default."+ingress)), &s); err != nil || len(s.TLS) == 0 {
		return "no route"
	}
	return s.TLS[0].HubSecret
}

// TestSecretsOfIngresses: from a Secret in the tenant to its copy in the hub, and back to none. The agent asks for
// the Secrets that Ingresses name alone, does nothing in the hub but make some, and shows nothing of a key.
func TestSecretsOfIngresses(t *testing.T) {
	b, log := newTLSBed(t)
	keys := []*corev1.Secret{tlsSecret(t, "cert"), tlsSecret(t, "cert"), tlsSecret(t, "other")}
	b.tenant.Put(secretsOf, keys[2])
	var made []time.Time // when each copy was there
	b.eventually("people are told that there is none", func() bool {
		return slices.Contains(b.told(), "default/shop Warning HubRefused: InvalidSecret: the Secret cert: there is none of the name")
	})
	b.eventually("the hub has the Ingress all the same", func() bool { return b.hubNames("shop") == "" })
	for _, s := range keys[:2] {
		b.tenant.Put(secretsOf, s)
		b.eventually("the hub has the Secret", func() bool { return b.hub.Get(secretsOf, namespace, copyOf(s)) != nil })
		made = append(made, time.Now())
		b.eventually("the hub knows of it", func() bool { return b.hubNames("shop") == copyOf(s) })
		o := b.hub.Get(secretsOf, namespace, copyOf(s))
		data, meta := o["data"].(map[string]any), o["metadata"].(map[string]any)
		if len(data) != 2 || data["tls.key"] != base64.StdEncoding.EncodeToString(s.Data[corev1.TLSPrivateKeyKey]) || o["type"] != "kubernetes.io/tls" || o["immutable"] != true ||
			fmt.Sprint(meta["labels"]) != "map[app.kubernetes.io/managed-by:lbd-agent]" || meta["annotations"] != nil {
			t.Errorf("the hub has %v", o)
		}
	}
	b.judgeRoute("ingress.default.shop", "True", "Accepted", "192.0.2.7")
	b.eventually("people are told that all is well", func() bool { return strings.Contains(strings.Join(b.told(), "\n"), "default/shop Normal HubAccepted") })
	bad := keys[1].DeepCopy()
	bad.Data[corev1.TLSPrivateKeyKey] = keys[0].Data[corev1.TLSPrivateKeyKey]
	b.tenant.Put(secretsOf, bad)
	b.eventually("the hub forgets it", func() bool { return b.hubNames("shop") == "" })
	b.eventually("people are told why", func() bool {
		return strings.Contains(strings.Join(b.told(), "\n"), "InvalidSecret: the Secret cert: tls.key is no private key of the certificate in tls.crt")
	})
	bad.Type = corev1.SecretTypeOpaque
	b.tenant.Put(secretsOf, bad)
	b.tenant.Put(secretsOf, keys[0])
	b.eventually("it is back", func() bool { return b.hubNames("shop") == copyOf(keys[0]) })
	b.tenant.Delete(secretsOf, "default", "cert")
	b.eventually("the hub forgets it again", func() bool { return b.hubNames("shop") == "" })

	asked := 0
	for _, r := range b.tenant.Requests() {
		if strings.Contains(r, "/secrets") {
			asked++
			if !strings.HasPrefix(r, "GET /api/v1/namespaces/default/secrets?") || !strings.Contains(r, "fieldSelector=metadata.name%3Dcert") {
				t.Error(r)
			}
		}
	}
	posts := 0
	for _, r := range b.hub.Requests() {
		if strings.Contains(r, "/secrets") {
			posts++
			if !strings.HasPrefix(r, "POST /api/v1/namespaces/"+namespace+"/secrets?") {
				t.Error(r)
			}
		}
	}
	if asked == 0 || posts < 2 || posts > 3 {
		t.Errorf("%d requests for Secrets, %d were made", asked, posts)
	}
	if gap := made[1].Sub(made[0]); gap < secretPause/2 {
		t.Errorf("two copies of one Secret within %v", gap)
	}
	b.hides(log, keys...)
}

// hides wants nothing of keys in the log, in events, in objects of the hub but for Secrets, and in the URLs of
// requests.
func (b *bed) hides(log *shown, keys ...*corev1.Secret) {
	b.t.Helper()
	text := fmt.Sprint(log, b.told(), b.hub.All(hubRoutes), b.tenant.All(ingressesOf), b.hub.Requests(), b.tenant.Requests())
	for _, s := range keys {
		key := string(s.Data[corev1.TLSPrivateKeyKey])
		if strings.Contains(text, strings.Split(key, "\n")[1][:20]) || strings.Contains(text, base64.StdEncoding.EncodeToString([]byte(key))[50:80]) {
			b.t.Errorf("a key is shown in\n%s", text)
		}
	}
	if !strings.Contains(text, "secret:cert") {
		b.t.Error("not everything was looked at")
	}
}

// TestSecretsRefused: what the hub does not take is told, the Ingress is served, and it is offered again. A
// process that starts anew makes no copy that the hub has, and makes one that is missing there.
func TestSecretsRefused(t *testing.T) {
	var denied atomic.Bool
	denied.Store(true)
	cert := tlsSecret(t, "cert")
	b, log := newTLSBed(t, func(b *bed) {
		b.tenant.Put(secretsOf, cert)
		b.hub.Gate(func(r *http.Request) int {
			if denied.Load() && strings.HasSuffix(r.URL.Path, "/secrets") {
				return http.StatusForbidden
			}
			return 0
		})
	})
	b.eventually("people are told", func() bool {
		return strings.Contains(strings.Join(b.told(), "\n"), "HubRefused: HubRefused: the Secret cert: ")
	})
	b.judgeRoute("ingress.default.shop", "True", "Accepted", "192.0.2.7")
	b.eventually("the Ingress is served", func() bool { return b.ingressShows("shop") == `{"ingress":[{"ip":"192.0.2.7"}]}` })
	denied.Store(false)
	b.eventually("the hub has the Secret", func() bool { return b.hubNames("shop") == copyOf(cert) })
	b.hub.Delete(secretsOf, namespace, copyOf(cert))
	o := b.hub.Get(hubRoutes, namespace, "ingress.default.shop")
	o["status"].(map[string]any)["conditions"] = []any{map[string]any{"type": "Certificates", "status": "False", "reason": "SecretMissing",
		"observedGeneration": o["metadata"].(map[string]any)["generation"], "lastTransitionTime": "2026-01-02T03:04:05Z"}}
	b.hub.Put(hubRoutes, o)
	b.eventually("it is made again", func() bool { return b.hub.Get(secretsOf, namespace, copyOf(cert)) != nil })
	b.hides(log, cert)
}

// TestSecretsAreNotForgottenBlindly: while a Secret may not be read, the hub keeps what it has of it.
func TestSecretsAreNotForgottenBlindly(t *testing.T) {
	b, _ := newTLSBed(t, func(b *bed) {
		b.tenant.Gate(func(r *http.Request) int {
			if strings.HasSuffix(r.URL.Path, "/secrets") && r.Method == http.MethodGet {
				return http.StatusForbidden
			}
			return 0
		})
		b.hub.Put(hubRoutes, map[string]any{"metadata": map[string]any{"namespace": namespace, "name": "ingress.default.shop", "uid": "r"}, "spec": map[string]any{
			"origin": map[string]any{"kind": "Ingress", "namespace": "default", "name": "shop"}, "rules": []any{}, "tls": []any{map[string]any{"secret": "cert", "hubSecret": "lbd-tls-0123456789abcdef0123"}}}})
	})
	b.eventually("people are told", func() bool {
		return strings.Contains(strings.Join(b.told(), "\n"), "InvalidSecret: the Secret cert: the agent may not read it")
	})
	b.eventually("the route is another one", func() bool { return strings.Contains(b.spec(hubRoutes, "ingress.default.shop"), "31234") })
	if got := b.hubNames("shop"); got != "lbd-tls-0123456789abcdef0123" {
		t.Errorf("the hub has %q", got)
	}
}

// TestNoSecretUnasked: without the option no Secret is asked for, and none is made.
func TestNoSecretUnasked(t *testing.T) {
	b := newIngressBed(t)
	b.hub.Serve(secretsOf, "Secret")
	b.tenant.Put(secretsOf, tlsSecret(t, "cert"))
	b.ingress("shop", "lbd", "shop.example.com")
	b.names("shop", "cert")
	b.startIngress("one")
	b.allocate(31234)
	b.eventually("the hub knows the Ingress", func() bool { return b.spec(hubRoutes, "ingress.default.shop") != "" })
	b.ingress("more", "lbd", "more.example.com")
	b.eventually("another one", func() bool { return b.spec(hubRoutes, "ingress.default.more") != "" })
	for _, r := range append(b.tenant.Requests(), b.hub.Requests()...) {
		if strings.Contains(r, "secrets") {
			t.Error(r)
		}
	}
}
