package ipam

import (
	"net/netip"
	"slices"
	"time"

	"lbd.dev/lbd/internal/model"
)

// owner is a Service that holds addresses.
type owner struct {
	name    model.Key
	created time.Time
	sharing Sharing
	addrs   []netip.Addr
}

// hold is an address in use.
type hold struct {
	users []*owner // by name
	ports map[Port]*owner
}

func (h *hold) find(name model.Key) (int, bool) {
	return slices.BinarySearchFunc(h.users, name, func(o *owner, n model.Key) int { return o.name.Compare(n) })
}

// others are the users beside one, by name.
func (h *hold) others(name model.Key) []string {
	var list []string
	for _, o := range h.users {
		if o.name != name {
			list = append(list, o.name.String())
		}
	}
	return list
}

// other returns a user that is not the one named. All users have the same key and
// backends, so that one speaks for all.
func (h *hold) other(name model.Key) *owner {
	for _, o := range h.users[:min(2, len(h.users))] {
		if o.name != name {
			return o
		}
	}
	return nil
}

// mayShare tells whether an owner with this sharing may have the address beside
// those that have it.
func (a *Allocator) mayShare(name model.Key, s *Sharing, addr netip.Addr) *Error {
	h := a.holds[addr]
	if h == nil {
		return nil
	}
	o := h.other(name)
	switch {
	case o == nil:
		return nil
	case o.sharing.Key == "" || s.Key == "":
		return errInUse(addr, h.others(name))
	case o.sharing.Key != s.Key:
		return errSharingKey(addr, h.others(name), o.sharing.Key, s.Key)
	case !o.sharing.sameBackends(s):
		return errSharingBackend(addr, h.others(name))
	}
	for _, p := range s.Ports {
		if by := h.ports[p]; by != nil && by.name != name {
			return errPortInUse(addr, p, by.name.String())
		}
	}
	return nil
}

// attach makes the owner a user of the address; mayShare has agreed.
func (a *Allocator) attach(o *owner, addr netip.Addr) {
	h := a.holds[addr]
	if h == nil {
		h = &hold{}
		a.holds[addr] = h
		a.occupy(addr)
	}
	i, _ := h.find(o.name)
	h.users = slices.Insert(h.users, i, o)
	if o.sharing.Key != "" {
		if h.ports == nil {
			h.ports = make(map[Port]*owner, len(o.sharing.Ports))
		}
		for _, p := range o.sharing.Ports {
			h.ports[p] = o
		}
	}
	a.shareIn(o, addr)
}

// detach ends that. The address stays taken until tidy.
func (a *Allocator) detach(o *owner, addr netip.Addr) {
	h := a.holds[addr]
	if i, ok := h.find(o.name); ok {
		h.users = slices.Delete(h.users, i, i+1)
	}
	for _, p := range o.sharing.Ports {
		if h.ports[p] == o {
			delete(h.ports, p)
		}
	}
	a.shareOut(o, addr, len(h.users) == 0)
}

// tidy gives the address back if nobody uses it any more since that Service does not.
func (a *Allocator) tidy(addr netip.Addr, by model.Key, now time.Time) {
	if h := a.holds[addr]; h != nil && len(h.users) == 0 {
		delete(a.holds, addr)
		a.vacate(addr, by, now)
	}
}

// sharedIn names the addresses of a pool that are shared under a key.
type sharedIn struct {
	key    string
	pool   *pool
	family Family
}

// sharedSet are those addresses.
type sharedSet struct {
	indexes set
	// ports counts the addresses on which a port is in use: if it is all of them,
	// none needs to be looked at.
	ports map[Port]uint64
}

// shareIn notes the address under the key of an owner that uses it.
func (a *Allocator) shareIn(o *owner, addr netip.Addr) {
	at := a.place(addr)
	if o.sharing.Key == "" || !at.ok {
		return
	}
	key := sharedIn{o.sharing.Key, at.pool, FamilyOf(addr)}
	s := a.shared[key]
	if s == nil {
		s = &sharedSet{ports: map[Port]uint64{}}
		a.shared[key] = s
	}
	s.indexes.add(at.index)
	for _, p := range o.sharing.Ports {
		s.ports[p]++
	}
}

func (a *Allocator) shareOut(o *owner, addr netip.Addr, last bool) {
	at := a.place(addr)
	if o.sharing.Key == "" || !at.ok {
		return
	}
	key := sharedIn{o.sharing.Key, at.pool, FamilyOf(addr)}
	s := a.shared[key]
	for _, p := range o.sharing.Ports {
		if s.ports[p]--; s.ports[p] == 0 {
			delete(s.ports, p)
		}
	}
	if last {
		s.indexes.remove(at.index)
	}
	if s.indexes.size == (number{}) {
		delete(a.shared, key)
	}
}
