package ipam

import (
	"errors"
	"fmt"
	"net/netip"
	"reflect"
	"slices"
	"testing"
	"time"

	"pgregory.net/rapid"

	"lbd.dev/lbd/api/v1alpha1"
	"lbd.dev/lbd/internal/model"
)

// world is an allocator with what its answers are checked against, all of it
// counted address by address.
type world struct {
	a, twin *Allocator // the twin gets the same calls
	config  Config
	now     time.Time
	had     map[model.Key][]netip.Addr // by owner
	terms   map[model.Key]Sharing
	freed   map[netip.Addr]time.Time // end of quarantine
}

var (
	poolNames = []string{"a", "b", "c", "d"}
	spaces    = []string{"192.0.2.0-192.0.2.3", "192.0.2.4/32", "192.0.2.254-192.0.3.1", "192.0.2.4-192.0.2.6", "2001:db8::/127", "2001:db8::2-2001:db8::4", "198.51.100.8/30"}
	universe  = func() (list []netip.Addr) {
		for _, text := range []string{"192.0.2.0-192.0.3.3", "2001:db8::/124", "198.51.100.0/28"} {
			r, err := v1alpha1.ParseAddressRange(text)
			if err != nil {
				panic(err)
			}
			for x := r.First; !r.Last.Less(x); x = x.Next() {
				list = append(list, x)
			}
		}
		return list
	}()
	ofUniverse = rapid.SampledFrom([]string{"192.0.2.0", "192.0.2.1", "192.0.2.4", "192.0.2.5", "192.0.2.255", "192.0.3.0", "2001:db8::", "2001:db8::1", "2001:db8::3", "198.51.100.9"})
)

func drawConfig(t *rapid.T) Config {
	c := Config{Quarantine: rapid.SampledFrom([]time.Duration{0, 10 * time.Second}).Draw(t, "quarantine")}
	for _, name := range poolNames {
		if rapid.IntRange(0, 3).Draw(t, "present") == 0 {
			continue
		}
		p := Pool{Name: name, AutoAssign: rapid.IntRange(0, 4).Draw(t, "auto") > 0, AvoidBuggyIPs: rapid.Bool().Draw(t, "avoid"),
			Addresses: rapid.SliceOfNDistinct(rapid.SampledFrom(spaces), 1, 3, rapid.ID).Draw(t, "addresses")}
		switch rapid.IntRange(0, 4).Draw(t, "allocation") {
		case 0:
			p.Allocation = &v1alpha1.ServiceAllocation{Priority: int32(rapid.IntRange(0, 2).Draw(t, "priority")), Namespaces: []string{"n0"}}
		case 1:
			p.Allocation = &v1alpha1.ServiceAllocation{ServiceSelectors: []v1alpha1.Selector{{MatchLabels: map[string]string{"tier": "gold"}}}}
		}
		c.Pools = append(c.Pools, p)
	}
	for range rapid.IntRange(0, 2).Draw(t, "nodes") {
		c.NodeAddresses = append(c.NodeAddresses, netip.MustParseAddr(ofUniverse.Draw(t, "node")))
	}
	return c
}

func drawRequest(t *rapid.T) Request {
	ns := rapid.SampledFrom([]string{"n0", "n1"}).Draw(t, "namespace")
	r := Request{Owner: model.Key{Namespace: ns, Name: fmt.Sprint(rapid.IntRange(0, 7).Draw(t, "owner"))}}
	if rapid.Bool().Draw(t, "gold") {
		r.Labels = map[string]string{"tier": "gold"}
	}
	r.Policy = rapid.SampledFrom([]Policy{SingleStack, SingleStack, PreferDualStack, RequireDualStack}).Draw(t, "policy")
	r.Families = rapid.SampledFrom([][]Family{{IPv4, IPv6}, {IPv6, IPv4}, {IPv4}}).Draw(t, "families")
	r.Count = rapid.SampledFrom([]int{0, 1, 1, 2, 3}).Draw(t, "count")
	if rapid.IntRange(0, 3).Draw(t, "shares") > 0 {
		r.Sharing.Key = rapid.SampledFrom([]string{"k", "l"}).Draw(t, "key")
	}
	for range rapid.IntRange(0, 2).Draw(t, "ports") {
		r.Sharing.Ports = append(r.Sharing.Ports, Port{"TCP", uint16(rapid.IntRange(1, 4).Draw(t, "port"))})
	}
	if r.Sharing.Local = rapid.IntRange(0, 3).Draw(t, "local") == 0; r.Sharing.Local {
		r.Sharing.Selector = map[string]string{"app": rapid.SampledFrom([]string{"x", "y"}).Draw(t, "app")}
	}
	if rapid.IntRange(0, 3).Draw(t, "named") == 0 {
		r.Pools = rapid.SliceOfNDistinct(rapid.SampledFrom(poolNames), 1, 2, rapid.ID).Draw(t, "pools")
	}
	if rapid.IntRange(0, 3).Draw(t, "explicit") == 0 {
		ask(rapid.SliceOfNDistinct(ofUniverse, 1, 2, rapid.ID).Draw(t, "ask")...)(&r)
	}
	r.LeaveStrays = rapid.IntRange(0, 3).Draw(t, "leave") == 0
	return r
}

// TestAllocator draws calls and holds every answer against rules that are written
// here a second time, without an index.
func TestAllocator(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		w := &world{config: drawConfig(t), now: t0, had: map[model.Key][]netip.Addr{}, terms: map[model.Key]Sharing{}, freed: map[netip.Addr]time.Time{}}
		w.a, _ = New(w.config)
		w.twin, _ = New(w.config)
		for range rapid.IntRange(1, 40).Draw(t, "steps") {
			switch rapid.SampledFrom([]string{"allocate", "allocate", "allocate", "allocate", "free", "time", "update", "restore"}).Draw(t, "do") {
			case "allocate":
				w.allocate(t, drawRequest(t))
			case "free":
				name := drawRequest(t).Owner
				w.a.Free(name, w.now)
				w.twin.Free(name, w.now)
				w.learn(name, nil, Sharing{})
			case "time":
				w.now = w.now.Add(time.Duration(rapid.IntRange(1, 8).Draw(t, "seconds")) * time.Second)
				w.expire()
			case "update":
				w.config = drawConfig(t)
				errs := w.a.Update(w.config)
				slices.Reverse(w.config.Pools) // the order of the list does not count
				if !reflect.DeepEqual(errs, w.twin.Update(w.config)) {
					t.Fatalf("errors by order: %v", errs)
				}
			case "restore":
				all := w.a.Assignments()
				for range 2 {
					if c := w.a.Restore(all); len(c) > 0 || !reflect.DeepEqual(all, w.a.Assignments()) {
						t.Fatalf("restore: %v, %v\nwant %v", c, w.a.Assignments(), all)
					}
				}
			}
			w.check(t)
		}
	})
}

func (w *world) expire() {
	for addr, until := range w.freed {
		if !until.After(w.now) {
			delete(w.freed, addr)
		}
	}
	w.a.Expire(w.now)
	w.twin.Expire(w.now)
}

// users are the owners of an address beside one.
func (w *world) users(addr netip.Addr, but model.Key) (list []model.Key) {
	for name, addrs := range w.had {
		if name != but && slices.Contains(addrs, addr) {
			list = append(list, name)
		}
	}
	return list
}

// learn notes what an owner holds now, and what rests from now on.
func (w *world) learn(name model.Key, addrs []netip.Addr, s Sharing) {
	old := w.had[name]
	w.had[name], w.terms[name] = addrs, s
	for _, addr := range old {
		if !slices.Contains(addrs, addr) && len(w.users(addr, model.Key{})) == 0 && w.config.Quarantine > 0 {
			w.freed[addr] = w.now.Add(w.config.Quarantine)
		}
	}
	for _, addr := range addrs {
		delete(w.freed, addr)
	}
}

// legal says a second time when two Services may share.
func legal(a, b Sharing) bool {
	if a.Key == "" || a.Key != b.Key || a.Local != b.Local {
		return false
	}
	if a.Local && a.Selector["app"] != b.Selector["app"] {
		return false
	}
	return !slices.ContainsFunc(a.Ports, func(p Port) bool { return slices.Contains(b.Ports, p) })
}

func (w *world) mayJoin(r *Request, addr netip.Addr) bool {
	return !slices.ContainsFunc(w.users(addr, r.Owner), func(name model.Key) bool { return !legal(w.terms[name], r.Sharing) })
}

// home is the pool in use in which the address lies; nil: none.
func (w *world) home(addr netip.Addr) *Pool {
	for i := range w.config.Pools {
		p := &w.config.Pools[i]
		if w.a.pools[p.Name] == nil {
			continue
		}
		for _, text := range p.Addresses {
			r, _ := v1alpha1.ParseAddressRange(text)
			if r.First.Is4() == addr.Is4() && !addr.Less(r.First) && !r.Last.Less(addr) {
				return p
			}
		}
	}
	return nil
}

// giver is the pool in use that may give out the address; nil: none.
func (w *world) giver(addr netip.Addr) *Pool {
	p, last := w.home(addr), addr.AsSlice()[len(addr.AsSlice())-1]
	if p == nil || p.AvoidBuggyIPs && addr.Is4() && (last == 0 || last == 255) || slices.Contains(w.config.NodeAddresses, addr) {
		return nil
	}
	return p
}

// serves says a second time for whom a pool is.
func serves(p *Pool, r *Request) bool {
	s := p.Allocation
	return s == nil || (len(s.Namespaces) == 0 || r.Owner.Namespace == "n0") && (len(s.ServiceSelectors) == 0 || r.Labels["tier"] == "gold")
}

func (w *world) allocate(t *rapid.T, r Request) {
	before := w.a.Assignments()
	got, err := w.a.Allocate(r, w.now)
	again, twinErr := w.twin.Allocate(r, w.now)
	if !reflect.DeepEqual(got, again) || words(got, err) != words(again, twinErr) {
		t.Fatalf("two allocators: %s and %s", words(got, err), words(again, twinErr))
	}
	if err != nil {
		if now := w.a.Assignments(); !reflect.DeepEqual(now, before) {
			t.Fatalf("%v, and yet %v became %v", err, before, now)
		}
		w.checkRefusal(t, &r, err)
		return
	}
	families := r.Families
	if r.Policy == SingleStack {
		families = families[:1]
	}
	var addrs []netip.Addr
	perFamily := map[Family]int{}
	for _, x := range got.Addresses {
		addrs = append(addrs, x.Addr)
		perFamily[FamilyOf(x.Addr)]++
		kept := slices.Contains(w.had[r.Owner], x.Addr)
		if p := w.giver(x.Addr); !kept {
			_, rests := w.freed[x.Addr]
			switch {
			case p == nil || !serves(p, &r) || x.Pool != p.Name:
				t.Fatalf("%v from %v of %v", x, p, w.config)
			case len(r.Pools) > 0 && !slices.Contains(r.Pools, p.Name):
				t.Fatalf("%v is in %s, asked for %v", x, p.Name, r.Pools)
			case len(r.Pools) == 0 && len(r.Addresses) == 0 && !p.AutoAssign:
				t.Fatalf("%v from %s, which is not automatic", x, p.Name)
			case rests && len(r.Addresses) == 0:
				t.Fatalf("%v was given out of quarantine", x)
			}
		}
		if !slices.Contains(families, FamilyOf(x.Addr)) {
			t.Fatalf("%v is of a family that is not asked for", x)
		}
		if !w.mayJoin(&r, x.Addr) {
			t.Fatalf("%v is with %v already", x, w.users(x.Addr, r.Owner))
		}
	}
	switch n := max(r.Count, 1); {
	case len(slices.Compact(slices.SortedFunc(slices.Values(addrs), netip.Addr.Compare))) != len(addrs) || len(addrs) == 0:
		t.Fatalf("addresses %v", addrs)
	case len(r.Addresses) > 0:
		if !slices.Equal(addrs, r.Addresses) {
			t.Fatalf("%v, asked for %v", addrs, r.Addresses)
		}
	case r.Policy == PreferDualStack:
		if perFamily[IPv4] < n && perFamily[IPv6] < n || perFamily[IPv4] > n || perFamily[IPv6] > n {
			t.Fatalf("%v for %d of each", addrs, n)
		}
	default:
		if slices.ContainsFunc(families, func(f Family) bool { return perFamily[f] != n }) {
			t.Fatalf("%v for %d of %v", addrs, n, families)
		}
	}
	w.learn(r.Owner, addrs, r.Sharing)
}

// checkRefusal: what is called exhausted has nothing left indeed.
func (w *world) checkRefusal(t *rapid.T, r *Request, err error) {
	var e *Error
	if !errors.As(err, &e) || e.Error() == "" {
		t.Fatalf("error %v", err)
	}
	if e.Rule != Exhausted && e.Rule != NoPool && e.Rule != FamilyMissing || len(r.Addresses) > 0 {
		return
	}
	can := map[Family]int{}
	for _, addr := range universe {
		p, home := w.giver(addr), w.home(addr)
		_, rests := w.freed[addr]
		// One that its pool no longer gives out is still one of that pool.
		kept := slices.Contains(w.had[r.Owner], addr) && (p != nil || !r.LeaveStrays) &&
			(home == nil || len(r.Pools) == 0 || slices.Contains(r.Pools, home.Name))
		chosen := p != nil && !rests && serves(p, r) && (slices.Contains(r.Pools, p.Name) || len(r.Pools) == 0 && p.AutoAssign)
		if (kept || chosen) && w.mayJoin(r, addr) {
			can[FamilyOf(addr)]++
		}
	}
	n := max(r.Count, 1)
	ok := can[r.Families[0]] >= n
	if len(r.Families) == 2 {
		switch second := can[r.Families[1]] >= n; r.Policy {
		case PreferDualStack:
			ok = ok || second
		case RequireDualStack:
			ok = ok && second
		}
	}
	if ok {
		t.Fatalf("%v, but there are %v for %d", err, can, n)
	}
}

// check compares the indexes with a count address by address.
func (w *world) check(t *rapid.T) {
	counts := map[string]*[2]Count{}
	for name := range w.a.pools {
		counts[name] = &[2]Count{}
	}
	for _, addr := range universe {
		if got := w.a.Holders(addr); len(got) != len(w.users(addr, model.Key{})) {
			t.Fatalf("%v is with %v, want %v", addr, got, w.users(addr, model.Key{}))
		}
		at := w.a.place(addr)
		if !at.ok {
			continue
		}
		c := &counts[at.pool.Name][FamilyOf(addr).index()]
		c.Size++
		_, rests := w.freed[addr]
		free := false
		switch {
		case len(w.users(addr, model.Key{})) > 0:
			c.Assigned++
		case rests:
			c.Quarantined++
		case w.giver(addr) != nil:
			c.Available++
			free = true
		}
		if at.space.free.has(at.index) != free {
			t.Fatalf("%v free: %v", addr, !free)
		}
	}
	for _, u := range w.a.Usage() {
		if got := [2]Count{u.IPv4, u.IPv6}; got != *counts[u.Pool] {
			t.Fatalf("usage of %s: %+v, want %+v", u.Pool, got, *counts[u.Pool])
		}
	}
	strays := 0
	for _, addrs := range w.had {
		for _, addr := range addrs {
			if w.giver(addr) == nil {
				strays++
			}
		}
	}
	if got := w.a.Strays(); len(got) != strays {
		t.Fatalf("strays %v, want %d", got, strays)
	}
}
