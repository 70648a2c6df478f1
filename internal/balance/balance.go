// Package balance decides which servers on other machines get the connections to the VIPs of a
// LoadBalancer. It is pure.
//
// A new connection is placed by its hash in a table of slots, which all nodes fill alike. So a
// node that takes a VIP over without knowing its connections sends them where they were.
package balance

import (
	"cmp"
	"encoding/binary"
	"net/netip"
	"slices"
	"strings"
	"time"

	"lbd.dev/lbd/internal/model"
)

// CutFor is how long the connections of a server are cut that is configured no more, and whose
// drain timeout is over. Then it is forgotten.
const CutFor = 10 * time.Second

// Input is all that the step for one LoadBalancer may look at.
type Input struct {
	Now    time.Time
	Wanted *model.LoadBalancer
	// VIPs are those of all sources, sorted by address: none of them is a server.
	VIPs   []model.VIP
	Health map[string]model.HealthState
	// Told is what another node that owns VIPs of a family says of the servers.
	Told   [2]model.FollowedVerdict
	Memory model.BalanceMemory
}

// Output is what follows.
type Output struct {
	Services []model.ForwardService // by VIP, in the order of the ports
	Cut      []model.CutServer
	// Standing is whether the servers of a family, IPv4 first, allow this node to have its
	// VIPs: ReasonOwner, ReasonHealthPending or ReasonUnhealthy. Detail is that in words.
	Standing [2]model.Reason
	Detail   [2]string
	Memory   model.BalanceMemory
	Wake     time.Time
}

// Step decides for one LoadBalancer. Applied to its own output with unchanged facts it changes
// nothing.
func Step(in *Input) Output {
	s := step{Input: in, out: Output{Memory: in.Memory}}
	s.out.Memory.Ready = in.Memory.Ready || !slices.ContainsFunc(in.Wanted.Servers, func(x model.Server) bool { return s.health(&x).State == model.HealthUnknown })
	s.Input = s.spare()
	for family := range s.out.Standing {
		s.fill(family)
	}
	s.servers()
	for _, vip := range in.Wanted.VIPs {
		s.serve(vip)
	}
	return s.out
}

type step struct {
	*Input
	out Output
	// Of each family: the servers with a share, and those of them that get new connections by
	// what is known now.
	candidates [2]candidates
	picked     [2]picked
	// awaits: none of those in the table is wanted any more, and they go on until one that is has
	// been checked.
	awaits [2]bool
}

// Family is 0 for IPv4 and 1 for IPv6.
func Family(a netip.Addr) int {
	if a.Is4() {
		return 0
	}
	return 1
}

// health is how a server does. An address that lbd itself announces is none: what is sent there
// would be forwarded once more, perhaps back, and the next one would not know the client.
func (s *step) health(x *model.Server) model.HealthState {
	if _, is := model.FindVIP(s.VIPs, x.Addr); is {
		return model.HealthState{State: model.HealthDown, Detail: "it is a VIP of lbd, not a server"}
	}
	if x.Check == "" {
		return model.HealthState{State: model.HealthUp}
	}
	return s.Health[x.Check]
}

// spare has servers that are about to go serve on while nobody else of their family can.
func (s *step) spare() *Input {
	if !s.out.Memory.Ready || !slices.ContainsFunc(s.Wanted.Servers, func(x model.Server) bool { return x.Leaving }) {
		return s.Input
	}
	var others [2]bool
	for i := range s.Wanted.Servers {
		x := &s.Wanted.Servers[i]
		others[Family(x.Addr)] = others[Family(x.Addr)] || x.Weight > 0 && s.health(x).State.Passes()
	}
	wanted := *s.Wanted
	wanted.Servers = slices.Clone(wanted.Servers)
	for i := range wanted.Servers {
		x := &wanted.Servers[i]
		if x.Leaving && !others[Family(x.Addr)] && s.health(x).State.Passes() {
			x.Weight, x.Leaving = 1, false
		}
	}
	in := *s.Input
	in.Wanted = &wanted
	return &in
}

func (s *step) by(t time.Time) { s.out.Wake = model.Earliest(s.out.Wake, t) }

// fill brings the table of a family up to date, and tells how its servers do.
func (s *step) fill(family int) {
	of := &s.candidates[family]
	was := &s.out.Memory.Fills[family]
	var why []string
	unknown := false
	for _, x := range s.Wanted.Servers {
		if Family(x.Addr) != family {
			continue
		}
		h := s.health(&x)
		unknown = unknown || h.State == model.HealthUnknown
		if !h.State.Passes() {
			why = append(why, x.Addr.String()+": "+words(h))
		}
		if x.Weight == 0 {
			continue
		}
		of.add(x, s.fitness(&h))
	}
	least := of.least()
	goesOn := slices.ContainsFunc(was.Servers, s.configured)
	s.awaits[family] = !s.Wanted.AtOnce && least < usable && !goesOn && len(was.Servers) > 0 && slices.Contains(of.fit, pending)
	switch passes := slices.ContainsFunc(s.Wanted.Servers, func(x model.Server) bool {
		return Family(x.Addr) == family && x.Weight > 0 && s.health(&x).State.Passes()
	}); {
	case passes, s.awaits[family] && slices.ContainsFunc(was.Servers, s.wasWell):
	case unknown && !s.out.Memory.Ready:
		s.out.Standing[family], s.out.Detail[family] = model.ReasonHealthPending, strings.Join(why, "; ")
	default:
		s.out.Standing[family], s.out.Detail[family] = model.ReasonUnhealthy, "no backend is in service"
		if len(why) > 0 { // else there is none of this family, or all have the weight 0
			s.out.Detail[family] += ": " + strings.Join(why, "; ")
		}
	}
	if least < usable && (goesOn || s.awaits[family]) {
		return // all at once: the fault may be this node's own, and what they serve still goes on
	}
	number := was.Verdict.Servers
	if !slices.Equal(was.Share, of.servers) {
		number = hash(of.servers)
	}
	next := of.pick(s.follow(family, number), least)
	s.picked[family] = next
	if number != was.Verdict.Servers || !slices.Equal(was.Servers, next.servers) {
		*was = of.table(number, &next)
	}
	s.tables(was)
}

// configured tells whether a server is still wanted with a share of new connections.
func (s *step) configured(x model.Server) bool {
	return slices.ContainsFunc(s.Wanted.Servers, func(y model.Server) bool { return x.Addr == y.Addr && x.Port == y.Port && y.Weight > 0 })
}

// wasWell tells whether a server got new connections as it should when it was wanted last.
func (s *step) wasWell(x model.Server) bool {
	return slices.ContainsFunc(s.Memory.Servers, func(m model.ServerMemory) bool {
		return same(&x, &m) && m.State == model.ServerIn && m.Why == model.ServerWell
	})
}

// words says how a server does.
func words(h model.HealthState) string {
	if h.Detail != "" {
		return h.Detail
	}
	return "its check is " + h.State.String()
}

// tables makes the table of each target port out of the fill.
func (s *step) tables(f *model.BalanceFill) {
	if len(f.Slots) == 0 {
		return
	}
	var next map[model.ForwardPort]*model.SlotTable
	for i := range s.Wanted.Ports {
		p := tableOf(s.Wanted.Ports[i])
		if f.Tables[p] != nil || next[p] != nil {
			continue
		}
		if next == nil {
			next = make(map[model.ForwardPort]*model.SlotTable)
		}
		t := &model.SlotTable{Slots: make([]netip.AddrPort, len(f.Slots))}
		for slot, n := range f.Slots {
			x := &f.Servers[n]
			t.Slots[slot], _ = s.at(x.Addr, x.Port, x.Ports, i)
		}
		next[p] = t
	}
	if next == nil {
		return
	}
	for port, t := range f.Tables {
		next[port] = t
	}
	f.Tables = next
}

// tableOf names the table of a port: those that lead to one port of all servers have one table.
func tableOf(p model.ForwardPort) model.ForwardPort {
	if p.TargetPort != 0 {
		return model.ForwardPort{TargetPort: p.TargetPort}
	}
	return p
}

// at is where a server, with a port or ports of its own, serves a port of the LoadBalancer; false: nowhere, for
// the LoadBalancer had others when the server was configured.
func (s *step) at(server netip.Addr, own uint16, ports string, port int) (netip.AddrPort, bool) {
	switch {
	case ports == "":
		own = cmp.Or(own, s.Wanted.Ports[port].TargetPort)
	case len(ports) == 2*len(s.Wanted.Ports):
		own = binary.BigEndian.Uint16([]byte(ports[2*port:]))
	default:
		return netip.AddrPort{}, false
	}
	return netip.AddrPortFrom(server, own), true
}

// serve adds what is forwarded for one VIP.
func (s *step) serve(vip netip.Addr) {
	family := Family(vip)
	f := &s.out.Memory.Fills[family]
	for i := range s.Wanted.Ports {
		p := &s.Wanted.Ports[i]
		x := model.ForwardService{
			Addr: vip, Protocol: p.Protocol, Port: p.Port, Slots: f.Tables[tableOf(*p)],
			ClientAffinity: s.Wanted.ClientAffinity, AllowedSources: s.Wanted.AllowedSources, ClientSource: s.Wanted.ClientSource,
			OfTenant: model.OfTenant(s.Wanted.Name),
		}
		rest := s.Wanted.Servers // both lists are sorted
		for j := range s.out.Memory.Servers {
			m := &s.out.Memory.Servers[j]
			all, unanswered := m.State == model.ServerOut && m.Why.Configured(), false
			if len(rest) > 0 && same(&rest[0], m) {
				failed := s.failed(&rest[0])
				all = all || failed && !s.Wanted.KeepFailed
				unanswered = failed || s.picked[family].least == trusted && s.health(&rest[0]).Failing != ""
				rest = rest[1:]
			}
			if Family(m.Addr) != family {
				continue
			}
			to, is := s.at(m.Addr, m.Port, m.Ports, i)
			if !is {
				continue
			}
			x.Servers = append(x.Servers, to)
			if all && m.Why == model.ServerRemoved && s.leads(to, p.Protocol) {
				continue // another one is there: the ports of the LoadBalancer are others than they were
			}
			if all || unanswered {
				s.out.Cut = append(s.out.Cut, model.CutServer{VIP: vip, Server: to, Protocol: p.Protocol, Unanswered: !all})
			}
		}
		slices.SortFunc(x.Servers, netip.AddrPort.Compare)
		x.Servers = slices.Compact(x.Servers)
		s.out.Services = append(s.out.Services, x)
	}
}

// leads tells whether a configured server serves a port there.
func (s *step) leads(to netip.AddrPort, protocol model.Protocol) bool {
	i, _ := slices.BinarySearchFunc(s.Wanted.Servers, to.Addr(), func(x model.Server, a netip.Addr) int { return x.Addr.Compare(a) })
	for ; i < len(s.Wanted.Servers) && s.Wanted.Servers[i].Addr == to.Addr(); i++ {
		x := &s.Wanted.Servers[i]
		for port := range s.Wanted.Ports {
			if at, is := s.at(x.Addr, x.Port, x.Ports, port); is && at == to && s.Wanted.Ports[port].Protocol == protocol {
				return true
			}
		}
	}
	return false
}

// failed tells whether a server fails its check, and others do not. While no server of its
// family is in service the fault may be this node's own.
func (s *step) failed(x *model.Server) bool {
	return s.health(x).State == model.HealthDown && s.out.Standing[Family(x.Addr)] == model.ReasonOwner
}
