package balance

import (
	"net/netip"
	"reflect"
	"slices"
	"strings"
	"testing"
	"time"

	"lbd.dev/lbd/internal/model"
)

var (
	vip4, vip6 = netip.MustParseAddr("10.0.0.200"), netip.MustParseAddr("fd00::200")
	a, b, c    = netip.MustParseAddr("10.0.0.11"), netip.MustParseAddr("10.0.0.12"), netip.MustParseAddr("10.0.0.13")
	six        = netip.MustParseAddr("fd00::11")
)

// bed is one LoadBalancer of three servers of IPv4 and one of IPv6.
type bed struct {
	*testing.T
	in  Input
	out Output
}

func newBed(t *testing.T) *bed {
	x := &bed{T: t}
	x.in = Input{Now: time.Unix(1000, 0), Health: make(map[string]model.HealthState), Wanted: &model.LoadBalancer{
		Name: "api", VIPs: []netip.Addr{vip4, vip6}, DrainTimeout: 30 * time.Second,
		Ports: []model.ForwardPort{{Protocol: model.TCP, Port: 443, TargetPort: 6443}, {Protocol: model.UDP, Port: 53, TargetPort: 53}},
	}}
	for _, addr := range []netip.Addr{a, b, c, six} {
		x.in.Wanted.Servers = append(x.in.Wanted.Servers, model.Server{Addr: addr, Weight: 10, Check: addr.String()})
	}
	return x
}

func (x *bed) is(h model.Health, addrs ...netip.Addr) {
	for _, addr := range addrs {
		x.in.Health[addr.String()] = model.HealthState{State: h, Detail: h.String()}
	}
}

func (x *bed) weight(of netip.Addr, w int) {
	lb := *x.in.Wanted
	lb.Servers = slices.Clone(lb.Servers)
	lb.Servers[slices.IndexFunc(lb.Servers, func(s model.Server) bool { return s.Addr == of })].Weight = w
	x.in.Wanted = &lb
}

func (x *bed) remove(addr netip.Addr) {
	lb := *x.in.Wanted
	lb.Servers = slices.DeleteFunc(slices.Clone(lb.Servers), func(s model.Server) bool { return s.Addr == addr })
	x.in.Wanted = &lb
}

// step decides, and again with the same facts, which must change nothing.
func (x *bed) step() Output {
	x.Helper()
	x.out = Step(&x.in)
	x.in.Memory = x.out.Memory
	again := Step(&x.in)
	if !again.Memory.Same(&x.out.Memory) || !reflect.DeepEqual(again.Services, x.out.Services) || !reflect.DeepEqual(again.Cut, x.out.Cut) {
		x.Fatalf("a second step changes %+v into %+v", x.out, again)
	}
	for i := range again.Services {
		if again.Services[i].Slots != x.out.Services[i].Slots {
			x.Fatal("a second step makes another table")
		}
	}
	return x.out
}

// serving are the servers in the table of a port of a VIP.
func (x *bed) serving(vip netip.Addr, port uint16) (out []netip.AddrPort) {
	x.Helper()
	i := slices.IndexFunc(x.out.Services, func(s model.ForwardService) bool { return s.Addr == vip && s.Port == port })
	if i < 0 {
		x.Fatalf("port %d of %s is not forwarded", port, vip)
	}
	if x.out.Services[i].Slots == nil {
		return nil
	}
	out = slices.Clone(x.out.Services[i].Slots.Slots)
	slices.SortFunc(out, netip.AddrPort.Compare)
	return slices.Compact(out)
}

func (x *bed) want(what string, want ...netip.Addr) {
	x.Helper()
	var all []netip.AddrPort
	for _, addr := range want {
		all = append(all, netip.AddrPortFrom(addr, 6443))
	}
	if got := x.serving(vip4, 443); !slices.Equal(got, all) {
		x.Errorf("%s: %v get new connections, want %v", what, got, all)
	}
}

// cut are the servers of IPv4 whose TCP connections are to end, all or the unanswered ones.
func (x *bed) cut(unanswered bool) (out []netip.Addr) {
	for _, k := range x.out.Cut {
		if k.VIP == vip4 && k.Protocol == model.TCP && k.Unanswered == unanswered {
			out = append(out, k.Server.Addr())
		}
	}
	return out
}

func (x *bed) wantUnansweredCut(what string, want ...netip.Addr) {
	x.Helper()
	if got := x.cut(true); !slices.Equal(got, want) {
		x.Errorf("%s: the unanswered connections of %v are cut, want %v", what, got, want)
	}
}

func (x *bed) wantCut(what string, want ...netip.Addr) {
	x.Helper()
	if got := x.cut(false); !slices.Equal(got, want) {
		x.Errorf("%s: the connections of %v are cut, want %v", what, got, want)
	}
}

func (x *bed) wantStanding(what string, want model.Reason) {
	x.Helper()
	if x.out.Standing[0] != want {
		x.Errorf("%s: %s (%s), want %s", what, x.out.Standing[0], x.out.Detail[0], want)
	}
}

// TestBackendFails: the others get its new connections, and those that it has end.
func TestBackendFails(t *testing.T) {
	x := newBed(t)
	x.is(model.HealthUp, a, b, c, six)
	x.step()
	x.want("all are well", a, b, c)
	if got := x.serving(vip6, 53); !slices.Equal(got, []netip.AddrPort{netip.AddrPortFrom(six, 53)}) {
		t.Errorf("IPv6: %v", got)
	}
	x.is(model.HealthDown, b)
	x.step()
	x.want("one fails", a, c)
	x.wantCut("one fails", b)
	x.wantStanding("one fails", model.ReasonOwner)
	if !slices.Contains(x.out.Services[0].Servers, netip.AddrPortFrom(b, 6443)) {
		t.Error("what it says to the VIP is left to the own stack")
	}
	x.is(model.HealthUp, b)
	x.step()
	x.want("it is back", a, b, c)
	x.wantCut("it is back")
}

func TestFailedBackendKeepsItsConnections(t *testing.T) {
	x := newBed(t)
	x.in.Wanted.KeepFailed = true
	x.is(model.HealthUp, a, b, c, six)
	x.step()
	x.is(model.HealthDown, b)
	x.step()
	x.want("one fails", a, c)
	x.wantCut("one fails")
	x.wantUnansweredCut("one fails", b)
}

// TestBackendIsDoubted: one whose last check failed gets no new connections, and who waits for
// its first answer is not kept waiting. Those that it has go on.
func TestBackendIsDoubted(t *testing.T) {
	x := newBed(t)
	doubt := func(addrs ...netip.Addr) {
		x.is(model.HealthUp, a, b, c, six)
		for _, addr := range addrs {
			x.in.Health[addr.String()] = model.HealthState{State: model.HealthUp, Failing: "timeout"}
		}
		x.step()
		x.wantCut("doubted")
		x.wantStanding("doubted", model.ReasonOwner)
	}
	doubt()
	x.want("all are well", a, b, c)
	doubt(b)
	x.want("one is doubted", a, c)
	x.wantUnansweredCut("one is doubted", b)
	doubt(b, c)
	x.want("two are doubted", a)
	x.wantUnansweredCut("two are doubted", b, c)
	doubt(a, b, c, six) // the fault may be this node's own
	x.want("all are doubted", a, b, c)
	x.wantUnansweredCut("all are doubted")
	doubt(six)
	x.want("one of the other family", a, b, c)
	x.wantUnansweredCut("one of the other family")
	x.is(model.HealthDown, a, b)
	x.in.Health[c.String()] = model.HealthState{State: model.HealthUp, Failing: "timeout"}
	x.step()
	x.want("the last one is doubted", c)
	x.wantCut("the last one is doubted", a, b)
	x.weight(b, 0)
	doubt(a, b)
	x.want("one has no weight", c)
}

// TestAllBackendsFail: the fault may be this node's own. It gives the VIP to a node that reaches
// them, and ends nothing meanwhile.
func TestAllBackendsFail(t *testing.T) {
	x := newBed(t)
	x.is(model.HealthUp, a, b, c, six)
	x.step()
	x.is(model.HealthDown, a, b, c)
	x.step()
	x.want("all fail", a, b, c)
	x.wantCut("all fail")
	x.wantStanding("all fail", model.ReasonUnhealthy)
	if !strings.Contains(x.out.Detail[0], "10.0.0.12: down") {
		t.Errorf("%q", x.out.Detail[0])
	}
	if x.out.Standing[1] != model.ReasonOwner {
		t.Errorf("IPv6 is %s", x.out.Standing[1])
	}
	x.is(model.HealthUp, c)
	x.step()
	x.want("one is back", c)
	x.wantCut("one is back", a, b)
}

// TestBeforeTheFirstResult: a daemon that was restarted goes on with all servers until it knows
// which are well. A server that is new has to pass first.
func TestBeforeTheFirstResult(t *testing.T) {
	x := newBed(t)
	x.step()
	x.want("nothing is known", a, b, c)
	x.wantStanding("nothing is known", model.ReasonHealthPending)
	x.is(model.HealthUp, a, b, six)
	x.step()
	x.want("one has no result", a, b, c)
	x.wantStanding("one has no result", model.ReasonOwner)
	x.is(model.HealthDown, c)
	x.step()
	x.want("it fails", a, b)
	x.is(model.HealthUp, c)
	x.step()
	x.is(model.HealthUnknown, c)
	x.step()
	x.want("it was added again", a, b)
	x.wantCut("it was added again")
}

// TestBackendIsDrained: without a weight a server gets no new connections. Those that it has end
// after the drain timeout, and not before.
func TestBackendIsDrained(t *testing.T) {
	x := newBed(t)
	x.is(model.HealthUp, a, b, c, six)
	x.step()
	x.weight(b, 0)
	x.step()
	x.want("drained", a, c)
	x.wantCut("drained")
	x.in.Now = x.in.Now.Add(x.in.Wanted.DrainTimeout - time.Second)
	x.step()
	x.wantCut("before the timeout")
	if x.out.Wake != x.in.Now.Add(time.Second) {
		t.Errorf("wake at %s", x.out.Wake)
	}
	x.in.Now = x.in.Now.Add(time.Second)
	x.step()
	x.wantCut("after the timeout", b)
	x.weight(b, 10)
	x.step()
	x.want("it is back", a, b, c)
	x.wantCut("it is back")
	x.weight(b, 0)
	x.step()
	x.wantCut("drained again")
}

// TestBackendIsRemoved: it is drained, and forgotten in the end.
func TestBackendIsRemoved(t *testing.T) {
	x := newBed(t)
	x.is(model.HealthUp, a, b, c, six)
	x.step()
	x.remove(b)
	x.step()
	x.want("removed", a, c)
	x.wantCut("removed")
	if !slices.Contains(x.out.Services[0].Servers, netip.AddrPortFrom(b, 6443)) {
		t.Error("it is forgotten although it has connections")
	}
	x.in.Now = x.in.Now.Add(x.in.Wanted.DrainTimeout)
	x.step()
	x.wantCut("after the timeout", b)
	x.in.Now = x.in.Now.Add(CutFor)
	x.step()
	x.wantCut("long after")
	if slices.Contains(x.out.Services[0].Servers, netip.AddrPortFrom(b, 6443)) || len(x.out.Memory.Servers) > 3 {
		t.Error("it is never forgotten")
	}
}

// TestNoBackendInService: connections are refused, and no node has the VIP.
func TestNoBackendInService(t *testing.T) {
	x := newBed(t)
	x.is(model.HealthUp, a, b, c, six)
	x.step()
	for _, addr := range []netip.Addr{a, b, c} {
		x.weight(addr, 0)
	}
	x.step()
	x.want("all are drained")
	x.wantStanding("all are drained", model.ReasonUnhealthy)
	lb := *x.in.Wanted
	lb.Servers = slices.DeleteFunc(slices.Clone(lb.Servers), func(s model.Server) bool { return s.Addr.Is4() })
	x.in.Wanted = &lb
	x.step() // as when no Node of a cluster matches
	x.wantStanding("there is none of the family", model.ReasonUnhealthy)
	if text := x.out.Detail[0]; text != "no backend is in service" {
		t.Errorf("%q", text)
	}
	if x.out.Standing[1] != model.ReasonOwner {
		t.Errorf("IPv6 is %s", x.out.Standing[1])
	}
}

// TestPortsShareTables: ports with one target port have one table, so the kernel needs one map.
func TestPortsShareTables(t *testing.T) {
	x := newBed(t)
	x.in.Wanted.Ports = append(x.in.Wanted.Ports, model.ForwardPort{Protocol: model.TCP, Port: 8443, TargetPort: 6443})
	x.in.Wanted.Servers[0].Port = 7443
	x.is(model.HealthUp, a, b, c, six)
	x.step()
	if x.out.Services[0].Slots != x.out.Services[2].Slots || x.out.Services[0].Slots == x.out.Services[1].Slots {
		t.Error("tables are not shared by target port")
	}
	if !slices.Contains(x.serving(vip4, 443), netip.AddrPortFrom(a, 7443)) {
		t.Errorf("the own port of a server is not used: %v", x.serving(vip4, 443))
	}
	x.in.Wanted.Ports = append(slices.Clone(x.in.Wanted.Ports), model.ForwardPort{Protocol: model.TCP, Port: 80, TargetPort: 80})
	was := x.out.Services[0].Slots
	x.step()
	if x.out.Services[0].Slots != was || x.serving(vip4, 80) == nil {
		t.Error("a port more changes the tables of others, or has none")
	}
}

// TestLeaving: a server that is about to go gets new connections only while no other can serve.
func TestLeaving(t *testing.T) {
	x := newBed(t)
	x.is(model.HealthUp, a, b, c, six)
	leaves := func(addr netip.Addr) {
		lb := *x.in.Wanted
		lb.Servers = slices.Clone(lb.Servers)
		y := &lb.Servers[slices.IndexFunc(lb.Servers, func(s model.Server) bool { return s.Addr == addr })]
		y.Weight, y.Leaving = 0, true
		x.in.Wanted = &lb
	}
	gets := func(o Output) (out []netip.Addr) {
		for _, s := range o.Memory.Fills[0].Servers {
			out = append(out, s.Addr)
		}
		return out
	}
	leaves(a)
	if got := gets(x.step()); !slices.Equal(got, []netip.Addr{b, c}) {
		t.Errorf("beside a server that leaves %v serve", got)
	}
	x.is(model.HealthDown, b, c)
	o := x.step()
	if got := gets(o); !slices.Equal(got, []netip.Addr{a}) || o.Standing[0] != model.ReasonOwner {
		t.Errorf("while it is the only one %v serve: %v %s", got, o.Standing[0], o.Detail[0])
	}
	x.in.Now = x.in.Now.Add(time.Hour)
	if o = x.step(); slices.ContainsFunc(o.Cut, func(s model.CutServer) bool { return s.Server.Addr() == a }) {
		t.Errorf("the only one is cut: %v", o.Cut)
	}
	x.is(model.HealthUp, b)
	if got := gets(x.step()); !slices.Equal(got, []netip.Addr{b}) {
		t.Errorf("when another is back %v serve", got)
	}
	x.is(model.HealthDown, a, b)
	if o = x.step(); o.Standing[0] != model.ReasonUnhealthy {
		t.Errorf("nobody passes, and it stands %v", o.Standing[0])
	}
}

// TestOfTenant: the driver knows which services yield where room is short.
func TestOfTenant(t *testing.T) {
	for name, want := range map[string]bool{"web": false, "machines/web": false, "tenant/shop/web": true} {
		o := Step(&Input{Wanted: &model.LoadBalancer{Name: name, VIPs: []netip.Addr{vip4}, Ports: []model.ForwardPort{{Protocol: model.TCP, Port: 80, TargetPort: 80}}}})
		if len(o.Services) != 1 || o.Services[0].OfTenant != want {
			t.Errorf("%s: %+v", name, o.Services)
		}
	}
}

// TestOwnPorts: each server serves the ports at ports of its own, also two ports of one number, and with other
// ports of the LoadBalancer no connection goes where another port is served.
func TestOwnPorts(t *testing.T) {
	x := newBed(t)
	lb := *x.in.Wanted
	lb.VIPs, lb.Ports = []netip.Addr{vip4}, []model.ForwardPort{{Protocol: model.TCP, Port: 53}, {Protocol: model.UDP, Port: 53}}
	lb.Servers = []model.Server{
		{Addr: a, Port: 30080, Ports: "\x75\x80\x75\x80", Weight: 10, Check: a.String()}, // one number for both, 30080
		{Addr: b, Port: 30080, Ports: "\x75\x80\x75\x81", Weight: 10, Check: b.String()},
	}
	x.in.Wanted = &lb
	x.is(model.HealthUp, a, b)
	serving := func(what string, want ...string) {
		t.Helper()
		var got []string
		for _, s := range x.step().Services {
			to := slices.SortedFunc(slices.Values(s.Slots.Slots), netip.AddrPort.Compare)
			to = slices.Compact(to)
			for _, p := range to {
				got = append(got, p.String())
			}
			if !slices.Equal(to, s.Servers) {
				t.Errorf("%s: %d/%s may have connections at %v", what, s.Port, s.Protocol, s.Servers)
			}
		}
		if !slices.Equal(got, want) {
			t.Errorf("%s: %v, want %v", what, got, want)
		}
	}
	serving("at first", "10.0.0.11:30080", "10.0.0.12:30080", "10.0.0.11:30080", "10.0.0.12:30081")

	more := lb
	more.Ports = append([]model.ForwardPort{{Protocol: model.TCP, Port: 22}}, lb.Ports...)
	more.Servers = []model.Server{{Addr: a, Port: 30022, Ports: "\x75\x46\x75\x80\x75\x80", Weight: 10, Check: a.String()}}
	x.in.Wanted = &more
	x.is(model.HealthDown, a, b)
	for _, s := range x.step().Services {
		if s.Slots == nil {
			continue
		}
		for _, to := range s.Slots.Slots {
			if s.Port == 22 && to.Port() != 30022 || s.Port == 53 && to.Port() == 30022 {
				t.Fatalf("port %d leads to %s", s.Port, to)
			}
		}
	}
	x.is(model.HealthUp, a)
	o := x.step()
	if got := o.Services[0]; !slices.Equal(got.Servers, []netip.AddrPort{netip.AddrPortFrom(a, 30022)}) { // what is drained served no such port
		t.Errorf("port %d may have connections at %v", got.Port, got.Servers)
	}
	if got := o.Services[1]; !slices.Contains(got.Servers, netip.AddrPortFrom(a, 30080)) || slices.Contains(got.Servers, netip.AddrPortFrom(a, 30022)) {
		t.Errorf("port %d may have connections at %v", got.Port, got.Servers)
	}
}

// TestOwnPortsChange: a server that keeps a port while the list of ports changes is another one, as its first port is. What
// is open at the port that it keeps goes on, and what was open at the other one ends in time.
func TestOwnPortsChange(t *testing.T) {
	x := newBed(t)
	lb := *x.in.Wanted
	lb.VIPs, lb.Ports = []netip.Addr{vip4}, []model.ForwardPort{{Protocol: model.TCP, Port: 80}, {Protocol: model.TCP, Port: 443}}
	lb.Servers = []model.Server{{Addr: a, Port: 30080, Ports: "\x75\x80\x76\xeb", Weight: 10, Check: a.String()}} // 30080, 30443
	x.in.Wanted = &lb
	x.is(model.HealthUp, a)
	x.step()
	more := lb
	more.Ports = []model.ForwardPort{{Protocol: model.TCP, Port: 443}, {Protocol: model.TCP, Port: 8443}}
	more.Servers = []model.Server{{Addr: a, Port: 30443, Ports: "\x76\xeb\x80\x00", Weight: 10, Check: a.String()}} // 30443, 32768
	x.in.Wanted = &more
	if o := x.step(); len(o.Cut) > 0 {
		t.Errorf("%v", o.Cut)
	}
	x.in.Now = x.in.Now.Add(lb.DrainTimeout + time.Second)
	want := []model.CutServer{{VIP: vip4, Server: netip.AddrPortFrom(a, 30080), Protocol: model.TCP}}
	if o := x.step(); !slices.Equal(o.Cut, want) {
		t.Errorf("%v, want %v", o.Cut, want)
	}
	udp := more // the same number of another protocol is another port
	udp.Ports = []model.ForwardPort{{Protocol: model.UDP, Port: 443}, {Protocol: model.TCP, Port: 8443}}
	x.in.Wanted = &udp
	if o := x.step(); !slices.Contains(o.Cut, model.CutServer{VIP: vip4, Server: netip.AddrPortFrom(a, 30443), Protocol: model.TCP}) {
		t.Errorf("%v", o.Cut)
	}
}
