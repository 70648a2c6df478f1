package forward

import (
	"math/rand/v2"
	"net/netip"
	"os"
	"slices"
	"strings"
	"testing"

	"lbd.dev/lbd/internal/balance"
	"lbd.dev/lbd/internal/model"
)

// instead has servers have some slots, from one on, in place of those that have them in all tables.
func instead(state *model.ForwardState, from, count int, servers ...string) *model.ForwardState {
	out := &model.ForwardState{Services: slices.Clone(state.Services)}
	for i := range out.Services {
		s := &out.Services[i]
		s.Slots = &model.SlotTable{Slots: slices.Clone(s.Slots.Slots)}
		for n := range count {
			s.Slots.Slots[from+n] = server(servers[n%len(servers)], s.Addr)
		}
	}
	return out
}

// TestLaidOver: where a table differs little from the one before, only what differs is loaded, and the
// rest is left to that. Each connection goes to the server of its slot, before and after, and what
// nobody needs any more is gone.
func TestLaidOver(t *testing.T) {
	l := newLab(t)
	b := l.balancer(b1)
	first := wanted(s1, s2)
	for i := range first.Services {
		first.Services[i].ClientAffinity = i%2 > 0
	}
	b.forwards(first)
	before := l.handle(b1)
	for _, c := range []struct {
		what  string
		state *model.ForwardState
		maps  int // of two protocols and two families
	}{
		{"the first one", first, 4},
		{"some slots differ", instead(first, 100, 250, s3), 8},
		{"others do", instead(first, 300, 250, s3, s1), 8},
		{"as the first one", first, 4},
		{"others do", instead(first, 300, 250, s3, s1), 8},
		{"most do", instead(first, 0, 1000, s3), 4},
		{"of these some do", instead(first, 0, 900, s3), 8},
	} {
		b.forwards(c.state)
		rules := l.list(b1)
		if n := strings.Count(rules, "jhash"); n != c.maps {
			t.Errorf("%s: %d maps, want %d", c.what, n, c.maps)
		}
		for i := range c.state.Services {
			s := &c.state.Services[i]
			for range 12 {
				conn := l.open(strings.ToLower(s.Protocol.String()), s.Addr)
				if got, want := l.served(conn), s.Slots.Slots[balance.Slot(local(conn), s.ClientAffinity, 1024)]; server(got, s.Addr) != want {
					t.Errorf("%s: %s from %s: %s, want %s", c.what, s.Protocol, local(conn), got, want)
				}
			}
		}
		file := t.TempDir() + "/rules"
		if err := os.WriteFile(file, []byte("flush ruleset\n"+rules), 0o600); err != nil {
			t.Fatal(err)
		}
		l.ExecOn(b1, "nft", "-c", "-f", file)
	}
	if l.handle(b1) != before {
		t.Error("the table is another one")
	}
	other := l.balancer(b1) // begins anew
	other.forwards(first)
	if n := strings.Count(l.list(b1), "jhash"); n != 4 {
		t.Errorf("%d maps, want 4", n)
	}
}

// TestBases: whatever tables follow each other, a base has all slots, and is the one that what is laid
// over it was compared with.
func TestBases(t *testing.T) {
	random := rand.New(rand.NewPCG(1, 2))
	var before *image
	laid := 0
	state := wanted(s1, s2, s3)
	for range 300 {
		state = instead(state, random.IntN(500), random.IntN(500), s1, s2, []string{s1, s2, s3}[random.IntN(3)])
		for i := range state.Services {
			s := &state.Services[i]
			if s.ClientAffinity = random.IntN(10) == 0; random.IntN(20) == 0 {
				s.Slots = slotTable(512<<random.IntN(2), s.Addr, s3)
				if random.IntN(2) == 0 {
					s.Slots.Slots[0] = netip.AddrPortFrom(s.Slots.Slots[0].Addr(), 80)
				}
			}
			if len(s.Slots.Slots) < 1024 {
				s.Slots = slotTable(1024, s.Addr, s1)
			}
		}
		m := families[0].describe(pointers(&model.ForwardState{Services: state.Services[:2]}), nil, before)
		used := make(map[string]bool)
		for _, name := range m.elements[setTargets] {
			c := m.chains[name]
			used[name], used[c.base] = true, true
		}
		for name, c := range m.chains {
			if !used[name] {
				t.Fatalf("%s is of no use", name)
			}
			if c.base == "" {
				continue
			}
			laid++
			if base := m.chains[c.base]; base.base != "" || base.slots == nil || base.slots != c.over || c.differs() == 0 || c.differs() > len(c.slots.Slots)/laidOver {
				t.Fatalf("%s is laid over %s: %+v", name, c.base, base)
			}
		}
		before = m
	}
	if laid < 50 {
		t.Errorf("only %d were laid over others", laid)
	}
}
