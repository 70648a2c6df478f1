// Package silence keeps this host from answering for an address that it still
// has, and from using it in its own ARP and neighbour discovery, by nftables
// over netlink. It needs CAP_NET_ADMIN and neither the nft program nor a
// writable /proc/sys.
//
// A host with a lingering connection from the address would otherwise resolve
// its neighbours with the address as sender, and every one of them would send
// the address's traffic back here. So what the host asks is not dropped but
// asked in the name of another address of the interface.
package silence

import (
	"context"
	"errors"
	"fmt"
	"net/netip"
	"slices"
	"sync"
	"time"

	"golang.org/x/sys/unix"

	"lbd.dev/lbd/internal/nft"
)

// TableName is the name of the table in the families arp and ip6.
const TableName = "lbd"

// answerTimeout bounds one exchange with the kernel.
const answerTimeout = 3 * time.Second

// Family tells ARP from neighbour discovery.
type Family uint8

// The families.
const (
	ARP Family = iota // IPv4
	ND                // IPv6
)

// Speaker is an address in whose name an interface asks for its neighbours while
// another one is silent.
type Speaker struct {
	Interface string
	// Addr is an address of the interface; the unspecified one for an interface
	// that has none, which turns a request into a probe (RFC 5227 section 1.1) and
	// drops a solicitation.
	Addr netip.Addr
	// Subnet limits an IPv4 speaker to questions about this subnet; a speaker with
	// an invalid one takes the rest and must be the last of its interface.
	Subnet netip.Prefix
}

// Want is the whole wanted silence of one family.
type Want struct {
	Addrs    []netip.Addr // sorted
	Speakers []Speaker    // in the order of the rules
	// Until is when the table stops renewing the silence by itself.
	Until time.Time
}

// Table is the silence of one family. Each address in it has a lifetime in the
// kernel that the table renews at a third of it, so that nothing stays in force
// after a daemon that was killed.
type Table struct {
	rules    Rules
	lifetime time.Duration
	lost     func(error)
	ctx      context.Context
	stop     context.CancelFunc
	wg       sync.WaitGroup

	mu       sync.Locker
	want     Want
	prepared bool // the table is wanted although nothing is silent
	renewing bool

	// What is known of the table in the kernel. The last three hold if it is there.
	state    state
	speakers []Speaker
	silent   []netip.Addr // sorted; each ends by itself
	renewed  time.Time    // when the oldest of them was confirmed
}

// state is what is known of the table in the kernel.
type state uint8

const (
	unknown state = iota // perhaps that of an earlier process
	absent
	there // with speakers and silent
)

// New returns the silence of the family that the rules are of. They keep addresses silent
// for lifetime after the last renewal; lost is called, on its own goroutine, when a renewal
// failed and could not be repaired. It must not block. The lock is that of the table alone.
func New(r Rules, lifetime time.Duration, mu sync.Locker, lost func(error)) *Table {
	ctx, stop := context.WithCancel(context.Background())
	return &Table{rules: r, lifetime: lifetime, mu: mu, lost: lost, ctx: ctx, stop: stop}
}

// Set makes exactly want.Addrs silent, in one atomic step that also replaces
// what an earlier process left. It returns once the rules are in force; with an
// error nothing is promised. Without addresses it is Clear.
func (t *Table) Set(want Want) error {
	if len(want.Addrs) == 0 {
		return t.Clear()
	}
	t.mu.Lock()
	defer t.mu.Unlock()
	return t.bring(want)
}

// Prepare makes nothing silent like Clear, but the table is there afterwards with
// everything but the addresses. A Set with the same speakers then only adds them.
func (t *Table) Prepare(speakers []Speaker) error {
	t.mu.Lock()
	defer t.mu.Unlock()
	t.prepared = true
	return t.bring(Want{Speakers: speakers})
}

// bring notes what is wanted, puts it into the kernel and keeps it there.
func (t *Table) bring(want Want) error {
	t.want = Want{slices.Clone(want.Addrs), slices.Clone(want.Speakers), want.Until}
	if err := t.put(false); err != nil {
		return err
	}
	_ = t.rules.Watch(t.removed) // else the next renewal mends it
	if !t.renewing {
		t.renewing = true
		t.wg.Go(t.renew)
	}
	return nil
}

// Clear makes nothing silent. The empty table stays until the next renewal would
// be due, since another silence may follow at once. A table of an earlier process
// it deletes.
func (t *Table) Clear() error {
	t.mu.Lock()
	defer t.mu.Unlock()
	t.want, t.prepared = Want{}, false
	switch {
	case t.state == unknown:
		// Where there is no nf_tables, or no right to use it, there is no silence
		// of an earlier process either, or it ends by its lifetime.
		if err := t.rules.Remove(); err == nil || nft.Impossible(err) {
			t.state = absent
		}
	case t.state == there && len(t.silent) > 0:
		err := t.rules.Change(true, nil)
		if errors.Is(err, unix.ENOENT) {
			t.state = absent
			return nil
		}
		if err != nil {
			return fmt.Errorf("lift: %w", err)
		}
		t.silent = nil
	}
	return nil
}

// removed puts back what somebody else has changed, with `nft flush ruleset` in the usual
// case: until then the host answers for what should be silent.
func (t *Table) removed() {
	if err := t.mend(); err != nil {
		t.lost(err)
	}
}

func (t *Table) mend() error {
	t.mu.Lock()
	defer t.mu.Unlock()
	if t.state != there || t.ctx.Err() != nil {
		return nil
	}
	t.state, t.silent = unknown, nil
	if len(t.want.Addrs) == 0 && !t.prepared || len(t.want.Addrs) > 0 && time.Now().After(t.want.Until) {
		return nil
	}
	return t.put(false)
}

// Close ends the renewals; what is silent stays so for its lifetime.
func (t *Table) Close() error {
	t.stop()
	t.wg.Wait()
	t.mu.Lock()
	err := t.tidy()
	t.mu.Unlock()
	return errors.Join(err, t.rules.Close()) // without the lock: removed may wait for it
}

// tidy deletes the table if it silences nothing.
func (t *Table) tidy() error {
	if t.state != there || len(t.silent) > 0 {
		return nil
	}
	if err := t.rules.Remove(); err != nil {
		return err
	}
	t.rules.Unwatch()
	t.state = absent
	return nil
}

// Cleanup deletes the tables of both families, whoever made them, and names them.
func Cleanup() ([]string, error) {
	s := nft.New(answerTimeout)
	removed, err := s.Clean(ARP.table(), ND.table())
	return removed, errors.Join(err, s.Close())
}

// Leftover lists the addresses of this family that an earlier process has silenced
// and that are still silent, because it was killed.
func (t *Table) Leftover() ([]netip.Addr, error) {
	t.mu.Lock()
	defer t.mu.Unlock()
	return t.rules.Silent()
}

// renew keeps the silence in force until there is none or Close.
func (t *Table) renew() {
	tick := time.NewTicker(t.lifetime / 3)
	defer tick.Stop()
	for {
		select {
		case <-t.ctx.Done():
			return
		case <-tick.C:
		}
		again, err := t.renewOnce()
		if err != nil {
			t.lost(err)
		}
		if !again {
			return
		}
	}
}

func (t *Table) renewOnce() (again bool, err error) {
	t.mu.Lock()
	defer t.mu.Unlock()
	switch {
	case len(t.want.Addrs) > 0 && time.Now().After(t.want.Until):
		return true, nil // a frozen decision: let the lifetime end
	case len(t.want.Addrs) > 0 || t.prepared:
		return true, t.put(true)
	}
	err = t.tidy()
	t.renewing = err != nil
	return t.renewing, err
}

// put brings want into the kernel: only what is new if the table is there, or
// everything. With all it renews what is there too.
func (t *Table) put(all bool) error {
	now := time.Now()
	if t.state == there && slices.Equal(t.want.Speakers, t.speakers) {
		if t.putAddrs(all || now.Sub(t.renewed) >= t.lifetime/2, now) == nil {
			return nil
		}
		// Somebody removed the table (`nft flush ruleset`); build it again.
	}
	err := t.rules.Install(t.want)
	if err == nil {
		err = t.rules.Verify(len(t.want.Addrs))
	}
	if err != nil {
		t.state = unknown
		return fmt.Errorf("install rules: %w", err)
	}
	t.state, t.speakers, t.silent, t.renewed = there, t.want.Speakers, t.want.Addrs, now
	return nil
}

// putAddrs changes the addresses of a table that is there. It only adds, which
// leaves the lifetimes of the others as they are, unless all are to be renewed or
// one has to go.
func (t *Table) putAddrs(all bool, now time.Time) error {
	add := slices.DeleteFunc(slices.Clone(t.want.Addrs), func(a netip.Addr) bool {
		_, is := slices.BinarySearchFunc(t.silent, a, netip.Addr.Compare)
		return is
	})
	if all || len(t.silent)+len(add) > len(t.want.Addrs) {
		all, add = true, t.want.Addrs
	}
	err := t.rules.Change(all && len(t.silent) > 0, add)
	if err == nil && !slices.Equal(t.silent, t.want.Addrs) {
		err = t.rules.Verify(len(t.want.Addrs))
	}
	if err != nil {
		return err
	}
	if all || len(t.silent) == 0 {
		t.renewed = now
	}
	t.silent = t.want.Addrs
	return nil
}
