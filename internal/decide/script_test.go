package decide

import (
	"bufio"
	"flag"
	"fmt"
	"net/netip"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"testing"
	"time"

	"lbd.dev/lbd/internal/model"
)

var update = flag.Bool("update", false, "rewrite the expected output of the scripts")

// The VIP is called b, for which m1, m2, m3 is the order of the ranking.
//
// TestScripts plays testdata/*.txt: lines change the View of node m1, `decide`
// prints what is decided. The output stands indented under each command.
func TestScripts(t *testing.T) { playFiles(t, "testdata/*.txt", play) }

// playFiles plays each script by itself; what it prints is the script again.
func playFiles(t *testing.T, pattern string, play func(*testing.T, string) string) {
	files, err := filepath.Glob(pattern)
	if err != nil || len(files) == 0 {
		t.Fatal("no scripts", err)
	}
	for _, f := range files {
		t.Run(strings.TrimSuffix(filepath.Base(f), ".txt"), func(t *testing.T) {
			in, err := os.ReadFile(f)
			if err != nil {
				t.Fatal(err)
			}
			got := play(t, string(in))
			if *update {
				if err := os.WriteFile(f, []byte(got), 0o644); err != nil {
					t.Fatal(err)
				}
				return
			}
			if got != string(in) {
				t.Errorf("got\n%s\nwant\n%s", got, in)
			}
		})
	}
}

// TestGoneOnceSilent: what layer 2 silences already is not silenced twice, and
// what it does not is, if several VIPs leave the configuration at once.
func TestGoneOnceSilent(t *testing.T) {
	s := newStage(t)
	s.v.VIPs = nil
	s.v.Memory.VIPs, s.v.Memory.BGP = map[netip.Addr]model.VIPMemory{}, map[netip.Addr]model.BGPMemory{}
	var all []netip.Addr
	a := scriptVIP
	for i := range 4 {
		s.v.Memory.BGP[a] = model.BGPMemory{Phase: model.BGPAdvertised, Epoch: 1}
		if i < 3 {
			s.v.Memory.VIPs[a] = model.VIPMemory{Phase: model.PhaseUnbinding, Silent: true, Interface: "eth0", Gen: 1}
		}
		all = append(all, a)
		a = a.Next()
	}
	d := Decide(&s.v)
	for _, a := range all {
		n := 0
		for _, x := range d.L2 {
			if x.Addr == a && x.Mode == model.L2Silent {
				n++
				if _, known := s.v.Memory.VIPs[a]; known && x.Interface != "eth0" {
					t.Errorf("%s is silenced on %q, not where layer 2 had it", a, x.Interface)
				}
			}
		}
		if n != 1 {
			t.Errorf("%s is silenced %d times: %+v", a, n, d.L2)
		}
	}
}

// stage is the world of one script.
type stage struct {
	t *testing.T
	v model.View
	d model.Desired
	// was is what "vip gone" has removed.
	was []model.VIP
	// up are the BGP peers whose sessions are established.
	up map[string]bool
	// lost is when those that are not were lost.
	lost map[string]time.Time
	// flaps is how often a session that had been reported was lost.
	flaps map[string]uint64
	// conns are the connections that an address on lo has while it lingers.
	conns int
	idle  bool   // they get no packets
	own   int    // those of this host with itself
	epoch uint64 // of the last binding on lo
	// wires: the networks of the interfaces are watched; else they carry what they ought to.
	wires  bool
	answer []string // who answers on them
}

var scriptVIP = netip.MustParseAddr("10.0.0.200")

func play(t *testing.T, in string) string {
	s := newStage(t)
	var out strings.Builder
	lines := bufio.NewScanner(strings.NewReader(in))
	for lines.Scan() {
		line := lines.Text()
		if strings.HasPrefix(line, "\t") {
			continue // old output
		}
		out.WriteString(line + "\n")
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

func newStage(t *testing.T) *stage {
	start := time.Unix(1000, 0)
	s := &stage{t: t, up: map[string]bool{}, lost: map[string]time.Time{}, flaps: map[string]uint64{}}
	s.v = model.View{
		Now: start.Add(time.Hour), Started: start, Self: "m1", DrainTimeout: 10 * time.Second,
		Synced: map[model.SourceName]bool{model.SourceConfig: true, model.SourceGossip: true, model.SourceHealth: true, model.SourceLink: true},
		VIPs:   []model.VIP{{Addr: scriptVIP, Name: "b", Kind: "VirtualIP", L2: true, Check: "cp"}},
		Links:  map[string]model.Link{},
		Health: map[string]model.HealthState{"cp": {State: model.HealthUp}},
		Gossip: model.Gossip{
			Peers: 2, Configured: []model.Peer{{Host: "m2"}, {Host: "m3"}}, Exchanged: start.Add(time.Second), Members: map[model.NodeName]model.Member{},
			Claims: map[netip.Addr][]model.Claim{}, Eligible: map[netip.Addr][]model.NodeName{}, Seen: map[netip.Addr]uint64{},
		},
		Applied: map[model.SinkName]model.Applied{model.SinkAddress: {}, model.SinkLayer2: {}},
	}
	s.command("link", []string{"eth0", "up", "10.0.0.11/24"})
	s.command("member", []string{"m2", "alive"})
	s.command("member", []string{"m3", "alive"})
	return s
}

func (s *stage) command(name string, args []string) []string {
	switch name {
	case "now":
		s.v.Now = s.v.Now.Add(s.duration(args[0]))
	case "link":
		s.link(args)
	case "member":
		s.member(args)
	case "standing":
		s.standing(model.NodeName(args[0]), args[1])
	case "claim":
		s.claim(args)
	case "seen":
		s.v.Gossip.Seen[scriptVIP] = s.number(args[0])
	case "health":
		s.v.Health["cp"] = model.HealthState{State: map[string]model.Health{"up": model.HealthUp, "down": model.HealthDown, "degraded": model.HealthDegraded, "unknown": model.HealthUnknown}[args[0]], Detail: strings.Join(args[1:], " ")}
	case "draining":
		s.v.Draining = args[0] == "on"
	case "machines":
		s.machines(args)
	case "stall":
		s.v.Stalls++
		s.v.Resumed = s.v.Now
	case "lapse":
		a := s.v.Applied[model.SinkLayer2]
		a.Gen = s.v.Memory.Gen
		a.Lapses++
		s.v.Applied[model.SinkLayer2] = a
	case "vip":
		s.vip(args)
	case "listener", "masters":
		s.box(name, args)
	case "label":
		s.v.Labels = map[string]string{args[0]: args[1]}
	case "restart":
		s.v.Memory, s.d = model.Memory{}, model.Desired{}
		s.v.Started = s.v.Now
	case "unsync":
		s.v.Synced[model.SourceName(args[0])] = false
	case "sync":
		s.v.Synced[model.SourceName(args[0])] = true
	case "peer":
		s.peer(args)
	case "session":
		s.up[args[0]] = args[1] == "up"
		if len(args) > 2 { // lost now
			s.lost[args[0]] = s.v.Now
		}
	case "advertised":
		s.v.Applied[model.SinkBGP] = model.Applied{
			Gen: s.v.Memory.Gen, Paths: map[netip.Prefix][]string{model.PrefixOf(scriptVIP, 0): args},
		}
	case "stopping":
		s.v.Stopping = true
	case "local":
		s.local(args[0])
	case "holders": // who else has the VIP, and has said so
		var names []model.NodeName
		for _, n := range args {
			names = append(names, model.NodeName(n))
		}
		s.v.Gossip.Holders = map[netip.Addr][]model.NodeName{scriptVIP: names}
	case "exchanged": // a full state, with some member
		s.v.Gossip.Exchanged = s.v.Now
	case "rings":
		s.v.NoRelay = args[0] == "off"
	case "services": // keep|auto|reset [blind]: what becomes of their connections; nobody has looked for them yet
		s.v.ServiceConnections = map[string]model.ServiceConnections{"keep": model.ServicesKeep, "auto": model.ServicesAuto}[args[0]]
		if len(args) < 2 {
			s.v.Applied[model.SinkRelay] = model.Applied{Ring: new(model.RingHost)}
		}
	case "conns": // N [idle]
		s.conns, s.idle = int(s.number(args[0])), len(args) > 1
	case "own": // N
		s.own = int(s.number(args[0]))
	case "elsewhere": // prints the addresses whose connections do not count
		return []string{fmt.Sprint("elsewhere ", s.d.Elsewhere[scriptVIP])}
	case "way": // of packets back to clients: IFACE [strict] [gateway]
		s.way(args)
	case "host":
		s.host(args)
	case "relay": // behind: the driver has not answered yet; error: why it does not do all
		is := model.Applied{Gen: s.d.Gen}
		switch args[0] {
		case "behind":
			is.Gen = 0
		case "error":
			is.VIPs = map[netip.Addr]model.AppliedVIP{scriptVIP: {Err: strings.Join(args[1:], " ")}}
		}
		is.Ring = s.v.Applied[model.SinkRelay].Ring
		s.v.Applied[model.SinkRelay] = is
	case "wires": // NODE...: only these answer on the wire from now on
		s.wires, s.answer = true, args
		s.hear()
	case "hears": // NODE ADDR...: what a node says of its own wire
		m := s.v.Gossip.Members[model.NodeName(args[0])]
		m.Hears = nil
		for _, a := range args[1:] {
			m.Hears = append(m.Hears, netip.MustParseAddr(a))
		}
		s.v.Gossip.Members[m.Name] = m
	case "wire":
		s.wire(netip.MustParseAddr(args[0]), args[1])
	case "stuck":
		return s.stuck(false)
	case "clings":
		return s.stuck(true)
	case "address":
		s.report(model.SinkAddress, args)
	case "layer2":
		s.report(model.SinkLayer2, args)
	case "apply":
		return s.apply()
	case "decide":
		return s.decide()
	case "times":
		return s.times()
	default:
		s.t.Fatalf("unknown command %q", name)
	}
	return nil
}

// apply lets the drivers obey and decides until nothing changes.
func (s *stage) apply() []string {
	var out []string
	for range 10 {
		was := s.v.Memory
		s.obey()
		got := s.decide()
		if slices.Equal(got, out) && !moved(was, s.v.Memory) {
			break
		}
		out = got
	}
	return out
}

// obey lets the drivers do what was decided last.
func (s *stage) obey() {
	x := s.v.Applied[model.SinkAddress].VIPs[scriptVIP]
	x.Bound, x.Connections, x.Sockets, x.Own = false, -1, -1, -1
	var lo map[netip.Addr]model.AppliedVIP
	for _, b := range s.d.Bind {
		if b.Interface == model.LoopbackInterface {
			v := model.AppliedVIP{Bound: true, Interface: "lo", Connections: -1, Sockets: -1, Own: -1}
			if b.Linger {
				v.Own = s.own
				if v.Connections, v.Sockets = s.conns, s.conns; s.idle {
					v.Connections = 0
				}
			}
			lo = map[netip.Addr]model.AppliedVIP{scriptVIP: v}
			continue
		}
		x.Bound, x.Interface = true, b.Interface
		if b.Linger {
			x.Connections, x.Sockets, x.Own = 0, s.conns, s.own
		}
	}
	s.v.Applied[model.SinkAddress] = model.Applied{Gen: s.d.Gen, VIPs: map[netip.Addr]model.AppliedVIP{scriptVIP: x}, Loopback: lo}
	l := s.v.Applied[model.SinkLayer2].VIPs[scriptVIP]
	l.Announcing, l.Silent = false, false
	if len(s.d.L2) > 0 {
		l.Announcing = s.d.L2[0].Mode == model.L2Announce
		l.Silent = s.d.L2[0].Mode == model.L2Silent || s.d.L2[0].Quiet
	}
	s.v.Applied[model.SinkLayer2] = model.Applied{Gen: s.d.Gen, Lapses: s.v.Applied[model.SinkLayer2].Lapses, VIPs: s.with(model.SinkLayer2, l)}
	if s.wires {
		s.hear()
	}
	s.lead()
	if len(s.v.Peers) == 0 {
		return
	}
	bgp := model.Applied{Gen: s.d.Gen, Learned: s.v.Applied[model.SinkBGP].Learned}
	for _, p := range s.d.BGP.Peers {
		bgp.Peers = append(bgp.Peers, s.session(p.Name))
	}
	for _, p := range s.d.BGP.Paths {
		var to []string
		for _, n := range p.To[0].Peers {
			if s.up[n] {
				to = append(to, n)
			}
		}
		bgp.Paths = map[netip.Prefix][]string{p.Prefix: to}
	}
	s.v.Applied[model.SinkBGP] = bgp
}

func moved(a, b model.Memory) bool {
	if x, y := a.BGP[scriptVIP], b.BGP[scriptVIP]; x.Phase != y.Phase || x.Gen != y.Gen {
		return true
	}
	return a.VIPs[scriptVIP].Phase != b.VIPs[scriptVIP].Phase || a.VIPs[scriptVIP].Gen != b.VIPs[scriptVIP].Gen
}

func (s *stage) decide() []string {
	if !s.wires {
		lit(&s.v)
	}
	s.d = Decide(&s.v)
	s.v.Memory = s.d.Memory
	m := s.d.Memory.VIPs[scriptVIP]
	line := "phase=" + m.Phase.String()
	if b, ok := s.d.Memory.BGP[scriptVIP]; ok {
		line += " bgp=" + b.Phase.String()
	}
	for _, x := range s.d.Status {
		line += fmt.Sprintf(" reason=%s owner=%s", x.Reason, x.Owner)
		if x.Detail != "" {
			line += fmt.Sprintf(" (%s)", x.Detail)
		}
		if x.Duplicate != "" {
			line += fmt.Sprintf(" duplicate=%s", x.Duplicate)
		}
		if x.Ring != "" {
			line += fmt.Sprintf(" [%s]", x.Ring)
		}
		if x.Resets != "" {
			line += fmt.Sprintf(" resets [%s]", x.Resets)
		}
	}
	for _, b := range s.d.Bind {
		line += fmt.Sprintf(" bind=%s#%d", b.Interface, b.Epoch)
		if b.Interface == "lo" { // its epoch is the generation in which it began
			line = strings.TrimSuffix(line, fmt.Sprintf("#%d", b.Epoch)) + b.Lifetime.String()
			if s.epoch != 0 && s.epoch != b.Epoch {
				line += "+anew"
			}
			s.epoch = b.Epoch
		}
		if b.Linger {
			line += "+linger"
		}
		if !b.AddBefore.IsZero() && b.AddBefore.After(s.v.Now) {
			line += "+before" + b.AddBefore.Sub(s.v.Now).String()
		}
	}
	if len(s.d.Spared) > 0 {
		line += " spared"
	}
	for _, l := range s.d.L2 {
		line += " l2=" + [...]string{"", "probe", "announce", "silent"}[l.Mode]
		if l.Addr != scriptVIP {
			line += "@" + l.Addr.String()
		}
		if l.Unbound && l.Mode == model.L2Probe {
			line += "+unbound"
		}
		if l.Lasts > 0 {
			line += "+" + l.Lasts.String()
		}
		if l.Yield {
			line += "+yield"
		}
		if l.Quiet {
			line += "+quiet"
		}
		if l.Mode == model.L2Announce {
			line += fmt.Sprintf("#%d", l.Burst)
		}
		if l.Respond {
			line += "+respond"
		}
		if !l.StartBefore.IsZero() {
			line += "+before" + l.StartBefore.Sub(s.v.Now).String()
		}
	}
	for _, r := range s.d.Relay {
		line += fmt.Sprintf(" relay=%s/%d", r.Ring.Next, r.Ring.Nodes)
		if r.Ring.Unwell {
			line += "+unwell"
		}
		if r.Tracked {
			line += "+tracked"
		}
		for i, b := range r.Ring.Spread {
			line += [...]string{"", " spread="}[one(i == 0)] + string(b.Node) + [...]string{"", ","}[one(i+1 < len(r.Ring.Spread))]
		}
	}
	if s.d.Hearing && len(s.d.Relay) > 0 {
		line += "+hearing"
	}
	if s.d.Rings {
		line += " looks"
	}
	for _, p := range s.d.BGP.Paths {
		line += " path=" + strings.Join(p.To[0].Peers, ",")
		if p.To[0].Shutdown {
			line += "+gshut"
		}
	}
	for _, g := range s.d.Group.VIPs {
		line += " standing=" + g.Standing.String()
		if g.Holds {
			line += " holds"
		}
		if g.Claim.Epoch > 0 {
			line += fmt.Sprintf(" claim=%d", g.Claim.Epoch)
			if g.Claim.Weak {
				line += "weak"
			}
			if g.Claim.Duplicate != (model.MAC{}) {
				line += "+duplicate"
			}
			if g.Claim.To != "" {
				line += ">" + string(g.Claim.To)
			}
		}
	}
	for _, h := range s.d.Group.Heartbeats {
		line += " beat=" + string(h.Node)
	}
	line += s.machine() + s.routes()
	if !s.d.Synced {
		line += " unsynced"
	}
	if len(s.v.Peers) > 0 && !s.d.BGP.Ready && s.v.ServiceConnections != model.ServicesReset {
		line += " notready"
	}
	if s.d.Group.Unready && s.v.ServiceConnections != model.ServicesReset {
		line += " unready"
	}
	if wake := s.d.Wake.Sub(s.v.Now); !s.d.Wake.IsZero() && wake < litFor {
		line += " wake=" + s.d.Wake.Sub(s.v.Now).String()
	}
	return []string{line}
}

func (s *stage) duration(x string) time.Duration {
	d, err := time.ParseDuration(x)
	if err != nil {
		s.t.Fatal(err)
	}
	return d
}

func (s *stage) number(x string) uint64 {
	n, err := strconv.ParseUint(x, 10, 64)
	if err != nil {
		s.t.Fatal(err)
	}
	return n
}
