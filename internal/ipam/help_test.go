package ipam

import (
	"errors"
	"maps"
	"net/netip"
	"slices"
	"strings"
	"testing"
	"time"

	"lbd.dev/lbd/api/v1alpha1"
	"lbd.dev/lbd/internal/model"
)

// t0 is when tests begin.
var t0 = time.Date(2026, 11, 21, 10, 0, 0, 0, time.UTC)

func at(seconds int) time.Time { return t0.Add(time.Duration(seconds) * time.Second) }

// auto is a pool for every Service.
func auto(name string, addresses ...string) Pool {
	return Pool{Name: name, Addresses: addresses, AutoAssign: true}
}

// pinnedTo is a pool for one namespace.
func pinnedTo(ns string, priority int, p Pool) Pool {
	p.Allocation = &v1alpha1.ServiceAllocation{Priority: int32(priority), Namespaces: []string{ns}}
	return p
}

// mustNew returns an allocator with a quarantine of a minute, and fails if a pool
// is refused.
func mustNew(t testing.TB, pools ...Pool) *Allocator {
	t.Helper()
	a, errs := New(Config{Pools: pools, Quarantine: time.Minute})
	for _, err := range errs {
		t.Fatal(err)
	}
	return a
}

// service is a request of an IPv4 Service "default/name" or "ns/name".
func service(name string, change ...func(*Request)) Request {
	if !strings.Contains(name, "/") {
		name = "default/" + name
	}
	r := Request{Owner: model.ParseKey(name), Families: []Family{IPv4}}
	for _, c := range change {
		c(&r)
	}
	return r
}

func ask(addrs ...string) func(*Request) {
	return func(r *Request) {
		for _, x := range addrs {
			r.Addresses = append(r.Addresses, netip.MustParseAddr(x))
		}
	}
}

func from(pools ...string) func(*Request) { return func(r *Request) { r.Pools = pools } }

func dual(p Policy, f ...Family) func(*Request) {
	return func(r *Request) { r.Policy, r.Families = p, f }
}

func count(n int) func(*Request) { return func(r *Request) { r.Count = n } }

func labels(l map[string]string) func(*Request) { return func(r *Request) { r.Labels = l } }

// share sets a key and TCP ports.
func share(key string, ports ...uint16) func(*Request) {
	return func(r *Request) {
		r.Sharing.Key = key
		for _, p := range ports {
			r.Sharing.Ports = append(r.Sharing.Ports, Port{"TCP", p})
		}
	}
}

func local(app string) func(*Request) {
	return func(r *Request) { r.Sharing.Local, r.Sharing.Selector = true, map[string]string{"app": app} }
}

// words tells an answer in one line: addresses, or the rule and the error.
func words(x Assignment, err error) string {
	if e := (*Error)(nil); errors.As(err, &e) {
		return e.Rule.String() + ": " + e.Error()
	}
	var list []string
	for _, at := range x.Addresses {
		list = append(list, at.Addr.String())
	}
	return strings.Join(list, " ")
}

// want allocates and compares; a want that ends in ":" is compared with the rule.
func want(t *testing.T, a *Allocator, when time.Time, r Request, want string) {
	t.Helper()
	got := words(a.Allocate(r, when))
	if strings.HasSuffix(want, ":") && strings.HasPrefix(got, want) {
		return
	}
	if got != want {
		t.Errorf("%s gets %q, want %q", r.Owner, got, want)
	}
}

// written is a range as users write it.
func written(r v1alpha1.AddressRange) string { return r.First.String() + "-" + r.Last.String() }

// stray is an address in use that no pool would give out now.
type stray struct {
	Owner model.Key
	Addr  netip.Addr
	Err   *Error // NotInPool, Avoided or NodeAddress
}

// Strays returns the addresses in use that are outside every pool, for instance
// because a pool was removed, shrunk or refused. By owner, in their order.
func (a *Allocator) Strays() []stray {
	var list []stray
	for _, name := range slices.SortedFunc(maps.Keys(a.owners), model.Key.Compare) {
		for _, addr := range a.owners[name].addrs {
			if err := a.Stray(addr); err != nil {
				list = append(list, stray{name, addr, err})
			}
		}
	}
	return list
}
