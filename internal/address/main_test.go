package address

import (
	"errors"
	"flag"
	"io"
	"log/slog"
	"net/netip"
	"os"
	"sync"
	"testing"
	"time"

	"github.com/vishvananda/netlink"

	"lbd.dev/lbd/internal/model"
	"lbd.dev/lbd/internal/testnet"
)

const envHelper = "LBD_TEST_ADDRESS_HELPER"

func TestMain(m *testing.M) {
	if os.Getenv(envHelper) != "" {
		helper()
		return
	}
	flag.Parse()
	// The tests spend their time waiting for the kernel, not for a processor.
	_ = flag.Set("test.parallel", "8")
	os.Exit(m.Run())
}

// isolated runs the calling test in a network namespace of its own whose lo is up,
// and returns true there.
func isolated(t *testing.T) bool {
	t.Helper()
	if !testnet.Alone(t) {
		return false
	}
	setUp(t, "lo", true)
	return true
}

// veth makes a pair of interfaces that are up.
func veth(t *testing.T, name, peer string) {
	t.Helper()
	link := &netlink.Veth{LinkAttrs: netlink.LinkAttrs{Name: name}, PeerName: peer}
	if err := netlink.LinkAdd(link); err != nil {
		t.Fatal(err)
	}
	setUp(t, name, true)
	setUp(t, peer, true)
}

func setUp(t *testing.T, name string, up bool) {
	t.Helper()
	link, err := netlink.LinkByName(name)
	if err == nil {
		if up {
			err = netlink.LinkSetUp(link)
		} else {
			err = netlink.LinkSetDown(link)
		}
	}
	if err != nil {
		t.Fatal(err)
	}
}

// foreign configures an address as another tool would.
func foreign(t *testing.T, iface, prefix string) (remove func()) {
	t.Helper()
	link, err := netlink.LinkByName(iface)
	if err != nil {
		t.Fatal(err)
	}
	addr, err := netlink.ParseAddr(prefix)
	if err != nil {
		t.Fatal(err)
	}
	if err := netlink.AddrAdd(link, addr); err != nil {
		t.Fatal(err)
	}
	return func() {
		if err := netlink.AddrDel(link, addr); err != nil {
			t.Error(err)
		}
	}
}

// removeByHand does what "ip addr del" does.
func removeByHand(t *testing.T, iface string, addr netip.Addr) {
	t.Helper()
	link, err := netlink.LinkByName(iface)
	if err != nil {
		t.Fatal(err)
	}
	a, err := netlink.ParseAddr(netip.PrefixFrom(addr, addr.BitLen()).String())
	if err == nil {
		err = netlink.AddrDel(link, a)
	}
	if err != nil {
		t.Fatal(err)
	}
}

// dump reads the addresses through a socket of its own.
func dump(t *testing.T) []Entry {
	t.Helper()
	k, err := openKernel()
	if err != nil {
		t.Fatal(err)
	}
	defer k.Close()
	entries, err := k.Addresses()
	if err != nil {
		t.Fatal(err)
	}
	return entries
}

// find returns the entries of one address.
func find(t *testing.T, addr netip.Addr) (found []Entry) {
	t.Helper()
	for _, e := range dump(t) {
		if e.Prefix.Addr() == addr {
			found = append(found, e)
		}
	}
	return found
}

// String names a slot.
func (s slot) String() string {
	if s.loopback {
		return s.addr.String() + " on lo"
	}
	return s.addr.String()
}

// observer looks at the kernel every millisecond and notes when each address
// comes and goes.
type observer struct {
	stop chan struct{}
	done sync.WaitGroup
	mu   sync.Mutex
	log  map[slot][]sight
}

// sight is a change: from here on the address is there or not.
type sight struct {
	at    time.Time
	there bool
}

// observe returns when it has looked for the first time.
func observe(t *testing.T, addrs ...netip.Addr) *observer {
	t.Helper()
	k, err := openKernel()
	if err != nil {
		t.Fatal(err)
	}
	o := &observer{stop: make(chan struct{}), log: make(map[slot][]sight)}
	looked := make(chan struct{})
	o.done.Go(func() {
		defer k.Close()
		first := sync.OnceFunc(func() { close(looked) })
		defer first()
		tick := time.NewTicker(time.Millisecond)
		defer tick.Stop()
		for {
			select {
			case <-o.stop:
				return
			case <-tick.C:
			}
			entries, err := k.Addresses()
			if err != nil {
				t.Error(err)
				return
			}
			now, there := time.Now(), make(map[slot]bool)
			for _, e := range entries {
				there[slotAt(e.Prefix.Addr(), e.Index)] = true
			}
			o.mu.Lock()
			for _, a := range addrs {
				for _, at := range []slot{{a, false}, {a, true}} {
					if l := o.log[at]; len(l) == 0 || l[len(l)-1].there != there[at] {
						o.log[at] = append(l, sight{now, there[at]})
					}
				}
			}
			o.mu.Unlock()
			first()
		}
	})
	t.Cleanup(o.end)
	<-looked
	return o
}

func (o *observer) end() {
	select {
	case <-o.stop:
	default:
		close(o.stop)
	}
	o.done.Wait()
}

// of returns the changes of one address on the LAN so far.
func (o *observer) of(addr netip.Addr) []sight { return o.at(slot{addr, false}) }

// at returns the changes in one slot so far.
func (o *observer) at(at slot) []sight {
	o.mu.Lock()
	defer o.mu.Unlock()
	return append([]sight(nil), o.log[at]...)
}

// everything is a cutoff after which nothing was renewed yet.
func everything(time.Duration) time.Time { return time.Now().Add(time.Minute) }

// start returns a driver that is closed at the end of the test.
func start(t *testing.T, lifetime time.Duration) *Driver {
	t.Helper()
	var out io.Writer = io.Discard
	if testing.Verbose() {
		out = os.Stderr
	}
	d, err := New(Options{Lifetime: lifetime, Logger: slog.New(slog.NewTextHandler(out, nil))})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = d.Close(t.Context()) })
	return d
}

// want builds a decision that is good for a minute.
func want(bind ...model.Binding) *model.Desired {
	return &model.Desired{ValidUntil: time.Now().Add(time.Minute), Bind: bind}
}

// settle applies until the kernel, for which a busy machine may have no time, delivers to all.
func settle(t *testing.T, d *Driver, w *model.Desired) (applied model.Applied, err error) {
	t.Helper()
	eventually(t, "the kernel delivers", func() bool {
		applied, err = d.Apply(t.Context(), w)
		return !errors.Is(err, errUndelivered)
	})
	return applied, err
}

// apply applies and fails the test on an error.
func apply(t *testing.T, d *Driver, w *model.Desired) map[netip.Addr]model.AppliedVIP {
	t.Helper()
	applied, err := settle(t, d, w)
	if err != nil {
		t.Fatal(err)
	}
	return applied.VIPs
}

// patience is how long a test waits for what should come soon: no figure of a driver,
// but what a machine may take that does much else.
const patience = 30 * time.Second

// idle is a lifetime whose first renewal comes after the patience: what happens before
// was not done by a renewal.
const idle = 4 * patience

// eventually waits for cond.
func eventually(t *testing.T, what string, cond func() bool) time.Duration {
	t.Helper()
	begin := time.Now()
	for !cond() {
		if time.Since(begin) > patience {
			t.Fatalf("not within %s: %s", patience, what)
		}
		time.Sleep(500 * time.Microsecond)
	}
	return time.Since(begin)
}

// validSince tells whether the kernel counts down a lifetime that was set since then. It
// tells whole seconds.
func validSince(e Entry, lifetime time.Duration, set time.Time) bool {
	valid := time.Duration(e.Valid) * time.Second
	return valid <= lifetime && valid >= lifetime-time.Since(set)-time.Second
}

// fired waits for Changed.
func fired(t *testing.T, d *Driver) {
	t.Helper()
	select {
	case <-d.Changed():
	case <-time.After(patience):
		t.Fatalf("Changed did not fire within %s", patience)
	}
}

var (
	v4   = netip.MustParseAddr("10.0.0.200")
	v6   = netip.MustParseAddr("fd00::200")
	both = []netip.Addr{v4, v6}
)

// on binds both test addresses to an interface.
func on(iface string, epoch uint64) []model.Binding {
	return []model.Binding{{Addr: v4, Interface: iface, Epoch: epoch}, {Addr: v6, Interface: iface, Epoch: epoch}}
}

// lingering is what on returns, for addresses that are given up when their last connection ends.
func lingering(iface string, epoch uint64) []model.Binding {
	bind := on(iface, epoch)
	for i := range bind {
		bind[i].Linger = true
	}
	return bind
}

// Held is one address with lbd's mark in the kernel.
type Held struct {
	Prefix    netip.Prefix // /32 or /128
	Interface string
	// Remaining is the rest of the lifetime, rounded up to whole seconds; -1 if it
	// does not end.
	Remaining time.Duration
}

// List returns the addresses with lbd's mark, in kernel order, whoever of lbd's
// processes bound them.
func List() ([]Held, error) {
	k, err := openKernel()
	if err != nil {
		return nil, err
	}
	defer k.Close()
	return k.held()
}

func (k *linux) held() ([]Held, error) {
	entries, err := k.Addresses()
	if err != nil {
		return nil, err
	}
	var list []Held
	for _, e := range entries {
		if !e.own() {
			continue
		}
		h := Held{Prefix: e.Prefix, Interface: k.LinkName(e.Index), Remaining: -1}
		if e.Valid != Forever {
			h.Remaining = time.Duration(e.Valid) * time.Second
		}
		list = append(list, h)
	}
	return list, nil
}
