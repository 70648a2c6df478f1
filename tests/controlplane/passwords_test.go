package controlplane_test

import (
	"encoding/json"
	"errors"
	"fmt"
	"net/netip"
	"os"
	"path/filepath"
	"strings"
	"syscall"
	"testing"
	"time"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/kubernetes"

	"lbd.dev/lbd/tests/controlplane"
	"lbd.dev/lbd/tests/lab"
)

// secured is the router of docs/bgp.md, and its number in the LAN of the lab.
const (
	secured = `apiVersion: lbd.dev/v1alpha1
kind: BGPPeer
metadata: {name: tor1}
spec: {myASN: 64512, peerASN: 64513, peerAddress: 10.77.0.99, passwordSecret: {name: tor1}}
`
	routerNumber = 99
)

// routerConfig is a router with a password. It is lbd too: the kernel of either side signs what it sends.
const routerConfig = `apiVersion: lbd.dev/v1alpha1
kind: NodeConfiguration
nodeName: tor1
gossip: {bindAddress: 10.77.0.99, insecure: true}
socket: %[1]s/lbd.sock
---
apiVersion: lbd.dev/v1alpha1
kind: BGPListener
metadata: {name: nodes}
spec:
  asn: 64513
  peerPrefixes: [10.77.0.0/24]
  acceptPrefixes: [10.99.0.1/32]
  passwordFile: %[1]s/password
`

// TestPasswordSecrets: the account of the DaemonSet reads the Secrets that the Role of the component
// names, and no other; sessions follow what is in them.
func TestPasswordSecrets(t *testing.T) {
	t.Parallel() // it measures nothing
	f := newFleetWith(t, secured, controlplane.Options{})
	router := f.startRouter(t, "a long random text")
	f.sessions(t, false, `Secret "tor1" in namespace "lbd-system" may not be read by lbd`)

	secret := passwordBlock(t)
	if err := f.Apply(t.Context(), secret); err != nil {
		t.Fatal(err)
	}
	f.sessions(t, false, "may not be read by lbd")
	from := time.Now()
	if err := f.Apply(t.Context(), passwordRole(t)); err != nil {
		t.Fatal(err)
	}
	f.sessions(t, true, "")
	t.Logf("the right is used after %v", time.Since(from).Round(10*time.Millisecond))
	f.readsOnly(t, "tor1")

	from = time.Now()
	if err := f.Apply(t.Context(), strings.Replace(secret, "a long random text", "another text", 1)); err != nil {
		t.Fatal(err)
	}
	f.sessions(t, false, "no answer")
	t.Logf("another password ended the sessions: %v", time.Since(from).Round(10*time.Millisecond))
	router.password(t, "another text")
	f.sessions(t, true, "")
	t.Logf("and the router has it, too: %v", time.Since(from).Round(10*time.Millisecond))

	if _, err := f.Kubectl(t.Context(), "-n", controlplane.InstallNamespace, "delete", "secret", "tor1"); err != nil {
		t.Fatal(err)
	}
	f.sessions(t, false, `Secret "tor1" in namespace "lbd-system" does not exist`)
}

// passwordBlock is the Secret of docs/bgp.md.
func passwordBlock(t *testing.T) string {
	t.Helper()
	b, err := os.ReadFile("../../docs/bgp.md")
	if err != nil {
		t.Fatal(err)
	}
	_, rest, found := strings.Cut(string(b), "\n### Passwords\n")
	m := yamlBlock.FindStringSubmatch(rest)
	if !found || m == nil || !strings.Contains(m[1], "kind: Secret") {
		t.Fatal("docs/bgp.md has no Secret in its chapter about passwords")
	}
	return m[1]
}

// passwordRole is what the component of kustomize has, for the Secrets that its first lines name.
func passwordRole(t *testing.T) string {
	t.Helper()
	const dir, names = "../../packaging/kustomize/passwords/", "[lbd-bgp-password]"
	role, err := os.ReadFile(dir + "rbac.yaml")
	page, e := os.ReadFile(dir + "kustomization.yaml")
	if err = errors.Join(err, e); err != nil {
		t.Fatal(err)
	}
	_, rest, _ := strings.Cut(string(page), "value: ")
	value, _, _ := strings.Cut(rest, "\n")
	if value != "[tor1, tor2]" || strings.Count(string(role), names) != 1 {
		t.Fatalf("the component names %q, and its Role not once %s", value, names)
	}
	return strings.Replace(string(role), names, value, 1)
}

// readsOnly wants the speakers' account to read one Secret of lbd's namespace, and no other, nor a list.
func (f *fleet) readsOnly(t *testing.T, name string) {
	t.Helper()
	config, err := f.Config(f.Host, f.Host.IP4, controlplane.Speaker)
	if err != nil {
		t.Fatal(err)
	}
	client, err := kubernetes.NewForConfig(config)
	if err != nil {
		t.Fatal(err)
	}
	if err := f.Apply(t.Context(), "apiVersion: v1\nkind: Secret\nmetadata: {name: "+name+", namespace: default}\n"); err != nil {
		t.Fatal(err)
	}
	own := client.CoreV1().Secrets(controlplane.InstallNamespace)
	if _, err := own.Get(t.Context(), name, metav1.GetOptions{}); err != nil {
		t.Error(err)
	}
	for what, ask := range map[string]func() error{
		"the key of gossip": func() error { _, err := own.Get(t.Context(), "lbd-gossip", metav1.GetOptions{}); return err },
		"all of lbd":        func() error { _, err := own.List(t.Context(), metav1.ListOptions{}); return err },
		"the key of gossip, as a list": func() error {
			_, err := own.List(t.Context(), metav1.ListOptions{FieldSelector: "metadata.name=lbd-gossip"})
			return err
		},
		"one of that name elsewhere": func() error {
			_, err := client.CoreV1().Secrets(metav1.NamespaceDefault).Get(t.Context(), name, metav1.GetOptions{})
			return err
		},
		"to delete it": func() error { return own.Delete(t.Context(), name, metav1.DeleteOptions{}) },
	} {
		if err := ask(); !apierrors.IsForbidden(err) {
			t.Errorf("%s: %v, want to be forbidden", what, err)
		}
	}
}

// sessions waits until every node has a session with the router, or has none and says why.
func (f *fleet) sessions(t *testing.T, established bool, why string) {
	t.Helper()
	err := controlplane.Eventually(t.Context(), 30*time.Second, fmt.Sprintf("sessions: %v, %s", established, why), func() error {
		for _, n := range f.nodes {
			out, err := f.statusOf(t.Context(), n)
			if err != nil {
				return err
			}
			var s struct {
				BGP []struct{ Peer, State, Error string }
			}
			if err := json.Unmarshal([]byte(out), &s); err != nil {
				return err
			}
			if len(s.BGP) != 1 || (s.BGP[0].State == "Established") != established || !strings.Contains(s.BGP[0].Error, why) {
				return fmt.Errorf("%s: %+v", n.Name, s.BGP)
			}
		}
		return nil
	})
	if err != nil {
		t.Error(err)
	}
}

// passwordRouter is a router whose sessions need a password.
type passwordRouter struct {
	*lab.Host
	proc *lab.Proc
}

// startRouter starts it on a host of its own.
func (f *fleet) startRouter(t *testing.T, password string) *passwordRouter {
	t.Helper()
	h, err := f.Lab.AddHost(t.Context(), "tor1", routerNumber)
	if err != nil {
		t.Fatal(err)
	}
	if h.IP4 != netip.AddrFrom4([4]byte{10, 77, 0, routerNumber}) {
		t.Fatalf("the router has %s", h.IP4)
	}
	r := &passwordRouter{Host: h}
	config := filepath.Join(h.Dir, "lbd.yaml")
	r.write(t, password)
	if err := os.WriteFile(config, fmt.Appendf(nil, routerConfig, h.Dir), 0o600); err != nil {
		t.Fatal(err)
	}
	if r.proc, err = f.Lab.Start(h, "lbd", nil, f.Lab.Bin.LBD, "run", "--config", config); err != nil {
		t.Fatal(err)
	}
	return r
}

func (r *passwordRouter) write(t *testing.T, password string) {
	t.Helper()
	if err := os.WriteFile(filepath.Join(r.Dir, "password"), []byte(password+"\n"), 0o600); err != nil {
		t.Fatal(err)
	}
}

// password gives the router another one.
func (r *passwordRouter) password(t *testing.T, password string) {
	t.Helper()
	r.write(t, password)
	if err := r.proc.Signal(syscall.SIGHUP); err != nil {
		t.Fatal(err)
	}
}
