package controlplane_test

import (
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/x509"
	"crypto/x509/pkix"
	"encoding/base64"
	"encoding/pem"
	"fmt"
	"math/big"
	"net/http"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/rest"

	"lbd.dev/lbd/tests/controlplane"
)

// pair is a certificate with its key, in PEM.
type pair struct {
	serial       *big.Int
	crt, key     string
	keyInObjects string // a part of the key as objects have it
}

func newPair(t *testing.T, names ...string) *pair {
	t.Helper()
	key, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	if err != nil {
		t.Fatal(err)
	}
	serial, err := rand.Int(rand.Reader, big.NewInt(1<<62))
	if err != nil {
		t.Fatal(err)
	}
	template := &x509.Certificate{SerialNumber: serial, Subject: pkix.Name{CommonName: names[0]}, DNSNames: names, NotAfter: time.Now().Add(time.Hour)}
	der, err := x509.CreateCertificate(rand.Reader, template, template, &key.PublicKey, key)
	if err != nil {
		t.Fatal(err)
	}
	private, err := x509.MarshalPKCS8PrivateKey(key)
	if err != nil {
		t.Fatal(err)
	}
	p := &pair{serial: serial, crt: string(pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE", Bytes: der})),
		key: string(pem.EncodeToMemory(&pem.Block{Type: "PRIVATE KEY", Bytes: private}))}
	p.keyInObjects = base64.StdEncoding.EncodeToString([]byte(p.key))[60:120]
	return p
}

// data is that of a Secret, in YAML.
func (p *pair) data() string {
	encode := base64.StdEncoding.EncodeToString
	return fmt.Sprintf("{tls.crt: %s, tls.key: %s}", encode([]byte(p.crt)), encode([]byte(p.key)))
}

func putCertificate(t *testing.T, x *controlplane.Tenant, name string, p *pair) {
	t.Helper()
	if err := x.Apply(t.Context(), fmt.Sprintf("apiVersion: v1\nkind: Secret\nmetadata: {name: %s, namespace: default}\ntype: kubernetes.io/tls\ndata: %s\n", name, p.data())); err != nil {
		t.Fatal(err)
	}
}

func applyFrontTLS(t *testing.T, x *controlplane.Tenant, name, host, secret string) {
	t.Helper()
	if err := x.Apply(t.Context(), fmt.Sprintf(tenantFront, x.Name, name, host)+fmt.Sprintf("  tls: [{hosts: [%s], secretName: %s}]\n", host, secret)); err != nil {
		t.Fatal(err)
	}
}

// certificates has the engine serve HTTPS with certificates of both tenants. One that is for a hostname of the
// other is shown to nobody, and the account of an agent can write, and read, no other Secret.
func certificates(t *testing.T, l *controlplane.TenantLab, engine *controlplane.Engine) {
	shop, bank := l.Tenants[0], l.Tenants[1]
	const host = "app.shop.example.com"
	first, second := newPair(t, host), newPair(t, host)
	putCertificate(t, shop, "cert", first)
	applyFrontTLS(t, shop, "app", host, "cert")
	began := time.Now()
	showsCertificate(t, l, engine, host, first, shop.PodNames()...)
	t.Logf("a certificate is shown after %v", time.Since(began).Round(10*time.Millisecond))
	putCertificate(t, shop, "cert", second)
	began = time.Now()
	showsCertificate(t, l, engine, host, second, shop.PodNames()...)
	t.Logf("another one after %v", time.Since(began).Round(10*time.Millisecond))

	t.Log("bank has certificates for hostnames of shop")
	stolen, good := newPair(t, "app.bank.example.com", host), newPair(t, "*.bank.example.com")
	putCertificate(t, bank, "cert", stolen)
	applyFrontTLS(t, bank, "app", "app.bank.example.com", "cert")
	ingressSays(t, bank, "app", "HostnameNotAllowed: a certificate is for app.shop.example.com, which the Tenant bank may not have")
	answeredBy(t, l, engine, "app.bank.example.com", bank.PodNames()...)
	if leaf, _, _, err := engine.GetTLS(t.Context(), l.Client, "app.bank.example.com", "/"); err == nil && leaf.VerifyHostname("app.bank.example.com") == nil {
		t.Errorf("the engine shows the certificate %v", leaf.DNSNames)
	}
	showsCertificate(t, l, engine, host, second, shop.PodNames()...)
	putCertificate(t, bank, "cert", good)
	showsCertificate(t, l, engine, "app.bank.example.com", good, bank.PodNames()...)
	applyFrontTLS(t, bank, "theirs", "more.bank.example.com", "none")
	ingressSays(t, bank, "theirs", "InvalidSecret: the Secret none: there is none of the name")
	answeredBy(t, l, engine, "more.bank.example.com", bank.PodNames()...)

	attackSecrets(t, l, bank)
	keysAreHidden(t, l, first, second, stolen, good)

	t.Log("the certificates end")
	if _, err := shop.Kubectl(t.Context(), "delete", "secret", "cert"); err != nil {
		t.Fatal(err)
	}
	eventually(t, "the engine has no certificate for "+host, func() error {
		leaf, _, _, err := engine.GetTLS(t.Context(), l.Client, host, "/")
		if err == nil && leaf.VerifyHostname(host) == nil { // an engine may have one of its own
			return fmt.Errorf("it shows %v", leaf.DNSNames)
		}
		return nil
	})
	ingressSays(t, shop, "app", "InvalidSecret: the Secret cert: there is none of the name")
	answeredBy(t, l, engine, host, shop.PodNames()...)
	if _, err := bank.Kubectl(t.Context(), "delete", "ingress", "app"); err != nil {
		t.Fatal(err)
	}
	for _, namespace := range []string{"lbd-shop-main", "lbd-bank-main"} {
		err := controlplane.Eventually(t.Context(), 2*time.Minute, "no certificate is left in "+namespace, func() error {
			out, err := l.Hub.Kubectl(t.Context(), "-n", namespace, "get", "secrets", "--field-selector=type=kubernetes.io/tls", "-o", "name")
			if err == nil && strings.TrimSpace(out) != "" {
				err = fmt.Errorf("there are %q", out)
			}
			return err
		})
		if err != nil {
			t.Error(err)
		}
	}
}

// ingressSays waits until an event of an Ingress has these words.
func ingressSays(t *testing.T, x *controlplane.Tenant, name, words string) {
	t.Helper()
	said(t, x.ControlPlane, words, "get", "events", "--field-selector=involvedObject.kind=Ingress,involvedObject.name="+name, "-o", "jsonpath={.items[*].message}")
}

// showsCertificate waits until the client is shown a certificate for a host, and is answered.
func showsCertificate(t *testing.T, l *controlplane.TenantLab, e *controlplane.Engine, host string, p *pair, pods ...string) {
	t.Helper()
	eventually(t, host+" has its certificate", func() error {
		leaf, code, body, err := e.GetTLS(t.Context(), l.Client, host, "/")
		if err != nil {
			return err
		}
		if name, _, _ := strings.Cut(body, " "); code != http.StatusOK || !strings.Contains(strings.Join(pods, " "), name) {
			return fmt.Errorf("%d %q", code, body)
		}
		if leaf.SerialNumber.Cmp(p.serial) != 0 {
			return fmt.Errorf("it is another one, for %v", leaf.DNSNames)
		}
		return nil
	})
}

// attackSecrets has the account of an agent try what a Secret could be used for. The same with all rights that a
// role can give, so that nothing but the policy is in the way.
func attackSecrets(t *testing.T, l *controlplane.TenantLab, x *controlplane.Tenant) {
	const mistake = `apiVersion: v1
kind: Secret
metadata: {name: token, namespace: lbd-bank-main, annotations: {kubernetes.io/service-account.name: agent}}
type: kubernetes.io/service-account-token
---
apiVersion: v1
kind: Secret
metadata: {name: lbd-tls-00000000000000000000, namespace: lbd-bank-main}
---
apiVersion: rbac.authorization.k8s.io/v1
kind: Role
metadata: {name: mistake, namespace: lbd-bank-main}
rules: [{apiGroups: [""], resources: [secrets], verbs: [patch, update, delete]}]
`
	if err := l.Hub.Apply(t.Context(), mistake); err != nil {
		t.Fatal(err)
	}
	const good = "apiVersion: v1\nkind: Secret\nmetadata:\n  name: lbd-tls-0123456789abcdef0123\n  namespace: lbd-bank-main\n  labels: {app.kubernetes.io/managed-by: lbd-agent}\n" +
		"type: kubernetes.io/tls\nimmutable: true\ndata: {tls.crt: QQ==, tls.key: QQ==}\n"
	const policy = "ValidatingAdmissionPolicy 'lbd-tenant-secrets'"
	file := filepath.Join(t.TempDir(), "secret.yaml")
	create := func(object string) error {
		if err := os.WriteFile(file, []byte(object), 0o600); err != nil {
			t.Fatal(err)
		}
		_, err := l.AsAgent(t.Context(), x, "create", "--validate=false", "-f", file)
		return err
	}
	for what, c := range map[string]struct{ from, to, words string }{
		"the token of an account":  {"labels: {app.kubernetes.io/managed-by: lbd-agent}\ntype: kubernetes.io/tls", "labels: {app.kubernetes.io/managed-by: lbd-agent}\n  annotations: {kubernetes.io/service-account.name: agent}\ntype: kubernetes.io/service-account-token", policy},
		"another type":             {"type: kubernetes.io/tls", "type: Opaque", "of the type kubernetes.io/tls alone"},
		"no label":                 {"  labels: {app.kubernetes.io/managed-by: lbd-agent}\n", "", "the label app.kubernetes.io/managed-by must be lbd-agent"},
		"another label":            {"managed-by: lbd-agent}", "managed-by: lbd-tenant-routes}", "the label app.kubernetes.io/managed-by must be lbd-agent"},
		"one more label":           {"managed-by: lbd-agent}", "managed-by: lbd-agent, a: b}", "and there must be no other"},
		"an annotation":            {"type: ", "  annotations: {replicator.v1.mittwald.de/replicate-to: '*'}\ntype: ", "no annotation, finalizer or owner"},
		"a finalizer":              {"type: ", "  finalizers: [a.b/c]\ntype: ", "no annotation, finalizer or owner"},
		"the name of another one":  {"lbd-tls-0123456789abcdef0123", "s-web-0123456789abcdef0123", "the name must be lbd-tls-"},
		"a name of another length": {"lbd-tls-0123456789abcdef0123", "lbd-tls-0123456789abcdef01234", "the name must be lbd-tls-"},
		"one that can be changed":  {"immutable: true\n", "", "must be immutable"},
		"more content":             {"tls.key: QQ==", "tls.key: QQ==, ca.crt: QQ==", "and nothing else"},
		"a large certificate":      {"tls.crt: QQ==", "tls.crt: " + strings.Repeat("QUFB", (32<<10)/3+2), "at most 32 KiB"},
		"a large key":              {"tls.key: QQ==", "tls.key: " + strings.Repeat("QUFB", (16<<10)/3+2), "at most 16 KiB"},
		"one of shop":              {"lbd-bank-main", "lbd-shop-main", "cannot create resource"},
	} {
		if object := strings.Replace(good, c.from, c.to, 1); object == good {
			t.Errorf("%s: the attack is none", what)
		} else if err := create(object); err == nil || !strings.Contains(err.Error(), c.words) {
			t.Errorf("%s: %v, want that it is refused: %s", what, err, c.words)
		}
	}
	if err := create(good); err != nil {
		t.Error(err) // or all could have been refused for something else
	}
	attempts := [][]string{
		{"get", "secret", "token"}, {"get", "secrets"}, {"get", "secret", "lbd-tls-0123456789abcdef0123"},
		{"patch", "secret", "token", "--type=merge", "-p", "{}"}, {"patch", "secret", "token", "--type=merge", "--dry-run=server", "-p", "{}"},
		{"patch", "secret", "lbd-tls-00000000000000000000", "--type=merge", "-p", `{"type":"kubernetes.io/tls"}`},
		{"delete", "secret", "token"}, {"delete", "secret", "lbd-tls-00000000000000000000"}, {"delete", "secrets", "--all"},
		{"create", "clusterrolebinding", "x", "--clusterrole=cluster-admin", "--serviceaccount=lbd-bank-main:agent"},
		{"delete", "validatingadmissionpolicybinding", "lbd-tenant-secrets"},
	}
	for _, args := range attempts {
		if out, err := l.AsAgent(t.Context(), x, append([]string{"-n", "lbd-bank-main"}, args...)...); err == nil || !strings.Contains(err.Error(), "orbidden") {
			t.Errorf("%v: %q: %v, want that it is forbidden", args, out, err)
		}
	}
	if _, err := l.Hub.Kubectl(t.Context(), "-n", "lbd-bank-main", "create", "rolebinding", "mistake", "--role=mistake", "--serviceaccount=lbd-bank-main:agent"); err != nil {
		t.Fatal(err)
	}
	refusedByPolicy(t, l, policy, "token", "lbd-tls-00000000000000000000", "lbd-tls-0123456789abcdef0123")
	if _, err := l.Hub.Kubectl(t.Context(), "-n", "lbd-bank-main", "delete", "rolebinding/mistake", "role/mistake", "secret/token", "secret/lbd-tls-00000000000000000000"); err != nil {
		t.Error(err)
	}
}

// refusedByPolicy has an agent that may change and delete Secrets try it. A patch of nothing is answered with all
// that is in a Secret.
func refusedByPolicy(t *testing.T, l *controlplane.TenantLab, words string, names ...string) {
	t.Helper()
	host := l.Hub.APIServers[0].Host
	cfg, err := l.Hub.Config(host, host.IP4, controlplane.Admin)
	if err != nil {
		t.Fatal(err)
	}
	cfg.Impersonate = rest.ImpersonationConfig{UserName: "system:serviceaccount:lbd-bank-main:agent",
		Groups: []string{"system:serviceaccounts", "system:serviceaccounts:lbd-bank-main", "system:authenticated"}}
	all, err := kubernetes.NewForConfig(cfg)
	if err != nil {
		t.Fatal(err)
	}
	client := all.CoreV1().Secrets("lbd-bank-main")
	for _, name := range names {
		changed := &corev1.Secret{ObjectMeta: metav1.ObjectMeta{Name: name}, Type: corev1.SecretTypeTLS}
		apply := []byte(`{"apiVersion":"v1","kind":"Secret","metadata":{"labels":{"app.kubernetes.io/managed-by":"lbd-agent"}}}`)
		for what, try := range map[string]func() error{
			"patch of nothing": func() error {
				_, err := client.Patch(t.Context(), name, types.MergePatchType, []byte("{}"), metav1.PatchOptions{})
				return err
			},
			"dry run": func() error {
				_, err := client.Patch(t.Context(), name, types.MergePatchType, []byte("{}"), metav1.PatchOptions{DryRun: []string{metav1.DryRunAll}})
				return err
			},
			"apply": func() error {
				_, err := client.Patch(t.Context(), name, types.ApplyPatchType, apply, metav1.PatchOptions{FieldManager: "x", Force: new(true)})
				return err
			},
			"update": func() error { _, err := client.Update(t.Context(), changed, metav1.UpdateOptions{}); return err },
			"delete": func() error { return client.Delete(t.Context(), name, metav1.DeleteOptions{}) },
		} {
			err := try()
			// From what somebody else has made an update would take its type and immutable content.
			if err == nil || !strings.Contains(err.Error(), words) && !apierrors.IsInvalid(err) {
				t.Errorf("%s of %s: %v, want that it is refused: %s", what, name, err, words)
			}
		}
	}
}

// keysAreHidden looks for private keys wherever somebody looks who may not read Secrets.
func keysAreHidden(t *testing.T, l *controlplane.TenantLab, pairs ...*pair) {
	t.Helper()
	var all []string
	for _, c := range []*controlplane.ControlPlane{l.Hub, l.Tenants[0].ControlPlane, l.Tenants[1].ControlPlane} {
		kinds := "events,services,ingresses"
		if c == l.Hub {
			kinds += ",tenantroutes,tenantservices,tenantnodes"
		}
		out, err := c.Kubectl(t.Context(), "get", kinds, "-A", "-o", "yaml")
		if err != nil {
			t.Fatal(err)
		}
		all = append(all, out)
		logs, err := filepath.Glob(filepath.Join(c.Host.Dir, "lbd-*.log"))
		if err != nil || len(logs) == 0 {
			t.Errorf("no log of lbd in %s: %v", c.Host.Dir, err)
		}
		for _, file := range logs {
			data, err := os.ReadFile(file)
			if err != nil {
				t.Fatal(err)
			}
			all = append(all, string(data))
		}
	}
	text := strings.Join(all, "\n")
	for _, p := range pairs {
		if strings.Contains(text, p.keyInObjects) || strings.Contains(text, strings.Split(p.key, "\n")[1]) {
			t.Error("a private key is shown")
		}
	}
	if !strings.Contains(text, "hubSecret: lbd-tls-") || !strings.Contains(text, "InvalidSecret") {
		t.Error("not everything was looked at")
	}
}
