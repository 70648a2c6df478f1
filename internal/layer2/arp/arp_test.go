package arp

import (
	"bytes"
	"encoding/hex"
	"net/netip"
	"testing"

	"lbd.dev/lbd/internal/model"
)

var (
	mac = model.MAC{2, 0, 0, 0, 0, 0xaa}
	vip = netip.MustParseAddr("10.0.0.200")

	client = model.MAC{2, 0, 0, 0, 0, 0xbb}
)

// TestRequestNamesItsSender: as the kernel asks for a neighbour.
func TestRequestNamesItsSender(t *testing.T) {
	from, to := netip.MustParseAddr("10.0.0.11"), netip.MustParseAddr("10.0.0.12")
	mac := model.MAC{2, 0, 0, 0, 0, 1}
	p, ok := Parse(Request(mac, from, to))
	if !ok || p.Op != OpRequest || p.SHA != mac || p.SPA != from || p.TPA != to || p.Probe() || !p.Question() {
		t.Errorf("%+v", p)
	}
}

func TestFramesAreThoseOfRFC5227(t *testing.T) {
	for name, tc := range map[string]struct {
		frame []byte
		want  string
	}{
		"announcement": {Announcement(mac, vip),
			"ffffffffffff 0200000000aa 0806 0001 0800 06 04 0001 0200000000aa 0a0000c8 000000000000 0a0000c8"},
		"probe": {Probe(mac, vip),
			"ffffffffffff 0200000000aa 0806 0001 0800 06 04 0001 0200000000aa 00000000 000000000000 0a0000c8"},
		"reply": {Reply(mac, vip, Packet{SHA: client, SPA: netip.MustParseAddr("10.0.0.9")}),
			"0200000000bb 0200000000aa 0806 0001 0800 06 04 0002 0200000000aa 0a0000c8 0200000000bb 0a000009"},
		"reply to a probe": {Reply(mac, vip, Packet{SHA: client, SPA: netip.IPv4Unspecified()}),
			"0200000000bb 0200000000aa 0806 0001 0800 06 04 0002 0200000000aa 0a0000c8 0200000000bb 00000000"},
	} {
		want, err := hex.DecodeString(string(bytes.ReplaceAll([]byte(tc.want), []byte(" "), nil)))
		if err != nil {
			t.Fatal(err)
		}
		if !bytes.Equal(tc.frame, want) {
			t.Errorf("%s:\n got %x\nwant %x", name, tc.frame, want)
		}
	}
}

func TestParse(t *testing.T) {
	p, ok := Parse(append(Announcement(mac, vip), make([]byte, 18)...)) // padded to 60 bytes
	want := Packet{Op: OpRequest, SHA: mac, SPA: vip, TPA: vip}
	if !ok || p != want || p.Probe() {
		t.Errorf("announcement: got %+v %v, want %+v", p, ok, want)
	}
	p, ok = Parse(Probe(mac, vip))
	want.SPA = netip.IPv4Unspecified()
	if !ok || p != want || !p.Probe() {
		t.Errorf("probe: got %+v %v, want %+v", p, ok, want)
	}

	for name, x := range map[string]struct {
		frame []byte
		want  bool
	}{
		"probe": {Probe(mac, vip), true}, "announcement": {Announcement(mac, vip), false}, "reply": {Reply(mac, vip, Packet{SPA: vip.Next()}), false},
	} {
		if p, ok := Parse(x.frame); !ok || p.Question() != x.want {
			t.Errorf("%s: question %v, want %v", name, p.Question(), x.want)
		}
	}

	change := func(at int, to byte) []byte {
		b := Probe(mac, vip)
		b[at] = to
		return b
	}
	for name, frame := range map[string][]byte{
		"empty":             nil,
		"short":             Probe(mac, vip)[:FrameLen-1],
		"other ether type":  change(13, 0x00),
		"hardware type":     change(15, 6),
		"protocol type":     change(16, 0x86),
		"hardware length":   change(18, 8),
		"protocol length":   change(19, 16),
		"hardware type msb": change(14, 1),
	} {
		if p, ok := Parse(frame); ok {
			t.Errorf("%s: accepted as %+v", name, p)
		}
	}
}

func FuzzARP(f *testing.F) {
	f.Add(Announcement(mac, vip))
	f.Add(Probe(mac, vip))
	f.Add([]byte{})
	f.Fuzz(func(t *testing.T, frame []byte) {
		p, ok := Parse(frame)
		if !ok {
			return
		}
		if !p.SPA.Is4() || !p.TPA.Is4() {
			t.Fatalf("addresses are not IPv4: %+v", p)
		}
		if p.Question() {
			r, ok := Parse(Reply(mac, p.TPA, p))
			if want := (Packet{Op: OpReply, SHA: mac, SPA: p.TPA, THA: p.SHA, TPA: p.SPA}); !ok || r != want {
				t.Fatalf("reply %+v to %+v", r, p)
			}
		}
		if p.Op == OpRequest && p.SPA == p.TPA && p.THA == (model.MAC{}) {
			if got := Announcement(p.SHA, p.SPA); !bytes.Equal(got[14:], frame[14:FrameLen]) {
				t.Fatalf("announcement does not round trip: %x from %x", got, frame)
			}
		}
	})
}
