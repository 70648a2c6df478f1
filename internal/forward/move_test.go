package forward

import (
	"bytes"
	"context"
	"errors"
	"io"
	"log/slog"
	"net"
	"net/netip"
	"os"
	"slices"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/google/nftables"

	"lbd.dev/lbd/internal/announce"
	"lbd.dev/lbd/internal/model"
	"lbd.dev/lbd/internal/nft"
)

// TestOwnerMoves: the other balancer takes open connections up, to the same servers.
func TestOwnerMoves(t *testing.T) {
	l := newLab(t)
	state := wanted(s1, s2, s3)
	l.balancer(b1).forwards(state)
	l.balancer(b2).forwards(state)
	var open []net.Conn
	var by []string
	for i := range 40 {
		c := l.open([]string{"tcp", "udp"}[i/2%2], both[i%2])
		open, by = append(open, c), append(by, l.served(c))
	}
	for _, owner := range []string{b2, b1} {
		l.move(owner)
		for i, c := range open {
			if host := l.served(c); host != by[i] {
				t.Errorf("%s: %s moved from %s to %s", owner, c.LocalAddr(), by[i], host)
			}
		}
	}
}

// TestServerSpeaksFirst: what a server says to the new owner, which does not know of the
// connection, does not end it. The next packet of the client brings it there.
func TestServerSpeaksFirst(t *testing.T) {
	l := newLab(t)
	state := &model.ForwardState{}
	for _, vip := range both { // a server that the test speaks for
		servers := []netip.AddrPort{netip.AddrPortFrom(addr(s1, vip), 7000)}
		state.Services = append(state.Services, model.ForwardService{
			Addr: vip, Protocol: model.TCP, Port: port, Slots: &model.SlotTable{Slots: servers}, Servers: servers, Interface: "eth0",
		})
	}
	var ln net.Listener
	var err error
	l.In(s1, func() { ln, err = net.Listen("tcp", ":7000") })
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = ln.Close() }()
	l.balancer(b1).forwards(state)
	l.balancer(b2).forwards(state)
	for _, vip := range both {
		l.move(b1)
		c := l.open("tcp", vip)
		s, err := ln.Accept()
		if err != nil {
			t.Fatal(err)
		}
		defer func() { _ = s.Close() }()
		l.move(b2)
		_ = c.SetDeadline(time.Now().Add(patience))
		buf := make([]byte, 5)
		if _, err := s.Write([]byte("push\n")); err != nil {
			t.Fatal(err)
		}
		time.Sleep(300 * time.Millisecond)
		if _, err := c.Write([]byte("x")); err != nil {
			t.Fatal(err)
		}
		if _, err := io.ReadFull(c, buf); err != nil || string(buf) != "push\n" {
			t.Errorf("%s: %q, %v", vip, buf, err)
		}
	}
}

// TestFINAfterCrash: a connection whose next packet is its last is reset, so the client
// does not wait for an answer.
func TestFINAfterCrash(t *testing.T) {
	l := newLab(t)
	l.balancer(b1).forwards(wanted(s1))
	l.balancer(b2).forwards(wanted(s1))
	for _, vip := range both {
		l.move(b1)
		c := l.open("tcp", vip)
		l.served(c)
		l.IP(b1, "link set eth0 down")
		l.move(b2)
		if err := c.(*net.TCPConn).CloseWrite(); err != nil {
			t.Fatal(err)
		}
		_ = c.SetReadDeadline(time.Now().Add(patience))
		if _, err := c.Read(make([]byte, 1)); !errors.Is(err, syscall.ECONNRESET) {
			t.Errorf("%s: %v", vip, err)
		}
		l.IP(b1, "link set eth0 up")
		if vip.Is4() { // the link has lost them
			l.IP(b1, "addr replace fd00::1/64 dev eth0 nodad")
		}
	}
}

// list is the ruleset of a host.
func (l *lab) list(host string) string {
	l.Helper()
	return l.ExecOn(host, "nft", "-s", "list", "ruleset")
}

// handle has the number of each table of the host, which those that are made anew have not.
func (l *lab) handle(host string) (out string) {
	l.Helper()
	for _, family := range []string{"ip", "ip6"} {
		head, _, _ := strings.Cut(l.ExecOn(host, "nft", "-a", "list", "table", family, TableName), "\n")
		out += head
	}
	return out
}

// TestListsAndLoads: what nft lists it can load again, for those who save their rules.
func TestListsAndLoads(t *testing.T) {
	l := newLab(t)
	state := wanted(s1, s2)
	state.Services[0].ClientAffinity = true
	for _, p := range []string{"10.0.0.0/24", "0.0.0.0/0", "fd00::/64"} {
		state.Services[1].AllowedSources = append(state.Services[1].AllowedSources, netip.MustParsePrefix(p))
	}
	state.Services[3].Slots = nil
	l.balancer(b1).forwards(state)
	before := l.list(b1)
	file := t.TempDir() + "/rules"
	if err := os.WriteFile(file, []byte("flush ruleset\n"+before), 0o600); err != nil {
		t.Fatal(err)
	}
	l.ExecOn(b1, "nft", "-f", file)
	if after := l.list(b1); after != before || !strings.Contains(before, "jhash") {
		t.Errorf("listed\n%s\nloaded\n%s", before, after)
	}
}

// TestPutsRulesBack that somebody removes.
func TestPutsRulesBack(t *testing.T) {
	l := newLab(t)
	b := l.balancer(b1)
	r := announce.NewRunner(b.Driver, slog.New(slog.DiscardHandler), func(model.SinkName, model.Applied) {})
	ctx, cancel := context.WithCancel(context.Background())
	ended := make(chan error)
	go b.In(b1, func() { ended <- r.Run(ctx) })
	r.Submit(&model.Desired{Synced: true, Forward: *wanted(s1)})
	defer func() {
		cancel()
		if err := <-ended; err != nil {
			t.Error(err)
		}
	}()
	// What comes from the LAN, from containers and from the host itself, of both families.
	whole := func() bool { return strings.Count(l.list(b1), "@targets") == 6 }
	back := func() time.Duration {
		start := time.Now()
		for !whole() {
			if time.Since(start) > patience {
				t.Fatal("the rules do not come")
			}
			time.Sleep(time.Millisecond)
		}
		return time.Since(start)
	}
	back()
	for _, command := range []string{"flush ruleset", "delete table ip " + TableName, "flush chain ip " + TableName + " prerouting"} {
		l.ExecOn(b1, append([]string{"nft"}, strings.Fields(command)...)...)
		t.Logf("%s: back after %s", command, back())
		for _, vip := range both {
			l.served(l.open("tcp", vip))
		}
	}
}

// TestEarlierProcess: its rules stay in force until this one knows all that is wanted, and
// then nothing of them is left.
func TestEarlierProcess(t *testing.T) {
	l := newLab(t)
	early, last := wanted(s1), wanted(s2)
	early.Services = append(early.Services[:2:2], model.ForwardService{Addr: vip4, Protocol: model.TCP, Port: 444, Slots: early.Services[0].Slots})
	first := l.balancer(b1)
	first.forwards(early)
	c := l.open("tcp", vip4)
	if l.served(c) != s1 {
		t.Fatal("not s1")
	}
	if err := first.Close(context.Background()); err != nil {
		t.Fatal(err)
	}
	b := l.balancer(b1)
	b.want(&model.Desired{})
	if l.served(l.open("tcp", vip4)) != s1 {
		t.Error("replaced")
	}
	last.Cut = []model.CutServer{{VIP: vip4, Server: server(s1, vip4), Protocol: model.TCP}}
	got := b.want(&model.Desired{Forward: *last})
	if l.served(l.open("tcp", vip4)) != s1 || l.served(c) != s1 {
		t.Error("replaced")
	}
	if !got.VIPs[vip4].Forwarding || !got.VIPs[vip6].Forwarding || b.Extend(time.Time{}) {
		t.Errorf("%+v", got)
	}
	b.forwards(last)
	if l.served(l.open("tcp", vip4)) != s2 {
		t.Error("not replaced")
	}
	if host, _, err := ask(c, patience); err == nil {
		t.Errorf("the connection that is to end is with %s", host)
	}
	if err := l.refused("tcp", netip.AddrPortFrom(vip4, 444)); err != nil {
		t.Error(err)
	}
	// A table with nothing but what is wanted is replaced at once.
	again := l.balancer(b1)
	again.want(&model.Desired{Forward: *wanted(s3)})
	if l.served(l.open("tcp", vip4)) != s3 {
		t.Error("not replaced at once")
	}
	// One with what nobody wants any more is removed, once that is known.
	end := l.balancer(b1)
	end.want(&model.Desired{})
	l.served(l.open("tcp", vip4))
	end.want(&model.Desired{Synced: true})
	if rest := l.list(b1); rest != "" {
		t.Errorf("left behind:\n%s", rest)
	}
}

func TestCleanup(t *testing.T) {
	l := newLab(t)
	l.balancer(b1).forwards(wanted(s1))
	l.In(b1, func() {
		removed, err := Cleanup(context.Background())
		if got := strings.Join(removed, ", "); err != nil || got != "table ip lbd-forward, table ip6 lbd-forward" {
			t.Errorf("%s, %v", got, err)
		}
		if removed, err = Cleanup(context.Background()); err != nil || len(removed) > 0 {
			t.Errorf("again: %v, %v", removed, err)
		}
	})
	if rest := l.list(b1); rest != "" {
		t.Errorf("left behind:\n%s", rest)
	}
}

// TestBegunBeforeTheRules: datagrams that were routed before there were rules are
// forwarded, although they never pause.
func TestBegunBeforeTheRules(t *testing.T) {
	l := newLab(t)
	b := l.balancer(b1)
	// Connection tracking has something to do.
	l.ExecOn(b1, "nft", "add table inet x; add chain inet x y { type filter hook forward priority 0; }; add rule inet x y ct state new accept")
	for _, vip := range both {
		c, err := l.dial(client, "udp", netip.AddrPortFrom(vip, port))
		if err != nil {
			t.Fatal(err)
		}
		if _, _, err := ask(c, 300*time.Millisecond); err == nil {
			t.Fatal("there is no rule")
		}
		b.forwards(wanted(s1))
		if l.served(c) != s1 {
			t.Error("not s1")
		}
		b.apply(&model.ForwardState{})
	}
}

// TestWarnsOfStrictTracking once.
func TestWarnsOfStrictTracking(t *testing.T) {
	l := newLab(t)
	var log bytes.Buffer
	b := l.balancer(b1)
	b.log = slog.New(slog.NewTextHandler(&log, nil))
	b.forwards(wanted(s1)) // which has connections tracked
	if log.Len() > 0 {
		t.Errorf("%s", &log)
	}
	for _, switched := range tracking {
		l.ExecOn(b1, "sysctl", "-qw", switched.name+"=0")
	}
	b.forwards(wanted(s1))
	b.forwards(wanted(s2))
	for _, switched := range tracking {
		if got := log.String(); strings.Count(got, switched.name) != 1 || strings.Count(got, "WARN") != len(tracking) {
			t.Errorf("%s", got)
		}
	}
	l.served(l.open("tcp", vip4))
}

// TestSharesAndReuses: services with the same servers share a map, and a change sends what
// differs.
func TestSharesAndReuses(t *testing.T) {
	l := newLab(t)
	b := l.balancer(b1)
	state := wanted(s1, s2)
	for i := range state.Services {
		state.Services[i].Slots = slotTable(1024, state.Services[i].Addr, s1, s2) // the same, another pointer
	}
	more, another := state.Services[0], state.Services[0]
	more.Port++
	another.Port += 2
	another.Slots = &model.SlotTable{Slots: slices.Clone(another.Slots.Slots)}
	for i, to := range another.Slots.Slots {
		another.Slots.Slots[i] = netip.AddrPortFrom(to.Addr(), to.Port()+1)
	}
	state.Services = append(state.Services, more, another)
	b.forwards(state)
	if n := strings.Count(l.list(b1), "jhash"); n != 4 { // of TCP and UDP of two families
		t.Errorf("%d maps, want 4", n)
	}
	before := l.handle(b1)
	state.Services = slices.Clone(state.Services) // a decision is never changed
	state.Services[0].Slots = slotTable(1024, vip4, s3)
	b.forwards(state)
	if n := strings.Count(l.list(b1), "jhash"); n != 5 {
		t.Errorf("%d maps, want 5", n)
	}
	state.Services = slices.Clone(state.Services)
	state.Services[2].Slots = slotTable(512, vip6, s3)
	b.forwards(state)
	if n := strings.Count(l.list(b1), "jhash"); n != 5 { // none is left over
		t.Errorf("%d maps, want 5", n)
	}
	if l.handle(b1) != before {
		t.Error("the table is another one")
	}
	other := nft.New(time.Second)
	defer func() { _ = other.Close() }()
	l.In(b1, func() {
		for n, want := range []int{1, 1, 6, 4, 4} {
			if got := size(t, other, families[0].set(n)); got != want {
				t.Errorf("%s has %d elements, want %d", setNames[n], got, want)
			}
		}
	})
}

func size(t *testing.T, s *nft.Session, set *nftables.Set) (n int) {
	t.Helper()
	if err := s.Do(func(c *nftables.Conn) error {
		elements, err := c.GetSetElements(set)
		n = len(elements)
		return err
	}); err != nil {
		t.Error(err)
	}
	return n
}

// TestVIPsComeAndGo: a VIP that is added later is forwarded as the first ones are, and of
// one that is taken away nothing is left but its connections.
func TestVIPsComeAndGo(t *testing.T) {
	l := newLab(t)
	b := l.balancer(b1)
	state := wanted(s1)
	b.forwards(state)
	added := netip.MustParseAddr("10.0.0.101")
	l.knows(client, b1, added)
	l.knows(s1, b1, added)
	more := &model.ForwardState{Services: slices.Clone(state.Services)}
	service := state.Services[0]
	service.Addr = added
	more.Services = append(more.Services, service)
	b.forwards(more)
	c := l.open("tcp", added)
	if _, seen, err := ask(c, patience); err != nil || seen != added.String() {
		t.Errorf("the server sees %s, %v", seen, err)
	}
	b.forwards(state)
	if l.served(c) != s1 {
		t.Error("not s1")
	}
	if rest := l.list(b1); strings.Contains(rest, added.String()) {
		t.Errorf("left behind:\n%s", rest)
	}
}

// TestRemovedUnheard: a table that was removed while nobody listened is noticed by the next
// look.
func TestRemovedUnheard(t *testing.T) {
	l := newLab(t)
	b := l.balancer(b1)
	b.forwards(wanted(s1))
	b.session.Unwatch()
	l.ExecOn(b1, "nft", "flush", "ruleset")
	b.forwards(wanted(s1))
	l.served(l.open("tcp", vip4))
	if !strings.Contains(l.list(b1), "jhash") {
		t.Error("the rules are not back")
	}
}
