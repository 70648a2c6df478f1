package testnet

import (
	"net"
	"os"
	"os/exec"
	"runtime"
	"strings"
	"testing"
)

func TestMain(m *testing.M) {
	if os.Getenv(aloneEnv) != "" {
		os.Exit(m.Run())
	}
	Main(m)
}

// interfaces are the names of those in the present namespace.
func interfaces(t *testing.T) string {
	t.Helper()
	all, err := net.Interfaces()
	if err != nil {
		t.Fatal(err)
	}
	var names []string
	for _, i := range all {
		names = append(names, i.Name)
	}
	return strings.Join(names, " ")
}

// left are the namespaces that `ip netns` knows.
func left(t *testing.T) string {
	t.Helper()
	out, err := exec.Command("ip", "netns").CombinedOutput()
	if err != nil {
		t.Fatalf("%v: %s", err, out)
	}
	return string(out)
}

func TestHosts(t *testing.T) {
	Need(t)
	var names []string
	for range 2 { // the second has hosts of the same names
		t.Run("net", func(t *testing.T) {
			n, other := New(t), New(t)
			for _, h := range []string{"a", "b"} {
				n.Add(h)
			}
			other.Add("a")
			names = append(names, n.NS("a"), n.NS("b"), other.NS("a"))
			n.IP("a", "link add v type veth peer name w netns "+n.NS("b"))
			n.IP("", "link add own type veth peer name x netns "+n.NS("b"))
			defer n.IP("", "link del own")
			for host, want := range map[string]string{"a": "lo v", "b": "lo w x", "": "lo own"} {
				n.In(host, func() {
					if got := interfaces(t); got != want {
						t.Errorf("host %q has %s, want %s", host, got, want)
					}
				})
			}
			other.In("a", func() {
				if got := interfaces(t); got != "lo" {
					t.Errorf("the other net has %s", got)
				}
			})
			for _, host := range []string{"", "a", "b"} {
				n.In(host, func() {
					if b, err := os.ReadFile("/proc/sys/net/ipv6/conf/default/accept_dad"); err != nil || string(b) != "0\n" {
						t.Errorf("accept_dad of host %q is %q, %v", host, b, err)
					}
				})
			}
			if got := interfaces(t); got != "lo own" {
				t.Errorf("afterwards the test sees %s", got)
			}
			if got := n.For(t).ExecOn("b", "ip", "link", "show", "w"); !strings.Contains(got, "state DOWN") {
				t.Errorf("w is %q", got)
			}
			if n.IP("a", "-o link show lo up") == "" {
				t.Error("lo is down")
			}
		})
	}
	seen := make(map[string]bool)
	for _, name := range names {
		if seen[name] || strings.Contains(left(t), name) {
			t.Errorf("%s twice, or it is still there", name)
		}
		seen[name] = true
	}
}

// TestAlone sees no interface but lo, also not those of the process that runs it.
func TestAlone(t *testing.T) {
	here, err := os.Readlink("/proc/thread-self/ns/net")
	if err != nil {
		t.Fatal(err)
	}
	const parent = "LBD_TESTNET_PARENT"
	if os.Getenv(aloneEnv) == "" {
		if err := os.Setenv(parent, here); err != nil { // not t.Setenv: Alone is parallel
			t.Fatal(err)
		}
	}
	if !Alone(t) {
		return
	}
	if there := os.Getenv(parent); there == "" || there == here {
		t.Errorf("%s is the namespace of the parent, %s", here, there)
	}
	if got := interfaces(t); got != "lo" {
		t.Errorf("interfaces %s", got)
	}
}

// ending notes how a test ends.
type ending struct {
	testing.TB
	how string
}

func (e *ending) Helper()      {}
func (e *ending) Fatal(...any) { e.how = "failed"; runtime.Goexit() }
func (e *ending) Skip(...any)  { e.how = "skipped"; runtime.Goexit() }

func TestNeed(t *testing.T) {
	for _, c := range []struct{ inside, ci, want string }{
		{"", "", "skipped"},
		{"", "false", "skipped"},
		{"", "true", "failed"},
		{"1", "", ""},
		{"1", "true", ""},
	} {
		t.Setenv(insideEnv, c.inside)
		t.Setenv("CI", c.ci)
		e := &ending{TB: t}
		done := make(chan struct{})
		go func() {
			defer close(done)
			Need(e)
		}()
		<-done
		if e.how != c.want {
			t.Errorf("%+v: %q", c, e.how)
		}
	}
}
