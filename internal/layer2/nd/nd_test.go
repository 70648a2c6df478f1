package nd

import (
	"bytes"
	"encoding/binary"
	"encoding/hex"
	"net/netip"
	"strings"
	"testing"

	"lbd.dev/lbd/internal/model"
)

var (
	mac    = model.MAC{2, 0, 0, 0, 0, 0xaa}
	vip    = netip.MustParseAddr("fd00::200")
	source = netip.MustParseAddr("fe80::ff:fe00:aa")
	nonce  = Nonce{1, 2, 3, 4, 5, 6}
	client = model.MAC{2, 0, 0, 0, 0, 0xbb}
)

// That the checksum is the right one is seen in the tests of package layer2,
// where Linux obeys the same frames.
func TestFrames(t *testing.T) {
	for name, tc := range map[string]struct {
		frame []byte
		want  string
	}{
		"advertisement": {Announce(mac, vip, false), `
			333300000001 0200000000aa 86dd 60000000 0020 3a ff
			fd000000000000000000000000000200 ff020000000000000000000000000001
			88 00 CCCC 20000000 fd000000000000000000000000000200 02 01 0200000000aa`},
		"of a router": {Announce(mac, vip, true), `
			333300000001 0200000000aa 86dd 60000000 0020 3a ff
			fd000000000000000000000000000200 ff020000000000000000000000000001
			88 00 CCCC a0000000 fd000000000000000000000000000200 02 01 0200000000aa`},
		"solicitation": {Probe(mac, source, vip, nonce), `
			3333ff000200 0200000000aa 86dd 60000000 0028 3a ff
			fe80000000000000000000fffe0000aa ff0200000000000000000001ff000200
			87 00 CCCC 00000000 fd000000000000000000000000000200 01 01 0200000000aa 0e 01 010203040506`},
		"reply": {Reply(mac, vip, false, Message{Source: source, MAC: client}), `
			0200000000bb 0200000000aa 86dd 60000000 0020 3a ff
			fd000000000000000000000000000200 fe80000000000000000000fffe0000aa
			88 00 CCCC 60000000 fd000000000000000000000000000200 02 01 0200000000aa`},
		"reply of a router": {Reply(mac, vip, true, Message{Source: source, MAC: client}), `
			0200000000bb 0200000000aa 86dd 60000000 0020 3a ff
			fd000000000000000000000000000200 fe80000000000000000000fffe0000aa
			88 00 CCCC e0000000 fd000000000000000000000000000200 02 01 0200000000aa`},
		"reply to all": {Reply(mac, vip, false, Message{Source: netip.IPv6Unspecified(), MAC: client}), `
			333300000001 0200000000aa 86dd 60000000 0020 3a ff
			fd000000000000000000000000000200 ff020000000000000000000000000001
			88 00 CCCC 20000000 fd000000000000000000000000000200 02 01 0200000000aa`},
	} {
		got := hex.EncodeToString(tc.frame)
		want := strings.NewReplacer(" ", "", "\n", "", "\t", "", "CCCC", got[112:116]).Replace(tc.want)
		if got != want {
			t.Errorf("%s:\n got %s\nwant %s", name, got, want)
		}
		if checksum(tc.frame[22:54], tc.frame[54:]) != 0 {
			t.Errorf("%s: wrong checksum", name)
		}
	}
}

func TestParse(t *testing.T) {
	m, ok := Parse(append(Announce(mac, vip, false), 0, 0)) // padding is ignored
	if want := (Message{Type: Advertisement, Source: vip, Target: vip, MAC: mac}); !ok || m != want || m.Probe() {
		t.Errorf("advertisement: got %+v %v, want %+v", m, ok, want)
	}
	m, ok = Parse(Probe(mac, source, vip, nonce))
	if want := (Message{Type: Solicitation, Source: source, Target: vip, MAC: mac, HasNonce: true}); !ok || m != want || !m.Probe() {
		t.Errorf("solicitation: got %+v %v, want %+v", m, ok, want)
	}
}

// change edits a frame and makes its checksum right again.
func change(frame []byte, edit func(b []byte)) []byte {
	b := bytes.Clone(frame)
	edit(b)
	b[56], b[57] = 0, 0
	return seal(b)
}

func TestParseTakesTheOptionBeforeTheEthernetSource(t *testing.T) {
	other := model.MAC{2, 0, 0, 0, 0, 0xbb}
	b := change(Announce(mac, vip, false), func(b []byte) { copy(b[6:12], other[:]) })
	if m, ok := Parse(b); !ok || m.MAC != mac {
		t.Errorf("with option: got %v %v, want %v", m.MAC, ok, mac)
	}
	b = change(b, func(b []byte) { b[78] = 200 }) // an option nobody knows
	if m, ok := Parse(b); !ok || m.MAC != other {
		t.Errorf("without option: got %v %v, want %v", m.MAC, ok, other)
	}
}

func TestParseOrdinarySolicitationIsNoProbe(t *testing.T) {
	b := change(Probe(mac, source, vip, nonce), func(b []byte) { b[86] = 200 })
	if m, ok := Parse(b); !ok || m.Probe() {
		t.Errorf("client: got %+v %v", m, ok)
	}
	b = change(b, func(b []byte) { clear(b[22:38]); b[78] = 200 })
	if m, ok := Parse(b); !ok || !m.Probe() {
		t.Errorf("duplicate address detection: got %+v %v", m, ok)
	}
}

func TestParseRefuses(t *testing.T) {
	na, ns := Announce(mac, vip, false), Probe(mac, source, vip, nonce)
	broken := bytes.Clone(na)
	broken[56]++
	for name, frame := range map[string][]byte{
		"empty":                          nil,
		"short":                          na[:77],
		"truncated":                      na[:80],
		"bad checksum":                   broken,
		"ether type":                     change(na, func(b []byte) { b[13] = 0 }),
		"version":                        change(na, func(b []byte) { b[14] = 0x40 }),
		"hop limit":                      change(na, func(b []byte) { b[21] = 254 }),
		"next header":                    change(na, func(b []byte) { b[20] = 17 }),
		"code":                           change(na, func(b []byte) { b[55] = 1 }),
		"router solicitation":            change(na, func(b []byte) { b[54] = 133 }),
		"multicast source":               change(ns, func(b []byte) { b[22] = 0xff }),
		"multicast target":               change(na, func(b []byte) { b[62] = 0xff }),
		"option length 0":                change(na, func(b []byte) { b[79] = 0 }),
		"option too long":                change(na, func(b []byte) { b[79] = 2 }),
		"solicited to all nodes":         change(na, func(b []byte) { b[58] = 0x60 }),
		"unspecified source with SLLA":   change(ns, func(b []byte) { clear(b[22:38]) }),
		"unspecified source, other dest": change(ns, func(b []byte) { clear(b[22:38]); b[78] = 200; b[53] = 9 }),
	} {
		if m, ok := Parse(frame); ok {
			t.Errorf("%s: accepted as %+v", name, m)
		}
	}
}

func FuzzND(f *testing.F) {
	f.Add(Announce(mac, vip, true))
	f.Add(Probe(mac, source, vip, nonce))
	f.Add([]byte{})
	f.Fuzz(func(t *testing.T, frame []byte) {
		check(t, frame)
		if len(frame) >= minLen { // most inputs have a wrong checksum: mend it
			b := bytes.Clone(frame)
			n := int(b[18])<<8 | int(b[19])
			if n >= messageLen && len(b) >= ethernetLen+ipv6Len+n {
				b = b[:ethernetLen+ipv6Len+n]
				b[56], b[57] = 0, 0
				check(t, seal(b))
			}
		}
	})
}

func check(t *testing.T, frame []byte) {
	t.Helper()
	m, ok := Parse(frame)
	if !ok {
		return
	}
	if m.Type != Solicitation && m.Type != Advertisement || m.Target.IsMulticast() || !m.Target.Is6() {
		t.Fatalf("accepted %+v", m)
	}
	if frame[21] != HopLimit {
		t.Fatalf("accepted hop limit %d", frame[21])
	}
	if m.Type != Solicitation {
		return
	}
	r, ok := Parse(Reply(mac, m.Target, true, m))
	if want := (Message{Type: Advertisement, Source: m.Target, Target: m.Target, MAC: mac}); !ok || r != want {
		// From :: nobody may say where :: is.
		if !m.Target.IsUnspecified() {
			t.Fatalf("reply %+v %v to %+v", r, ok, m)
		}
	}
}

// TestParseOptionsOfOthers: what an advertisement has beside its own options does not
// hide it, whatever it is (RFC 4861 section 7.1.2): Linux obeys each of these, too.
func TestParseOptionsOfOthers(t *testing.T) {
	for name, option := range map[string][]byte{
		"unknown":                        {200, 1, 7: 0},
		"of 256 bytes, as those of SEND": {12, 32, 255: 0},
		"a prefix that is too short":     {3, 1, 7: 0},
		"DNS servers that are none":      {25, 1, 7: 0},
		"names that are none":            {31, 2, 8: 0xff, 15: 0},
		"an MTU":                         {5, 1, 7: 0},
	} {
		b := change(append(Announce(mac, vip, false), option...), func(b []byte) {
			binary.BigEndian.PutUint16(b[18:], uint16(len(b)-ethernetLen-ipv6Len))
		})
		if m, ok := Parse(b); !ok || m.Target != vip || m.MAC != mac {
			t.Errorf("%s: got %+v %v", name, m, ok)
		}
	}
}
