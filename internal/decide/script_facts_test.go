package decide

import (
	"cmp"
	"net/netip"
	"slices"
	"strconv"
	"strings"
	"time"

	"lbd.dev/lbd/internal/model"
)

// What a script says of the world.

func (s *stage) link(args []string) {
	l := s.v.Links[args[0]]
	up := args[1] == "up"
	if l.Name == "" || l.Up != up {
		l.Since = s.v.Now
	}
	if l.Name == "" {
		l.Since = s.v.Started
	}
	l.Name, l.Index, l.Up, l.IPv6 = args[0], len(s.v.Links)+1, up, true
	l.MAC = model.MAC{2, 0, 0, 0, 0, 0x11}
	if len(args) > 2 {
		l.Prefixes = nil
		for _, p := range args[2:] {
			l.Prefixes = append(l.Prefixes, netip.MustParsePrefix(p))
		}
	}
	s.v.Links[args[0]] = l
}

// member NAME alive|dead|left [suspect|missing] [late] [untold] [lease=2s] [rules=1]
func (s *stage) member(args []string) {
	n := model.NodeName(args[0])
	m, had := s.v.Gossip.Members[n]
	if !had {
		i, _ := strconv.Atoi(args[0][1:])
		m = model.Member{Name: n, Known: true, Told: true, Settled: true, MACs: []model.MAC{{2, 0, 0, 0, 0, 0x10 + byte(i)}}, Addrs: []netip.Addr{netip.AddrFrom4([4]byte{10, 0, 0, 10 + byte(i)})}, Standing: map[netip.Addr]model.Reason{}}
	}
	m.State = map[string]model.MemberState{"alive": model.MemberAlive, "dead": model.MemberDead, "left": model.MemberLeft}[args[1]]
	away := !m.Late.IsZero() || !m.Gone.IsZero()
	was := m.Suspect
	m.Late, m.Suspect, m.Missing = time.Time{}, time.Time{}, false
	m.Heard = time.Time{}
	if m.Gone.IsZero() {
		m.Gone = s.v.Now
	}
	if m.State == model.MemberAlive {
		if away && !slices.Contains(args, "late") {
			m.Back = s.v.Now
		}
		m.Gone = time.Time{}
		m.Heard = s.v.Now.Add(24 * time.Hour) // answers whenever it is asked
	}
	m.Told = !slices.Contains(args, "untold")
	for _, a := range args[2:] {
		if a == "suspect" || a == "missing" {
			m.Suspect, m.Missing = cmp.Or(was, s.v.Now), a == "missing"
		}
		if a == "late" {
			m.Late = s.v.Now
		}
		if a == "draining" {
			m.Draining = true
		}
		if a == "unheard" {
			m.Heard = time.Time{}
		}
		if r, ok := strings.CutPrefix(a, "rules="); ok {
			m.Rules = int(s.number(r))
		}
		if l, ok := strings.CutPrefix(a, "lease="); ok {
			m.LeaseEnd = s.v.Now.Add(s.duration(l))
		}
	}
	s.v.Gossip.Members[n] = m
	if !had {
		s.standing(n, "Standby")
	}
}

func (s *stage) standing(n model.NodeName, r string) {
	reason, ok := model.ParseReason(r)
	if !ok {
		s.t.Fatalf("no reason %q", r)
	}
	m := s.v.Gossip.Members[n]
	m.Standing = map[netip.Addr]model.Reason{scriptVIP: reason}
	s.v.Gossip.Members[n] = m
	e := slices.DeleteFunc(slices.Clone(s.v.Gossip.Eligible[scriptVIP]), func(x model.NodeName) bool { return x == n })
	if reason.Eligible() {
		e = append(e, n)
		slices.Sort(e)
	}
	s.v.Gossip.Eligible[scriptVIP] = e
}

// claim NODE EPOCH [to=NODE]; epoch 0 withdraws it.
func (s *stage) claim(args []string) {
	c := model.Claim{Owner: model.NodeName(args[0]), Epoch: s.number(args[1])}
	for _, a := range args[2:] {
		if to, ok := strings.CutPrefix(a, "to="); ok {
			c.To = model.NodeName(to)
		}
		c.Weak = c.Weak || a == "weak"
		if by, ok := strings.CutPrefix(a, "duplicate="); ok {
			c.Duplicate = mac(by)
		}
	}
	all := slices.DeleteFunc(slices.Clone(s.v.Gossip.Claims[scriptVIP]), func(x model.Claim) bool { return x.Owner == c.Owner })
	if c.Epoch > 0 {
		all = append(all, c)
	}
	s.v.Gossip.Claims[scriptVIP] = all
	s.v.Gossip.Seen[scriptVIP] = max(s.v.Gossip.Seen[scriptVIP], c.Epoch)
}

func (s *stage) vip(args []string) {
	if args[0] == "back" {
		s.v.VIPs = s.was
		return
	}
	v := &s.v.VIPs[0]
	for _, a := range args {
		k, val, _ := strings.Cut(a, "=")
		switch k {
		case "preempt":
			v.Preempt = true
		case "prefer": // node:score,node:score
			v.Preference = &model.Preference{Scores: make(map[model.NodeName]int)}
			for x := range strings.SplitSeq(val, ",") {
				node, score, _ := strings.Cut(x, ":")
				v.Preference.Scores[model.NodeName(node)], _ = strconv.Atoi(score)
			}
		case "quorum":
			v.Partition = model.PartitionQuorum
		case "interface":
			v.Interfaces = append(v.Interfaces, val)
		case "zone":
			v.NodeSelector = map[string]string{"zone": val}
		case "name":
			v.Name = val
		case "gone":
			s.was, s.v.VIPs = s.v.VIPs, nil
		case "forwarded": // to other machines by lbd
			v.Kind, v.Unbound, v.Check = model.KindLoadBalancer, true, ""
		case "unbound":
			v.Unbound = val != "off"
		case "barred":
			v.Barred, v.BarredDetail = model.ReasonOwner, ""
			if val != "off" {
				r, ok := model.ParseReason(val)
				if !ok {
					s.t.Fatalf("no reason %q", val)
				}
				v.Barred, v.BarredDetail = r, "by its source"
			}
		case "bgp":
			v.BGP = []model.BGPAdvert{{}}
			if val != "" {
				v.BGP[0].Peers = strings.Split(val, ",")
			}
		case "nobgp":
			v.BGP = nil
		case "balanced":
			v.Balanced = val != "off"
		case "nol2", "l2":
			v.L2 = k == "l2"
		default:
			s.t.Fatalf("unknown %q", a)
		}
	}
}

// peer NAME [gr] [delay=5s] [zone=x]: a BGP peer, whose session is established.
func (s *stage) peer(args []string) {
	p := model.BGPPeer{Name: args[0], LocalASN: 64512, PeerASN: 64513, IPv4: true, IPv6: true}
	for _, a := range args[1:] {
		k, val, _ := strings.Cut(a, "=")
		switch k {
		case "gr":
			p.GracefulRestart = true
		case "delay":
			p.ShutdownDelay = s.duration(val)
		case "zone":
			p.NodeSelectors = append(p.NodeSelectors, map[string]string{"zone": val})
		case "v6":
			p.IPv4 = false
		default:
			s.t.Fatalf("unknown %q", a)
		}
	}
	s.v.Peers = append(s.v.Peers, p)
	s.up[p.Name] = true
}

// session is what the BGP driver says of the session with a peer.
func (s *stage) session(peer string) model.PeerReport {
	x := model.PeerReport{Name: peer, State: "Active", Since: s.lost[peer]}
	if s.up[peer] {
		x.State = "Established"
	} else if slices.ContainsFunc(s.v.Applied[model.SinkBGP].Peers, func(was model.PeerReport) bool { return was.Name == peer && was.State == "Established" }) {
		s.flaps[peer]++
	}
	x.Flaps = s.flaps[peer]
	return x
}

// local bound|gone|expired|ends: what the address driver says of lo; "ends" lets
// the lifetime end in 2 s.
func (s *stage) local(what string) {
	a := s.v.Applied[model.SinkAddress]
	x := model.AppliedVIP{Connections: -1, Sockets: -1}
	switch what {
	case "bound":
		x.Bound, x.Interface = true, "lo"
	case "ends":
		x.Bound, x.Interface, x.Expires = true, "lo", s.v.Now.Add(2*time.Second)
	case "expired":
		x.Expired = true
	case "gone":
	default:
		s.t.Fatalf("unknown %q", what)
	}
	a.Gen = s.v.Memory.Gen
	a.Loopback = map[netip.Addr]model.AppliedVIP{scriptVIP: x}
	s.v.Applied[model.SinkAddress] = a
}

// times prints the restart times of the peers.
func (s *stage) times() []string {
	s.decide()
	line := "restart"
	for _, p := range s.d.BGP.Peers {
		line += " " + p.Name + "=" + p.RestartTime.String()
	}
	return []string{line}
}

// stuck decides again while the BGP driver says nothing new, or in vain tries to
// withdraw, and the others obey.
func (s *stage) stuck(tried bool) []string {
	old := s.v.Applied[model.SinkBGP]
	if tried {
		old.Gen = s.d.Gen
	}
	s.obey()
	s.v.Applied[model.SinkBGP] = old
	return s.decide()
}

// report sets what a driver says; it is of the newest generation.
func (s *stage) report(sink model.SinkName, args []string) {
	old := s.v.Applied[sink]
	x := old.VIPs[scriptVIP]
	for _, a := range args {
		k, val, _ := strings.Cut(a, "=")
		switch k {
		case "bound":
			x.Bound, x.Interface = true, "eth0"
		case "ends":
			x.Expires = s.v.Now.Add(2 * time.Second)
		case "linger":
			x.Bound, x.Interface, x.Connections = true, "eth0", int(s.number(val))
			x.Sockets = x.Connections
		case "gone":
			x.Bound = false
		case "expired":
			x.Bound, x.Expired = false, true
		case "toolate":
			x.TooLate = true
		case "intime":
			x.TooLate = false
		case "connections":
			x.Connections = int(s.number(val))
			x.Sockets = x.Connections
		case "idle": // connections that get no packets
			x.Bound, x.Interface, x.Connections, x.Sockets = true, "eth0", 0, int(s.number(val))
		case "silent":
			x.Probe = model.ProbeResult{Series: s.v.Memory.VIPs[scriptVIP].Series, Done: true, At: s.v.Now}
		case "answered":
			x.Probe = model.ProbeResult{Series: s.v.Memory.VIPs[scriptVIP].Series, Done: true, Answered: true, By: mac(val), At: s.v.Now}
		case "rival":
			x.Probe = model.ProbeResult{Series: s.v.Memory.VIPs[scriptVIP].Series, Done: true, At: s.v.Now}
			for m := range strings.SplitSeq(val, ",") {
				x.Probe.Meet(mac(m))
			}
		case "mute":
			x.Announcing, x.Silent = false, false
		case "quiet":
			x.Announcing, x.Silent = false, true
		case "nothing":
			x = model.AppliedVIP{}
		case "conflict":
			x.Conflicts++
			x.Foreign = mac(val)
		case "duplicate":
			x.Duplicate = model.MAC{}
			if val != "" {
				x.Duplicate = mac(val)
			}
		case "err":
			x.Err = val
		default:
			s.t.Fatalf("unknown %q", a)
		}
	}
	s.v.Applied[sink] = model.Applied{Gen: s.v.Memory.Gen, Lapses: s.v.Applied[sink].Lapses, VIPs: s.with(sink, x)}
}

func mac(last string) model.MAC {
	n, _ := strconv.ParseUint(last, 16, 8)
	return model.MAC{2, 0, 0, 0, 0, byte(n)}
}
