package controller

import (
	"fmt"
	"maps"
	"net/netip"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"

	"lbd.dev/lbd/internal/allocator"
	"lbd.dev/lbd/internal/model"
)

// TestRests: an address that was freed a moment ago rests, whoever leads then: one
// that saw it be freed while nobody led, and one that has just started.
func TestRests(t *testing.T) {
	api := newAPI(t)
	putPool(api, "p", "192.0.2.0/29")
	long := func(o *Options) { o.Allocator.Quarantine = time.Hour }
	x, y, z := build(t, api, "a", long), build(t, api, "b", long), build(t, api, "c", long)
	a := run(t, x)
	for i := range 4 {
		api.Put(resource, service(fmt.Sprint("s", i)))
		eventually(t, "it has an address", func() bool { return status(api, fmt.Sprint("s", i)) == fmt.Sprint("192.0.2.", i) })
	}
	resting := func(p *process, n uint64) func() bool {
		return func() bool {
			pools := p.Stats().Pools
			return len(pools) == 1 && pools[0].IPv4.Quarantined == n
		}
	}
	api.Delete(resource, "default", "s0")
	eventually(t, "the first one rests", resting(a, 1))
	b := run(t, y)
	eventually(t, "b is ready", func() bool { return b.Ready() == nil })
	a.stop()
	api.Delete(resource, "default", "s1")
	eventually(t, "b leads", func() bool { return b.Stats().Leader })
	eventually(t, "both rest with b", resting(b, 2))
	b.stop()
	c := run(t, z)
	eventually(t, "both rest with c", resting(c, 2))
	api.Put(resource, service("new"))
	eventually(t, "a new one has an address", func() bool { return status(api, "new") != "" })
	if got := status(api, "new"); got != "192.0.2.4" {
		t.Errorf("it has %s", got)
	}
	api.Put(resource, service("named", func(s *corev1.Service) { s.Spec.LoadBalancerIP = "192.0.2.1" }))
	eventually(t, "one that asks for it has it", func() bool { return status(api, "named") == "192.0.2.1" })
	eventually(t, "the other one rests", resting(c, 1))
}

// TestBalancersRest: the address of a MachineLoadBalancer that is deleted while nobody
// leads rests too.
func TestBalancersRest(t *testing.T) {
	api := managementAPI(t)
	putPool(api, "edge", "192.0.2.10/31")
	x, y := build(t, api, "a", withMachines), build(t, api, "b", withMachines)
	a := run(t, x)
	putBalancer(api, "api", old, `{"clusterName":"prod"}`)
	eventually(t, "it has an address", func() bool { return balancerStatus(api, "api").Address == "192.0.2.10" })
	b := run(t, y)
	eventually(t, "b is ready", func() bool { return b.Ready() == nil })
	a.stop()
	api.Delete(balancers, "default", "api")
	eventually(t, "b leads", func() bool { return b.Stats().Leader })
	putBalancer(api, "other", young, `{"clusterName":"other"}`)
	eventually(t, "another one has another address", func() bool { return balancerStatus(api, "other").Address != "" })
	if got := balancerStatus(api, "other").Address; got != "192.0.2.11" {
		t.Errorf("it has %s", got)
	}
}

// TestRestsInTime: rests end when they should, are never longer than the quarantine,
// and survive as a note.
func TestRestsInTime(t *testing.T) {
	now := time.Unix(1_763_719_200, 0)
	a, b, c := netip.MustParseAddr("192.0.2.1"), netip.MustParseAddr("192.0.2.2"), netip.MustParseAddr("2001:db8::1")
	f := newFreed(time.Minute)
	shown := map[model.Key]allocator.Service{}
	put := func(name string, ips ...string) {
		s := allocator.Service{}
		for _, ip := range ips {
			s.Ingress = append(s.Ingress, allocator.Ingress{IP: ip})
		}
		shown[model.Key{Name: name}] = s
		f.see([]model.Key{{Name: name}}, func(k model.Key) []netip.Addr { s := shown[k]; return s.Addresses() }, now)
	}
	put("x", a.String(), c.String())
	put("x", c.String())
	note := formatRests(map[netip.Addr]time.Time{b: now.Add(30*time.Second + 1), c: now.Add(time.Hour)})
	for after, want := range map[time.Duration]map[netip.Addr]time.Duration{
		0:                {a: time.Minute, b: 31 * time.Second, c: time.Minute},
		31 * time.Second: {a: 29 * time.Second, c: time.Minute}, // a clock that is an hour ahead
		time.Minute:      {c: time.Minute},
	} {
		got := map[netip.Addr]time.Duration{}
		for addr, until := range f.resting(note, now.Add(after)) {
			got[addr] = until.Sub(now.Add(after))
		}
		if !maps.Equal(got, want) {
			t.Errorf("after %s: %v, want %v", after, got, want)
		}
	}
	if got := f.resting("", now.Add(time.Minute)); len(got) != 0 {
		t.Errorf("without a note: %v", got)
	}
	for _, bad := range []string{"x", "=", "1=", "1=x", "x=192.0.2.1"} {
		if got := parseRests(bad); len(got) != 0 {
			t.Errorf("%q: %v", bad, got)
		}
	}
	many := map[netip.Addr]time.Time{}
	for addr := a; len(many) < maxRests+10; addr = addr.Next() {
		many[addr] = now.Add(time.Duration(len(many)) * time.Second)
	}
	if got := parseRests(formatRests(many)); len(got) != maxRests || !got[a].IsZero() {
		t.Errorf("%d of many rest, the first until %v", len(got), got[a])
	}
}
