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
	"os"
	"slices"
	"sync"
	"time"

	"github.com/google/nftables"
	"github.com/mdlayher/netlink"
	"golang.org/x/sys/unix"
)

// TableName is the name of the table in the families arp and ip6.
const TableName = "lbd"

// answerTimeout bounds one exchange with the kernel: a kernel that lacks a part
// of nf_tables may answer with fewer messages than the library waits for.
const answerTimeout = 3 * time.Second

// Family tells ARP from neighbour discovery.
type Family uint8

// The families.
const (
	ARP Family = iota // IPv4
	ND                // IPv6
)

func (f Family) table() *nftables.Table {
	if f == ND {
		return &nftables.Table{Name: TableName, Family: nftables.TableFamilyIPv6}
	}
	return &nftables.Table{Name: TableName, Family: nftables.TableFamilyARP}
}

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
	family   Family
	lifetime time.Duration
	lost     func(error)
	ctx      context.Context
	stop     context.CancelFunc
	wg       sync.WaitGroup

	mu       sync.Mutex
	state    state
	want     Want
	renewed  time.Time // last time that the kernel confirmed all of want
	renewing bool
}

// state is what is known of the table in the kernel.
type state uint8

const (
	unknown state = iota // perhaps that of an earlier process
	absent
	empty  // there, but silences nothing
	active // want is in force
)

// New returns the silence of a family. Addresses stay silent for lifetime after
// the last renewal; lost is called, on its own goroutine, when a renewal failed
// and could not be repaired. It must not block.
func New(f Family, lifetime time.Duration, lost func(error)) *Table {
	ctx, stop := context.WithCancel(context.Background())
	return &Table{family: f, lifetime: lifetime, lost: lost, ctx: ctx, stop: stop}
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
	same := t.state == active && slices.Equal(want.Speakers, t.want.Speakers)
	fresh := same && slices.Equal(want.Addrs, t.want.Addrs) && time.Since(t.renewed) < t.lifetime/2
	t.want = Want{slices.Clone(want.Addrs), slices.Clone(want.Speakers), want.Until}
	if fresh {
		return nil
	}
	if err := t.put(same); err != nil {
		return err
	}
	if !t.renewing {
		t.renewing = true
		t.wg.Go(t.renew)
	}
	return nil
}

// Clear makes nothing silent. It leaves the deletion of the empty table to the
// goroutine that renews, because each transaction keeps an announcement waiting
// (about 16 ms where the kernel ticks with 250 Hz). A table of an earlier process
// it deletes.
func (t *Table) Clear() error {
	t.mu.Lock()
	defer t.mu.Unlock()
	t.want = Want{}
	switch t.state {
	case unknown:
		// Where there is no nf_tables, or no right to use it, there is no silence
		// of an earlier process either, or it ends by its lifetime.
		if err := remove(t.family); err == nil || impossible(err) {
			t.state = absent
		}
	case active:
		err := transact(func(c *nftables.Conn) error {
			c.FlushSet(set(t.family, t.lifetime))
			return nil
		})
		if errors.Is(err, unix.ENOENT) {
			t.state = absent
			return nil
		}
		if err != nil {
			return fmt.Errorf("lift: %w", err)
		}
		t.state = empty
	}
	return nil
}

// Close ends the renewals; what is silent stays so for its lifetime.
func (t *Table) Close() error {
	t.stop()
	t.wg.Wait()
	t.mu.Lock()
	defer t.mu.Unlock()
	return t.tidy()
}

// tidy deletes the table if it silences nothing.
func (t *Table) tidy() error {
	if t.state != empty {
		return nil
	}
	if err := remove(t.family); err != nil {
		return err
	}
	t.state = absent
	return nil
}

// Cleanup deletes the tables of both families, whoever made them.
func Cleanup() error { return errors.Join(remove(ARP), remove(ND)) }

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
	if len(t.want.Addrs) == 0 {
		err = t.tidy()
		t.renewing = err != nil
		return t.renewing, err
	}
	if time.Now().After(t.want.Until) {
		return true, nil // a frozen decision: let the lifetime end
	}
	return true, t.put(t.state == active)
}

// put brings want into the kernel: only its addresses, or everything anew.
func (t *Table) put(onlyAddrs bool) error {
	now := time.Now()
	if onlyAddrs {
		err := transact(func(c *nftables.Conn) error {
			s := set(t.family, t.lifetime)
			c.FlushSet(s)
			return addElements(c, s, t.want.Addrs)
		})
		if err == nil {
			t.renewed = now
			return nil
		}
		// Somebody removed the table (`nft flush ruleset`); build it again.
	}
	// A question first: to a transaction a kernel without nf_tables gives fewer
	// answers than the library waits for.
	_, err := exists(t.family)
	if err == nil {
		err = transact(func(c *nftables.Conn) error { return replace(c, t.family, t.lifetime, t.want) })
	}
	if err != nil {
		t.state = unknown
		return fmt.Errorf("install rules: %w", err)
	}
	t.state, t.renewed = active, now
	return nil
}

// transact sends what fill adds as one atomic transaction.
func transact(fill func(*nftables.Conn) error) error {
	c, err := nftables.New(nftables.WithSockOptions(bounded))
	if err != nil {
		return err
	}
	if err := fill(c); err != nil {
		return err
	}
	return c.Flush()
}

// bounded prepares a netlink socket for large transactions and for a kernel that
// does not answer.
func bounded(c *netlink.Conn) error {
	_ = c.SetWriteBuffer(4 << 20) // the default is enough for thousands of addresses
	return c.SetDeadline(time.Now().Add(answerTimeout))
}

// impossible tells an error that will not go away.
func impossible(err error) bool {
	return errors.Is(err, os.ErrPermission) || errors.Is(err, unix.EOPNOTSUPP) ||
		errors.Is(err, unix.EAFNOSUPPORT) || errors.Is(err, unix.EPROTONOSUPPORT)
}

// remove deletes the table of a family; that there is none is no error.
func remove(f Family) error {
	there, err := exists(f) // far cheaper than a transaction that fails
	if err != nil {
		return fmt.Errorf("look for table: %w", err)
	}
	if !there {
		return nil
	}
	err = transact(func(c *nftables.Conn) error {
		c.DelTable(f.table())
		return nil
	})
	if err != nil && !errors.Is(err, unix.ENOENT) {
		return fmt.Errorf("delete table: %w", err)
	}
	return nil
}

// exists tells whether the family has a table of this name.
func exists(f Family) (bool, error) {
	c, err := nftables.New(nftables.WithSockOptions(bounded))
	if err != nil {
		return false, err
	}
	tables, err := c.ListTablesOfFamily(f.table().Family)
	return slices.ContainsFunc(tables, func(t *nftables.Table) bool { return t.Name == TableName }), err
}

// Leftover lists the addresses that an earlier process has silenced and that are
// still silent, because it was killed. No table is no error.
func Leftover(f Family) ([]netip.Addr, error) {
	there, err := exists(f)
	if err != nil || !there {
		return nil, err
	}
	c, err := nftables.New(nftables.WithSockOptions(bounded))
	if err != nil {
		return nil, err
	}
	elements, err := c.GetSetElements(set(f, 0))
	if errors.Is(err, unix.ENOENT) {
		return nil, nil
	}
	if err != nil {
		return nil, fmt.Errorf("list what is silent: %w", err)
	}
	var out []netip.Addr
	for _, e := range elements {
		if a, ok := netip.AddrFromSlice(e.Key); ok {
			out = append(out, a)
		}
	}
	return out, nil
}

// Leftover lists what an earlier process left silent in this family.
func (t *Table) Leftover() ([]netip.Addr, error) { return Leftover(t.family) }
