package decide

import (
	"net/netip"
	"testing"
	"time"

	"lbd.dev/lbd/internal/election"
	"lbd.dev/lbd/internal/model"
)

// answered reports that every series has ended in silence, for all that v is asked
// to probe.
func answered(v *model.View, d *model.Desired) {
	vips := map[netip.Addr]model.AppliedVIP{}
	for _, a := range d.L2 {
		if a.Mode == model.L2Probe {
			vips[a.Addr] = model.AppliedVIP{Interface: a.Interface, Probe: model.ProbeResult{Series: a.Series, Done: true, At: v.Now}}
		} else {
			vips[a.Addr] = model.AppliedVIP{Interface: a.Interface, Announcing: true}
		}
	}
	v.Applied[model.SinkLayer2] = model.Applied{Gen: d.Gen, VIPs: vips}
}

func probes(d *model.Desired) (n int) {
	for _, a := range d.L2 {
		if a.Mode == model.L2Probe {
			n++
		}
	}
	return n
}

// A node without others asks for all VIPs in the end, never for too many at once, and
// those that are bound wait for none of them.
func TestCrowdOfVIPs(t *testing.T) {
	const bound = 10
	v := large(1, 1000, false)
	for i := range v.VIPs {
		v.VIPs[i].Unbound = i < len(v.VIPs)-bound
	}
	all := len(v.VIPs) - bound
	for turn := range 3 * all / election.MostProbing {
		v.Now = v.Now.Add(10 * time.Millisecond)
		d := Decide(&v)
		waiting, probing, owned := 0, 0, 0
		for _, m := range d.Memory.VIPs {
			waiting += one(m.Phase == model.PhaseWaiting)
			probing += one(m.Phase == model.PhaseProbing)
			owned += one(m.Phase == model.PhaseOwner)
		}
		if d.Memory.Waiting != waiting || d.Memory.Probing != probing {
			t.Fatalf("turn %d: counted %d and %d, want %d and %d", turn, d.Memory.Waiting, d.Memory.Probing, waiting, probing)
		}
		if n := probes(&d); n > election.MostProbing+bound {
			t.Fatalf("turn %d: the wire is asked for %d VIPs at once", turn, n)
		}
		if m := d.Memory.VIPs[v.VIPs[len(v.VIPs)-1].Addr]; turn > 1 && m.Phase == model.PhaseWaiting {
			t.Fatalf("turn %d: a bound VIP waits", turn)
		}
		if owned >= all {
			return
		}
		v.Memory = d.Memory
		answered(&v, &d)
	}
	t.Error("there are VIPs without owner in the end")
}

// While thousands wait, a node leaves those time that have their turn before it.
func TestTurnsInACrowd(t *testing.T) {
	v := large(2, 1000, false)
	for i := range v.VIPs {
		v.VIPs[i].Unbound = true
		v.Gossip.Seen[v.VIPs[i].Addr] = 3 // somebody owned it, and it is missed
	}
	first := Decide(&v)
	v.Memory = first.Memory
	v.Now = v.Now.Add(2 * election.Stagger) // far behind the turn of the second
	answered(&v, &first)                    // so that there is room for more
	d := Decide(&v)
	if n := probes(&d); n == 0 || n > election.MostProbing {
		t.Errorf("the wire is asked for %d VIPs, want some, %d at most", n, election.MostProbing)
	}
	for _, a := range d.L2 {
		name := ""
		for i := range v.VIPs {
			if v.VIPs[i].Addr == a.Addr {
				name = v.VIPs[i].Name
			}
		}
		if election.Better(name, election.Candidate{Node: "n00001"}, election.Candidate{Node: v.Self}) {
			t.Errorf("the wire is asked for %s, which the other node has the turn for", a.Addr)
		}
	}
}

// TestSteadyDecisionOfMany: a decision in which nothing has changed takes over what the
// one before has made of 5000 VIPs.
func TestSteadyDecisionOfMany(t *testing.T) {
	v := large(3, 5000, true)
	for i := range v.VIPs {
		v.VIPs[i].Unbound = true
	}
	v.Memory = Decide(&v).Memory
	v.Memory = Decide(&v).Memory
	if n := testing.AllocsPerRun(3, func() { v.Memory = Decide(&v).Memory }); n > 30 {
		t.Errorf("%v allocations", n)
	}
}

func one(b bool) int {
	if b {
		return 1
	}
	return 0
}

// TestSuspectedCrowd: at the first missed heartbeat of an owner the wire is asked for some of its
// VIPs, always the same ones, and for none twice.
func TestSuspectedCrowd(t *testing.T) {
	v := large(2, 1000, true)
	v.Memory = Decide(&v).Memory
	m := v.Gossip.Members["n00001"]
	m.Suspect = v.Now
	v.Gossip.Members[m.Name] = m
	d := Decide(&v)
	if n := probes(&d); n != election.MostSuspected {
		t.Fatalf("the wire is asked for %d VIPs, want %d", n, election.MostSuspected)
	}
	v.Memory = d.Memory
	answered(&v, &d)
	silent := v.Applied[model.SinkLayer2]
	all := map[netip.Addr]model.AppliedVIP{}
	for a, r := range silent.VIPs {
		r.Probe.Answered = true
		all[a] = r
	}
	v.Applied[model.SinkLayer2] = model.Applied{Gen: silent.Gen, VIPs: all}
	for range 3 {
		if d = Decide(&v); probes(&d) != 0 {
			t.Fatalf("the wire is asked for %d VIPs more", probes(&d))
		}
		v.Memory = d.Memory
	}
	m.Suspect, m.Late = time.Time{}, v.Now
	v.Gossip.Members[m.Name] = m
	if d = Decide(&v); probes(&d) < 500 {
		t.Errorf("the wire is asked for %d VIPs of an owner that is late", probes(&d))
	}
}
