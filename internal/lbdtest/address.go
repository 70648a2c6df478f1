package lbdtest

import (
	"cmp"
	"context"
	"fmt"
	"log/slog"
	"maps"
	"net/netip"
	"time"

	"golang.org/x/sys/unix"

	"lbd.dev/lbd/internal/address"
	"lbd.dev/lbd/internal/model"
	"lbd.dev/lbd/internal/sockdiag"
)

// NewAddress returns the address driver of a process on a machine.
func NewAddress(p *Process, h *Host, log *slog.Logger) (*address.Driver, error) {
	return address.NewOn(&addresses{kernel{p, h}}, address.Options{Logger: log})
}

// addresses is the kernel of a machine as the address driver sees it.
type addresses struct{ kernel }

var _ address.Kernel = (*addresses)(nil)

// Addresses lists those of the machine, and what processes have bound.
func (k *addresses) Addresses() ([]address.Entry, error) {
	if err := k.call(); err != nil {
		return nil, err
	}
	k.h.net.mu.Lock()
	defer k.h.net.mu.Unlock()
	var out []address.Entry
	for _, p := range k.h.ports {
		for _, own := range p.prefixes {
			out = append(out, address.Entry{Prefix: own, Index: p.index, Valid: address.Forever})
		}
	}
	for at, x := range k.h.addrs {
		e := entry(at, x.mark)
		e.Index, e.Valid = k.h.indexOf(at.iface), address.Forever
		if !x.end.IsZero() {
			e.Valid = uint32((time.Until(x.end) + time.Second - 1) / time.Second) // the kernel rounds up
		}
		out = append(out, e)
	}
	return out, nil
}

func entry(at place, mark bool) address.Entry {
	e := address.Entry{Prefix: netip.PrefixFrom(at.addr, at.addr.BitLen())}
	if mark {
		e.Protocol = model.AddressProtocol
	}
	return e
}

// Change carries the requests out, unless the process ends before the kernel has them.
func (k *addresses) Change(ops []*address.Op) {
	before := time.Now()
	err := k.call()
	for _, o := range ops {
		if o.Err = err; err == nil {
			o.Err = k.h.change(o)
		}
	}
	for _, o := range ops {
		o.Before, o.After = before, time.Now()
	}
}

// change does what rtnetlink does with one request.
func (h *Host) change(o *address.Op) error {
	h.net.mu.Lock()
	defer h.net.mu.Unlock()
	at := place{o.Addr, h.ifaceAt(o.Index)}
	x := h.addrs[at]
	switch {
	case at.iface == "" || !h.on:
		return unix.ENODEV
	case o.Verb == address.Create && x != nil:
		return unix.EEXIST
	case o.Verb == address.Create:
		h.addrs[at] = &held{mark: true}
		h.extend(at, o.Lifetime)
		h.net.look(at.addr)
	case o.Verb == address.Renew && x == nil:
		return unix.EINVAL
	case o.Verb == address.Renew:
		h.extend(at, o.Lifetime)
	case x == nil:
		return unix.EADDRNOTAVAIL
	default:
		h.drop(at)
	}
	return nil
}

// indexOf is the index of an interface. The net is locked.
func (h *Host) indexOf(iface string) int {
	if p := h.port(iface); p != nil {
		return p.index
	}
	return loopbackIndex
}

// LinkIndex finds an interface.
func (k *addresses) LinkIndex(name string) (int, error) {
	k.h.net.mu.Lock()
	defer k.h.net.mu.Unlock()
	if p := k.h.port(name); p != nil {
		return p.index, nil
	}
	if name == model.LoopbackInterface {
		return loopbackIndex, nil
	}
	return 0, unix.ENODEV
}

// LinkName finds it by its index.
func (k *addresses) LinkName(index int) string {
	k.h.net.mu.Lock()
	defer k.h.net.mu.Unlock()
	return cmp.Or(k.h.ifaceAt(index), fmt.Sprintf("#%d", index))
}

// ifaceAt is the interface with an index, empty if there is none. The net is locked.
func (h *Host) ifaceAt(index int) string {
	for _, p := range h.ports {
		if p.index == index {
			return p.iface
		}
	}
	if index == loopbackIndex {
		return model.LoopbackInterface
	}
	return ""
}

// Local is true: what is bound is local at once.
func (*addresses) Local(netip.Addr, int) bool { return true }

// Close does nothing.
func (*addresses) Close() {}

// Watch tells of addresses that go.
func (k *addresses) Watch(ctx context.Context, tell func(address.Event, address.Entry)) error {
	gone := make(chan address.Entry, 1024) // those of all VIPs at once
	defer k.h.watch(&watcher{removed: func(at place, mark bool) {
		select {
		case gone <- entry(at, mark):
		default:
		}
	}})()
	tell(address.Missed, address.Entry{})
	for {
		select {
		case <-ctx.Done():
			return ctx.Err()
		case e := <-gone:
			if err := k.p.Wait(); err != nil {
				<-ctx.Done()
				return err
			}
			tell(address.Removed, e)
		}
	}
}

// Sockets are one for each connection, whose client has just sent something.
func (k *addresses) Sockets(_ sockdiag.States, _ bool, each func(sockdiag.Socket)) error {
	if err := k.p.Wait(); err != nil {
		return err
	}
	k.h.net.mu.Lock()
	conns := maps.Clone(k.h.conns)
	k.h.net.mu.Unlock()
	for a, n := range conns {
		for i := range n {
			each(sockdiag.Socket{Local: netip.AddrPortFrom(a, 6443), Remote: netip.AddrPortFrom(netip.AddrFrom4([4]byte{192, 0, 2, 1}), uint16(1024+i))})
		}
	}
	return nil
}

// Destroy resets connections.
func (k *addresses) Destroy(sockets []sockdiag.Socket, _ time.Time) (int, error) {
	if err := k.p.Wait(); err != nil {
		return 0, err
	}
	k.h.net.mu.Lock()
	defer k.h.net.mu.Unlock()
	for _, s := range sockets {
		k.h.conns[s.Local.Addr()]--
	}
	return len(sockets), nil
}

// Tracked: nothing is.
func (*addresses) Tracked(func(netip.Addr) bool, func(sockdiag.Flow)) error { return nil }

// Challenge reaches nobody.
func (*addresses) Challenge(netip.AddrPort, netip.AddrPort) error { return nil }
