package packaging

import (
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/x509"
	"encoding/base64"
	"encoding/pem"
	"math/big"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
)

// joined is what `lbd tenant` prints for a hub, and for a cluster of a tenant, with one more flag of each.
func joined(t *testing.T, ingress, gateway bool, more ...string) (hub, cluster []Object) {
	t.Helper()
	dir := t.TempDir()
	write := func(name, text string) string {
		path := filepath.Join(dir, name)
		if err := os.WriteFile(path, []byte(text), 0o600); err != nil {
			t.Fatal(err)
		}
		return path
	}
	claims := base64.RawURLEncoding.EncodeToString([]byte(`{"sub":"system:serviceaccount:lbd-shop-main:agent"}`))
	cert := string(pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE", Bytes: authority(t)}))
	split := func(text string) []Object {
		all, err := Split([]byte(text))
		if err != nil {
			t.Fatal(err)
		}
		return all
	}
	create := []string{"tenant", "create", "shop", "--node-cidr=10.1.0.0/22", "--pool=public"}
	join := []string{"tenant", "join", "shop", "--server=https://hub:6443", "--ca=" + write("ca", cert), "--token=" + write("token", "e30."+claims+".eA")}
	if ingress {
		create, join = append(create, "--ingress-class=traefik"), append(join, "--ingress")
	}
	if gateway {
		create, join = append(create, "--gateway=edge/public"), append(join, "--gateway")
	}
	if ingress || gateway {
		create = append(create, "--hostname=*.example.com")
	}
	if len(more) > 0 {
		create, join = append(create, more[0]), append(join, more[1])
	}
	hub, cluster = split(run(t, create...)), split(run(t, join...))
	return hub, cluster
}

// TestTenantTypes: an API server knows every field, and the program every flag.
func TestTenantTypes(t *testing.T) {
	for _, x := range []struct {
		ingress, gateway bool
		hub, cluster     int
	}{{false, false, 7, 9}, {true, false, 7 + 4, 9 + 3}, {false, true, 7 + 4 + 2, 9 + 3}} {
		if hub, cluster := joined(t, x.ingress, x.gateway); len(hub) != x.hub || len(cluster) != x.cluster {
			t.Errorf("%+v: %d objects for the hub, %d for the cluster", x, len(hub), len(cluster))
		}
	}
	hub, cluster := joined(t, true, true)
	if last := cluster[len(cluster)-1]; last.Text("kind") != "GatewayClass" { // kubectl may not know it
		t.Errorf("the last object is a %s", last.Text("kind"))
	}
	cluster = cluster[:len(cluster)-1]
	checkTypes(t, slices.DeleteFunc(hub, func(o Object) bool { return o.Text("kind") == "Tenant" }))
	checkTypes(t, cluster)
	for _, o := range cluster {
		for _, c := range containers(o) {
			known := flags(t, "agent")
			for _, arg := range c["args"].([]any)[1:] {
				name, _, _ := strings.Cut(strings.TrimPrefix(arg.(string), "--"), "=")
				if !slices.Contains(known, name) {
					t.Errorf("lbd agent has no flag %s", arg)
				}
			}
		}
	}
}

// TestTenantRights: the agent may do this in either cluster and nothing else.
func TestTenantRights(t *testing.T) {
	hub, cluster := joined(t, true, true)
	want := map[string][]string{
		"Role/lbd-shop-main/lbd-agent": {
			"list tenantnodes.lbd.dev", "watch tenantnodes.lbd.dev", "create tenantnodes.lbd.dev", "patch tenantnodes.lbd.dev", "delete tenantnodes.lbd.dev",
			"list tenantservices.lbd.dev", "watch tenantservices.lbd.dev", "create tenantservices.lbd.dev", "patch tenantservices.lbd.dev", "delete tenantservices.lbd.dev",
			"create serviceaccounts/token. agent", "patch leases.coordination.k8s.io agent",
		},
		"ClusterRole/lbd-agent": {
			"list services.", "watch services.", "list nodes.", "watch nodes.",
			"list endpointslices.discovery.k8s.io", "watch endpointslices.discovery.k8s.io",
			"patch services/status.", "create events.", "get namespaces. kube-system",
		},
		"Role/lbd-agent/lbd-agent": {
			"create leases.coordination.k8s.io", "get leases.coordination.k8s.io lbd-agent", "update leases.coordination.k8s.io lbd-agent", "patch secrets. lbd-hub",
		},
	}
	// With Ingresses, and else not.
	want["Role/lbd-shop-main/lbd-agent-ingress"] = []string{"list tenantroutes.lbd.dev", "watch tenantroutes.lbd.dev", "create tenantroutes.lbd.dev", "patch tenantroutes.lbd.dev", "delete tenantroutes.lbd.dev"}
	want["ClusterRole/lbd-agent-ingress"] = []string{"list ingresses.networking.k8s.io", "watch ingresses.networking.k8s.io", "patch ingresses/status.networking.k8s.io", "create services.", "patch services.", "delete services."}
	// With HTTPRoutes and GRPCRoutes, and else not.
	want["ClusterRole/lbd-agent-gateway"] = []string{"create services.", "patch services.", "delete services."}
	for _, r := range []string{"gatewayclasses", "gateways", "httproutes", "grpcroutes"} {
		const group = "gateway.networking.k8s.io"
		want["ClusterRole/lbd-agent-gateway"] = append(want["ClusterRole/lbd-agent-gateway"], "list "+r+"."+group, "watch "+r+"."+group, "patch "+r+"/status."+group)
	}
	want["ClusterRole/lbd-agent-gateway"] = append(want["ClusterRole/lbd-agent-gateway"], "list referencegrants.gateway.networking.k8s.io", "watch referencegrants.gateway.networking.k8s.io")
	roles := 0
	for _, o := range slices.Concat(hub, cluster) {
		if !strings.HasSuffix(o.Text("kind"), "Role") {
			continue
		}
		roles++
		got, exactly := rights(o), slices.Clone(want[o.Key()])
		slices.Sort(got)
		slices.Sort(exactly)
		if !slices.Equal(got, exactly) {
			t.Errorf("%s may\n%s\nand should\n%s", o.Key(), strings.Join(got, "\n"), strings.Join(exactly, "\n"))
		}
	}
	if roles != len(want) {
		t.Errorf("%d roles", roles)
	}
}

// authority is a certificate.
func authority(t *testing.T) []byte {
	t.Helper()
	key, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	if err != nil {
		t.Fatal(err)
	}
	template := &x509.Certificate{SerialNumber: big.NewInt(1), IsCA: true, BasicConstraintsValid: true}
	der, err := x509.CreateCertificate(rand.Reader, template, template, &key.PublicKey, key)
	if err != nil {
		t.Fatal(err)
	}
	return der
}
