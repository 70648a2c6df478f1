package address

import (
	"context"
	"fmt"
	"net"
	"net/netip"
	"os"
	"strings"
	"testing"
	"time"

	"github.com/vishvananda/netlink"
	"golang.org/x/sys/unix"

	"lbd.dev/lbd/internal/model"
)

func TestBindsExactly(t *testing.T) {
	if !isolated(t) {
		return
	}
	veth(t, "a0", "b0")
	d := start(t, idle)
	before := time.Now()
	vips := apply(t, d, want(on("a0", 1)...))
	after := time.Now()
	index, err := net.InterfaceByName("a0")
	if err != nil {
		t.Fatal(err)
	}
	for _, addr := range both {
		flags := uint32(unix.IFA_F_NOPREFIXROUTE | unix.IFA_F_DEPRECATED)
		if addr.Is6() {
			flags |= unix.IFA_F_NODAD // there is none to avoid in IPv4
		}
		wanted := Entry{
			Prefix: netip.PrefixFrom(addr, addr.BitLen()), Index: index.Index, Protocol: model.AddressProtocol,
			flags: flags, scope: unix.RT_SCOPE_UNIVERSE, prefer: 0,
		}
		got := find(t, addr)
		if len(got) != 1 || !validSince(got[0], idle, before) {
			t.Fatalf("%s: got %+v, want one for %s", addr, got, idle)
		}
		if wanted.Valid = got[0].Valid; got[0] != wanted {
			t.Errorf("%s: got %+v, want %+v", addr, got, wanted)
		}
		v := vips[addr]
		if !v.Bound || v.Interface != "a0" || v.Connections != -1 || v.Expired || v.Err != "" {
			t.Errorf("%s: report %+v", addr, v)
		}
		if v.Expires.Sub(before) < idle || v.Expires.Sub(after) > idle {
			t.Errorf("%s: expires %s after it was bound", addr, v.Expires.Sub(before))
		}
	}
	routes, err := netlink.RouteListFiltered(netlink.FAMILY_ALL, &netlink.Route{Table: unix.RT_TABLE_MAIN}, netlink.RT_FILTER_TABLE)
	if err != nil {
		t.Fatal(err)
	}
	for _, r := range routes {
		if r.Dst != nil && (r.Dst.IP.Equal(v4.AsSlice()) || r.Dst.IP.Equal(v6.AsSlice())) {
			t.Errorf("a route for the VIP: %s", r)
		}
	}
	// What is not wanted any more goes at once, synced or not; nothing twice.
	if vips = apply(t, d, want()); len(vips) != 0 || len(find(t, v4))+len(find(t, v6)) != 0 {
		t.Errorf("still there: %v", vips)
	}
	if vips = apply(t, d, want()); len(vips) != 0 {
		t.Errorf("still reported: %v", vips)
	}
}

func TestPutsBack(t *testing.T) {
	if !isolated(t) {
		return
	}
	veth(t, "a0", "b0")
	d := start(t, idle)
	apply(t, d, want(on("a0", 1)...))
	for _, addr := range both {
		var worst time.Duration
		for range 20 {
			removeByHand(t, "a0", addr)
			worst = max(worst, eventually(t, "put back "+addr.String(), func() bool { return len(find(t, addr)) == 1 }))
			fired(t, d)
		}
		t.Logf("%s: put back within %s (worst of 20)", addr, worst)
		if e := find(t, addr)[0]; !e.own() || time.Duration(e.Valid)*time.Second > idle {
			t.Errorf("%s: %+v", addr, e)
		}
	}
	if s := d.Stats(); s.Readds != 40 || s.Expirations != 0 || s.Errors != 0 {
		t.Errorf("stats %+v", s)
	}
}

func TestLinkDownAndUp(t *testing.T) {
	if !isolated(t) {
		return
	}
	veth(t, "a0", "b0")
	d := start(t, idle)
	apply(t, d, want(on("a0", 1)...))
	setUp(t, "a0", false)
	time.Sleep(100 * time.Millisecond)
	setUp(t, "a0", true)
	took := eventually(t, "both addresses", func() bool { return len(find(t, v4)) == 1 && len(find(t, v6)) == 1 })
	t.Logf("both are there %s after the interface came up", took)
	// It is fit for use: usable at once, and the interface hears solicitations.
	if e := find(t, v6)[0]; e.flags&unix.IFA_F_TENTATIVE != 0 || !e.own() {
		t.Errorf("%+v", e)
	}
	// The kernel joins the group a moment after the interface came up.
	eventually(t, "the solicited-node group", func() bool {
		groups, err := os.ReadFile("/proc/net/dev_mcast")
		return err == nil && strings.Contains(string(groups), "3333ff000200")
	})
	// An interface that is gone, and comes back under its name soon.
	link, err := netlink.LinkByName("a0")
	if err != nil {
		t.Fatal(err)
	}
	if err := netlink.LinkDel(link); err != nil {
		t.Fatal(err)
	}
	fired(t, d)
	applied, err := settle(t, d, want(on("a0", 1)...))
	if err == nil || applied.VIPs[v4].Bound || !strings.Contains(applied.VIPs[v4].Err, `interface "a0" does not exist`) {
		t.Errorf("%+v, %v", applied.VIPs[v4], err)
	}
	veth(t, "a0", "b0")
	eventually(t, "bound on the new interface", func() bool { return len(find(t, v4)) == 1 && len(find(t, v6)) == 1 })
}

func TestForeignAddress(t *testing.T) {
	if !isolated(t) {
		return
	}
	veth(t, "a0", "b0")
	veth(t, "a1", "b1")
	for _, c := range []struct{ iface, prefix string }{
		{"a0", "10.0.0.200/24"}, {"a0", "10.0.0.200/32"}, {"a1", "10.0.0.200/32"},
		{"a0", "fd00::200/64"}, {"a0", "fd00::200/128"}, {"a1", "fd00::200/64"},
	} {
		t.Run(c.iface+" "+c.prefix, func(t *testing.T) {
			addr := netip.MustParsePrefix(c.prefix).Addr()
			remove := foreign(t, c.iface, c.prefix)
			was := find(t, addr)
			d := start(t, idle)
			w := want(model.Binding{Addr: addr, Interface: "a0", Epoch: 1})
			w.Synced = true
			applied, err := settle(t, d, w)
			v := applied.VIPs[addr]
			if err == nil || v.Bound || v.Err != "is already configured on "+c.iface+" by somebody else" {
				t.Errorf("report %+v, error %v", v, err)
			}
			d.renewAll(t.Context())
			now := find(t, addr)
			if len(now) != 1 || now[0].Prefix != was[0].Prefix || now[0].Index != was[0].Index || now[0].Protocol != was[0].Protocol || now[0].Valid != was[0].Valid {
				t.Errorf("was %+v, is %+v", was, now)
			}
			// Once it is out of the way, the VIP is bound without an Apply.
			remove()
			eventually(t, "bound", func() bool { f := find(t, addr); return len(f) == 1 && f[0].own() })
			apply(t, d, want())
		})
	}
}

func TestLeftoverIsPrunedOnlyWhenSynced(t *testing.T) {
	if !isolated(t) {
		return
	}
	veth(t, "a0", "b0")
	old := start(t, idle)
	apply(t, old, want(on("a0", 1)...))
	if err := old.Close(t.Context()); err != nil {
		t.Fatal(err)
	}
	removeNode := foreign(t, "a0", "10.0.0.5/24")
	d := start(t, idle)
	for range 3 {
		vips := apply(t, d, want())
		if len(vips) != 2 {
			t.Fatalf("report %v", vips)
		}
		for _, addr := range both {
			v := vips[addr]
			if left := time.Until(v.Expires); !v.Bound || v.Interface != "a0" || v.Err != "" || left < idle/2 || left > idle {
				t.Errorf("%s: %+v, %s left", addr, v, time.Until(v.Expires))
			}
		}
		time.Sleep(200 * time.Millisecond)
	}
	if d.Stats().Renewals != 0 {
		t.Error("a leftover was renewed")
	}
	w := want()
	w.Synced = true
	if vips := apply(t, d, w); len(vips) != 0 || len(find(t, v4))+len(find(t, v6)) != 0 {
		t.Errorf("not pruned: %v", vips)
	}
	if len(find(t, netip.MustParseAddr("10.0.0.5"))) != 1 {
		t.Error("the node address is gone")
	}
	removeNode()
}

func TestAdoptsAtRestart(t *testing.T) {
	if !isolated(t) {
		return
	}
	veth(t, "a0", "b0")
	const lifetime = 6 * time.Second
	old := start(t, lifetime)
	apply(t, old, want(on("a0", 7)...))
	if err := old.Close(t.Context()); err != nil {
		t.Fatal(err)
	}
	o := observe(t, both...)
	time.Sleep(lifetime / 2)
	d := start(t, lifetime)
	apply(t, d, want())
	before := time.Now()
	vips := apply(t, d, want(on("a0", 7)...))
	for _, addr := range both {
		if v := vips[addr]; !v.Bound || v.Expired || v.Expires.Before(before.Add(lifetime)) {
			t.Errorf("%s: %+v", addr, v)
		}
	}
	time.Sleep(lifetime/2 + 500*time.Millisecond)
	for _, addr := range both {
		if l := o.of(addr); len(l) != 1 || !l[0].there {
			t.Errorf("%s was away: %v", addr, l)
		}
	}
	if s := d.Stats(); s.Readds != 0 || s.Renewals < 4 {
		t.Errorf("stats %+v", s)
	}
}

// TestEndedBeforeAdoption: the decision saw the address in a report and wants to
// keep it, but the lifetime ends before that reaches the driver.
func TestEndedBeforeAdoption(t *testing.T) {
	if !isolated(t) {
		return
	}
	veth(t, "a0", "b0")
	old := start(t, 4*time.Second)
	apply(t, old, want(on("a0", 7)...))
	if err := old.Close(t.Context()); err != nil {
		t.Fatal(err)
	}
	d := start(t, 2*time.Second)
	if vips := apply(t, d, want()); !vips[v4].Bound {
		t.Fatalf("report %v", vips)
	}
	eventually(t, "gone", func() bool { return len(find(t, v4))+len(find(t, v6)) == 0 })
	vips := apply(t, d, want(on("a0", 7)...))
	for _, addr := range both {
		if v := vips[addr]; v.Bound || !v.Expired || len(find(t, addr)) != 0 {
			t.Errorf("%s: %+v", addr, v)
		}
	}
	if vips = apply(t, d, want(on("a0", 8)...)); !vips[v4].Bound || !vips[v6].Bound {
		t.Errorf("a new epoch is not bound: %v", vips)
	}
}

func TestMove(t *testing.T) {
	if !isolated(t) {
		return
	}
	veth(t, "a0", "b0")
	veth(t, "a1", "b1")
	d := start(t, idle)
	apply(t, d, want(on("a0", 1)...))
	o := observe(t, both...)
	time.Sleep(20 * time.Millisecond)
	vips := apply(t, d, want(on("a1", 1)...))
	time.Sleep(20 * time.Millisecond)
	index, err := net.InterfaceByName("a1")
	if err != nil {
		t.Fatal(err)
	}
	for _, addr := range both {
		if v := vips[addr]; !v.Bound || v.Interface != "a1" {
			t.Errorf("%s: %+v", addr, v)
		}
		if f := find(t, addr); len(f) != 1 || f[0].Index != index.Index {
			t.Errorf("%s: %+v", addr, f)
		}
		if l := o.of(addr); len(l) != 1 {
			t.Errorf("%s was away during the move: %v", addr, l)
		}
	}
	if s := d.Stats(); s.Readds != 0 {
		t.Errorf("stats %+v", s)
	}
	// To where there is nothing: it stays, says so, and is not renewed.
	applied, err := settle(t, d, want(on("none", 1)...))
	if v := applied.VIPs[v4]; err == nil || v.Bound || v.Interface != "a1" || !strings.Contains(v.Err, `"none" does not exist`) {
		t.Errorf("%+v, %v", v, err)
	}
}

func TestErrorsSayWhatToDo(t *testing.T) {
	if !isolated(t) {
		return
	}
	veth(t, "a0", "b0")
	if err := os.WriteFile("/proc/sys/net/ipv6/conf/a0/disable_ipv6", []byte("1"), 0); err != nil {
		t.Fatal(err)
	}
	d := start(t, 2*time.Second)
	applied, err := settle(t, d, want(on("a0", 1)...))
	if v := applied.VIPs[v6]; err == nil || v.Bound || v.Err != `IPv6 is disabled on "a0": set sysctl net.ipv6.conf.a0.disable_ipv6=0` {
		t.Errorf("%+v, %v", v, err)
	}
	if v := applied.VIPs[v4]; !v.Bound || v.Err != "" {
		t.Errorf("IPv4 suffers: %+v", v)
	}
	if !strings.Contains(applied.Err, `vip "fd00::200": IPv6 is disabled`) {
		t.Errorf("error %q", applied.Err)
	}
	if e := explain(model.Binding{Addr: v4, Interface: "a0"}, unix.EPERM); !strings.Contains(e.Error(), "CAP_NET_ADMIN") {
		t.Error(e)
	}
	if _, err := New(Options{Lifetime: 2500 * time.Millisecond}); err == nil {
		t.Error("half seconds are accepted")
	}
	if _, err := New(Options{Lifetime: time.Second}); err == nil {
		t.Error("one second is accepted")
	}
}

func TestCleanup(t *testing.T) {
	if !isolated(t) {
		return
	}
	veth(t, "a0", "b0")
	veth(t, "a1", "b1")
	d := start(t, idle)
	b := on("a0", 1)
	b[1].Interface = "a1"
	apply(t, d, want(b...))
	if err := d.Close(t.Context()); err != nil {
		t.Fatal(err)
	}
	foreign(t, "a0", "10.0.0.5/24")
	list, err := List()
	if err != nil || len(list) != 2 {
		t.Fatalf("%v, %v", list, err)
	}
	want := map[string]string{"10.0.0.200/32": "a0", "fd00::200/128": "a1"}
	for _, h := range list {
		if want[h.Prefix.String()] != h.Interface || h.Remaining > idle || h.Remaining < idle-patience {
			t.Errorf("%+v", h)
		}
	}
	removed, err := Cleanup(t.Context(), d.log)
	if err != nil || len(removed) != 2 {
		t.Errorf("%v, %v", removed, err)
	}
	if len(find(t, v4))+len(find(t, v6)) != 0 || len(find(t, netip.MustParseAddr("10.0.0.5"))) != 1 {
		t.Errorf("%+v", dump(t))
	}
	if removed, err = Cleanup(t.Context(), nil); err != nil || len(removed) != 0 {
		t.Errorf("a second time: %v, %v", removed, err)
	}
	if _, err := d.Apply(context.Background(), &model.Desired{}); err == nil {
		t.Error("a closed driver applies")
	}
}

func TestManyVIPs(t *testing.T) {
	if !isolated(t) {
		return
	}
	const n = 2000
	veth(t, "a0", "b0")
	d := start(t, 9*time.Second)
	var bind []model.Binding
	for i := range n {
		bind = append(bind, model.Binding{Addr: netip.AddrFrom4([4]byte{10, 1, byte(i >> 8), byte(i)}), Interface: "a0", Epoch: 1})
	}
	w := want(bind...)
	begin := time.Now()
	apply(t, d, w)
	bound := time.Since(begin)
	begin = time.Now()
	apply(t, d, w)
	again := time.Since(begin)
	eventually(t, "all renewed", func() bool { return d.Stats().Renewals >= n })
	vips := apply(t, d, w)
	for _, b := range bind {
		if !vips[b.Addr].Bound {
			t.Fatalf("%s is gone", b.Addr)
		}
	}
	d.mu.Lock()
	begin = time.Now()
	d.renew(t.Context(), everything)
	renewed := time.Since(begin)
	d.mu.Unlock()
	begin = time.Now()
	apply(t, d, want())
	t.Logf("%d VIPs: bound in %s, nothing to do %s, renewed in %s, unbound in %s", n, bound, again, renewed, time.Since(begin))
	if s := d.Stats(); s.Expirations != 0 || s.Errors != 0 || s.Readds != 0 {
		t.Errorf("stats %+v", s)
	}
}

func TestMarks(t *testing.T) {
	single := netip.MustParsePrefix("10.0.0.200/32")
	for _, c := range []struct {
		e   Entry
		own bool
	}{
		{Entry{Prefix: single, Protocol: model.AddressProtocol}, true},
		{Entry{Prefix: single, Protocol: model.AddressProtocol, Metric: model.AddressMetric}, true},
		{Entry{Prefix: single, Metric: model.AddressMetric}, true},
		{Entry{Prefix: single, Protocol: 1, Metric: model.AddressMetric}, false},
		{Entry{Prefix: single}, false},
		{Entry{Prefix: netip.MustParsePrefix("10.0.0.200/24"), Protocol: model.AddressProtocol}, false},
	} {
		if c.e.own() != c.own {
			t.Errorf("%+v: own is %t", c.e, !c.own)
		}
	}
}

func TestFold(t *testing.T) {
	var errs []error
	for i := range 5 {
		errs = append(errs, fmt.Errorf("e%d", i))
	}
	for n, wanted := range map[int]string{0: "<nil>", 1: "e0", 3: "e0; e1; e2", 5: "e0; e1; e2; and 2 more"} {
		if got := fmt.Sprint(fold(errs[:n])); got != wanted {
			t.Errorf("%d: %q, want %q", n, got, wanted)
		}
	}
}

// TestRenewalsWakeNobody: the messages about own renewals stay in the kernel.
func TestRenewalsWakeNobody(t *testing.T) {
	if !isolated(t) {
		return
	}
	veth(t, "a0", "b0")
	sock, err := subscribe()
	if err != nil {
		t.Fatal(err)
	}
	defer sock.Close()
	timeout := unix.NsecToTimeval(int64(time.Second))
	if err := sock.SetReceiveTimeout(&timeout); err != nil {
		t.Fatal(err)
	}
	d := start(t, idle)
	apply(t, d, want(on("a0", 1)...))
	d.mu.Lock()
	d.renew(t.Context(), everything)
	d.mu.Unlock()
	if n := d.Stats().Renewals; n != 2 {
		t.Errorf("%d renewals, want 2", n)
	}
	apply(t, d, want())
	var removed int
	for {
		msgs, _, err := sock.Receive()
		if err != nil {
			break
		}
		for _, m := range msgs {
			e, knows, _ := parseEntry(m.Data)
			switch {
			case m.Header.Type == unix.RTM_NEWADDR && e.own():
				t.Error("a renewal is heard")
			case m.Header.Type == unix.RTM_DELADDR && e.own() && knows:
				removed++
			}
		}
	}
	if removed != 2 {
		t.Errorf("%d removals are heard, want 2", removed)
	}
}
