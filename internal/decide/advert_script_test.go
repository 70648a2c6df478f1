package decide

import (
	"fmt"
	"net/netip"
	"slices"
	"strings"
	"testing"
	"time"

	"lbd.dev/lbd/internal/model"
)

// TestAdvertScripts plays testdata/adverts/*.txt: several VIPs that BGP advertises,
// each in several ways. `decide` decides once, `apply` lets the drivers obey and
// decides until nothing changes; both print what is decided.
func TestAdvertScripts(t *testing.T) { playFiles(t, "testdata/adverts/*.txt", playAdverts) }

// adverts is the world of one script.
type adverts struct {
	t     *testing.T
	v     model.View
	d     model.Desired
	down  map[string]bool // peers without a session
	stuck bool            // the BGP driver reports nothing new
}

func playAdverts(t *testing.T, in string) string {
	start := time.Unix(1000, 0)
	s := &adverts{t: t, down: map[string]bool{}, v: model.View{
		Now: start.Add(time.Hour), Started: start, Self: "m1", DrainTimeout: 10 * time.Second,
		Synced: map[model.SourceName]bool{model.SourceConfig: true, model.SourceGossip: true, model.SourceHealth: true, model.SourceLink: true},
		Links: map[string]model.Link{
			"eth0": {Name: "eth0", Index: 2, Up: true, IPv6: true, Prefixes: []netip.Prefix{netip.MustParsePrefix("10.0.0.11/24")}},
			"lo":   {Name: "lo", Index: 1, Up: true, IPv6: true},
		},
		Health: map[string]model.HealthState{},
		Gossip: model.Gossip{
			Exchanged: start.Add(time.Second), Eligible: map[netip.Addr][]model.NodeName{},
			Members: map[model.NodeName]model.Member{"m2": {Name: "m2", State: model.MemberAlive, Known: true, Told: true, Settled: true}},
		},
		Applied: map[model.SinkName]model.Applied{model.SinkAddress: {}, model.SinkLayer2: {}, model.SinkBGP: {}},
	}}
	var out strings.Builder
	for line := range strings.Lines(in) {
		if strings.HasPrefix(line, "\t") {
			continue // old output
		}
		out.WriteString(line)
		words := strings.Fields(line)
		if len(words) == 0 || strings.HasPrefix(line, "#") {
			continue
		}
		for _, l := range s.command(words[0], words[1:]) {
			out.WriteString("\t" + l + "\n")
		}
	}
	return out.String()
}

func (s *adverts) command(name string, args []string) []string {
	switch name {
	case "now":
		d, err := time.ParseDuration(args[0])
		if err != nil {
			s.t.Fatal(err)
		}
		s.v.Now = s.v.Now.Add(d)
	case "peer": // NAME [ibgp] [delay=5s]
		p := model.BGPPeer{Name: args[0], LocalASN: 64512, PeerASN: 64513, IPv4: true, IPv6: true}
		for _, a := range args[1:] {
			if d, ok := strings.CutPrefix(a, "delay="); ok {
				p.ShutdownDelay, _ = time.ParseDuration(d)
			}
		}
		s.v.Peers = append(s.v.Peers, p)
	case "session":
		s.down[args[0]] = args[1] == "down"
	case "vip":
		s.vip(args)
	case "advert":
		i := s.at(args[0])
		s.v.VIPs[i].BGP = append(slices.Clone(s.v.VIPs[i].BGP), s.advert(args[1:]))
	case "noadverts":
		s.v.VIPs[s.at(args[0])].BGP = nil
	case "gone":
		i := s.at(args[0])
		s.v.VIPs = slices.Delete(slices.Clone(s.v.VIPs), i, i+1)
	case "health":
		s.v.Health[args[0]] = model.HealthState{State: map[string]model.Health{"up": model.HealthUp, "down": model.HealthDown}[args[1]]}
	case "draining":
		s.v.Draining = args[0] == "on"
	case "standby": // who else serves it
		s.v.Gossip.Eligible[netip.MustParseAddr(args[0])] = []model.NodeName{"m2"}
	case "restart":
		s.v.Memory, s.d = model.Memory{}, model.Desired{}
		s.v.Applied[model.SinkBGP] = model.Applied{}
	case "stuck":
		s.stuck = args[0] == "on"
	case "decide":
		s.d = Decide(&s.v)
		s.v.Memory = s.d.Memory
		return s.print()
	case "apply":
		for range 12 {
			was := fmt.Sprint(s.v.Memory.BGP, s.d.BGP.Paths)
			s.obey()
			s.d = Decide(&s.v)
			s.v.Memory = s.d.Memory
			if fmt.Sprint(s.v.Memory.BGP, s.d.BGP.Paths) == was && s.d.Wake != s.v.Now {
				return s.print()
			}
		}
		s.t.Fatal("it does not settle")
	default:
		s.t.Fatalf("unknown command %q", name)
	}
	return nil
}

// vip ADDR [unbound]
func (s *adverts) vip(args []string) {
	a := netip.MustParseAddr(args[0])
	v := model.VIP{Addr: a, Name: args[0], Kind: "VirtualIP", Check: args[0], Unbound: slices.Contains(args, "unbound")}
	s.v.Health[args[0]] = model.HealthState{State: model.HealthUp}
	s.v.VIPs = append(slices.Clone(s.v.VIPs), v)
	slices.SortFunc(s.v.VIPs, func(a, b model.VIP) int { return a.Addr.Compare(b.Addr) })
}

func (s *adverts) at(text string) int {
	i := slices.IndexFunc(s.v.VIPs, func(v model.VIP) bool { return v.Addr == netip.MustParseAddr(text) })
	if i < 0 {
		s.t.Fatalf("no VIP %s", text)
	}
	return i
}

// advert ADDR [length=28] [to=a,b] [community=7] [pref=200] [med=5] [prepend=1]
func (s *adverts) advert(args []string) (b model.BGPAdvert) {
	for _, a := range args {
		k, val, _ := strings.Cut(a, "=")
		var n uint32
		if k != "to" {
			if _, err := fmt.Sscan(val, &n); err != nil {
				s.t.Fatalf("%s: %v", a, err)
			}
		}
		switch k {
		case "to":
			b.Peers = strings.Split(val, ",")
		case "length":
			b.Length = int(n)
		case "community":
			b.Communities = append(b.Communities, n)
		case "large":
			b.LargeCommunities = append(b.LargeCommunities, [3]uint32{1, 2, n})
		case "pref":
			b.LocalPref = n
		case "med":
			b.MED, b.MEDSet = n, true
		case "prepend":
			b.Prepend = int(n)
		default:
			s.t.Fatalf("unknown %q", a)
		}
	}
	return b
}

// obey lets the drivers do what was decided last.
func (s *adverts) obey() {
	lo := map[netip.Addr]model.AppliedVIP{}
	for _, b := range s.d.Bind {
		lo[b.Addr] = model.AppliedVIP{Bound: true, Interface: "lo"}
	}
	s.v.Applied[model.SinkAddress] = model.Applied{Gen: s.d.Gen, Loopback: lo}
	s.v.Applied[model.SinkLayer2] = model.Applied{Gen: s.d.Gen}
	if s.stuck {
		return
	}
	r := model.Applied{Gen: s.d.Gen, Paths: map[netip.Prefix][]string{}}
	for _, p := range s.d.BGP.Peers {
		state := "Established"
		if s.down[p.Name] {
			state = "Active"
		}
		r.Peers = append(r.Peers, model.PeerReport{Name: p.Name, State: state})
	}
	for _, p := range s.d.BGP.Paths {
		var has []string
		for _, x := range p.To {
			for _, n := range x.Peers {
				if !s.down[n] {
					has = append(has, n)
				}
			}
		}
		slices.Sort(has)
		r.Paths[p.Prefix] = has
	}
	s.v.Applied[model.SinkBGP] = r
}

// print has a line for each VIP, for each path and for what is bound.
func (s *adverts) print() []string {
	var out []string
	for _, x := range s.d.Status {
		line := fmt.Sprintf("%s %s %s", x.VIP.Addr, s.d.Memory.BGP[x.VIP.Addr].Phase, x.Reason)
		if x.Announced {
			line += " at " + strings.Join(x.Peers, ",")
		}
		if x.Detail != "" {
			line += " (" + x.Detail + ")"
		}
		out = append(out, line)
	}
	for _, p := range s.d.BGP.Paths {
		line := "path " + p.Prefix.String()
		for _, x := range p.To {
			line += " to=" + strings.Join(x.Peers, ",")
			for _, c := range x.Communities {
				line += fmt.Sprintf(" community=%d", c)
			}
			for _, c := range x.LargeCommunities {
				line += fmt.Sprintf(" large=%d", c[2])
			}
			if x.LocalPref != 0 {
				line += fmt.Sprintf(" pref=%d", x.LocalPref)
			}
			if x.MEDSet {
				line += fmt.Sprintf(" med=%d", x.MED)
			}
			if x.Prepend != 0 {
				line += fmt.Sprintf(" prepend=%d", x.Prepend)
			}
			if x.Shutdown {
				line += " gshut"
			}
		}
		out = append(out, line)
	}
	bound := "bound"
	for _, b := range s.d.Bind {
		bound += " " + b.Addr.String()
	}
	return append(out, bound)
}
