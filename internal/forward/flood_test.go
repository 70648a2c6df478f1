package forward

import (
	"bytes"
	"log/slog"
	"net"
	"net/netip"
	"slices"
	"strings"
	"testing"
	"time"

	"lbd.dev/lbd/internal/balance"
	"lbd.dev/lbd/internal/model"
	"lbd.dev/lbd/internal/sockdiag"
	"lbd.dev/lbd/internal/testnet"
)

// flood sends the first packets of so many connections from each of some strangers.
func (l *lab) flood(first, strangers, each int) {
	l.Helper()
	var err error
	l.In(client, func() { err = testnet.Flood(netip.AddrPortFrom(vip4, port), first, strangers, each) })
	if err != nil {
		l.Fatal(err)
	}
}

// flooded is a lab whose first balancer has the state, with its log.
func flooded(t *testing.T, state *model.ForwardState) (l *lab, b *balancer, log *bytes.Buffer) {
	t.Helper()
	l, log = quietLab(t), &bytes.Buffer{}
	l.IP(b1, "route add "+testnet.Strangers+" via "+addr(client, vip4).String())
	l.ExecOn(b1, "sysctl", "-qw", "net.ipv4.conf.all.rp_filter=0", "net.ipv4.conf.eth0.rp_filter=0")
	b = l.balancer(b1)
	b.log = slog.New(slog.NewTextHandler(log, nil))
	b.forwards(state)
	b.looks(0)
	return l, b, log
}

// looks has the driver look for what new connections lack.
func (b *balancer) looks(at time.Duration) []string {
	b.In(b.host, func() {
		b.counts.next = time.Time{}
		b.look(time.Unix(0, 0).Add(at))
	})
	return b.Lacks()
}

// tracks is how many connections a balancer tracks, and what it has dropped.
func (b *balancer) tracks() (entries uint64, drops sockdiag.Drops) {
	b.In(b.host, func() {
		entries, _, _ = sockdiag.Table()
		drops, _ = sockdiag.Dropped()
	})
	return entries, drops
}

// races is how many packets may be dropped since two processors chose one port at a time.
const races = 20

// TestFlood: first packets of connections that nobody goes on with end none that is open, and others
// can open new ones. They are counted, and forgotten after the time that a switch of the kernel says.
func TestFlood(t *testing.T) {
	const kept = 2 * time.Second // by these switches
	l, b, _ := flooded(t, wanted(s1, s2, s3))
	l.ExecOn(b1, "sysctl", "-qw", "net.netfilter.nf_conntrack_tcp_timeout_syn_recv=2", "net.netfilter.nf_conntrack_tcp_timeout_syn_sent=2")
	var open []net.Conn
	var by []string
	for i := range 10 {
		open = append(open, l.open("tcp", vip4))
		by = append(by, l.served(open[i]))
	}
	const each, patient = 5000, 8 * time.Second
	var sent []time.Time
	pace := time.NewTicker(200 * time.Millisecond)
	defer pace.Stop()
	for begin := time.Now(); time.Since(begin) < patient; <-pace.C {
		l.flood(len(sent), 1, each)
		sent = append(sent, time.Now())
		l.served(l.open("tcp", vip4))
	}
	for i, c := range open {
		if now := l.served(c); now != by[i] {
			t.Errorf("%s was with %s and is with %s", c.LocalAddr(), by[i], now)
		}
	}
	halfOpen := 0
	for at, n := range b.count().HalfOpen {
		if at.Protocol != model.TCP || !at.Server.Addr().Is4() {
			t.Errorf("%v: %d", at, n)
		}
		halfOpen += n
	}
	late := time.Now().Add(-2 * kept)
	bound := each * (len(sent) - slices.IndexFunc(sent, late.Before))
	if halfOpen < each/2 || halfOpen > bound {
		t.Errorf("of %d there are %d, want at most %d", each*len(sent), halfOpen, bound)
	}
	t.Logf("%d a second, %d of them there", each*len(sent)/int(patient.Seconds()), halfOpen)
	if lacks := b.looks(time.Minute); len(lacks) > 0 {
		t.Errorf("%q", lacks)
	}
	if _, drops := b.tracks(); drops.All > races {
		t.Errorf("%+v", drops)
	}
}

// TestNoPortLeft: if clients have more connections to one server than its source has ports, the rest
// are dropped, which is said, and those that are open go on. With more sources there is room.
func TestNoPortLeft(t *testing.T) {
	t.Parallel()
	const clients, each = 3, 30000
	one := wanted(s1)
	l, b, log := flooded(t, one)
	c := l.open("tcp", vip4)
	l.served(c)
	several, sources := sourced(l, s1)
	b.forwards(several)
	l.takes(b1, sources)
	l.flood(0, clients, each)
	for range 20 {
		l.served(l.open("tcp", vip4))
	}
	if entries, drops := b.tracks(); drops.All > races || entries < clients*each-races || len(b.looks(time.Minute)) > 0 {
		t.Errorf("with %d sources: %d are tracked, %+v, %q", len(sources[vip4]), entries, drops, b.Lacks())
	}
	b.forwards(one)
	l.flood(clients, clients, each)
	lacks := b.looks(2 * time.Minute)
	_, drops := b.tracks()
	ports := b.count().Ports[Source{vip4, Counted{server(s1, vip4), model.TCP}}]
	t.Logf("%d ports are taken, %+v", ports.Taken, drops)
	if drops.Clashed == 0 || drops.All != drops.Clashed || ports.Used() <= scarce || ports.HalfOpen < ports.Taken/2 {
		t.Errorf("%+v, %+v", ports, drops)
	}
	if len(lacks) != 1 || !strings.Contains(lacks[0], "10.0.0.100 are taken by connections to 10.0.0.11:6443 (TCP)") || !strings.Contains(lacks[0], "SYN") {
		t.Errorf("%q", lacks)
	}
	l.served(c)
	if b.looks(3 * time.Minute); strings.Count(log.String(), "new connections lack room") != 1 {
		t.Errorf("it is to be logged once:\n%s", log)
	}
}

// TestAnswersLate: a client whose half open connection was forgotten before it answers reaches the
// server that it began with.
func TestAnswersLate(t *testing.T) {
	t.Parallel()
	l, b, _ := flooded(t, wanted(s1, s2, s3))
	l.ExecOn(b1, "sysctl", "-qw", "net.netfilter.nf_conntrack_tcp_timeout_syn_recv=1")
	l.ExecOn(client, "nft", "table ip t { chain o { type filter hook output priority 0; tcp flags & (syn | ack) == ack drop; }; }")
	var open []net.Conn
	for range 10 {
		open = append(open, l.open("tcp", vip4))
	}
	for end := time.Now().Add(patience); ; time.Sleep(100 * time.Millisecond) {
		if n, _ := b.tracks(); n == 0 {
			break
		} else if time.Now().After(end) {
			t.Fatalf("%d are tracked yet", n)
		}
	}
	l.ExecOn(client, "nft", "delete", "table", "ip", "t")
	slots := wanted(s1, s2, s3).Services[0].Slots.Slots
	for _, c := range open {
		if got, want := server(l.served(c), vip4), slots[balance.Slot(local(c), false, len(slots))]; got != want {
			t.Errorf("%s: %s, want %s", c.LocalAddr(), got, want)
		}
	}
}
