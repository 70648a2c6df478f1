package bfd

import (
	"math/rand/v2"
	"net"
	"net/netip"
	"testing"
	"time"

	"golang.org/x/sys/unix"
)

// TestFind has a row for each way to a session, RFC 5880 section 6.3.
func TestFind(t *testing.T) {
	tab := table{map[uint32]*watch{}, map[netip.Addr][]*watch{}}
	add := func(discr uint32, peer, local, ifname string, multihop bool) *watch {
		k := Key{Peer: addr(peer), Interface: ifname, Multihop: multihop}
		if local != "" {
			k.Local = addr(local)
		}
		w := &watch{key: k, minTTL: 255, m: &machine{localDiscr: discr}, slot: -1}
		if multihop {
			w.minTTL = 254
		}
		tab.add(w)
		return w
	}
	index := func(w *watch) int { return map[string]int{"": 0, "eth0": 2, "eth1": 3}[w.key.Interface] }
	open := add(1, "10.0.0.2", "", "", false)
	local := add(2, "10.0.0.2", "10.0.0.1", "", false)
	far := add(3, "10.0.0.2", "10.0.0.1", "", true)
	ll0 := add(4, "fe80::2", "", "eth0", false)
	ll1 := add(5, "fe80::2", "", "eth1", false)
	for _, r := range []struct {
		what     string
		your     uint32
		from, to string
		index    int
		ttl      uint8
		multihop bool
		want     *watch
		why      Reason
	}{
		{"by discriminator", 1, "10.0.0.2", "10.0.0.1", 2, 255, false, open, accepted},
		{"unknown discriminator", 9, "10.0.0.2", "10.0.0.1", 2, 255, false, nil, DropNoSession},
		{"discriminator of another peer", 1, "10.0.0.3", "10.0.0.1", 2, 255, false, open, DropAddress},
		{"discriminator on the other port", 1, "10.0.0.2", "10.0.0.1", 2, 255, true, open, DropAddress},
		{"discriminator, other own address", 2, "10.0.0.2", "10.0.0.9", 2, 255, false, local, DropAddress},
		{"discriminator, other interface", 4, "fe80::2", "fe80::1", 3, 255, false, ll0, DropInterface},
		{"discriminator, TTL", 1, "10.0.0.2", "10.0.0.1", 2, 254, false, open, DropTTL},
		{"zero: the session that names the own address", 0, "10.0.0.2", "10.0.0.1", 2, 255, false, local, accepted},
		{"zero: the session that names none", 0, "10.0.0.2", "10.0.0.9", 2, 255, false, open, accepted},
		{"zero: multihop", 0, "10.0.0.2", "10.0.0.1", 2, 254, true, far, accepted},
		{"zero: multihop, too far", 0, "10.0.0.2", "10.0.0.1", 2, 253, true, far, DropTTL},
		{"zero: interface eth0", 0, "fe80::2", "fe80::1", 2, 255, false, ll0, accepted},
		{"zero: interface eth1", 0, "fe80::2", "fe80::1", 3, 255, false, ll1, accepted},
		{"zero: interface of nobody", 0, "fe80::2", "fe80::1", 4, 255, false, ll0, DropInterface},
		{"zero: TTL counts for the session", 0, "fe80::2", "fe80::1", 3, 254, false, ll1, DropTTL},
		{"zero: stranger", 0, "10.0.0.3", "10.0.0.1", 2, 255, false, nil, DropNoSession},
	} {
		d := datagram{from: addr(r.from), to: addr(r.to), index: r.index, ttl: r.ttl}
		w, why := tab.find(&Packet{YourDiscr: r.your}, &d, r.multihop, index)
		if w != r.want || why != r.why {
			t.Errorf("%s: %v, %v", r.what, w, why)
		}
	}
	for _, w := range []*watch{open, local, far, ll0, ll1} {
		tab.remove(w)
	}
	if len(tab.byDiscr) != 0 || len(tab.byPeer) != 0 {
		t.Errorf("left over: %v", tab)
	}
}

// TestQueue: whatever is set in whatever order, the first is the earliest.
func TestQueue(t *testing.T) {
	rng := rand.New(rand.NewPCG(1, 2))
	var q queue
	all := make([]*watch, 100)
	for i := range all {
		all[i] = &watch{slot: -1}
	}
	for range 10000 {
		w := all[rng.IntN(len(all))]
		var d time.Time
		if rng.IntN(3) > 0 {
			d = time.Unix(rng.Int64N(1000), 0)
		}
		q.set(w, d)
		var first time.Time
		n := 0
		for _, w := range all {
			if w.deadline.IsZero() {
				continue
			}
			n++
			if first.IsZero() || w.deadline.Before(first) {
				first = w.deadline
			}
		}
		if n != len(q) || n > 0 && !q[0].deadline.Equal(first) {
			t.Fatalf("%d of %d in the queue", len(q), n)
		}
	}
}

// TestArrived: the wall clock may jump; a packet came after the socket was seen
// empty and before it is read.
func TestArrived(t *testing.T) {
	now := time.Now()
	empty := now.Add(-time.Second)
	for _, r := range []struct {
		stamp time.Time
		want  time.Time
	}{
		{now.Add(-300 * ms), now.Add(-300 * ms)},
		{now.Add(time.Hour), now},
		{now.Add(-time.Second - 5*ms), empty},
		{now.Add(-time.Hour), now},
		{time.Unix(0, 0), now},
	} {
		d := datagram{at: unix.NsecToTimespec(r.stamp.UnixNano())}
		if got := d.arrived(now, empty); got.Sub(r.want).Abs() > time.Microsecond {
			t.Errorf("%v: %v before now", r.stamp, now.Sub(got))
		}
	}
}

// TestRefused has a row for each rule of Session.
func TestRefused(t *testing.T) {
	for what, edit := range map[string]func(*Session){
		"no peer":              func(s *Session) { s.Peer = netip.Addr{} },
		"peer 0.0.0.0":         func(s *Session) { s.Peer = addr("0.0.0.0") },
		"multicast":            func(s *Session) { s.Peer = addr("224.0.0.1") },
		"other family":         func(s *Session) { s.Local = addr("fd00::1") },
		"local ::":             func(s *Session) { s.Local = addr("0.0.0.0") },
		"link-local, no zone":  func(s *Session) { s.Peer, s.Local = addr("fe80::1"), netip.Addr{} },
		"two zones":            func(s *Session) { s.Peer, s.Local = addr("fe80::1%a"), addr("fe80::2%b") },
		"multihop, interface":  func(s *Session) { s.Multihop, s.Interface = true, "eth0" },
		"multihop, link-local": func(s *Session) { s.Multihop, s.Peer, s.Local = true, addr("169.254.0.1"), netip.Addr{} },
		"long interface":       func(s *Session) { s.Interface = "0123456789abcdef" },
		"transmit too short":   func(s *Session) { s.Transmit = 49 * ms },
		"receive too long":     func(s *Session) { s.Receive = time.Minute + 1 },
		"multiplier 0":         func(s *Session) { s.Multiplier = 0 },
		"simple password":      func(s *Session) { s.Auth = &Auth{Type: 1, Key: []byte("k")} },
		"MD5":                  func(s *Session) { s.Auth = &Auth{Type: 2, Key: []byte("k")} },
		"empty key":            func(s *Session) { s.Auth = &Auth{Type: KeyedSHA1} },
		"key of 21 bytes":      func(s *Session) { s.Auth = &Auth{Type: KeyedSHA1, Key: make([]byte, 21)} },
	} {
		s := session("10.0.0.1", "10.0.0.2")
		edit(&s)
		if _, err := s.normal(); err == nil {
			t.Errorf("%s: accepted", what)
		}
	}
	s := session("10.0.0.1", "10.0.0.2")
	if _, err := new(Manager).normal([]Session{s, s}); err == nil {
		t.Error("twice the same: accepted")
	}
	s = session("fe80::1%eth0", "fe80::2%eth0")
	if n, err := s.normal(); err != nil || n.Interface != "eth0" || n.Peer != addr("fe80::2") || n.MinTTL != 255 {
		t.Errorf("%+v, %v", n, err)
	}
}

// TestSocketThatWasMissing: a session for which there was no socket at first gets one as soon as
// there is one, and sends.
func TestSocketThatWasMissing(t *testing.T) {
	l, err := newLoop(func() {}, make(chan event, 8))
	if err != nil {
		t.Fatal(err)
	}
	defer l.orders.close()
	m := newMachine(time.Now(), usual, own, 1, func() float64 { return 0.5 })
	w := &watch{key: Key{Peer: addr("127.0.0.1")}, m: m, slot: -1, state: Down, out: outbound{fd: -1}}
	w.prepare(0)
	defer w.out.close()
	newLab(t).In("a", func() {
		c, err := net.ListenUDP("udp4", &net.UDPAddr{IP: net.IPv4(127, 0, 0, 1), Port: 3784})
		if err != nil {
			t.Error(err)
			return
		}
		defer func() { _ = c.Close() }()
		l.emit(w, &Packet{State: Down, DetectMult: 3, MyDiscr: own}, time.Now())
		_ = c.SetReadDeadline(time.Now().Add(10 * time.Second))
		if _, err := c.Read(make([]byte, 100)); err != nil || w.out.fd < 0 || w.trouble != nil {
			t.Errorf("socket %d, %v: %v", w.out.fd, w.trouble, err)
		}
	})
}

// TestSweptOnce: what is known of interfaces is forgotten when a session goes, and not with
// each packet after that.
func TestSweptOnce(t *testing.T) {
	l, err := newLoop(func() {}, make(chan event, 8))
	if err != nil {
		t.Fatal(err)
	}
	defer l.orders.close()
	l.dropped = true
	for i, want := range []int{0, 1} {
		l.ifaces["eth0"] = &known{}
		if l.sweep(); len(l.ifaces) != want {
			t.Errorf("look %d: %d interfaces are known", i, len(l.ifaces))
		}
	}
}
