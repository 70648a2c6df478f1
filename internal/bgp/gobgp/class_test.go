package gobgp

import (
	"net/netip"
	"slices"
	"testing"

	api "github.com/osrg/gobgp/v4/api"
	packet "github.com/osrg/gobgp/v4/pkg/packet/bgp"

	"lbd.dev/lbd/internal/model"
)

// mixed is a path that some peers get with other attributes than others.
func mixed(prefix string, to ...model.BGPAudience) model.BGPPath {
	return model.BGPPath{Prefix: netip.MustParsePrefix(prefix), To: to}
}

func to(a model.PathAttributes, peers ...string) model.BGPAudience {
	return model.BGPAudience{Peers: peers, PathAttributes: a}
}

// TestRoutesWithAttributesByPeer: one prefix, and each peer is told its own attributes, before
// and after they change, and never those of another.
func TestRoutesWithAttributesByPeer(t *testing.T) {
	if !alone(t) {
		return
	}
	b := newBed(t)
	one, two, inner, inner2 := newRouter(t, routerASN), newRouter(t, 4200000001), newRouter(t, lbdASN), newRouter(t, lbdASN)
	for name, r := range map[string]*router{"one": one, "two": two, "inner": inner} {
		r.neighbor(b.addr, lbdASN)
		b.add(b.peer(name, r))
	}
	inner2.neighbor(b.addr, lbdASN)
	red := model.PathAttributes{Communities: []uint32{64512<<16 | 1}, LargeCommunities: [][3]uint32{{64512, 1, 2}}, LocalPref: 250, MED: 33, MEDSet: true, Prepend: 2}
	blue := model.PathAttributes{Communities: []uint32{64512<<16 | 2, 64512<<16 | 3}, LocalPref: 50}
	const prefix = "203.0.113.0/28"
	b.set(mixed(prefix, to(red, "one"), to(blue, "inner", "two"), to(model.PathAttributes{}, "inner2")))
	for _, name := range []string{"one", "two", "inner"} {
		b.up(name)
	}
	b.add(b.peer("inner2", inner2)) // one that comes later
	b.up("inner2")
	hop := b.addr.String()
	check := func(r *router, what string, want route4) {
		t.Helper()
		want.nextHop = hop
		var got route4
		wait(t, what, func() bool {
			got = r.routes(b.addr)[prefix]
			return got.nextHop != "" && slices.Equal(got.communities, want.communities) && got.localPref == want.localPref
		})
		same(t, what, got, want)
	}
	check(one, "red, eBGP", route4{asPath: []uint32{lbdASN, lbdASN, lbdASN}, localPref: -1, med: 33, communities: red.Communities, large: red.LargeCommunities})
	check(two, "blue, eBGP", route4{asPath: []uint32{lbdASN}, localPref: -1, med: -1, communities: blue.Communities})
	check(inner, "blue, iBGP", route4{localPref: 50, med: -1, communities: blue.Communities})
	check(inner2, "nothing, iBGP", route4{localPref: 100, med: -1})
	if n := len(b.classes); n != 3 {
		t.Errorf("%d classes, want 3", n)
	}

	// The peers of one class are asked to leave, the others are not.
	leave := to(blue, "inner", "two")
	leave.Shutdown = true
	b.set(mixed(prefix, to(red, "inner2", "one"), leave))
	gone := append(slices.Clone(blue.Communities), gracefulShutdown)
	check(two, "leaving, eBGP", route4{asPath: []uint32{lbdASN}, localPref: -1, med: -1, communities: gone})
	check(inner, "leaving, iBGP", route4{localPref: 0, med: -1, communities: gone})
	check(inner2, "red, iBGP", route4{localPref: 250, med: 33, communities: red.Communities, large: red.LargeCommunities})
	check(one, "still red", route4{asPath: []uint32{lbdASN, lbdASN, lbdASN}, localPref: -1, med: 33, communities: red.Communities, large: red.LargeCommunities})

	// A session that begins anew is told the same; the others are told nothing.
	before := b.updates("one", one)
	b.Reset("two", "test")
	b.up("two")
	check(two, "leaving, again", route4{asPath: []uint32{lbdASN}, localPref: -1, med: -1, communities: gone})
	if d := b.updates("one", one) - before; d != 0 {
		t.Errorf("one got %d updates for another session", d)
	}

	// One that is left out loses it, and with the same for all no class is left.
	b.set(mixed(prefix, to(red, "inner", "one"), to(blue, "two")))
	inner2.sees(b.addr)
	b.set(mixed(prefix, to(blue, "inner", "one")))
	two.sees(b.addr)
	check(inner, "the same for all", route4{localPref: 50, med: -1, communities: blue.Communities})
	if len(b.classes) != 0 {
		t.Errorf("%d classes are left", len(b.classes))
	}
	b.set(mixed(prefix, to(red, "inner"), to(blue, "two")))
	if err := b.DeletePath(netip.MustParsePrefix(prefix)); err != nil {
		t.Fatal(err)
	}
	one.sees(b.addr)
	inner.sees(b.addr)
	two.sees(b.addr)
	b.clean(t)
}

// clean checks that the policy has nothing of classes any more.
func (b *bed) clean(t *testing.T) {
	t.Helper()
	if len(b.classes) != 0 {
		t.Errorf("%d classes are left", len(b.classes))
	}
	n := 0
	if err := b.server.ListStatement(t.Context(), &api.ListStatementRequest{}, func(st *api.Statement) {
		if st.Actions.GetCommunity() != nil || st.Actions.GetMed() != nil || st.Actions.GetLocalPref() != nil {
			n++
		}
	}); err != nil {
		t.Fatal(err)
	}
	if n != 0 {
		t.Errorf("%d statements of classes are left", n)
	}
	for _, p := range b.peers {
		if len(p.marks) > 2 {
			t.Errorf("peer %s has the marks %v", p.conf.Name, p.marks)
		}
	}
}

// TestRoutesShareClasses: paths share classes, and the last one of them ends one.
func TestRoutesShareClasses(t *testing.T) {
	if !alone(t) {
		return
	}
	b, r, s := newBed(t), newRouter(t, routerASN), newRouter(t, 64514)
	for name, r := range map[string]*router{"r": r, "s": s} {
		r.neighbor(b.addr, lbdASN)
		b.add(b.peer(name, r))
		b.up(name)
	}
	red, blue := model.PathAttributes{Communities: []uint32{1<<16 | 1}}, model.PathAttributes{Communities: []uint32{2<<16 | 2}}
	prefixes := []string{"203.0.113.0/28", "203.0.113.16/28", "203.0.113.1/32"}
	for _, p := range prefixes {
		b.set(mixed(p, to(red, "r"), to(blue, "s")))
	}
	if n := len(b.classes); n != 2 {
		t.Errorf("%d classes, want 2", n)
	}
	for i, p := range prefixes {
		if err := b.DeletePath(netip.MustParsePrefix(p)); err != nil {
			t.Fatal(err)
		}
		if i == 0 { // a new session is told what is left
			b.Reset("r", "test")
			b.up("r")
		}
		for prefix, got := range r.sees(b.addr, prefixes[i+1:]...) {
			if !slices.Equal(got.communities, red.Communities) || got.large != nil {
				t.Errorf("%s: %+v", prefix, got)
			}
		}
		s.sees(b.addr, prefixes[i+1:]...)
	}
	b.clean(t)
}

// TestClassOfExternalPeer looks at the message itself, for routers ignore a
// LOCAL_PREF of an eBGP peer (RFC 4271 section 5.1.5) and their tables do not show it.
func TestClassOfExternalPeer(t *testing.T) {
	if !alone(t) {
		return
	}
	b, addr := newBed(t), host()
	routers := newPipe(t, addr)
	b.set(mixed("203.0.113.1/32", to(model.PathAttributes{LocalPref: 7, Communities: []uint32{1<<16 | 1}}, "r"), to(model.PathAttributes{}, "s")))
	p := b.peer("r", &router{asn: routerASN, addr: addr})
	p.IPv6 = false
	b.add(p)
	r := <-routers
	b.up("r")
	wait(t, "path", func() bool { return r.paths.Load() == 1 })
	var types []packet.BGPAttrType
	for _, a := range r.last.Load().PathAttributes {
		types = append(types, a.GetType())
	}
	want := []packet.BGPAttrType{packet.BGP_ATTR_TYPE_ORIGIN, packet.BGP_ATTR_TYPE_AS_PATH, packet.BGP_ATTR_TYPE_NEXT_HOP, packet.BGP_ATTR_TYPE_COMMUNITIES}
	if !slices.Equal(types, want) {
		t.Errorf("attributes %v, want %v", types, want)
	}
}
