package main

import (
	"context"
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/x509"
	"encoding/base64"
	"encoding/pem"
	"errors"
	"fmt"
	"log/slog"
	"math/big"
	"net/netip"
	"os"
	"path/filepath"
	"regexp"
	"strings"
	"testing"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"sigs.k8s.io/yaml"

	"lbd.dev/lbd/api/v1alpha1"
	"lbd.dev/lbd/internal/k8s"
	"lbd.dev/lbd/internal/k8s/agent"
	"lbd.dev/lbd/internal/k8s/apitest"
	"lbd.dev/lbd/internal/logqueue"
	"lbd.dev/lbd/internal/testnet"
)

// documents are the objects of a stream.
func documents(t *testing.T, stream string) (all []map[string]any, keys string) {
	t.Helper()
	for part := range strings.SplitSeq(stream, "\n---\n") {
		o := map[string]any{}
		if err := yaml.UnmarshalStrict([]byte(part), &o); err != nil {
			t.Fatalf("%v in\n%s", err, part)
		}
		meta := o["metadata"].(map[string]any)
		namespace, _ := meta["namespace"].(string)
		all = append(all, o)
		keys += fmt.Sprintf("%v %s/%v\n", o["kind"], namespace, meta["name"])
	}
	return all, keys
}

// placeholder is a word that `lbd tenant` is to fill in.
var placeholder = regexp.MustCompile(`\b(HUB_NAMESPACE|TENANT|CLUSTER|MOST_[A-Z]+|CONTROLLER_NAMESPACE|IMAGE|HUB_HASH|KUBECONFIG|CA|TOKEN)\b`)

func TestTenantCreate(t *testing.T) {
	out, _, err := call(t, "tenant", "create", "shop", "--cluster=2", "--node-cidr=10.1.0.0/22,fd10::/64", "--node-cidr=10.9.0.0/24", "--pool=public",
		"--pool=spare", "--source=client", "--limit=addresses=4,services=5", "--node-ports=31000-31999")
	if err != nil {
		t.Fatal(err)
	}
	out, note, _ := strings.Cut(out, "note: ")
	if note != "apply with --field-manager=shop-2, or the clusters that were applied before leave the Tenant\nnote: the token for `lbd tenant join shop`: kubectl -n lbd-shop-2 create token agent --duration=2160h > token\n" {
		t.Errorf("the note is %q", note)
	}
	if found := placeholder.FindString(out); found != "" {
		t.Errorf("%s is not filled in", found)
	}
	all, keys := documents(t, out)
	const want = "Namespace /lbd-shop-2\nServiceAccount lbd-shop-2/agent\nRole lbd-shop-2/lbd-agent\nRoleBinding lbd-shop-2/lbd-agent\nLease lbd-shop-2/agent\nResourceQuota lbd-shop-2/lbd\nTenant /shop\n"
	if keys != want {
		t.Errorf("objects\n%swant\n%s", keys, want)
	}
	labels := all[0]["metadata"].(map[string]any)["labels"].(map[string]any)
	if labels["lbd.dev/tenant"] != "shop" || labels["lbd.dev/cluster"] != "2" {
		t.Errorf("labels %v", labels)
	}
	data, _ := yaml.Marshal(all[6])
	var tenant v1alpha1.Tenant
	if err := yaml.UnmarshalStrict(data, &tenant); err != nil {
		t.Fatal(err)
	}
	const spec = "{[{2 lbd-shop-2 [10.1.0.0/22 fd10::/64 10.9.0.0/24] 31000-31999}] [public spare] {5 4 200 100 200 0} [client] []   {[]} false}"
	if got := fmt.Sprint(tenant.Spec); got != spec || len(tenant.Validate()) > 0 {
		t.Errorf("got  %s\nwant %s", got, spec)
	}
}

// TestTenantRefuses: what is wrong is said before anything is printed.
func TestTenantRefuses(t *testing.T) {
	dir := t.TempDir()
	good := []string{"--node-cidr=10.1.0.0/22", "--pool=public"}
	ca, token := filepath.Join(dir, "ca.crt"), filepath.Join(dir, "token")
	write := func(name, text string) string {
		path := filepath.Join(dir, name)
		if err := os.WriteFile(path, []byte(text), 0o600); err != nil {
			t.Fatal(err)
		}
		return path
	}
	write("ca.crt", authority(t))
	write("token", aToken(time.Now().Add(time.Hour), "lbd-shop-main"))
	join := func(more ...string) []string {
		return append([]string{"tenant", "join", "shop", "--server=https://hub:6443", "--ca=" + ca, "--token=" + token}, more...)
	}
	for _, c := range []struct {
		args  []string
		usage bool
		want  string
	}{
		{append([]string{"tenant", "create"}, good...), true, "it wants the name of one tenant"},
		{append([]string{"tenant", "create", "Shop"}, good...), true, "metadata.name"},
		{append([]string{"tenant", "create", strings.Repeat("a", 60)}, good...), true, "spec.clusters[0].namespace"},
		{append([]string{"tenant", "create", strings.Repeat("a.", 32) + "a", "--namespace=x"}, good...), true, "has more than 63 characters"},
		{[]string{"tenant", "create", "shop", "--pool=public"}, true, "--node-cidr and --pool must be given"},
		{[]string{"tenant", "create", "shop", "--pool=public", "--node-cidr=10.1.0.1/22"}, true, "spec.clusters[0].nodeCIDRs[0]"},
		{append([]string{"tenant", "create", "shop", "--node-ports=1-70000"}, good...), true, "spec.clusters[0].nodePorts"},
		{append([]string{"tenant", "create", "shop", "--limit=pools=4"}, good...), true, "--limit pools=4: it is services, addresses, ports, nodes, routes or tlsSecrets"},
		{append([]string{"tenant", "create", "shop", "--ingress-class=traefik"}, good...), true, "--ingress-class or --gateway and --hostname need each other"},
		{append([]string{"tenant", "create", "shop", "--gateway=edge/public"}, good...), true, "--ingress-class or --gateway and --hostname need each other"},
		{append([]string{"tenant", "create", "shop", "--gateway=public", "--hostname=a.com"}, good...), true, "spec.gateway"},
		{append([]string{"tenant", "create", "shop", "--hostname=a.com"}, good...), true, "--ingress-class or --gateway and --hostname need each other"},
		{append([]string{"tenant", "create", "shop", "--ingress-class=traefik", "--hostname=*"}, good...), true, "spec.hostnames[0]"},
		{append([]string{"tenant", "create", "shop", "--ingress-class=traefik", "--hostname=a.com", "--allow-annotation=a/server-snippet"}, good...), true, "spec.annotations.allow[0]"},
		{append([]string{"tenant", "create", "shop", "--tls-secrets"}, good...), true, "--tls-secrets, and that needs --ingress-class"},
		{append([]string{"tenant", "create", "shop", "--limit=tlsSecrets=4"}, good...), true, "--limit tlsSecrets needs --tls-secrets"},
		{join("--tls-namespace=default"), true, "--tls-namespace needs --ingress"},
		{join("--ingress", "--tls-namespace=lbd-agent"), true, "neither kube-system nor lbd-agent"},
		{join("--ingress", "--tls-namespace=a b"), true, "it is the name of a namespace"},
		{append([]string{"tenant", "create", "shop", "--controller-namespace=a b"}, good...), true, "--controller-namespace"},
		{append([]string{"tenant", "create", "shop", "--source=keep"}, good...), true, "spec.sources[0]"},
		{[]string{"tenant", "join", "shop", "--ca=" + ca, "--token=" + token}, true, "--server, --ca and --token must be given"},
		{join("--server=hub:6443"), true, `--server "hub:6443": it is a URL such as`},
		{join("--server=http://hub:6443"), true, "it is a URL such as https:"},
		{join("--server=https://:6443"), true, "it is a URL such as https:"},
		{join("--cluster=b-c"), true, `--cluster "b-c" has a hyphen: name its namespace in the hub, by --hub-namespace`},
		{append([]string{"tenant", "create", "shop", "--cluster=b-c"}, good...), true, "by --namespace"},
		{join("--ca=" + write("both", authority(t)+"-----BEGIN PRIVATE KEY-----\nAAAA\n-----END PRIVATE KEY-----\n")), false, "it has a PRIVATE KEY beside certificates"},
		{join("--token=" + write("default", tokenOf(time.Now().Add(time.Hour), "lbd-shop-main", "default"))), false, `it is of the account "default" and not of "agent"`},
		{join("--image=a b"), true, "is not the name of an image"},
		{join("--cluster=a.b"), true, "spec.clusters[0].name"},
		{join("--ca=" + token), false, "it is no certificate in PEM"},
		{join("--token=" + ca), false, "it is no token of a service account"},
		{join("--token=" + filepath.Join(dir, "none")), false, "--token: open "},
		{join("--cluster=other"), false, `it is of the namespace "lbd-shop-main" and not of "lbd-shop-other"`},
		{join("--token=" + write("old", aToken(time.Now().Add(-time.Hour), "lbd-shop-main"))), false, "it ended at "},
	} {
		out, _, err := call(t, c.args...)
		if err == nil || !strings.Contains(err.Error(), c.want) || errors.As(err, new(usageError)) != c.usage || out != "" {
			t.Errorf("%q: %v, want %s; printed %q", c.args, err, c.want, out)
		}
	}
}

// authority is a certificate in PEM.
func authority(t *testing.T) string {
	t.Helper()
	key, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	if err != nil {
		t.Fatal(err)
	}
	template := &x509.Certificate{SerialNumber: big.NewInt(1), NotAfter: time.Now().Add(time.Hour), IsCA: true, BasicConstraintsValid: true}
	der, err := x509.CreateCertificate(rand.Reader, template, template, &key.PublicKey, key)
	if err != nil {
		t.Fatal(err)
	}
	return string(pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE", Bytes: der}))
}

// aToken is a token of the account agent of a namespace.
func aToken(ends time.Time, namespace string) string { return tokenOf(ends, namespace, "agent") }

func tokenOf(ends time.Time, namespace, account string) string {
	claims := fmt.Sprintf(`{"iat":1,"exp":%d,"sub":"system:serviceaccount:%s:%s"}`, ends.Unix(), namespace, account)
	return "e30." + base64.RawURLEncoding.EncodeToString([]byte(claims)) + ".eA"
}

// TestTenantJoin: the Secret is a folder from which the agent reaches the hub, as the right account in the
// right namespace, and what else is printed has no secret in it.
func TestTenantJoin(t *testing.T) {
	dir := t.TempDir()
	ca, token := authority(t), aToken(time.Now().Add(time.Hour), "lbd-shop-main")
	for name, text := range map[string]string{"ca": ca, "tok": token + "\n"} {
		if err := os.WriteFile(filepath.Join(dir, name), []byte(text), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	out, _, err := call(t, "tenant", "join", "shop", "--server=https://[fd00::1]:6443", "--ca="+filepath.Join(dir, "ca"), "--token="+filepath.Join(dir, "tok"),
		"--image=r.example.net:5000/lbd:v1", "--classless")
	if err != nil {
		t.Fatal(err)
	}
	if found := placeholder.FindString(out); found != "" {
		t.Errorf("%s is not filled in", found)
	}
	all, keys := documents(t, out)
	const want = "Namespace /lbd-agent\nSecret lbd-agent/lbd-hub\nServiceAccount lbd-agent/lbd-agent\nClusterRole /lbd-agent\nClusterRoleBinding /lbd-agent\n" +
		"Role lbd-agent/lbd-agent\nRoleBinding lbd-agent/lbd-agent\nDeployment lbd-agent/lbd-agent\nPodDisruptionBudget lbd-agent/lbd-agent\n"
	if keys != want {
		t.Errorf("objects\n%swant\n%s", keys, want)
	}
	mounted := t.TempDir()
	for name, value := range all[1]["data"].(map[string]any) {
		data, err := base64.StdEncoding.DecodeString(value.(string))
		if err != nil {
			t.Fatal(err)
		}
		if err := os.WriteFile(filepath.Join(mounted, name), data, 0o600); err != nil {
			t.Fatal(err)
		}
	}
	kubeconfig := filepath.Join(mounted, filepath.Base(hubKubeconfig))
	client, err := k8s.New(k8s.Options{Kubeconfig: kubeconfig})
	if err != nil {
		t.Fatal(err)
	}
	cfg := client.Config
	if got, _ := os.ReadFile(cfg.BearerTokenFile); string(got) != token || cfg.Host != "https://[fd00::1]:6443" || k8s.NamespaceOf(kubeconfig) != "lbd-shop-main" {
		t.Errorf("token %q, host %s, namespace %s", got, cfg.Host, k8s.NamespaceOf(kubeconfig))
	}
	if got, _ := os.ReadFile(cfg.TLSClientConfig.CAFile); string(got) != ca {
		t.Errorf("the certificate authority is %q of %s", got, cfg.TLSClientConfig.CAFile)
	}
	deployment, _ := yaml.Marshal(all[7])
	for _, want := range []string{"image: r.example.net:5000/lbd:v1\n", "- --hub-secret=lbd-hub\n", "- --classless\n", "- --hub-kubeconfig=" + hubKubeconfig + "\n", "replicas: 2\n"} {
		if !strings.Contains(string(deployment), want) {
			t.Errorf("the Deployment lacks %s", want)
		}
	}
}

func TestAgentFlags(t *testing.T) {
	for _, args := range []string{"--namespace=", "--lease-name=", "--hub-kubeconfig=", "--load-balancer-class=", "--log-format=xml", "--log-level=loud", "extra"} {
		if code := run([]string{"agent", args}); code != exitUsage {
			t.Errorf("%s: exit code %d, want %d", args, code, exitUsage)
		}
	}
	if code := run([]string{"agent", "--kubeconfig", kubeconfigOf(t, "http://127.0.0.1:1", ""), "--hub-kubeconfig", filepath.Join(t.TempDir(), "none")}); code != exitRefused {
		t.Errorf("no kubeconfig: exit code %d, want %d", code, exitRefused)
	}
	// A context without a namespace does not say where to write.
	hub := kubeconfigOf(t, "http://127.0.0.1:1", "")
	if code := run([]string{"agent", "--kubeconfig", hub, "--hub-kubeconfig", hub}); code != exitRefused {
		t.Errorf("no namespace: exit code %d, want %d", code, exitRefused)
	}
}

// kubeconfigOf is a kubeconfig file for an API server.
func kubeconfigOf(t *testing.T, host, namespace string) string {
	t.Helper()
	text := fmt.Sprintf("apiVersion: v1\nkind: Config\nclusters:\n- {name: c, cluster: {server: %q}}\ncontexts:\n- {name: c, context: {cluster: c, user: u, namespace: %q}}\ncurrent-context: c\nusers:\n- {name: u, user: {token: %q}}\n",
		host, namespace, aToken(time.Unix(2000000000, 0), "lbd-shop-main"))
	path := filepath.Join(t.TempDir(), "kubeconfig")
	if err := os.WriteFile(path, []byte(text), 0o600); err != nil {
		t.Fatal(err)
	}
	return path
}

// TestAgentHTTP: an agent between two API servers tells what it does, until it is stopped.
func TestAgentHTTP(t *testing.T) {
	tenant := apitest.New(t, map[string]string{"v1/services": "Service", "v1/nodes": "Node", "v1/events": "Event",
		"discovery.k8s.io/v1/endpointslices": "EndpointSlice", "coordination.k8s.io/v1/leases": "Lease"})
	hub := apitest.New(t, map[string]string{"lbd.dev/v1alpha1/tenantnodes": "TenantNodes", "lbd.dev/v1alpha1/tenantservices": "TenantService",
		"coordination.k8s.io/v1/leases": "Lease"})
	hub.Put("coordination.k8s.io/v1/leases", map[string]any{"metadata": map[string]any{"namespace": "lbd-shop-main", "name": "agent"}})
	web := aService("web")
	web["spec"].(map[string]any)["loadBalancerClass"] = hubClass
	web["spec"].(map[string]any)["ports"] = []any{map[string]any{"protocol": "TCP", "port": 80, "nodePort": 30080}}
	tenant.Put("v1/services", web)
	tenant.Put("v1/nodes", map[string]any{"metadata": map[string]any{"name": "a"}, "status": map[string]any{
		"addresses": []any{map[string]any{"type": "InternalIP", "address": "10.1.0.1"}}, "conditions": []any{map[string]any{"type": "Ready", "status": "True"}}}})
	addr := netip.AddrPortFrom(testnet.Loopback(), 7479).String()
	ctx, cancel := context.WithCancel(t.Context())
	ended := make(chan error, 1)
	go func() {
		ended <- runAgent(ctx, agentFlags{kubeconfig: kubeconfigOf(t, tenant.Config().Host, ""), hubKubeconfig: kubeconfigOf(t, hub.Config().Host, "lbd-shop-main"), namespace: "lbd-agent", lease: "lbd-agent",
			class: hubClass, http: addr, logFlags: logFlags{level: "info", format: "text"}}, t.Output())
	}()
	shows(t, addr, "lbd_agent_leader 1", `lbd_agent_connected{cluster="hub"} 1`, `lbd_agent_connected{cluster="tenant"} 1`,
		`lbd_agent_services{state="served"} 0`, `lbd_agent_services{state="refused"} 0`, `lbd_agent_services{state="waiting"} 1`,
		`lbd_agent_ingresses{state="served"} 0`, `lbd_agent_ingresses{state="refused"} 0`, `lbd_agent_ingresses{state="waiting"} 0`, `lbd_agent_httproutes{state="waiting"} 0`, `lbd_agent_grpcroutes{state="waiting"} 0`,
		`lbd_agent_nodes{state="Serving"} 1`, `lbd_agent_nodes{state="Draining"} 0`, `lbd_agent_nodes{state="Out"} 0`,
		`lbd_agent_writes_total{cluster="hub",kind="TenantNodes",result="ok"} 1`, `lbd_agent_writes_total{cluster="hub",kind="TenantService",result="ok"} 1`,
		`lbd_agent_events_total{result="sent"} 0`, `lbd_kubernetes_requests_total{code="200",method="POST"} 3`, "lbd_log_lines_dropped_total 0")
	for _, path := range []string{"/healthz", "/readyz"} {
		if got := get(addr, path); got != "200 OK\nok\n" {
			t.Errorf("%s: %q", path, got)
		}
	}
	if hub.Get("lbd.dev/v1alpha1/tenantservices", "lbd-shop-main", "default.web") == nil {
		t.Error("the hub has no TenantService")
	}
	cancel()
	if err := <-ended; err != nil {
		t.Error(err)
	}
}

// TestAgentMetrics: one that has not begun tells when its token ends.
func TestAgentMetrics(t *testing.T) {
	file := kubeconfigOf(t, "https://127.0.0.1:1", "lbd-shop-main")
	client, err := k8s.New(k8s.Options{Kubeconfig: file})
	if err != nil {
		t.Fatal(err)
	}
	a, err := agent.New(agent.Options{Logger: slog.New(slog.DiscardHandler), Tenant: client, Hub: client})
	if err != nil {
		t.Fatal(err)
	}
	reg := prometheus.NewRegistry()
	reg.MustRegister(&agentMetrics{agent: a, tenant: client, hub: client, kubeconfig: file, log: new(logqueue.Queue)})
	families, err := reg.Gather()
	if err != nil {
		t.Fatal(err)
	}
	got := map[string]float64{}
	for _, f := range families {
		got[f.GetName()] = f.GetMetric()[0].GetGauge().GetValue()
	}
	if got["lbd_kubernetes_credentials_expiry_timestamp_seconds"] != 2e9 || got["lbd_agent_services"] != 0 || len(got) < 5 {
		t.Errorf("%v", got)
	}
}

// TestTenantIngress: what Ingresses need is printed if they are asked for.
func TestTenantIngress(t *testing.T) {
	out, _, err := call(t, "tenant", "create", "shop", "--node-cidr=10.1.0.0/22", "--pool=public", "--ingress-class=traefik", "--hostname=*.a.com,b.com", "--allow-annotation=c.d/*",
		"--limit=routes=4", "--controller-namespace=other")
	if err != nil {
		t.Fatal(err)
	}
	out, _, _ = strings.Cut(out, "note: ")
	if found := placeholder.FindString(out); found != "" {
		t.Errorf("%s is not filled in", found)
	}
	all, keys := documents(t, out)
	const want = "Lease lbd-shop-main/agent\nResourceQuota lbd-shop-main/lbd\nRole lbd-shop-main/lbd-agent-ingress\nRoleBinding lbd-shop-main/lbd-agent-ingress\n" +
		"RoleBinding lbd-shop-main/lbd-tenant-ingress\nResourceQuota lbd-shop-main/lbd-ingress\nTenant /shop\n"
	if !strings.HasSuffix(keys, want) {
		t.Errorf("objects\n%swant\n%s", keys, want)
	}
	for i, want := range map[int]string{8: "namespace:other", 9: "count/tenantroutes.lbd.dev:18", 10: "annotations:map[allow:[c.d/*]]"} {
		if got := fmt.Sprint(all[i]); !strings.Contains(got, want) {
			t.Errorf("%s lacks %s", got, want)
		}
	}
	if spec := fmt.Sprint(all[10]["spec"]); !strings.Contains(spec, "hostnames:[*.a.com b.com] ingressClass:traefik") || !strings.Contains(spec, "routes:4") {
		t.Error(spec)
	}
}

// TestTenantTLS: what certificates need is printed if they are asked for, the policy before the right that it
// bounds. Nobody gets more of Secrets than that: the agent can read none in the hub.
func TestTenantTLS(t *testing.T) {
	out, _, err := call(t, "tenant", "create", "shop", "--node-cidr=10.1.0.0/22", "--pool=public", "--ingress-class=traefik", "--hostname=*.a.com", "--tls-secrets",
		"--limit=tlsSecrets=4,routes=3", "--controller-namespace=other")
	if err != nil {
		t.Fatal(err)
	}
	out, _, _ = strings.Cut(out, "note: ")
	if found := placeholder.FindString(out); found != "" {
		t.Errorf("%s is not filled in", found)
	}
	all, keys := documents(t, out)
	const want = "ResourceQuota lbd-shop-main/lbd-ingress\nValidatingAdmissionPolicy /lbd-tenant-secrets\nValidatingAdmissionPolicyBinding /lbd-tenant-secrets\n" +
		"Role lbd-shop-main/lbd-agent-tls\nRoleBinding lbd-shop-main/lbd-agent-tls\nRole lbd-shop-main/lbd-tenant-tls\nRoleBinding lbd-shop-main/lbd-tenant-tls\n" +
		"ResourceQuota lbd-shop-main/lbd-tls\nTenant /shop\n"
	if !strings.HasSuffix(keys, want) {
		t.Errorf("objects\n%swant\n%s", keys, want)
	}
	for i, want := range map[int]string{12: "resources:[secrets] verbs:[create]", 13: "namespace:lbd-shop-main]", 15: "namespace:other]", 16: "count/secrets:21", 17: "tlsSecrets:4"} {
		if got := fmt.Sprint(all[i]); !strings.Contains(got, want) {
			t.Errorf("%s lacks %s", got, want)
		}
	}

	dir := t.TempDir()
	for name, text := range map[string]string{"ca": authority(t), "tok": aToken(time.Now().Add(time.Hour), "lbd-shop-main")} {
		if err := os.WriteFile(filepath.Join(dir, name), []byte(text), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	join := []string{"tenant", "join", "shop", "--server=https://hub:6443", "--ca=" + filepath.Join(dir, "ca"), "--token=" + filepath.Join(dir, "tok"), "--ingress"}
	out, _, err = call(t, append(join, "--tls-namespace=default,web")...)
	if err != nil {
		t.Fatal(err)
	}
	_, keys = documents(t, out)
	if !strings.HasSuffix(keys, "ClusterRoleBinding /lbd-agent-ingress\nRole default/lbd-agent-tls\nRoleBinding default/lbd-agent-tls\nRole web/lbd-agent-tls\nRoleBinding web/lbd-agent-tls\n") ||
		!strings.Contains(out, "--ingress, --tls-namespace=default, --tls-namespace=web,") {
		t.Errorf("%s\n%s", keys, out)
	}
	if out, _, err = call(t, join...); err != nil || strings.Count(out, "secrets]") != 1 || strings.Contains(out, "tls") {
		t.Errorf("nobody asked for Secrets: %v\n%s", err, out)
	}
}

// TestTenantGateway: what HTTPRoutes need is printed if they are asked for.
func TestTenantGateway(t *testing.T) {
	out, _, err := call(t, "tenant", "create", "shop", "--node-cidr=10.1.0.0/22", "--pool=public", "--gateway=edge/public", "--hostname=*.a.com", "--controller-namespace=other")
	if err != nil {
		t.Fatal(err)
	}
	out, _, _ = strings.Cut(out, "note: ")
	if found := placeholder.FindString(out); found != "" {
		t.Errorf("%s is not filled in", found)
	}
	all, keys := documents(t, out)
	const want = "RoleBinding lbd-shop-main/lbd-tenant-ingress\nResourceQuota lbd-shop-main/lbd-ingress\nRoleBinding lbd-shop-main/lbd-tenant-gateway\nClusterRoleBinding /lbd-gateway-reader\nTenant /shop\n"
	if !strings.HasSuffix(keys, want) {
		t.Errorf("objects\n%swant\n%s", keys, want)
	}
	for i, want := range map[int]string{1: "gateway:edge/public hostnames:[*.a.com]", 2: "namespace:other", 3: "namespace:other"} {
		if got := fmt.Sprint(all[len(all)-i]); !strings.Contains(got, want) {
			t.Errorf("%s lacks %s", got, want)
		}
	}
}
