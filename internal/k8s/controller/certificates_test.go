package controller

import (
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/x509"
	"encoding/base64"
	"encoding/pem"
	"fmt"
	"math/big"
	"net/http"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"lbd.dev/lbd/internal/k8s/apitest"
	"lbd.dev/lbd/internal/tenants"
)

const secretsOf = "v1/secrets"

// certificateName is the n-th of those that agents give their Secrets.
func certificateName(n int) string { return fmt.Sprintf("lbd-tls-%020d", n) }

// putCertificate puts what an agent writes, made at a time.
func putCertificate(t *testing.T, api *apitest.Server, namespace, name string, created time.Time, change func(map[string]any), hosts ...string) {
	t.Helper()
	key, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	if err != nil {
		t.Fatal(err)
	}
	template := &x509.Certificate{SerialNumber: big.NewInt(1), DNSNames: hosts, NotAfter: time.Now().Add(time.Hour)}
	der, err := x509.CreateCertificate(rand.Reader, template, template, &key.PublicKey, key)
	if err != nil {
		t.Fatal(err)
	}
	private, err := x509.MarshalPKCS8PrivateKey(key)
	if err != nil {
		t.Fatal(err)
	}
	encode := func(kind string, data []byte) string {
		return base64.StdEncoding.EncodeToString(pem.EncodeToMemory(&pem.Block{Type: kind, Bytes: data}))
	}
	o := map[string]any{
		"metadata": map[string]any{"namespace": namespace, "name": name, "uid": name, "creationTimestamp": created.UTC().Format(time.RFC3339),
			"labels": map[string]any{tenants.SecretLabel: tenants.SecretLabelValue}},
		"type": "kubernetes.io/tls", "immutable": true, "data": map[string]any{"tls.crt": encode("CERTIFICATE", der), "tls.key": encode("PRIVATE KEY", private)},
	}
	if change != nil {
		change(o)
	}
	api.Put(secretsOf, o)
}

// putTLSRoute is a TenantRoute for a host that names a Secret.
func putTLSRoute(api *apitest.Server, namespace, name, host, secret string) {
	putSpec(api, tenantRoutes, namespace, "ingress.default."+name, old,
		fmt.Sprintf(`{"origin":{"kind":"Ingress","namespace":"default","name":%q},"rules":[{"host":%q,"paths":[{"path":"/","service":"web","nodePort":30080}]}],"tls":[{"secret":"cert","hubSecret":%q}]}`, name, host, secret))
}

// certificatesAPI is routesAPI with a Tenant shop that may have Secrets.
func certificatesAPI(t *testing.T) *apitest.Server {
	api := routesAPI(t)
	api.Serve(secretsOf, "Secret")
	putTenant(api, "shop", old, `{"clusters":[{"name":"main","namespace":"shop","nodeCIDRs":["10.1.0.0/24"]}],"pools":["public"],"hostnames":["*.shop.example.com"],"ingressClass":"traefik","limits":{"tlsSecrets":5}}`)
	return api
}

// engineHas are the Secrets that the Ingress for a route names.
func engineHas(api *apitest.Server, namespace, name string) string {
	tls, _, _ := nested[[]any](api.Get(ingressesOf, namespace, tenants.HubName(namespace, "Ingress", "default", name)), "spec", "tls")
	var all []string
	for _, x := range tls {
		all = append(all, fmt.Sprint(x.(map[string]any)["secretName"]))
	}
	return strings.Join(all, " ")
}

// TestCertificates follows Secrets of agents to the Ingress of the engine, and to their ends. One whose writer
// could change it afterwards, or that is for a hostname of others, never gets there.
func TestCertificates(t *testing.T) {
	api := certificatesAPI(t)
	c := run(t, build(t, api, "a"))
	for n, change := range []func(map[string]any){
		nil,
		func(o map[string]any) { delete(o, "immutable") },
		func(o map[string]any) { o["type"] = "Opaque" },
		func(o map[string]any) { o["data"].(map[string]any)["tls.key"] = "QQ==" },
		nil,
	} {
		host := fmt.Sprintf("h%d.shop.example.com", n)
		hosts := []string{host}
		if n == 4 {
			hosts = []string{host, "www.bank.example.com"}
		}
		putCertificate(t, api, "shop", certificateName(n), time.Now(), change, hosts...)
		putTLSRoute(api, "shop", fmt.Sprintf("web%d", n), host, certificateName(n))
	}
	putTLSRoute(api, "bank", "theirs", "x.example.com", certificateName(0)) // it may have none
	for what, want := range map[string]string{
		"shop/web0": "True Accepted", "shop/web1": "False InvalidCertificate", "shop/web2": "False InvalidCertificate", "shop/web3": "False InvalidCertificate",
		"shop/web4": "False HostnameNotAllowed", "bank/theirs": "False SecretsNotAllowed",
	} {
		namespace, name, _ := strings.Cut(what, "/")
		eventually(t, what+": "+want, func() bool { return strings.HasSuffix(routeSays(api, namespace, name), "False AddressPending, "+want) })
		if got := engineHas(api, namespace, name); (got == certificateName(0)) != (what == "shop/web0") || want != "True Accepted" && strings.Contains(got, "lbd-tls-") {
			t.Errorf("%s: the engine has %q", what, got)
		}
	}
	if s := fmt.Sprint(api.All(tenantRoutes), api.All(ingressesOf)); strings.Contains(s, "PRIVATE") || strings.Contains(s, "tls.key:") {
		t.Error(s)
	}

	// Another one takes its place. The first is named by no route, and goes in time; so does one that never was.
	// What others have in the namespace stays.
	putCertificate(t, api, "shop", certificateName(9), time.Now(), nil, "h0.shop.example.com")
	putCertificate(t, api, "shop", certificateName(10), time.Now().Add(-time.Hour), nil, "h0.shop.example.com")
	putCertificate(t, api, "shop", "s-cert", time.Now().Add(-time.Hour), nil, "h0.shop.example.com")
	putCertificate(t, api, "shop", certificateName(11), time.Now().Add(-time.Hour), func(o map[string]any) { delete(o["metadata"].(map[string]any), "labels") })
	putTLSRoute(api, "shop", "web0", "h0.shop.example.com", certificateName(9))
	eventually(t, "the engine has the other one", func() bool { return engineHas(api, "shop", "web0") == certificateName(9) })
	eventually(t, "one that is named by none goes", func() bool { return api.Get(secretsOf, "shop", certificateName(10)) == nil })
	for _, name := range []string{certificateName(0), certificateName(9), certificateName(11), "s-cert"} {
		if api.Get(secretsOf, "shop", name) == nil {
			t.Errorf("%s is gone", name)
		}
	}
	api.Delete(secretsOf, "shop", certificateName(9))
	eventually(t, "it is missing", func() bool { return strings.HasSuffix(routeSays(api, "shop", "web0"), "False SecretMissing") })
	putRoute(api, "shop", "web0", old, "h0.shop.example.com")
	eventually(t, "nothing is said of certificates any more", func() bool { return strings.HasSuffix(routeSays(api, "shop", "web0"), "False AddressPending") })

	putTenant(api, "shop", old, `{"clusters":[{"name":"main","namespace":"shop","nodeCIDRs":["10.1.0.0/24"]}],"pools":["public"],"hostnames":["*.shop.example.com"],"ingressClass":"traefik"}`)
	eventually(t, "the Tenant may have none", func() bool { return strings.HasSuffix(routeSays(api, "shop", "web4"), "False SecretsNotAllowed") })
	c.stop()
	for _, r := range api.Requests() {
		if strings.Contains(r, "/secrets") && (!strings.HasPrefix(r, "GET /api/v1/namespaces/shop/secrets?") || !strings.Contains(r, "labelSelector=app.kubernetes.io%2Fmanaged-by%3Dlbd-agent")) &&
			!strings.HasPrefix(r, "DELETE /api/v1/namespaces/shop/secrets/lbd-tls-") {
			t.Errorf("the controller has no right to %s", r)
		}
	}
}

// TestCertificatesUnread: a controller that may not read the Secrets of a namespace keeps what the engine has, and
// serves all else.
func TestCertificatesUnread(t *testing.T) {
	api := certificatesAPI(t)
	first := run(t, build(t, api, "a"))
	putCertificate(t, api, "shop", certificateName(0), time.Now(), nil, "a.shop.example.com")
	putTLSRoute(api, "shop", "web", "a.shop.example.com", certificateName(0))
	eventually(t, "the engine has it", func() bool { return engineHas(api, "shop", "web") == certificateName(0) })
	first.stop()
	var denied atomic.Bool
	denied.Store(true)
	api.Gate(func(r *http.Request) int {
		if denied.Load() && strings.HasSuffix(r.URL.Path, "/secrets") {
			return http.StatusForbidden
		}
		return 0
	})
	putCertificate(t, api, "shop", certificateName(1), time.Now(), nil, "b.shop.example.com")
	putTLSRoute(api, "shop", "more", "b.shop.example.com", certificateName(1))
	run(t, build(t, api, "b"))
	eventually(t, "the other one waits", func() bool { return strings.HasSuffix(routeSays(api, "shop", "more"), "False SecretsNotRead") })
	if got := engineHas(api, "shop", "web"); got != certificateName(0) || strings.Contains(engineHas(api, "shop", "more"), "lbd-tls-") {
		t.Errorf("the engine has %q and %q", got, engineHas(api, "shop", "more"))
	}
	denied.Store(false)
	eventually(t, "the engine has the other one", func() bool { return engineHas(api, "shop", "more") == certificateName(1) })
}
