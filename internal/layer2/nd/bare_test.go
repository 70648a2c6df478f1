package nd

import (
	"encoding/binary"
	"net/netip"
	"testing"

	"lbd.dev/lbd/internal/model"
)

// cut makes the payload of a frame so long, whatever follows it.
func cut(frame []byte, length uint16) []byte {
	const end = ethernetLen + ipv6Len
	b := append([]byte(nil), frame[:end+int(length)]...)
	binary.BigEndian.PutUint16(b[ethernetLen+4:], length)
	if length < 4 {
		return b
	}
	b[end+2], b[end+3] = 0, 0
	return append(seal(b), make([]byte, 16)...)
}

// TestParseWithoutOptions: a message may end with the target, as that of a host that looks for a
// duplicate does; a shorter one is none.
func TestParseWithoutOptions(t *testing.T) {
	dad := Probe(mac, source, vip, nonce)
	clear(dad[22:38])
	m, ok := Parse(cut(dad, messageLen))
	if want := (Message{Type: Solicitation, Source: netip.IPv6Unspecified(), Target: vip, MAC: mac}); !ok || m != want || !m.Probe() {
		t.Errorf("duplicate address detection: got %+v %v, want %+v", m, ok, want)
	}
	bare := Announce(model.MAC{2, 0, 0, 0, 0, 0xbb}, vip, false)
	m, ok = Parse(cut(bare, messageLen))
	if want := (Message{Type: Advertisement, Source: vip, Target: vip, MAC: model.MAC{2, 0, 0, 0, 0, 0xbb}}); !ok || m != want {
		t.Errorf("advertisement: got %+v %v, want %+v", m, ok, want)
	}
	for _, length := range []uint16{0, 8, messageLen - 1} {
		if m, ok := Parse(cut(bare, length)); ok {
			t.Errorf("%d bytes: accepted as %+v", length, m)
		}
	}
}
