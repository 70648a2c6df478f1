package address

import (
	"encoding/binary"
	"net/netip"
	"reflect"
	"runtime"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"lbd.dev/lbd/internal/model"
)

// TestNothingNewCostsNothing: an Apply that is asked for the same and finds the same
// hands on the report before, and makes little for each VIP: such Applies come
// several times a second.
func TestNothingNewCostsNothing(t *testing.T) {
	if !isolated(t) {
		return
	}
	const vips = 1000
	d := start(t, idle)
	var bind []model.Binding
	for i := range vips {
		bind = append(bind, model.Binding{Addr: netip.AddrFrom4([4]byte{10, 99, byte(i >> 8), byte(i)}), Interface: model.LoopbackInterface, Epoch: 1})
	}
	w := want(bind...)
	first := applyAll(t, d, w)
	if len(first.Loopback) != vips {
		t.Fatalf("%d of %d VIPs", len(first.Loopback), vips)
	}
	var again model.Applied
	per := uint64(1 << 20)
	for range 5 { // the driver looks by itself too
		var before, after runtime.MemStats
		runtime.ReadMemStats(&before)
		again = applyAll(t, d, w)
		runtime.ReadMemStats(&after)
		per = min(per, (after.TotalAlloc-before.TotalAlloc)/vips)
	}
	if !one(first.Loopback, again.Loopback) || !one(first.VIPs, again.VIPs) {
		t.Error("the same report was made anew")
	}
	t.Logf("%d bytes for each VIP", per)
	if per > 600 {
		t.Error("that is too much")
	}
	// What is news makes a new report, and the old one stays as it was.
	removeByHand(t, model.LoopbackInterface, bind[7].Addr)
	w.Bind = append(bind[:3:3], bind[4:]...)
	now := applyAll(t, d, w)
	if _, ok := now.Loopback[bind[3].Addr]; ok || len(now.Loopback) != vips-1 || !now.Loopback[bind[7].Addr].Bound {
		t.Errorf("%d VIPs, %+v, %+v", len(now.Loopback), now.Loopback[bind[3].Addr], now.Loopback[bind[7].Addr])
	}
	if len(first.Loopback) != vips || one(now.Loopback, again.Loopback) {
		t.Error("an old report was changed")
	}
}

// TestLeftoverIsNews: what appears beside the holds is told.
func TestLeftoverIsNews(t *testing.T) {
	if !isolated(t) {
		return
	}
	d, other := start(t, idle), start(t, idle)
	a, b := netip.MustParseAddr("10.99.0.1"), netip.MustParseAddr("10.99.0.2")
	w := want(model.Binding{Addr: a, Interface: model.LoopbackInterface, Epoch: 1})
	w.Synced = false
	applyAll(t, d, w)
	applyAll(t, other, &model.Desired{ValidUntil: time.Now().Add(time.Hour), Bind: []model.Binding{
		{Addr: a, Interface: model.LoopbackInterface, Epoch: 1}, {Addr: b, Interface: model.LoopbackInterface, Epoch: 1}}})
	for range 2 {
		if got := applyAll(t, d, w).Loopback; len(got) != 2 || !got[b].Bound {
			t.Errorf("%+v", got)
		}
	}
	_ = other.Close(t.Context()) // it must not put it back
	removeByHand(t, model.LoopbackInterface, b)
	if got := applyAll(t, d, w).Loopback; len(got) != 1 {
		t.Errorf("%+v", got)
	}
}

// one tells whether two maps are one.
func one(a, b map[netip.Addr]model.AppliedVIP) bool {
	return reflect.ValueOf(a).Pointer() == reflect.ValueOf(b).Pointer()
}

// attribute is struct rtattr and its value, padded.
func attribute(size int, kind uint16, value ...byte) []byte {
	b := binary.NativeEndian.AppendUint16(nil, uint16(size))
	b = append(binary.NativeEndian.AppendUint16(b, kind), value...)
	for len(b)%4 != 0 {
		b = append(b, 0)
	}
	return b
}

// TestParseEntry reads messages as kernels write them, and none that is broken.
func TestParseEntry(t *testing.T) {
	head := []byte{unix.AF_INET, 32, 0, 0, 1, 0, 0, 0}
	join := func(parts ...[]byte) []byte {
		m := append([]byte(nil), head...)
		for _, p := range parts {
			m = append(m, p...)
		}
		return m
	}
	local, peer := attribute(8, unix.IFA_LOCAL, 10, 0, 0, 1), attribute(8, unix.IFA_ADDRESS, 10, 0, 0, 9)
	label, proto := attribute(7, unix.IFA_LABEL, 'l', 'o', 0), attribute(5, ifaProto, model.AddressProtocol)
	for name, c := range map[string]struct {
		m    []byte
		addr string // empty: refused
		own  bool
	}{
		"of a point-to-point link": {join(peer, local, label), "10.0.0.1", false},
		"the other way round":      {join(local, peer), "10.0.0.1", false},
		"without a local one":      {join(peer), "10.0.0.9", false},
		"marked":                   {join(local, label, proto), "10.0.0.1", true},
		"padding cut off":          {join(local, label, proto[:5]), "10.0.0.1", true},
		"short end":                {join(local, []byte{9, 0}), "10.0.0.1", false},
		"no address":               {join(label), "", false},
		"too short":                {head[:7], "", false},
		"attribute too long":       {join(local, attribute(40, unix.IFA_LABEL, 'l', 'o', 0)), "", false},
		"attribute too short":      {join(local, attribute(3, unix.IFA_LABEL)), "", false},
		"attribute of no length":   {join(attribute(0, 0), local), "", false},
	} {
		e, _, ok := parseEntry(c.m)
		if ok != (c.addr != "") || ok && (e.Prefix.Addr().String() != c.addr || e.Index != 1 || e.own() != c.own) {
			t.Errorf("%s: %+v, %v", name, e, ok)
		}
	}
	m := join(local, label, proto)
	if n := testing.AllocsPerRun(100, func() { parseEntry(m) }); n > 0 {
		t.Errorf("%v allocations", n)
	}
}
