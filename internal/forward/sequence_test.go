package forward

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"net"
	"net/netip"
	"slices"
	"strings"
	"syscall"
	"testing"
	"time"

	"pgregory.net/rapid"

	"lbd.dev/lbd/internal/balance"
	"lbd.dev/lbd/internal/model"
	"lbd.dev/lbd/internal/sockdiag"
)

// sequenceTime is for how long sequences are begun.
const sequenceTime = 25 * time.Second

// flow is a connection of TCP or a flow of UDP of the client.
type flow struct {
	net.Conn
	vip      netip.Addr
	protocol model.Protocol
	port     uint16 // of the VIP
	server   string
	// knows is the server that each balancer knows that it goes to, and cut says which of them had
	// to forget it.
	knows map[string]string
	cut   map[string]bool
	// among are the servers that it was chosen from.
	among []model.Server
}

func (f *flow) String() string {
	return fmt.Sprintf("%s from %s to %s port %d, with %s", f.protocol, f.LocalAddr(), f.vip, f.port, f.server)
}

// sequence is two balancers with the policy and the driver that a daemon has, each with its own view
// of three servers that all work, and what connection tracking of each has to know by now.
type sequence struct {
	*rapid.T
	lab     *lab
	nodes   map[string]*model.View
	drivers map[string]*balancer
	states  map[string]model.ForwardState
	owner   string
	epoch   uint64
	now     time.Time
	flows   []*flow
	ended   map[string]int // by reason
	events  []string
}

var balancers, allServers = []string{b1, b2}, []string{s1, s2, s3}

// twoPorts are those of the VIPs. They lead to the same port of the servers.
var twoPorts = []uint16{port, 444}

func (l *lab) sequence(t *rapid.T, ended map[string]int) *sequence {
	q := &sequence{T: t, lab: l, nodes: map[string]*model.View{}, drivers: map[string]*balancer{}, states: map[string]model.ForwardState{}, now: time.Unix(1000, 0), ended: ended}
	lb := model.LoadBalancer{
		Name: "api", VIPs: both, DrainTimeout: 10 * time.Second,
		ClientAffinity: rapid.Bool().Draw(t, "affinity"), KeepFailed: rapid.Bool().Draw(t, "keep"),
	}
	for _, p := range twoPorts {
		for _, protocol := range []model.Protocol{model.TCP, model.UDP} {
			lb.Ports = append(lb.Ports, model.ForwardPort{Protocol: protocol, Port: p, TargetPort: target})
		}
	}
	for _, vip := range both {
		for _, s := range allServers {
			lb.Servers = append(lb.Servers, model.Server{Addr: addr(s, vip), Weight: 10, Check: s})
		}
	}
	for _, b := range balancers {
		v := &model.View{Self: model.NodeName(b), Health: map[string]model.HealthState{}, LoadBalancers: []model.LoadBalancer{lb}, Links: map[string]model.Link{"eth0": {Name: "eth0", Index: 2, Up: true, IPv6: true}}}
		eth0 := v.Links["eth0"]
		for _, vip := range both {
			v.VIPs = append(v.VIPs, model.VIP{Addr: vip, Name: "api", Kind: model.KindLoadBalancer, Unbound: true, L2: true})
			eth0.Prefixes = append(eth0.Prefixes, netip.PrefixFrom(addr(b, vip), subnet(vip)))
		}
		v.Links["eth0"] = eth0
		v.Gossip.Members = map[model.NodeName]model.Member{b1: {State: model.MemberAlive}, b2: {State: model.MemberAlive}}
		v.Gossip.Claims = map[netip.Addr][]model.Claim{}
		for _, s := range allServers {
			v.Health[s] = model.HealthState{State: model.HealthUp}
		}
		q.nodes[b] = v
		q.start(b)
	}
	q.take(b1)
	q.hear()
	return q
}

// start begins a daemon that knows nothing yet.
func (q *sequence) start(b string) {
	q.nodes[b].Memory.Balance = nil
	q.drivers[b] = q.lab.balancer(b)
}

func (q *sequence) stop(b string) {
	if err := q.drivers[b].Close(context.Background()); err != nil {
		q.Error(err)
	}
}

// take has a balancer own the VIPs.
func (q *sequence) take(b string) {
	q.owner, q.epoch = b, q.epoch+1
	for n, v := range q.nodes {
		v.Memory.VIPs = nil
		if n == b {
			v.Memory.VIPs = map[netip.Addr]model.VIPMemory{vip4: {Phase: model.PhaseOwner, Interface: "eth0"}, vip6: {Phase: model.PhaseOwner, Interface: "eth0"}}
		}
	}
	q.lab.move(b)
}

// hear tells the other balancer what the owner says.
func (q *sequence) hear() {
	owner := q.nodes[q.owner]
	for b, v := range q.nodes {
		for i := range v.VIPs {
			vip := &v.VIPs[i]
			delete(v.Gossip.Claims, vip.Addr)
			if b != q.owner {
				v.Gossip.Claims[vip.Addr] = []model.Claim{{Owner: owner.Self, Epoch: q.epoch, Verdict: balance.Verdicts(owner.Memory.Balance)[vip.Addr]}}
			}
		}
	}
}

// apply decides on a balancer, makes it true in the kernel, and notes what connection tracking
// has to forget.
func (q *sequence) apply(b string) {
	v := q.nodes[b]
	v.Now = q.now
	f := balance.Forward(v)
	v.Memory.Balance = f.Memory
	q.states[b] = f.State
	q.drivers[b].forwards(&f.State)
	for _, c := range f.State.Cut {
		if !c.Unanswered && !q.mayCut(v, c.Server.Addr()) {
			q.fail("%s: %s is cut", b, c.Server)
		}
		for _, x := range q.flows {
			if s := x.knows[b]; !c.Unanswered && s != "" && x.vip == c.VIP && x.protocol == c.Protocol && server(s, x.vip) == c.Server {
				delete(x.knows, b)
				x.cut[b] = true
			}
		}
	}
}

// mayCut tells whether the connections of a server may end: it is dead for the node, and they are not to
// be kept then, or it was drained.
func (q *sequence) mayCut(v *model.View, server netip.Addr) bool {
	lb := &v.LoadBalancers[0]
	x := lb.Servers[slices.IndexFunc(lb.Servers, func(x model.Server) bool { return x.Addr == server })]
	return x.Weight == 0 || v.Health[x.Check].State == model.HealthDown && !lb.KeepFailed
}

// among are the servers that the owner chooses from.
func (q *sequence) among(vip netip.Addr) []model.Server {
	return q.nodes[q.owner].Memory.Balance["api"].Fills[balance.Family(vip)].Servers
}

// slot is the server that the table of a balancer has for a flow, "" if there is no table.
func (q *sequence) slot(b string, f *flow) string {
	for _, s := range q.states[b].Services {
		if s.Addr != f.vip || s.Protocol != f.protocol || s.Port != f.port || s.Slots == nil {
			continue
		}
		to := s.Slots.Slots[balance.Slot(local(f), s.ClientAffinity, len(s.Slots.Slots))]
		return allServers[slices.IndexFunc(allServers, func(x string) bool { return server(x, f.vip) == to })]
	}
	return ""
}

// open begins a flow of each protocol and family, to one of the ports.
func (q *sequence) open() {
	for _, vip := range both {
		for _, p := range []model.Protocol{model.TCP, model.UDP} {
			f := &flow{vip: vip, protocol: p, port: rapid.SampledFrom(twoPorts).Draw(q.T, "port"), knows: map[string]string{}, cut: map[string]bool{}}
			c, err := q.lab.dial(client, strings.ToLower(p.String()), netip.AddrPortFrom(vip, f.port))
			if err == nil && q.clashes(f, c) {
				_ = c.Close()
				continue
			}
			if err == nil {
				f.Conn = c
				f.server, _, err = ask(c, patience)
			}
			switch {
			case errors.Is(err, syscall.ECONNREFUSED) && len(q.among(vip)) == 0:
				continue
			case err != nil:
				q.fail("a new flow of %s to %s port %d: %v", p, vip, f.port, err)
			case f.server != q.slot(q.owner, f):
				q.fail("%s: its slot has %q", f, q.slot(q.owner, f))
			}
			f.knows[q.owner], f.among = f.server, q.among(vip)
			q.flows = append(q.flows, f)
		}
	}
}

// clashes tells whether a flow has the port of another one of the client to the same server: on its way
// from the VIP one of them gets another, which a balancer that takes over cannot know.
func (q *sequence) clashes(f *flow, c net.Conn) bool {
	return slices.ContainsFunc(q.flows, func(x *flow) bool {
		return x.vip == f.vip && x.protocol == f.protocol && local(x).Port() == local(c).Port()
	})
}

// look asks each flow who serves it. It is the server with which it began while the owner knows
// that. If the owner does not know it, for a reason, it is the one of its slot; a connection that
// began at another one is reset then.
func (q *sequence) look() {
	var left []*flow
	for _, f := range q.flows {
		want := f.knows[q.owner]
		why := ""
		if want == "" {
			want = q.slot(q.owner, f)
			switch {
			case want == "":
				why = "no server is in service"
			case want != f.server && f.cut[q.owner]:
				why = "its server was cut"
			case want != f.server:
				why = "the VIP has moved to a node that chooses from other servers"
				if slices.Equal(f.among, q.among(f.vip)) {
					q.fail("%s: of the same servers %s has chosen %s", f, q.owner, want)
				}
			}
		}
		got, _, err := ask(f.Conn, patience)
		reset := errors.Is(err, syscall.ECONNRESET) || errors.Is(err, syscall.EPIPE) || errors.Is(err, syscall.ECONNREFUSED)
		switch {
		case err != nil && !reset:
			q.fail("%s: is neither served nor reset: %v", f, err)
		case err != nil && (why == "" || f.protocol == model.UDP && want != ""):
			q.fail("%s: %v, and is to be with %q", f, err, want)
		case err == nil && got != want:
			q.fail("%s: went to %s, and is to be with %q", f, got, want)
		case err == nil && why != "" && f.protocol == model.TCP:
			q.fail("%s: %s, and yet it goes on at %s", f, why, got)
		}
		if why != "" {
			q.ended[why]++
		}
		if err != nil {
			_ = f.Close()
			continue
		}
		if f.server != got {
			f.server, f.among = got, q.among(f.vip)
		}
		f.knows[q.owner], f.cut[q.owner] = got, false
		q.ended[""]++
		left = append(left, f)
	}
	q.flows = left
}

func (q *sequence) fail(format string, args ...any) {
	q.Helper()
	q.Fatalf("after %s: %s", strings.Join(q.events, ", "), fmt.Sprintf(format, args...))
}

// event changes something.
func (q *sequence) event() {
	b := rapid.SampledFrom(balancers).Draw(q.T, "balancer")
	s := rapid.SampledFrom(allServers).Draw(q.T, "server")
	what := rapid.SampledFrom([]string{"health", "health", "weight", "move", "hear", "time", "restart", "open"}).Draw(q.T, "event")
	q.events = append(q.events, fmt.Sprint(what, " ", b, " ", s))
	switch what {
	case "health":
		q.nodes[b].Health[s] = rapid.SampledFrom([]model.HealthState{{State: model.HealthUp}, {State: model.HealthDown}, {State: model.HealthUp, Failing: "timeout"}}).Draw(q.T, "health")
	case "weight":
		weight := rapid.SampledFrom([]int{0, 5, 10, 20}).Draw(q.T, "weight")
		for _, b := range balancers {
			lb := &q.nodes[b].LoadBalancers[0]
			lb.Servers = slices.Clone(lb.Servers)
			for i := range lb.Servers {
				if x := &lb.Servers[i]; x.Check == s {
					x.Weight = weight
				}
			}
		}
	case "move":
		q.take(b)
	case "hear":
		q.hear()
	case "time":
		q.now = q.now.Add(time.Duration(rapid.IntRange(1, 40).Draw(q.T, "seconds")) * time.Second)
	case "restart":
		q.stop(b)
		q.start(b)
	}
	for _, b := range balancers {
		q.apply(b)
	}
	q.look()
	q.open()
}

// end leaves nothing behind for the next sequence.
func (q *sequence) end() {
	for _, f := range q.flows {
		_ = f.Close()
	}
	for _, b := range balancers {
		q.drivers[b].apply(&model.ForwardState{})
		q.stop(b)
		q.lab.In(b, func() { // ports are chosen again
			if _, err := sockdiag.Forget(func(sockdiag.Entry) bool { return true }, time.Now().Add(patience)); err != nil {
				q.Error(err)
			}
		})
	}
}

// TestAnySequence: whatever becomes of servers and owners, in whatever order and whatever the
// balancers think of it, each connection stays with the server at which it began. It ends only
// if its server was cut, as it failed or was drained, or if the VIP has moved to a node that chooses
// from other servers; and then it is reset, and nobody waits.
func TestAnySequence(t *testing.T) {
	l := newLab(t)
	ended := map[string]int{}
	begin, failed, sequences := time.Now(), false, 0
	rapid.Check(t, func(rt *rapid.T) {
		if time.Since(begin) > sequenceTime && !failed {
			return
		}
		sequences++
		q := l.sequence(rt, ended)
		defer q.end()
		defer func() { failed = failed || rt.Failed() }()
		for _, b := range balancers {
			q.apply(b)
		}
		q.open()
		for range rapid.IntRange(1, 12).Draw(rt, "events") {
			q.event()
		}
	})
	t.Logf("%d sequences; flows that went on: %d", sequences, ended[""])
	delete(ended, "")
	for _, why := range slices.Sorted(maps.Keys(ended)) {
		t.Logf("ended or moved %d times: %s", ended[why], why)
	}
}
