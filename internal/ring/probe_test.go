package ring

import (
	"net/netip"
	"testing"
	"time"

	"lbd.dev/lbd/internal/model"
)

// TestWhenAllAreSilent: of several it is this node that is cut off, and nothing is to be reset;
// one other node that is silent is left out.
func TestWhenAllAreSilent(t *testing.T) {
	for _, c := range []struct{ nodes, silent, want int }{{2, 0, 2}, {2, 1, 0}, {3, 1, 2}, {3, 2, 3}, {4, 2, 2}, {4, 3, 4}} {
		v := world(c.nodes)
		v.Memory.Rings = map[netip.Addr]model.RingProbe{}
		for i := 2; i < 2+c.silent; i++ {
			change(v, i, func(m *model.Member) { m.Late = now })
			v.Memory.Rings[at(i)] = model.RingProbe{Node: name(i), Interface: "eth0", Late: now, Asked: now, Silent: true}
		}
		all := New(v, 1, 0)
		got := 0
		if _, ring := all.Of(plain()); ring != nil {
			got = ring.Nodes
		}
		if got != c.want {
			t.Errorf("%d of %d silent: a ring of %d, want %d", c.silent, c.nodes, got, c.want)
		}
		if o := all.Output(); len(o.Heartbeats) != min(c.nodes-1, watchers) {
			t.Errorf("%d of %d silent: heartbeats of %v", c.silent, c.nodes, o.Heartbeats)
		}
	}
}

// TestQuestion: the answer of before stands until there is a new one, and the question is asked
// anew after a while, for another lateness, and on another interface.
func TestQuestion(t *testing.T) {
	before := model.RingProbe{Node: name(2), Interface: "eth0", Late: now.Add(-time.Minute), Series: 7, Asked: now.Add(-ProbeAgain / 2), Answers: true}
	with := func(f func(*model.RingProbe)) model.RingProbe {
		p := before
		f(&p)
		return p
	}
	anew := model.RingProbe{Node: name(2), Interface: "eth0", Late: before.Late, Series: 9, Asked: now}
	for _, c := range []struct {
		what   string
		was    model.RingProbe
		report model.ProbeResult
		want   model.RingProbe
	}{
		{"nobody has asked", model.RingProbe{}, model.ProbeResult{}, anew},
		{"it is being asked", before, model.ProbeResult{Series: 7}, before},
		{"it answered", with(func(p *model.RingProbe) { p.Answers, p.Silent = false, true }), model.ProbeResult{Series: 7, Done: true, Answered: true}, before},
		{"it was silent", before, model.ProbeResult{Series: 7, Done: true}, with(func(p *model.RingProbe) { p.Answers, p.Silent = false, true })},
		{"an older series ended", before, model.ProbeResult{Series: 6, Done: true}, before},
		{"after a while", with(func(p *model.RingProbe) { p.Asked = now.Add(-ProbeAgain) }), model.ProbeResult{}, with(func(p *model.RingProbe) { p.Series, p.Asked = 9, now })},
		{"it was late before", with(func(p *model.RingProbe) { p.Late = now }), model.ProbeResult{Series: 7, Done: true}, anew},
		{"on another interface", with(func(p *model.RingProbe) { p.Interface = "eth1" }), model.ProbeResult{}, anew},
		{"another node had the address", with(func(p *model.RingProbe) { p.Node = name(3) }), model.ProbeResult{}, anew},
	} {
		v := world(2)
		v.Memory.Rings = map[netip.Addr]model.RingProbe{at(2): c.was}
		v.Applied[model.SinkLayer2] = model.Applied{VIPs: map[netip.Addr]model.AppliedVIP{at(2): {Probe: c.report}}}
		all := New(v, 9, 0)
		if got := all.probe(at(2), name(2), "eth0", before.Late); got != c.want {
			t.Errorf("%s: %+v, want %+v", c.what, got, c.want)
		}
		if want := c.want.Asked.Add(ProbeAgain); !all.Output().Wake.Equal(want) {
			t.Errorf("%s: wakes %v, want %v", c.what, all.Output().Wake, want)
		}
	}
}

// TestAnswerOfOneLink: an address is asked for on one link, and what it says there is said of no
// other one.
func TestAnswerOfOneLink(t *testing.T) {
	v := world(2)
	change(v, 2, func(m *model.Member) { m.Late = now })
	all := New(v, 1, 0)
	all.keep(at(2), model.RingProbe{Node: name(2), Interface: "eth0", Late: now, Asked: now, Silent: true})
	for iface, want := range map[string]bool{"eth0": true, "eth1": false} {
		l := v.Links["eth0"]
		l.Name = iface
		if got := all.silent(name(2), &l, true); got != want {
			t.Errorf("silent on %s: %v", iface, got)
		}
	}
}

// TestAskedOnOneInterface: a node that is on two interfaces is asked for on the same one in each
// decision, so that the answer counts.
func TestAskedOnOneInterface(t *testing.T) {
	v := world(3)
	for _, name := range []string{"eth1", "eth2", "eth3"} {
		v.Links[name] = model.Link{Name: name, Up: true, Prefixes: v.Links["eth0"].Prefixes}
	}
	change(v, 2, func(m *model.Member) { m.Late = now })
	r := plain()
	r.Interface = ""
	for range 20 {
		all := New(v, 1, 0)
		on, _ := all.Of(r)
		if asked := all.Output().Questions; on != "eth0" || len(asked) != 1 || asked[0].Interface != "eth0" {
			t.Fatalf("the ring is on %q, asked is %+v", on, asked)
		}
	}
}
