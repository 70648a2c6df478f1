package layer2

import (
	"errors"
	"log/slog"
	"maps"
	"net/netip"
	"slices"
	"sync"
	"testing"
	"time"

	"lbd.dev/lbd/internal/announce"
	"lbd.dev/lbd/internal/layer2/arp"
	"lbd.dev/lbd/internal/layer2/nd"
	"lbd.dev/lbd/internal/layer2/silence"
	"lbd.dev/lbd/internal/model"
)

var (
	ownMAC   = model.MAC{2, 0, 0, 0, 0, 0xaa}
	rivalMAC = model.MAC{2, 0, 0, 0, 0, 0xbb}
	otherMAC = model.MAC{2, 0, 0, 0, 0, 0xcc}

	vip4  = netip.MustParseAddr("10.0.0.200")
	vip4b = netip.MustParseAddr("10.0.0.201")
	vip6  = netip.MustParseAddr("fd00::200")
	ll    = netip.MustParsePrefix("fe80::1/64")
)

// fakeKernel is a host without a network.
type fakeKernel struct {
	mu     sync.Mutex
	start  time.Time
	ifs    map[string]Link
	addrs  []Address
	ports  map[portKey]*fakePort
	opened int
	broken error // what ready says
	joined map[Group]struct{}
	closed error // what listen says
	log    []event
	// onSend is called for each frame, without locks of the fake.
	onSend func(frame []byte) error
}

// event is something that the driver did to the host.
type event struct {
	at    time.Duration // since start
	what  string        // "send", "silence", "lift"
	iface string
	frame []byte
}

type fakePort struct {
	k      *fakeKernel
	key    portKey
	ev     Events
	mu     sync.Mutex
	queue  [][]byte // received, not yet read
	addrs  []netip.Addr
	closed bool
}

func newFake() *fakeKernel {
	return &fakeKernel{
		start: time.Now(),
		ifs:   map[string]Link{"eth0": {Name: "eth0", Index: 2, MAC: ownMAC, Up: true, Carrier: true}},
		addrs: []Address{{Index: 2, Prefix: ll, Usable: true}},
		ports: make(map[portKey]*fakePort),
	}
}

func (k *fakeKernel) note(what, iface string, frame []byte) {
	k.mu.Lock()
	defer k.mu.Unlock()
	k.log = append(k.log, event{time.Since(k.start), what, iface, frame})
}

func (k *fakeKernel) Links() (map[string]Link, error)         { return maps.Clone(k.ifs), nil }
func (k *fakeKernel) Addresses() ([]Address, error)           { return k.addrs, nil }
func (*fakeKernel) Mutex() announce.Mutex                     { return new(sync.Mutex) }
func (*fakeKernel) Rules(Family, time.Duration) silence.Rules { return nil }
func (k *fakeKernel) Router(string) bool                      { return false }
func (k *fakeKernel) Close()                                  {}

func (k *fakeKernel) Ready(Link) error {
	k.mu.Lock()
	defer k.mu.Unlock()
	return k.broken
}

// breaks makes ready say err from now on.
func (k *fakeKernel) breaks(err error) {
	k.mu.Lock()
	defer k.mu.Unlock()
	k.broken = err
}

// sending makes f see each frame from now on.
func (k *fakeKernel) sending(f func(frame []byte) error) {
	k.mu.Lock()
	defer k.mu.Unlock()
	k.onSend = f
}

func (k *fakeKernel) Listen(groups map[Group]struct{}) error {
	k.joined = groups
	return k.closed
}

func (k *fakeKernel) Open(l Link, f Family, addrs []netip.Addr, ev Events) (Port, error) {
	k.opened++
	p := &fakePort{k: k, key: portKey{l.Name, f}, ev: ev, addrs: addrs}
	k.ports[p.key] = p
	return p, nil
}

func (p *fakePort) Filter(addrs []netip.Addr) error {
	p.addrs = addrs
	return nil
}

func (p *fakePort) Send(frame []byte) error {
	if p.closed {
		return errors.New("closed")
	}
	p.k.mu.Lock()
	see := p.k.onSend
	p.k.mu.Unlock()
	if see != nil {
		if err := see(frame); err != nil {
			return err
		}
	}
	p.k.note("send", p.key.iface, frame)
	return nil
}

func (p *fakePort) Drain() {
	p.mu.Lock()
	frames := p.queue
	p.queue = nil
	p.mu.Unlock()
	for _, f := range frames {
		p.ev.Frame(f)
	}
}

func (p *fakePort) Close() { p.closed = true }

// hear delivers a frame at once.
func (k *fakeKernel) hear(frame []byte) {
	f := silence.ARP
	if frame[12] == 0x86 {
		f = silence.ND
	}
	k.ports[portKey{"eth0", f}].ev.Frame(frame)
}

// arrive puts a frame into the socket, where it waits for a reader.
func (k *fakeKernel) arrive(frame []byte) {
	p := k.ports[portKey{"eth0", silence.ARP}]
	p.mu.Lock()
	defer p.mu.Unlock()
	p.queue = append(p.queue, frame)
}

// sent are the frames sent so far, with their times.
func (k *fakeKernel) sent() []event {
	k.mu.Lock()
	defer k.mu.Unlock()
	var sent []event
	for _, e := range k.log {
		if e.what == "send" {
			sent = append(sent, e)
		}
	}
	return sent
}

// times are those of the frames sent.
func (k *fakeKernel) times() []time.Duration {
	var t []time.Duration
	for _, e := range k.sent() {
		t = append(t, e.at)
	}
	return t
}

// whats are the kinds of all events in order.
func (k *fakeKernel) whats() []string {
	k.mu.Lock()
	defer k.mu.Unlock()
	var w []string
	for _, e := range k.log {
		w = append(w, e.what)
	}
	return w
}

// fakeSilence records in the log of the kernel.
type fakeSilence struct {
	k      *fakeKernel
	addrs  []netip.Addr
	want   silence.Want
	failed error
	// prepares counts calls of Prepare, which fail with unable.
	prepares int
	unable   error
	// leftover is what an earlier process silenced.
	leftover []netip.Addr
}

func (s *fakeSilence) Set(want silence.Want) error {
	if s.failed != nil {
		return s.failed
	}
	if !slices.Equal(s.addrs, want.Addrs) {
		s.k.note("silence", "", nil)
	}
	s.addrs, s.want = want.Addrs, want
	return nil
}

func (s *fakeSilence) Prepare([]silence.Speaker) error {
	s.prepares++
	if s.unable != nil {
		return s.unable
	}
	return s.Clear()
}

func (s *fakeSilence) Leftover() ([]netip.Addr, error) { return s.leftover, nil }

func (s *fakeSilence) Clear() error {
	if s.failed != nil {
		return s.failed
	}
	if len(s.addrs) > 0 {
		s.k.note("lift", "", nil)
	}
	s.addrs = nil
	return nil
}

func (*fakeSilence) Close() error { return nil }

// harness is a driver on a fake host.
type harness struct {
	*testing.T
	k *fakeKernel
	d *Driver
	s [families]*fakeSilence
	// valid is how long each decision is good for.
	valid time.Duration
	// lapses is how many of them the decisions know.
	lapses uint64
}

func newHarness(t *testing.T) *harness {
	k := newFake()
	h := &harness{T: t, k: k, d: newDriver(discard(), k), valid: time.Hour}
	for f := range h.s {
		h.s[f] = &fakeSilence{k: k}
		h.d.silence.of[f] = h.s[f]
	}
	return h
}

func (h *harness) close() {
	if err := h.d.Close(h.Context()); err != nil {
		h.Error(err)
	}
}

// try applies and returns the report and the error.
func (h *harness) try(l2 ...model.L2Advert) (model.Applied, error) {
	h.Helper()
	return h.d.Apply(h.Context(), &model.Desired{ValidUntil: time.Now().Add(h.valid), Synced: true, L2: l2, Lapses: h.lapses})
}

// apply must succeed.
func (h *harness) apply(l2 ...model.L2Advert) map[netip.Addr]model.AppliedVIP {
	h.Helper()
	a, err := h.try(l2...)
	if err != nil {
		h.Fatalf("apply: %v", err)
	}
	return a.VIPs
}

// entry is a copy of what the driver knows of a VIP.
func (h *harness) entry(a netip.Addr) entry {
	h.d.mu.Lock()
	defer h.d.mu.Unlock()
	return *h.d.entries[a]
}

// changed tells whether Changed has fired.
func (h *harness) changed() bool {
	select {
	case <-h.d.Changed():
		return true
	default:
		return false
	}
}

func announceVIP(a netip.Addr) model.L2Advert {
	return model.L2Advert{Addr: a, Interface: "eth0", Mode: model.L2Announce}
}

// respondVIP is a VIP that nothing is bound for.
func respondVIP(a netip.Addr) model.L2Advert {
	v := announceVIP(a)
	v.Respond = true
	return v
}

func probeVIP(a netip.Addr, series uint64) model.L2Advert {
	return model.L2Advert{Addr: a, Interface: "eth0", Mode: model.L2Probe, Series: series}
}

func silentVIP(a netip.Addr) model.L2Advert {
	return model.L2Advert{Addr: a, Interface: "eth0", Mode: model.L2Silent}
}

// gratuitous is a frame of a host with mac that uses a VIP.
func gratuitous(mac model.MAC, a netip.Addr) []byte {
	if a.Is4() {
		return arp.Announcement(mac, a)
	}
	return nd.Announce(mac, a, false)
}

// rivalProbe is a frame of a host that asks whether it may use a VIP.
func rivalProbe(mac model.MAC, a netip.Addr) []byte {
	if a.Is4() {
		return arp.Probe(mac, a)
	}
	return nd.Probe(mac, netip.MustParseAddr("fe80::b"), a, nd.Nonce{9})
}

func discard() *slog.Logger { return slog.New(slog.DiscardHandler) }

const ms = time.Millisecond
