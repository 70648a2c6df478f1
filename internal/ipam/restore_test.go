package ipam

import (
	"fmt"
	"net/netip"
	"reflect"
	"slices"
	"testing"
	"time"

	"lbd.dev/lbd/internal/model"
)

// held is an assignment as read from the status of a Service.
func held(owner string, created int, sharing Sharing, addrs ...string) Assignment {
	x := Assignment{Owner: model.ParseKey(owner), Created: at(created), Sharing: sharing}
	for _, addr := range addrs {
		ip, _ := netip.ParseAddr(addr)
		x.Addresses = append(x.Addresses, Address{Addr: ip})
	}
	return x
}

func TestRestore(t *testing.T) {
	key := func(port uint16) Sharing { return Sharing{Key: "k", Ports: []Port{{"TCP", port}}} }
	list := []Assignment{
		held("a/young", 9, Sharing{}, "192.0.2.1"),
		held("z/old", 1, Sharing{}, "192.0.2.1", "2001:db8::1"),
		held("b/same", 5, Sharing{}, "192.0.2.2"),
		held("a/same", 5, Sharing{}, "192.0.2.2"),
		held("s/1", 1, key(80), "192.0.2.3"),
		held("s/2", 2, key(81), "192.0.2.3"),
		held("s/3", 3, key(80), "192.0.2.3", "192.0.2.4"),
		held("out/1", 1, Sharing{}, "198.51.100.1"),
		held("bad/1", 1, Sharing{}, "", "::ffff:192.0.2.7"),
		held("z/old", 8, Sharing{}, "192.0.2.6"),
		held("none/1", 1, Sharing{}),
	}
	wantConflicts := []string{
		"bad/1 invalid IP BadRequest", "bad/1 ::ffff:192.0.2.7 BadRequest", "s/3 192.0.2.3 PortInUse by s/1",
		"b/same 192.0.2.2 InUse by a/same", "z/old 192.0.2.6 DuplicateOwner by z/old", "a/young 192.0.2.1 InUse by z/old",
	}
	a := mustNew(t, auto("p", "192.0.2.0/24", "2001:db8::/64"))
	var first []Assignment
	for round := range 3 {
		var got []string
		for _, c := range a.Restore(list) {
			by := ""
			if len(c.Err.By) > 0 {
				by = " by " + c.Err.By[0]
			}
			got = append(got, c.Owner.String()+" "+c.Addr.String()+" "+c.Err.Rule.String()+by)
		}
		if !slices.Equal(got, wantConflicts) {
			t.Errorf("round %d: conflicts %q\nwant %q", round, got, wantConflicts)
		}
		if round == 0 {
			first = a.Assignments()
		}
		if now := a.Assignments(); !reflect.DeepEqual(now, first) {
			t.Errorf("round %d: %v\nwant %v", round, now, first)
		}
		if u := a.Usage()[0]; u.IPv4 != (Count{256, 4, 0, 252}) || u.IPv6.Assigned != 1 {
			t.Errorf("round %d: usage %+v", round, u)
		}
		slices.Reverse(list)
	}
	if s := a.Strays(); len(s) != 1 || s[0].Addr.String() != "198.51.100.1" {
		t.Errorf("strays %v", s)
	}
	want(t, a, t0, service("s/4", share("k", 443)), "192.0.2.3")
	want(t, a, t0, service("a/young"), "192.0.2.0")

	// What Assignments says is what Restore takes.
	all := a.Assignments()
	b := mustNew(t, auto("p", "192.0.2.0/24", "2001:db8::/64"))
	if c := b.Restore(all); len(c) > 0 || !reflect.DeepEqual(b.Assignments(), all) || !reflect.DeepEqual(b.Usage(), a.Usage()) {
		t.Errorf("restored %v with %v\nwant %v", b.Assignments(), c, all)
	}
}

// TestRestoreLiftsQuarantine: an address that turns out to be in use rests no more.
func TestRestoreLiftsQuarantine(t *testing.T) {
	a := mustNew(t, auto("p", "192.0.2.0/31"))
	want(t, a, t0, service("a"), "192.0.2.0")
	a.Free(model.ParseKey("default/a"), t0)
	a.Restore([]Assignment{held("default/b", 0, Sharing{}, "192.0.2.0")})
	if u := a.Usage()[0].IPv4; u != (Count{2, 1, 0, 1}) {
		t.Errorf("usage %+v", u)
	}
	a.Expire(t0.Add(time.Hour))
	want(t, a, t0.Add(time.Hour), service("c"), "192.0.2.1")
	want(t, a, t0.Add(time.Hour), service("d"), "Exhausted:")
}

// services are n Services with an address each, as after a restart.
func services(n int) []Assignment {
	list := make([]Assignment, n)
	for i := range list {
		list[i] = held(fmt.Sprintf("ns%d/service-%d", i%50, i), i%1000, Sharing{Ports: []Port{{"TCP", 80}, {"TCP", 443}}},
			number{lo: 10<<24 | uint64(i*7919)%(1<<24)}.addr(IPv4).String())
	}
	return list
}

func BenchmarkRestore5000(b *testing.B) {
	list := services(5000)
	a := mustNew(b, auto("p", "10.0.0.0/8"))
	for b.Loop() {
		if c := a.Restore(list); len(c) > 0 {
			b.Fatal(c)
		}
	}
}
