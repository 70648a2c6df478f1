package services

import (
	"encoding/binary"
	"errors"
	"fmt"
	"net"
	"net/netip"
	"path/filepath"
	"runtime"
	"sync"
	"time"

	"golang.org/x/sys/unix"

	"lbd.dev/lbd/tests/lab"
)

// claim is a frame in which a host says that it has an address.
type claim struct {
	at  time.Time
	mac string
}

// wire hears the ARP of a LAN.
type wire struct {
	fd   int
	own  string // MAC of the host that listens: what it asks does not count
	vips netip.Prefix
	done sync.WaitGroup

	mu      sync.Mutex // guards all below
	closed  bool
	first   map[netip.Addr]claim
	last    map[netip.Addr]claim
	changes map[netip.Addr][]claim // first claims of each host after another's
	frames  map[time.Time]int      // in each 10 ms
}

// listen hears what the host hears, about addresses in the prefix.
func listen(h *lab.Host, vips netip.Prefix) (*wire, error) {
	w := &wire{own: h.MAC, vips: vips, frames: map[time.Time]int{}, first: map[netip.Addr]claim{}, last: map[netip.Addr]claim{}, changes: map[netip.Addr][]claim{}}
	opened := make(chan error)
	go func() {
		// The thread is never unlocked, so it ends with this goroutine: nothing else
		// may run in the namespace.
		runtime.LockOSThread()
		opened <- w.open(h.NS)
	}()
	if err := <-opened; err != nil {
		return nil, fmt.Errorf("wire: %w", err)
	}
	w.done.Go(w.read)
	return w, nil
}

func (w *wire) open(ns string) error {
	f, err := unix.Open(filepath.Join("/run/netns", ns), unix.O_RDONLY|unix.O_CLOEXEC, 0)
	if err != nil {
		return err
	}
	defer func() { _ = unix.Close(f) }()
	if err := unix.Setns(f, unix.CLONE_NEWNET); err != nil {
		return err
	}
	proto := int(binary.BigEndian.Uint16([]byte{unix.ETH_P_ARP & 0xff, unix.ETH_P_ARP >> 8})) // network order
	if w.fd, err = unix.Socket(unix.AF_PACKET, unix.SOCK_RAW|unix.SOCK_CLOEXEC, proto); err != nil {
		return err
	}
	return errors.Join(
		unix.SetsockoptInt(w.fd, unix.SOL_SOCKET, unix.SO_RCVBUFFORCE, 32<<20),
		unix.SetsockoptTimeval(w.fd, unix.SOL_SOCKET, unix.SO_RCVTIMEO, &unix.Timeval{Usec: 200_000}),
	)
}

func (w *wire) read() {
	buf := make([]byte, 128)
	for {
		n, err := unix.Read(w.fd, buf)
		w.mu.Lock()
		if w.closed {
			w.mu.Unlock()
			return
		}
		if err == nil {
			w.take(buf[:n], time.Now())
		}
		w.mu.Unlock()
	}
}

// take notes one frame; the caller holds the lock.
func (w *wire) take(b []byte, now time.Time) {
	const arp, size = 14, 28
	if len(b) < arp+size {
		return
	}
	mac := net.HardwareAddr(b[arp+8 : arp+14]).String()
	sender := netip.AddrFrom4([4]byte(b[arp+14 : arp+18]))
	target := netip.AddrFrom4([4]byte(b[arp+24 : arp+28]))
	if mac == w.own || !w.vips.Contains(sender) && !w.vips.Contains(target) {
		return
	}
	w.frames[now.Truncate(10*time.Millisecond)]++
	if !w.vips.Contains(sender) {
		return
	}
	c := claim{now, mac}
	if _, known := w.first[sender]; !known {
		w.first[sender] = c
	}
	if w.last[sender].mac != mac {
		w.changes[sender] = append(w.changes[sender], c)
	}
	w.last[sender] = c
}

// forget begins anew.
func (w *wire) forget() {
	w.mu.Lock()
	defer w.mu.Unlock()
	clear(w.first)
	clear(w.last)
	clear(w.changes)
	clear(w.frames)
}

// claimed is how many addresses somebody has claimed, and when the last of them
// first was.
func (w *wire) claimed() (n int, at time.Time) {
	w.mu.Lock()
	defer w.mu.Unlock()
	for _, c := range w.first {
		if c.at.After(at) {
			at = c.at
		}
	}
	return len(w.first), at
}

// firstClaim is when anybody first claimed the address.
func (w *wire) firstClaim(a netip.Addr) (time.Time, bool) {
	w.mu.Lock()
	defer w.mu.Unlock()
	c, ok := w.first[a]
	return c.at, ok
}

// of are the addresses that the host was the last to claim.
func (w *wire) of(mac string) []netip.Addr {
	w.mu.Lock()
	defer w.mu.Unlock()
	var out []netip.Addr
	for a, c := range w.last {
		if c.mac == mac {
			out = append(out, a)
		}
	}
	return out
}

// moved is when a host for which the condition holds first claimed the address after
// from.
func (w *wire) moved(a netip.Addr, from time.Time, to func(mac string) bool) (time.Time, bool) {
	w.mu.Lock()
	defer w.mu.Unlock()
	for _, c := range w.changes[a] {
		if c.at.After(from) && to(c.mac) {
			return c.at, true
		}
	}
	return time.Time{}, false
}

// busiest is the greatest number of frames about VIPs in 10 ms and in a second since
// forget, and how many there were.
func (w *wire) busiest() (short, second, sum int) {
	w.mu.Lock()
	defer w.mu.Unlock()
	seconds := map[time.Time]int{}
	for at, n := range w.frames {
		sum += n
		short = max(short, n)
		seconds[at.Truncate(time.Second)] += n
	}
	for _, n := range seconds {
		second = max(second, n)
	}
	return short, second, sum
}

// close returns an error if frames were lost: then the figures say too little.
func (w *wire) close() error {
	w.mu.Lock()
	w.closed = true
	w.mu.Unlock()
	w.done.Wait()
	lost, err := unix.GetsockoptTpacketStats(w.fd, unix.SOL_PACKET, unix.PACKET_STATISTICS)
	if err == nil && lost.Drops > 0 {
		err = fmt.Errorf("wire: %d frames were not read in time", lost.Drops)
	}
	return errors.Join(err, unix.Close(w.fd))
}
