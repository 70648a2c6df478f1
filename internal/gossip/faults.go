package gossip

import (
	"cmp"
	"errors"
	"fmt"
	"maps"
	"net"
	"net/netip"
	"os"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"time"
)

const (
	// faultShown is how long a send that failed is shown, unless one to the same host
	// succeeds: every live member is sent to more often.
	faultShown = 5 * time.Second
	// maxFaults bounds the hosts that are remembered.
	maxFaults = 64
	// movedAfter is how long the address of this node must have been gone from the host
	// before the node follows: an address that is only set anew comes back.
	movedAfter = 5 * time.Second
)

// faults are the hosts to which nothing can be sent now.
type faults struct {
	count atomic.Uint64 // of datagrams that were not sent
	now   atomic.Int64  // how many hosts there are, so that who has none takes no lock

	mu    sync.Mutex
	hosts map[netip.Addr]fault
}

type fault struct {
	err error
	at  time.Time // the last one
}

// note takes the result of sending to a host.
func (f *faults) note(to netip.Addr, err error) {
	if err == nil && f.now.Load() == 0 {
		return
	}
	f.mu.Lock()
	defer f.mu.Unlock()
	if err == nil {
		delete(f.hosts, to)
	} else {
		f.count.Add(1)
		if f.hosts == nil {
			f.hosts = map[netip.Addr]fault{}
		}
		if _, known := f.hosts[to]; known || len(f.hosts) < maxFaults {
			f.hosts[to] = fault{err, time.Now()}
		}
	}
	f.now.Store(int64(len(f.hosts)))
}

// prune forgets the hosts to which nothing has been sent for a while, and returns how many
// are left.
func (f *faults) prune(now time.Time) int64 {
	if f.now.Load() == 0 {
		return 0
	}
	f.mu.Lock()
	defer f.mu.Unlock()
	maps.DeleteFunc(f.hosts, func(_ netip.Addr, x fault) bool { return now.Sub(x.at) >= faultShown })
	f.now.Store(int64(len(f.hosts)))
	return f.now.Load()
}

// words say to whom nothing can be sent and why, "" if there is nobody.
func (f *faults) words(now time.Time) string {
	f.mu.Lock()
	defer f.mu.Unlock()
	var hosts []netip.Addr
	why := ""
	for a, x := range f.hosts {
		if now.Sub(x.at) >= faultShown {
			continue
		}
		hosts = append(hosts, a)
		if e := errors.Unwrap(x.err); e != nil {
			why = max(why, reason(e))
		}
	}
	if len(hosts) == 0 {
		return ""
	}
	slices.SortFunc(hosts, netip.Addr.Compare)
	names := make([]string, len(hosts))
	for i, a := range hosts {
		names[i] = a.String()
	}
	return fmt.Sprintf("nothing can be sent to %s: %s", strings.Join(names, ", "), cmp.Or(why, "the kernel refuses it"))
}

// reason is an error without the name of the system call.
func reason(err error) string {
	if e := (*os.SyscallError)(nil); errors.As(err, &e) {
		err = e.Err
	}
	return err.Error()
}

// moved is what is known of the address of this node having gone from the host.
type moved struct {
	since time.Time // zero: it is there
	text  string
}

// look tells whether the address is there. Without an IPv4 address every send fails, so
// there is nothing to look at while none does. From an IPv6 one that is gone the kernel goes
// on to send, and only answers do not come.
func (g *Gossip) look(now time.Time) error {
	if g.sockets == nil {
		return nil
	}
	m := moved{}
	if fails := g.sockets.faults.prune(now) > 0; (fails || g.self.Addr().Is6()) && !onHost(g.self.Addr()) {
		m.since, m.text = now, fmt.Sprintf("this node speaks from %s, which is not an address of this host any more: set gossip.bindAddress to one that is, and start the daemon again", g.self.Addr())
		if old := g.away.Load(); old != nil && !old.since.IsZero() {
			m.since = old.since
		} else {
			g.log.Warn("the gossip address is not on this host any more", "address", g.self.Addr())
		}
	}
	g.away.Store(&m)
	if m.since.IsZero() || g.elsewhere == nil || now.Sub(m.since) < movedAfter {
		return nil
	}
	to, err := g.elsewhere()
	// An address elsewhere on the host says nothing: that of this node may only be away while
	// its link is down.
	if err != nil || to == g.self.Addr() || !usable(to) || !onInterface(g.home, to) {
		return nil
	}
	return fmt.Errorf("the address of this node was %s and is %s now: ending, to start again with that", g.self.Addr(), to)
}

// onHost tells whether an interface of this host has the address; where that is not known,
// too. The kernel is asked once, however many interfaces there are: the loop waits for it.
func onHost(a netip.Addr) bool {
	all, err := net.InterfaceAddrs()
	return err != nil || among(all, a)
}

// onInterface tells whether the interface with this name has the address.
func onInterface(name string, a netip.Addr) bool {
	link, err := net.InterfaceByName(name)
	if err != nil {
		return false
	}
	all, err := link.Addrs()
	return err == nil && among(all, a)
}

func among(all []net.Addr, a netip.Addr) bool {
	return slices.ContainsFunc(all, func(x net.Addr) bool {
		p, err := netip.ParsePrefix(x.String())
		return err == nil && p.Addr().Unmap() == a
	})
}

// interfaceOf is the interface that has the address, "" if none of this host has it, and
// "?" if that is not known. It asks the kernel for each interface.
func interfaceOf(a netip.Addr) string {
	links, err := net.Interfaces()
	if err != nil {
		return "?"
	}
	for _, l := range links {
		all, err := l.Addrs()
		if err != nil {
			return "?"
		}
		if among(all, a) {
			return l.Name
		}
	}
	return ""
}

// usable tells whether other nodes can reach the address.
func usable(a netip.Addr) bool {
	return a.IsValid() && !a.IsUnspecified() && !a.IsMulticast() && !a.IsLinkLocalUnicast() && a.Zone() == ""
}

// fault is what a person should know of the sockets now.
func (g *Gossip) fault(now time.Time) string {
	if g.sockets == nil {
		return ""
	}
	if m := g.away.Load(); m != nil && m.text != "" {
		return m.text
	}
	return g.sockets.faults.words(now)
}
