package forward

import (
	"bytes"
	"errors"
	"log/slog"
	"net/netip"
	"strings"
	"testing"
	"time"

	"lbd.dev/lbd/internal/model"
)

// count is what the driver of a balancer counts at this moment.
func (b *balancer) count() (c Counts) {
	b.Helper()
	var err error
	b.In(b.host, func() {
		b.counts.next = time.Time{}
		c, err = b.Count()
	})
	if err != nil {
		b.Fatal(err)
	}
	return c
}

// TestCounts: connections are counted once, whatever they carry, and bytes in both directions;
// those that are open by VIP. A change of servers keeps what was counted.
func TestCounts(t *testing.T) {
	l := newLab(t)
	b := l.balancer(b1)
	if got := b.count(); len(got.Servers)+len(got.Open) > 0 {
		t.Errorf("without services: %+v", got)
	}
	state := wanted(s1)
	b.forwards(state)
	for _, vip := range both {
		for _, p := range []model.Protocol{model.TCP, model.UDP} {
			network := strings.ToLower(p.String())
			for range 3 {
				c := l.open(network, vip)
				for range 20 {
					l.served(c)
				}
			}
			own, err := l.dial(b1, network, netip.AddrPortFrom(vip, port))
			if err != nil {
				t.Fatal(err)
			}
			l.served(own)
		}
	}
	b.forwards(wanted(s1, s2))
	got := b.count()
	for _, vip := range both {
		for _, p := range []model.Protocol{model.TCP, model.UDP} {
			at := Counted{server(s1, vip), p}
			n, open := got.Servers[at], got.Open[Way{vip, at}]
			// Each line is "who", each answer has a name and an address: headers make it more.
			if n.Opened != 4 || open != 4 || n.Received < 60*24 || n.Received > 60*400 || n.Sent < n.Received/2 || n.Sent > 60*400 {
				t.Errorf("%s %s: %+v, %d open", vip, p, n, open)
			}
			if none := got.Servers[Counted{server(s2, vip), p}]; none != (Count{}) {
				t.Errorf("%s %s: a server without connections has %+v", vip, p, none)
			}
		}
	}
}

// TestOpenBeyondTheBound: connections to a server that is not counted are known to be open, and those
// that others translate are none of them.
func TestOpenBeyondTheBound(t *testing.T) {
	l := newLab(t)
	b := l.balancer(b1)
	b.forwards(wanted(s1))
	l.served(l.open("tcp", vip4))
	for _, n := range []int{setOpened, setReceived, setSent} {
		l.ExecOn(b1, "nft", "flush", "set", "ip", TableName, setNames[n])
	}
	at := Counted{server(s1, vip4), model.TCP}
	got := b.count()
	if _, is := got.Servers[at]; is || got.Open[Way{vip4, at}] != 1 {
		t.Errorf("%+v", got)
	}
	b.counts.vips[0] = nil // the connection is that of somebody else's address
	if got := b.count(); len(got.Open) != 0 {
		t.Errorf("%+v", got)
	}
}

// TestCountsSoMany: of more servers than that the rest is forwarded to and not counted.
func TestCountsSoMany(t *testing.T) {
	apply, state := host(t), many(60, ownTable)
	m := families[0].describe(pointers(state), nil, nil)
	if len(m.elements[setOpened]) != maxCounted || len(m.elements[setServers]) != 6000 || m.uncounted != 6000-maxCounted {
		t.Errorf("%d of %d counted, %d not", len(m.elements[setOpened]), len(m.elements[setServers]), m.uncounted)
	}
	apply(state)
}

// TestTenantsAreCountedLast: where there is no room for all, the servers of other clusters are left out.
func TestTenantsAreCountedLast(t *testing.T) {
	state := many(60, ownTable)
	for i := range state.Services[:30] {
		state.Services[i].OfTenant = true
	}
	m := families[0].describe(pointers(state), nil, nil)
	for _, s := range state.Services[30:] {
		for _, to := range s.Servers {
			if _, is := m.elements[setOpened][string(end(to.Addr().AsSlice(), s.Protocol, to.Port()))]; !is {
				t.Fatalf("%s of the cluster itself is not counted", to)
			}
		}
	}
	if len(m.elements[setOpened]) != maxCounted || m.uncounted != 6000-maxCounted {
		t.Errorf("%d counted, %d not", len(m.elements[setOpened]), m.uncounted)
	}
}

func pointers(state *model.ForwardState) (out []*model.ForwardService) {
	for i := range state.Services {
		out = append(out, &state.Services[i])
	}
	return out
}

// TestCountRests: whoever asks again and again does not have the kernel list its connections
// each time.
func TestCountRests(t *testing.T) {
	l := newLab(t)
	b := l.balancer(b1)
	b.forwards(wanted(s1))
	first := b.count()
	l.served(l.open("tcp", vip4))
	l.In(b1, func() {
		b.counts.next = time.Now().Add(time.Hour)
		if again, err := b.Count(); err != nil || len(again.Open) != len(first.Open) {
			t.Errorf("%+v, %v", again, err)
		}
	})
	if got := b.count(); len(got.Open) != 1 {
		t.Errorf("%+v", got)
	}
}

// TestReadsKeys that the driver writes.
func TestReadsKeys(t *testing.T) {
	for _, vip := range both {
		want := Counted{server(s1, vip), model.UDP}
		if got, ok := counted(end(want.Server.Addr().AsSlice(), model.UDP, target)); !ok || got != want {
			t.Errorf("%+v, %v", got, ok)
		}
	}
	if _, ok := counted(bytes.Repeat([]byte{1}, 9)); ok {
		t.Error("a key of nine bytes was read")
	}
}

// TestFollowsServers: what was made of the servers before is used again only while they are the same.
func TestFollowsServers(t *testing.T) {
	state := wanted(s1)
	f := &families[0]
	of := func() []*model.ForwardService { return pointers(&model.ForwardState{Services: state.Services[:2]}) }
	before := f.describe(of(), nil, nil)
	if again := f.describe(of(), nil, before); again.fresh(before) != 0 || len(again.elements[setServers]) != 6 {
		t.Errorf("%d elements", len(again.elements[setServers]))
	}
	state = wanted(s1)
	state.Services[1].Servers = state.Services[1].Servers[:1]
	if now := f.describe(of(), nil, before); len(now.elements[setServers]) != 4 || len(now.elements[setSent]) != 4 {
		t.Errorf("%d elements, %d counted", len(now.elements[setServers]), len(now.elements[setSent]))
	}
	state.Services[1].Protocol, state.Services[1].Servers = model.TCP, state.Services[0].Servers
	if now := f.describe(of(), nil, before); len(now.elements[setServers]) != 3 {
		t.Errorf("%d elements", len(now.elements[setServers]))
	}
}

// TestNamesOfTables: those that differ in one slot are two, and those that differ in the port are one.
func TestNamesOfTables(t *testing.T) {
	table := func(last string, port uint16) *model.SlotTable {
		s := slotTable(4, vip4, s1, s1, s1, last)
		for i, to := range s.Slots {
			s.Slots[i] = netip.AddrPortFrom(to.Addr(), port)
		}
		return s
	}
	state := wanted()
	for i, s := range []*model.SlotTable{table(s1, 1), table(s2, 1), table(s1, 2), table(s2, 2)} {
		state.Services[i].Addr, state.Services[i].Port, state.Services[i].Protocol, state.Services[i].Slots = vip4, uint16(1+i), model.TCP, s
	}
	m := families[0].describe(pointers(state), nil, nil)
	var names []string
	for i := range state.Services {
		names = append(names, m.elements[setTargets][serviceKey(&state.Services[i])])
	}
	if len(m.chains) != 2 || names[0] != names[2] || names[1] != names[3] || names[0] == names[1] {
		t.Errorf("%v", names)
	}
}

// TestCountFailsAgain: what could not be read is not taken for nothing by the next who asks.
func TestCountFailsAgain(t *testing.T) {
	d := New(Options{Logger: slog.New(slog.DiscardHandler)})
	d.counts.there[0] = true // which is not so
	if _, err := d.Count(); err == nil {
		t.Fatal("a table that is not there is read")
	}
	d.counts.next = time.Now().Add(time.Hour)
	if c, err := d.Count(); err == nil {
		t.Errorf("%+v, and no error", c)
	}
}

// TestCloseWaitsForNoScrape, and who counts at that moment leaves nothing open.
func TestCloseWaitsForNoScrape(t *testing.T) {
	l := newLab(t)
	b := l.balancer(b1)
	b.forwards(wanted(s1))
	b.count()
	b.counts.mu.Lock() // somebody counts
	if err := b.Close(t.Context()); err != nil || b.counts.session == nil {
		t.Fatalf("%v, session %v", err, b.counts.session)
	}
	b.counts.mu.Unlock()
	if c, err := b.Count(); !errors.Is(err, errClosed) || b.counts.session != nil {
		t.Errorf("%+v, %v; session %v", c, err, b.counts.session)
	}
}
