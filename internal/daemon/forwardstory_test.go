package daemon

import (
	"errors"
	"fmt"
	"net/netip"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/prometheus/client_golang/prometheus/testutil"

	"lbd.dev/lbd/api/v1alpha1"
	"lbd.dev/lbd/internal/balance"
	"lbd.dev/lbd/internal/model"
)

// TestBackends: a person sees where new connections go, why a server gets none, and where that
// of a client goes.
func TestBackends(t *testing.T) {
	vip := &model.VIP{Addr: netip.MustParseAddr("10.0.0.200")}
	server := func(addr string, weight int) model.Server {
		return model.Server{Addr: netip.MustParseAddr(addr), Weight: weight, Check: addr}
	}
	last := server("10.0.0.14", 10)
	last.Port = 99
	v := model.View{
		Self: "m1",
		LoadBalancers: []model.LoadBalancer{{
			Name: "api", VIPs: []netip.Addr{vip.Addr}, Ports: []model.ForwardPort{{Protocol: model.TCP, Port: 443, TargetPort: 6443}},
			Servers:        []model.Server{server("10.0.0.11", 30), server("10.0.0.12", 10), server("10.0.0.13", 0), last, server("fd00::11", 10)},
			DrainTimeout:   time.Minute,
			AllowedSources: []netip.Prefix{netip.MustParsePrefix("10.0.0.0/8")},
		}},
		Health: map[string]model.HealthState{
			"10.0.0.11": {State: model.HealthUp}, "10.0.0.12": {State: model.HealthUp}, "10.0.0.13": {State: model.HealthUp},
			"10.0.0.14": {State: model.HealthDown, Detail: "connection refused"},
		},
	}
	memory := model.BalanceMemory{Ready: true}
	tell := func(asked, client string) ([]v1alpha1.BackendStatus, string) {
		t.Helper()
		o := balance.Step(&balance.Input{Now: time.Unix(1000, 0), Wanted: &v.LoadBalancers[0], Health: v.Health, Memory: memory})
		memory = o.Memory
		q, err := ask(asked, client)
		if err != nil {
			t.Fatal(err)
		}
		list, story := backends(&v, remembers(o.Memory), vip, &q)
		return list, strings.Join(story, "\n")
	}
	since := time.Unix(1000, 0)
	want := []v1alpha1.BackendStatus{
		{Backend: "10.0.0.11", Weight: 30, State: "in", Since: since, Share: 750, Health: "up"},
		{Backend: "10.0.0.12", Weight: 10, State: "in", Since: since, Share: 250, Health: "up"},
		{Backend: "10.0.0.13", State: "draining", Reason: "NoWeight", Since: since, Health: "up"},
		{Backend: "10.0.0.14:99", Weight: 10, State: "out", Reason: "CheckFails", By: "m1", Since: since, Health: "down", Detail: "connection refused"},
	}
	if got, story := tell("10.0.0.200", ""); !slices.Equal(got, want) || story != "" {
		t.Errorf("%+v, %q\nwant %+v", got, story, want)
	}
	v.Health["10.0.0.12"] = model.HealthState{State: model.HealthUp, Failing: "no answer in time"}
	want[0].Share, want[0].Client = 1000, true
	want[1] = v1alpha1.BackendStatus{Backend: "10.0.0.12", Weight: 10, State: "out", Reason: "LastCheckFailed", By: "m1", Since: since, Health: "failing", Detail: "no answer in time"}
	got, story := tell("10.0.0.200:443", "10.1.2.3:4567")
	if !slices.Equal(got, want) || !strings.HasPrefix(story, "A new connection from 10.1.2.3:4567 goes to 10.0.0.11, port 6443, by slot ") {
		t.Errorf("%+v, %q\nwant %+v", got, story, want)
	}
	for _, c := range []struct{ vip, client, want string }{
		{"api:443", "10.1.2.3", "is placed by its port"},
		{"api:80", "10.1.2.3:4", "Port 80 is not forwarded"},
		{"api", "192.0.2.1:4", "in none of the allowedSources"},
		{"api", "[fd00::9]:4", "another family"},
	} {
		if list, story := tell(c.vip, c.client); !strings.Contains(story, c.want) || slices.ContainsFunc(list, func(b v1alpha1.BackendStatus) bool { return b.Client }) {
			t.Errorf("%s %s: %q, want %q", c.vip, c.client, story, c.want)
		}
	}
	q, _ := ask("api", "10.1.2.3:4567")
	d := remembers(memory)
	d.Forward.Services = []model.ForwardService{{Addr: vip.Addr, Sources: []netip.Addr{netip.MustParseAddr("10.0.0.201")}}}
	if _, story := backends(&v, d, vip, &q); len(story) != 2 || story[1] != "The backend sees it come from 10.0.0.201." {
		t.Errorf("%q", story)
	}
	v.LoadBalancers[0].ClientAffinity = true
	if _, story := tell("api", "10.1.2.3"); !strings.HasPrefix(story, "A new connection from 10.1.2.3 goes to 10.0.0.11, by slot ") {
		t.Errorf("%q", story)
	}
	memory = model.BalanceMemory{Ready: true}
	for _, s := range []string{"10.0.0.11", "10.0.0.12"} {
		v.Health[s] = v.Health["10.0.0.14"]
	}
	if got, story := tell("api", "10.1.2.3"); got[0].Share != 0 || !strings.Contains(story, "are refused") {
		t.Errorf("%+v, %q", got[0], story)
	}
}

// remembers is a decision with what is known of one LoadBalancer.
func remembers(m model.BalanceMemory) *model.Desired {
	return &model.Desired{Memory: model.Memory{Balance: map[string]model.BalanceMemory{"api": m}}}
}

// TestBackendsInTime: before its first check a backend is pending; one in whose place are others that
// were not checked yet is in.
func TestBackendsInTime(t *testing.T) {
	server := func(addr string, weight int) model.Server {
		return model.Server{Addr: netip.MustParseAddr(addr), Weight: weight, Check: addr}
	}
	lb := model.LoadBalancer{
		Name: "api", VIPs: []netip.Addr{netip.MustParseAddr("10.0.0.200")}, Ports: []model.ForwardPort{{Protocol: model.TCP, Port: 443, TargetPort: 6443}},
		Servers: []model.Server{server("10.0.0.11", 10), server("10.0.0.12", 10)},
	}
	v := model.View{Self: "m1", LoadBalancers: []model.LoadBalancer{lb}, Health: map[string]model.HealthState{}}
	var memory model.BalanceMemory
	is := func(want ...string) {
		t.Helper()
		memory = balance.Step(&balance.Input{Now: time.Unix(1000, 0), Wanted: &v.LoadBalancers[0], Health: v.Health, Memory: memory}).Memory
		var got []string
		for _, b := range balancerStatus(&v, remembers(memory))[0].Backends {
			got = append(got, fmt.Sprintf("%s %s %s %s %d", b.Backend, b.State, b.Reason, b.By, b.Share))
		}
		if !slices.Equal(got, want) {
			t.Errorf("%q\nwant %q", got, want)
		}
	}
	is("10.0.0.11 pending CheckPending m1 500", "10.0.0.12 pending CheckPending m1 500")
	v.Health["10.0.0.11"] = model.HealthState{State: model.HealthUp}
	is("10.0.0.11 in   500", "10.0.0.12 pending CheckPending m1 500")
	v.Health["10.0.0.12"] = v.Health["10.0.0.11"]
	is("10.0.0.11 in   500", "10.0.0.12 in   500")
	v.LoadBalancers[0].Servers = []model.Server{server("10.0.0.11", 0), server("10.0.0.21", 10)}
	is("10.0.0.11 in NoWeight  500", "10.0.0.12 in Removed  500", "10.0.0.21 out CheckPending m1 0")
	v.Health["10.0.0.21"] = v.Health["10.0.0.11"]
	is("10.0.0.11 out NoWeight  0", "10.0.0.12 out Removed  0", "10.0.0.21 in   1000")
}

// TestBalancersInStatus: each LoadBalancer with its ports and the backends of both families, also
// one that has no place here, and one that is configured no more until it is handed over.
func TestBalancersInStatus(t *testing.T) {
	server := func(addr string) model.Server { return model.Server{Addr: netip.MustParseAddr(addr), Weight: 10} }
	lb := model.LoadBalancer{
		Name: "api", DrainTimeout: time.Minute, VIPs: []netip.Addr{netip.MustParseAddr("10.0.0.200"), netip.MustParseAddr("fd00::200")},
		Ports:   []model.ForwardPort{{Protocol: model.UDP, Port: 443, TargetPort: 6443}},
		Servers: []model.Server{server("10.0.0.11"), server("10.0.0.12"), server("fd00::11")},
	}
	in := balance.Input{Now: time.Unix(1000, 0), Wanted: &lb}
	in.Memory = balance.Step(&in).Memory
	fewer := lb
	fewer.VIPs, fewer.Servers = lb.VIPs[:1], []model.Server{server("10.0.0.12"), server("fd00::11")}
	in.Wanted = &fewer
	m := balance.Step(&in).Memory
	m.Wanted, m.Removed = &fewer, []netip.Addr{lb.VIPs[1]}
	away := model.LoadBalancer{Name: "abroad", VIPs: []netip.Addr{netip.MustParseAddr("192.0.2.1")}, Servers: []model.Server{server("10.0.0.11")}}
	say := func(v *model.View) (out []string) {
		for _, s := range balancerStatus(v, remembers(m)) {
			out = append(out, fmt.Sprint(s.Name, s.Addresses, s.Ports))
			for _, b := range s.Backends {
				out = append(out, fmt.Sprintf("%s %d %s %s %s %d", b.Backend, b.Weight, b.State, b.Reason, b.By, b.Share))
			}
		}
		return out
	}
	api := []string{"api[10.0.0.200 fd00::200] [{UDP 443 6443}]", "10.0.0.11 0 draining Removed  0", "10.0.0.12 10 in   1000", "fd00::11 10 in   1000"}
	want := append([]string{"abroad[192.0.2.1] []", "10.0.0.11 10 out NoPlace m1 0"}, api...)
	if got := say(&model.View{Self: "m1", LoadBalancers: []model.LoadBalancer{fewer, away}}); !slices.Equal(got, want) {
		t.Errorf("%q\nwant %q", got, want)
	}
	m.Removed = lb.VIPs
	if got := say(&model.View{Self: "m1"}); !slices.Equal(got, api) {
		t.Errorf("while it is handed over: %q\nwant %q", got, api)
	}
	if list, _ := backends(&model.View{}, remembers(m), &model.VIP{Addr: lb.VIPs[1]}, &question{}); len(list) != 1 {
		t.Errorf("explained while it is handed over: %+v", list)
	}
}

func TestQuestions(t *testing.T) {
	for _, c := range []struct {
		vip, client string
		want        question
	}{
		{"cp", "", question{vip: "cp"}},
		{"cp:443", "", question{vip: "cp", port: 443}},
		{"10.0.0.200", "", question{vip: "10.0.0.200"}},
		{"10.0.0.200:443", "10.0.0.9:1", question{"10.0.0.200", 443, netip.MustParseAddrPort("10.0.0.9:1")}},
		{"fd00::1", "fd00::9", question{vip: "fd00::1", client: netip.MustParseAddrPort("[fd00::9]:0")}},
		{"[fd00::1]:443", "[fd00::9]:7", question{"fd00::1", 443, netip.MustParseAddrPort("[fd00::9]:7")}},
		{"namespace/name", "", question{vip: "namespace/name"}},
	} {
		if got, err := ask(c.vip, c.client); err != nil || got != c.want {
			t.Errorf("%q %q: %+v, %v", c.vip, c.client, got, err)
		}
	}
	for _, c := range [][2]string{{"cp:", ""}, {"cp:0", ""}, {"cp:https", ""}, {"cp:99999", ""}, {"cp", "x"}, {"cp", "10.0.0.9:x"}} {
		if got, err := ask(c[0], c[1]); !errors.Is(err, ErrQuestion) {
			t.Errorf("%q: %+v, %v", c, got, err)
		}
	}
}

// TestBackendMetrics: there are series for each backend of both families.
func TestBackendMetrics(t *testing.T) {
	d, reg := scraped(t)
	lb := model.LoadBalancer{Name: "api", VIPs: []netip.Addr{netip.MustParseAddr("10.0.0.200"), netip.MustParseAddr("fd00::200")},
		Ports:   []model.ForwardPort{{Protocol: model.TCP, Port: 443, TargetPort: 6443}},
		Servers: []model.Server{{Addr: netip.MustParseAddr("10.0.0.11"), Weight: 30}, {Addr: netip.MustParseAddr("10.0.0.12"), Weight: 10, Check: "x"}, {Addr: netip.MustParseAddr("fd00::11"), Weight: 10}}}
	health := map[string]model.HealthState{"x": {State: model.HealthDown}}
	o := balance.Step(&balance.Input{Wanted: &lb, Health: health})
	d.metrics.publish(&model.View{LoadBalancers: []model.LoadBalancer{lb}, Health: health},
		remembers(o.Memory))
	const want = `
# HELP lbd_backend_healthy 1 if the last health check of the backend passed on this node, or there is none.
# TYPE lbd_backend_healthy gauge
lbd_backend_healthy{backend="10.0.0.11",vip="api"} 1
lbd_backend_healthy{backend="10.0.0.12",vip="api"} 0
lbd_backend_healthy{backend="fd00::11",vip="api"} 1
# HELP lbd_backend_share_ratio Share of the new connections that the backend gets.
# TYPE lbd_backend_share_ratio gauge
lbd_backend_share_ratio{backend="10.0.0.11",vip="api"} 1
lbd_backend_share_ratio{backend="10.0.0.12",vip="api"} 0
lbd_backend_share_ratio{backend="fd00::11",vip="api"} 1
# HELP lbd_backend_weight Weight of the backend.
# TYPE lbd_backend_weight gauge
lbd_backend_weight{backend="10.0.0.11",vip="api"} 30
lbd_backend_weight{backend="10.0.0.12",vip="api"} 10
lbd_backend_weight{backend="fd00::11",vip="api"} 10
`
	if err := testutil.GatherAndCompare(reg, strings.NewReader(want), "lbd_backend_healthy", "lbd_backend_share_ratio", "lbd_backend_weight"); err != nil {
		t.Error(err)
	}
}
