package balance

import (
	"fmt"
	"net/netip"
	"slices"
	"testing"
	"time"

	"pgregory.net/rapid"

	"lbd.dev/lbd/internal/model"
)

// ownerSays is the verdict of a node that sees all servers well but these.
func (x *bed) ownerSays(dead ...netip.Addr) {
	x.Helper()
	other := newBed(x.T)
	other.in.Wanted = x.in.Wanted
	other.is(model.HealthUp, a, b, c, six)
	other.is(model.HealthDown, dead...)
	x.in.Told[0] = model.FollowedVerdict{Verdict: other.step().Memory.Fills[0].Verdict, By: "m2"}
}

// TestFollowsTheOwner: new connections go where those of the owner go, whatever this node thinks of
// the servers; but not to one that is dead for this node.
func TestFollowsTheOwner(t *testing.T) {
	x := newBed(t)
	x.is(model.HealthUp, a, b, c, six)
	x.ownerSays(b)
	x.step()
	x.want("the owner has one out", a, c)
	x.wantCut("the owner has one out")
	x.ownerSays()
	x.in.Health[b.String()] = model.HealthState{State: model.HealthUp, Failing: "timeout"}
	x.step()
	x.want("this node doubts one that the owner has", a, b, c)
	x.is(model.HealthDown, b)
	x.step()
	x.want("it is dead for this node", a, c)
	x.ownerSays(a, c)
	x.step()
	x.want("what the owner has is dead for this node", a, c)
	x.is(model.HealthUp, b)
	x.step()
	x.want("it is not", b)
	x.in.Told[0].Verdict.Servers++
	x.step()
	x.want("the verdict is about other servers", a, b, c)
	x.ownerSays(b)
	x.weight(c, 20)
	x.step()
	x.want("the configuration has changed", a, b, c)
}

// TestGoesOnAsTheOwnerDid: a node that takes over goes on with the table of the owner, so that it
// sends the connections that it does not know where they were. After a while it has its own.
func TestGoesOnAsTheOwnerDid(t *testing.T) {
	x := newBed(t)
	x.is(model.HealthUp, a, b, c, six)
	x.ownerSays(b)
	x.step()
	x.in.Told[0] = model.FollowedVerdict{}
	x.step()
	x.want("the owner is gone", a, c)
	if end := x.in.Now.Add(FollowFor); !x.out.Wake.Equal(end) {
		t.Errorf("wakes at %s, want %s", x.out.Wake, end)
	}
	x.in.Now = x.in.Now.Add(FollowFor - time.Second)
	x.in.Health[a.String()] = model.HealthState{State: model.HealthUp, Failing: "timeout"}
	x.step()
	x.want("one is doubted, which is with the owner", c)
	x.wantUnansweredCut("one is doubted, which is with the owner", a)
	x.is(model.HealthUp, a)
	x.step()
	x.want("it is well", a, c)
	x.in.Now = x.in.Now.Add(time.Second)
	x.step()
	x.want("it is long ago", a, b, c)
	x.ownerSays(c)
	x.step()
	x.want("another owner", a, b)
}

// TestChangesSoonAfterAMove: a server that dies is out at once. One that recovers waits, unless no
// other is well: until then it is not known which connections the old owner had in its slots.
func TestChangesSoonAfterAMove(t *testing.T) {
	x := newBed(t)
	x.is(model.HealthUp, a, b, c, six)
	x.is(model.HealthDown, b)
	x.ownerSays(b)
	x.step()
	x.in.Told[0] = model.FollowedVerdict{}
	x.step()
	x.want("the owner has gone", a, c)
	x.is(model.HealthUp, b)
	x.after(time.Second)
	x.want("the one that was out is well", a, c)
	x.wantState("the one that was out is well", b, "out OwnerSays m2 1s")
	x.is(model.HealthDown, a)
	x.after(time.Second)
	x.want("another dies", c)
	x.wantCut("another dies", a)
	x.is(model.HealthDown, c)
	x.after(time.Second)
	x.want("the last one dies", b)
	x.is(model.HealthUp, c)
	x.after(FollowFor - 3*time.Second)
	x.want("the time is over", b, c)
}

// TestTold: the word of a live owner counts, of no one else.
func TestTold(t *testing.T) {
	want := model.Verdict{Servers: 7, Out: "\x01"}
	for what, c := range map[string]struct {
		change func(*model.View)
		want   model.Verdict
	}{
		"an owner": {func(*model.View) {}, want},
		"a dead one": {func(v *model.View) {
			v.Gossip.Members["m2"] = model.Member{State: model.MemberDead}
		}, model.Verdict{Servers: 5}},
		"a late one": {func(v *model.View) {
			v.Gossip.Members["m2"] = model.Member{State: model.MemberAlive, Late: v.Now}
		}, model.Verdict{Servers: 5}},
		"this node": {func(v *model.View) {
			v.Memory.VIPs = map[netip.Addr]model.VIPMemory{vip4: {Phase: model.PhaseTaking}}
		}, model.Verdict{}},
		"nobody":     {func(v *model.View) { v.Gossip.Claims = nil }, model.Verdict{}},
		"of another": {func(v *model.View) { v.LoadBalancers[0].VIPs = []netip.Addr{vip6} }, model.Verdict{}},
	} {
		v := node(newBed(t))
		v.Gossip.Members = map[model.NodeName]model.Member{"m2": {State: model.MemberAlive}, "m3": {State: model.MemberAlive}}
		v.Gossip.Claims = map[netip.Addr][]model.Claim{vip4: {{Owner: "m2", Epoch: 4, Verdict: want}, {Owner: "m3", Epoch: 3, Verdict: model.Verdict{Servers: 5}}}}
		c.change(v)
		if got := told(v, &v.LoadBalancers[0]); got[0].Verdict != c.want {
			t.Errorf("%s: %+v, want %+v", what, got[0], c.want)
		}
	}
}

// TestVerdictOfManyServers: it is bounded, and says nothing of more.
func TestVerdictOfManyServers(t *testing.T) {
	for _, n := range []int{1, 8, 9, 1000, model.MaxVerdict, model.MaxVerdict + 1} {
		in := everyone(n)
		if v := verdict(9, in); v.Out != "" || (v.Servers == 9) != (n <= model.MaxVerdict) {
			t.Errorf("%d servers are in: %+v", n, v)
		}
		in[n-1] = false
		v := verdict(9, in)
		if len(v.Out) > model.MaxVerdict/8 || n <= model.MaxVerdict && (!out(v.Out, n-1) || n > 1 && out(v.Out, n-2) || out(v.Out, n)) {
			t.Errorf("the last of %d is out: %+v", n, v)
		}
	}
}

// group is three balancers, each with its own view of five servers.
type group struct {
	now      time.Time
	nodes    [3]*model.View
	owner    int // -1: none
	epoch    uint64
	verdicts [3]model.Verdict // as each node would tell them now
}

var groupServers = servers(5, func(i int) int { return 5 * (1 + i) })

func newGroup() *group {
	g := &group{now: time.Unix(1000, 0), epoch: 1}
	for i := range g.nodes {
		v := &model.View{
			Self: name(i), Health: map[string]model.HealthState{},
			VIPs:  []model.VIP{{Addr: vip4, Name: "api", Kind: model.KindLoadBalancer, Unbound: true, L2: true}},
			Links: map[string]model.Link{"eth0": {Name: "eth0", Index: 2, Up: true, Prefixes: []netip.Prefix{netip.MustParsePrefix("10.0.0.1/24")}}},
			LoadBalancers: []model.LoadBalancer{{
				Name: "api", VIPs: []netip.Addr{vip4}, Servers: slices.Clone(groupServers),
				Ports: []model.ForwardPort{{Protocol: model.TCP, Port: 443, TargetPort: 6443}},
			}},
		}
		v.Gossip.Members, v.Gossip.Claims = map[model.NodeName]model.Member{}, map[netip.Addr][]model.Claim{}
		for j := range g.nodes {
			v.Gossip.Members[name(j)] = model.Member{State: model.MemberAlive}
		}
		for j := range v.LoadBalancers[0].Servers {
			x := &v.LoadBalancers[0].Servers[j]
			x.Check = x.Addr.String()
			v.Health[x.Check] = model.HealthState{State: model.HealthUp}
		}
		g.nodes[i] = v
	}
	g.take(0)
	return g
}

func name(i int) model.NodeName { return model.NodeName(fmt.Sprint("m", i)) }

func (g *group) take(i int) {
	if g.owner >= 0 {
		g.nodes[g.owner].Memory.VIPs = nil
	}
	g.owner, g.epoch = i, g.epoch+1
	if i >= 0 {
		g.nodes[i].Memory.VIPs = map[netip.Addr]model.VIPMemory{vip4: {Phase: model.PhaseOwner, Interface: "eth0"}}
	}
}

// hear brings one node up to date with what the owner says.
func (g *group) hear(i int) {
	v := g.nodes[i]
	delete(v.Gossip.Claims, vip4)
	for j := range g.nodes {
		v.Gossip.Members[name(j)] = model.Member{State: model.MemberAlive}
	}
	if g.owner >= 0 && g.owner != i {
		v.Gossip.Claims[vip4] = []model.Claim{{Owner: name(g.owner), Epoch: g.epoch, Verdict: g.verdicts[g.owner]}}
	}
}

func (g *group) step() {
	for i, v := range g.nodes {
		v.Now = g.now
		v.Memory.Balance = Forward(v).Memory
		g.verdicts[i] = Verdicts(v.Memory.Balance)[v.VIPs[0].Addr]
	}
}

func (g *group) fill(i int) model.BalanceFill { return g.nodes[i].Memory.Balance["api"].Fills[0] }

// target is the server of each slot of a node.
func (g *group) targets(i int) (out []netip.Addr) {
	f := g.fill(i)
	for _, n := range f.Slots {
		out = append(out, f.Servers[n].Addr)
	}
	return out
}

func (g *group) dead(i int, server netip.Addr) bool {
	return g.nodes[i].Health[server.String()].State == model.HealthDown
}

// alone tells whether a node reaches no server.
func (g *group) alone(i int) bool {
	return !slices.ContainsFunc(groupServers, func(x model.Server) bool { return !g.dead(i, x.Addr) })
}

// TestOneTable: whatever the nodes think of the servers, whoever owns the VIP and however late
// they hear of it, no node sends new connections to a server that is dead for it while another is
// not; and once the facts stay as they are, so do the tables, and they are one: a node has another
// server only in the slots of those that are dead for it.
func TestOneTable(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		g := newGroup()
		g.step()
		for range rapid.IntRange(1, 25).Draw(t, "events") {
			i := rapid.IntRange(0, 2).Draw(t, "node")
			switch rapid.IntRange(0, 4).Draw(t, "event") {
			case 0, 1:
				x := rapid.SampledFrom(groupServers).Draw(t, "server").Addr.String()
				g.nodes[i].Health[x] = rapid.SampledFrom([]model.HealthState{{State: model.HealthUp}, {State: model.HealthDown}, {State: model.HealthUp, Failing: "timeout"}}).Draw(t, "health")
			case 2:
				g.hear(i)
			case 3:
				g.take(rapid.IntRange(-1, 2).Draw(t, "owner"))
			case 4:
				g.now = g.now.Add(time.Duration(rapid.IntRange(1, 40).Draw(t, "seconds")) * time.Second)
			}
			g.step()
			for i := range g.nodes {
				if j := slices.IndexFunc(g.targets(i), func(a netip.Addr) bool { return g.dead(i, a) }); j >= 0 && !g.alone(i) {
					t.Fatalf("m%d: slot %d belongs to a server that is dead for it", i, j)
				}
			}
		}
		if g.owner < 0 {
			g.take(1)
		}
		settle := func() {
			for i := range g.nodes {
				g.hear(i)
			}
			g.step()
		}
		settle()
		g.now = g.now.Add(FollowFor)
		settle()
		settle()
		var before [3]model.BalanceFill
		for i := range before {
			before[i] = g.fill(i)
		}
		for range 3 {
			g.now = g.now.Add(FollowFor)
			settle()
			for i := range before {
				if now := g.fill(i); !now.Same(&before[i]) {
					t.Fatalf("m%d: the table changes although nothing does", i)
				}
			}
		}
		g.compare(t)
	})
}

func (g *group) compare(t *rapid.T) {
	for i := range g.nodes {
		owners, mine := g.targets(g.owner), g.targets(i)
		if g.alone(i) || g.alone(g.owner) {
			continue // keeps what it had, and may not own the VIP
		}
		same := true
		for _, x := range g.fill(g.owner).Servers {
			same = same && !g.dead(i, x.Addr)
		}
		if same && !slices.Equal(owners, mine) {
			t.Fatalf("m%d has another table than the owner m%d", i, g.owner)
		}
		if !slices.ContainsFunc(g.fill(g.owner).Servers, func(x model.Server) bool { return !g.dead(i, x.Addr) }) {
			continue // nothing that the owner has can be reached
		}
		whole := fill(groupServers, everyone(len(groupServers)))
		for slot, n := range whole {
			if x := groupServers[n].Addr; owners[slot] == x && !g.dead(i, x) && mine[slot] != x {
				t.Fatalf("m%d: slot %d of %s, which is well, has moved to %s", i, slot, x, mine[slot])
			}
		}
	}
}
