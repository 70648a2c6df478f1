package link

import (
	"context"
	"errors"
	"net/netip"
	"os"
	"runtime"
	"slices"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/vishvananda/netlink"
	"github.com/vishvananda/netlink/nl"
	"golang.org/x/sys/unix"

	"lbd.dev/lbd/internal/model"
	"lbd.dev/lbd/internal/testnet"
)

func veth(t *testing.T, name, peer string) {
	t.Helper()
	link := &netlink.Veth{LinkAttrs: netlink.LinkAttrs{Name: name}, PeerName: peer}
	if err := netlink.LinkAdd(link); err != nil {
		t.Fatal(err)
	}
	setUp(t, name, true)
	setUp(t, peer, true)
}

func byName(t *testing.T, name string) netlink.Link {
	t.Helper()
	link, err := netlink.LinkByName(name)
	if err != nil {
		t.Fatal(err)
	}
	return link
}

func setUp(t *testing.T, name string, up bool) {
	t.Helper()
	set := netlink.LinkSetDown
	if up {
		set = netlink.LinkSetUp
	}
	if err := set(byName(t, name)); err != nil {
		t.Fatal(err)
	}
}

func addAddr(t *testing.T, name, prefix string) {
	t.Helper()
	addr, err := netlink.ParseAddr(prefix)
	if err == nil {
		err = netlink.AddrAdd(byName(t, name), addr)
	}
	if err != nil {
		t.Fatal(err)
	}
}

// addMarked binds an address as the address driver does, or renews it.
func addMarked(t *testing.T, name string, addr netip.Addr) {
	t.Helper()
	family := unix.AF_INET
	if addr.Is6() {
		family = unix.AF_INET6
	}
	req := nl.NewNetlinkRequest(unix.RTM_NEWADDR, unix.NLM_F_CREATE|unix.NLM_F_REPLACE|unix.NLM_F_ACK)
	msg := nl.NewIfAddrmsg(family)
	msg.Index, msg.Prefixlen = uint32(byName(t, name).Attrs().Index), uint8(addr.BitLen())
	info := nl.IfaCacheInfo{IfaCacheinfo: unix.IfaCacheinfo{Valid: 30}}
	req.AddData(msg)
	req.AddData(nl.NewRtAttr(unix.IFA_LOCAL, addr.AsSlice()))
	req.AddData(nl.NewRtAttr(unix.IFA_CACHEINFO, info.Serialize()))
	req.AddData(nl.NewRtAttr(ifaProto, []byte{model.AddressProtocol}))
	if _, err := req.Execute(unix.NETLINK_ROUTE, 0); err != nil {
		t.Fatal(err)
	}
}

// sink is the daemon's side of a source.
type sink struct {
	mu        sync.Mutex
	view      model.View
	published int
	last      time.Time
}

func (s *sink) publish(change func(*model.View)) {
	s.mu.Lock()
	defer s.mu.Unlock()
	change(&s.view)
	s.published++
	s.last = time.Now()
}

func (s *sink) get() (map[string]model.Link, int, time.Time) {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.view.Links, s.published, s.last
}

// run starts a source and returns where it publishes to, after its first state.
func run(t *testing.T, s *Source) *sink {
	t.Helper()
	out := &sink{}
	ctx, cancel := context.WithCancel(t.Context())
	var task sync.WaitGroup
	task.Go(func() {
		if err := s.Run(ctx, out.publish); err != nil {
			t.Error(err)
		}
	})
	t.Cleanup(func() {
		cancel()
		task.Wait()
	})
	eventually(t, "the first state", func(l map[string]model.Link) bool { return l != nil }, out)
	out.mu.Lock()
	defer out.mu.Unlock()
	if !out.view.Synced[model.SourceLink] {
		t.Error("not marked as synced")
	}
	return out
}

// eventually waits for a published state and returns when it was published.
func eventually(t *testing.T, what string, cond func(map[string]model.Link) bool, s *sink) time.Time {
	t.Helper()
	deadline := time.Now().Add(30 * time.Second)
	for {
		links, _, at := s.get()
		if cond(links) {
			return at
		}
		if time.Now().After(deadline) {
			t.Fatalf("never: %s: %+v", what, links)
		}
		time.Sleep(200 * time.Microsecond)
	}
}

func TestSnapshot(t *testing.T) {
	if !testnet.Alone(t) {
		return
	}
	veth(t, "a0", "b0")
	if err := netlink.LinkAdd(&netlink.Bridge{LinkAttrs: netlink.LinkAttrs{Name: "br0"}}); err != nil {
		t.Fatal(err)
	}
	addAddr(t, "a0", "10.0.0.5/24")
	addAddr(t, "a0", "10.0.0.6/24")
	addAddr(t, "a0", "10.9.9.1/32 peer 10.9.9.2/30")
	addAddr(t, "a0", "fd00::5/64")
	addMarked(t, "a0", netip.MustParseAddr("10.0.0.200"))
	addMarked(t, "a0", netip.MustParseAddr("fd00::200"))
	if err := os.WriteFile("/proc/sys/net/ipv6/conf/b0/disable_ipv6", []byte("1"), 0); err != nil {
		t.Fatal(err)
	}
	var links map[string]model.Link
	snapshot := func(cond func() bool) {
		t.Helper()
		for deadline := time.Now().Add(30 * time.Second); ; time.Sleep(time.Millisecond) {
			var err error
			if links, err = Snapshot(); err != nil {
				t.Fatal(err)
			}
			if cond() {
				return
			}
			if time.Now().After(deadline) {
				t.Fatalf("%+v", links)
			}
		}
	}
	snapshot(func() bool { return links["a0"].Up && links["b0"].Up })
	a := links["a0"]
	attrs := byName(t, "a0").Attrs()
	if a.Name != "a0" || a.Index != attrs.Index || a.MAC.String() != attrs.HardwareAddr.String() || a.MTU != 1500 || !a.Up || !a.IPv6 || time.Since(a.Since) > time.Minute {
		t.Errorf("%+v", a)
	}
	a.Prefixes = slices.DeleteFunc(a.Prefixes, func(p netip.Prefix) bool { return p.Addr().IsLinkLocalUnicast() })
	var got []string
	for _, p := range a.Prefixes {
		got = append(got, p.String())
	}
	if want := []string{"10.0.0.5/24", "10.9.9.1/32", "10.0.0.6/24", "fd00::5/64"}; !slices.Equal(got, want) {
		t.Errorf("prefixes %v, want %v", got, want)
	}
	if b := links["b0"]; b.IPv6 || !b.Up {
		t.Errorf("%+v", b)
	}
	if lo, ok := links["lo"]; !ok || lo.Up || lo.MAC != (model.MAC{}) {
		t.Errorf("lo: %+v, %t", lo, ok)
	}
	if br, ok := links["br0"]; !ok || br.Up {
		t.Errorf("br0: %+v, %t", br, ok)
	}
	setUp(t, "lo", true)
	setUp(t, "b0", false) // takes the carrier of a0
	snapshot(func() bool { return !links["a0"].Up && links["lo"].Up })
}

func TestFollowsChanges(t *testing.T) {
	if !testnet.Alone(t) {
		return
	}
	veth(t, "a0", "b0")
	s := run(t, New(Options{}))
	eventually(t, "a0 is up", func(l map[string]model.Link) bool { return l["a0"].Up }, s)

	var worst time.Duration
	for range 10 {
		for _, up := range []bool{false, true} {
			begin := time.Now()
			setUp(t, "b0", up)
			took := eventually(t, "carrier", func(l map[string]model.Link) bool { return l["a0"].Up == up }, s).Sub(begin)
			links, _, _ := s.get()
			if since := links["a0"].Since; since.Before(begin) {
				t.Errorf("up=%t since %s ago, changed %s ago", up, time.Since(since), time.Since(begin))
			}
			if !up {
				worst = max(worst, took)
			}
			time.Sleep(20 * time.Millisecond)
		}
	}
	t.Logf("carrier loss was published within %s (worst of 10, the time to set the interface down included)", worst)

	links, _, _ := s.get()
	since := links["a0"].Since
	begin := time.Now()
	addAddr(t, "a0", "10.0.0.5/24")
	p := netip.MustParsePrefix("10.0.0.5/24")
	took := eventually(t, "the address", func(l map[string]model.Link) bool { return slices.Contains(l["a0"].Prefixes, p) }, s).Sub(begin)
	t.Logf("an address was published after %s", took)
	if links, _, _ := s.get(); !links["a0"].Since.Equal(since) {
		t.Error("Since moved though Up did not change")
	}
	if err := netlink.LinkDel(byName(t, "a0")); err != nil {
		t.Fatal(err)
	}
	eventually(t, "gone", func(l map[string]model.Link) bool { _, ok := l["a0"]; return !ok }, s)
	veth(t, "a0", "b0")
	eventually(t, "new", func(l map[string]model.Link) bool { return l["a0"].Up && len(l["a0"].Prefixes) == 1 }, s)
}

// TestOwnAddressesAreNoNews: renewals neither publish nor cause a reading.
func TestOwnAddressesAreNoNews(t *testing.T) {
	if !testnet.Alone(t) {
		return
	}
	veth(t, "a0", "b0")
	time.Sleep(100 * time.Millisecond)
	src := New(Options{})
	var reads atomic.Int64
	src.read = func() ([]model.Link, error) {
		reads.Add(1)
		return readLinks()
	}
	s := run(t, src)
	// Duplicate address detection of the link-local addresses ends within 2 s.
	time.Sleep(2500 * time.Millisecond)
	before := reads.Load()
	_, published, _ := s.get()
	for range 20 {
		addMarked(t, "a0", netip.MustParseAddr("10.0.0.200"))
		addMarked(t, "a0", netip.MustParseAddr("fd00::200"))
		time.Sleep(10 * time.Millisecond)
	}
	if n := reads.Load() - before; n != 0 {
		t.Errorf("%d readings for 40 renewals", n)
	}
	if _, now, _ := s.get(); now != published {
		t.Errorf("published %d times", now-published)
	}
	addAddr(t, "a0", "10.0.0.5/24")
	begun := time.Now()
	eventually(t, "a foreign address causes a reading, else the test proves nothing",
		func(map[string]model.Link) bool { return reads.Load() > before }, s)
	if took := time.Since(begun); took > DefaultResync/2 {
		t.Errorf("a foreign address was seen after %v: the kernel did not tell of it", took)
	}
}

// TestOverflow: lost messages are a reason to read, not a failure.
func TestOverflow(t *testing.T) {
	if !testnet.Alone(t) {
		return
	}
	veth(t, "a0", "b0")
	var subs [2]*subscription
	for i := range subs {
		sub, err := subscribe()
		if err == nil {
			err = sub.sock.SetReceiveBufferSize(1024, false)
		}
		if err != nil {
			t.Fatal(err)
		}
		defer sub.Close()
		subs[i] = sub
	}
	for i := range 100 {
		setUp(t, "b0", i%2 == 1)
	}
	overflowed := false
	for range 100 {
		if _, _, err := subs[0].sock.Receive(); errors.Is(err, unix.ENOBUFS) {
			overflowed = true
			break
		}
	}
	if !overflowed {
		t.Fatal("the burst did not overflow the socket: the test proves nothing")
	}
	notified := make(chan struct{}, 1000)
	done := make(chan error, 1)
	go func() { done <- subs[1].wait(func() { notified <- struct{}{} }) }()
	for seen := false; !seen; {
		select {
		case <-notified:
			seen = true
		case err := <-done:
			t.Fatalf("gave up: %v", err)
		}
	}
	time.Sleep(20 * time.Millisecond)
	for len(notified) > 0 {
		<-notified
	}
	setUp(t, "b0", false)
	select {
	case <-notified:
	case err := <-done:
		t.Fatalf("gave up: %v", err)
	case <-time.After(30 * time.Second):
		t.Fatal("nothing is heard any more")
	}
	subs[1].Close()
	if err := <-done; err == nil {
		t.Error("no error after Close")
	}
}

func TestRunEnds(t *testing.T) {
	if !testnet.Alone(t) {
		return
	}
	before := runtime.NumGoroutine()
	for range 5 {
		ctx, cancel := context.WithCancel(t.Context())
		done := make(chan struct{})
		first := make(chan struct{}, 10)
		go func() {
			defer close(done)
			_ = New(Options{}).Run(ctx, func(func(*model.View)) { first <- struct{}{} })
		}()
		<-first
		cancel()
		<-done
	}
	deadline := time.Now().Add(30 * time.Second)
	for runtime.NumGoroutine() > before {
		if time.Now().After(deadline) {
			t.Fatalf("%d goroutines, %d before", runtime.NumGoroutine(), before)
		}
		time.Sleep(time.Millisecond)
	}
}
