package lbdtest

import (
	"maps"
	"net/netip"
	"time"

	"golang.org/x/sys/unix"

	"lbd.dev/lbd/internal/layer2"
	"lbd.dev/lbd/internal/layer2/silence"
)

// rules are the nftables of one family of a machine.
type rules struct {
	kernel
	family   layer2.Family
	lifetime time.Duration
}

// Silent lists what is silent now.
func (r *rules) Silent() (out []netip.Addr, err error) {
	err = r.change(func() error {
		for a, until := range r.h.quiet {
			if r.has(a) && time.Now().Before(until) {
				out = append(out, a)
			}
		}
		return nil
	})
	return out, err
}

// has tells whether an address is of the family.
func (r *rules) has(a netip.Addr) bool { return a.Is4() == (r.family == silence.ARP) }

// change is one transaction.
func (r *rules) change(f func() error) error {
	if err := r.call(); err != nil {
		return err
	}
	r.h.net.mu.Lock()
	defer r.h.net.mu.Unlock()
	err := f()
	r.h.net.changed()
	return err
}

// Install makes the table anew.
func (r *rules) Install(want silence.Want) error {
	return r.change(func() error {
		r.h.tables[r.family] = true
		r.flush()
		r.add(want.Addrs)
		return nil
	})
}

// Change changes the set. To add what is there does not renew it.
func (r *rules) Change(flush bool, add []netip.Addr) error {
	return r.change(func() error {
		if !r.h.tables[r.family] {
			return unix.ENOENT
		}
		if flush {
			r.flush()
		}
		r.add(add)
		return nil
	})
}

func (r *rules) flush() {
	maps.DeleteFunc(r.h.quiet, func(a netip.Addr, _ time.Time) bool { return r.has(a) })
}

func (r *rules) add(addrs []netip.Addr) {
	for _, a := range addrs {
		if time.Now().Before(r.h.quiet[a]) {
			continue
		}
		r.h.quiet[a] = time.Now().Add(r.lifetime)
		time.AfterFunc(r.lifetime, func() {
			r.h.net.mu.Lock()
			defer r.h.net.mu.Unlock()
			r.h.net.look(a)
		})
	}
}

// Verify is nil.
func (*rules) Verify(int) error { return nil }

// Remove deletes the table.
func (r *rules) Remove() error {
	return r.change(func() error {
		r.h.tables[r.family] = false
		r.flush()
		return nil
	})
}

// Watch hears nothing: nobody else uses nftables here.
func (*rules) Watch(func()) error { return nil }

// Unwatch does nothing.
func (*rules) Unwatch() {}

// Close does nothing.
func (*rules) Close() error { return nil }
