package layer2

import (
	"encoding/binary"
	"net/netip"
	"slices"
	"testing"
	"time"

	"lbd.dev/lbd/internal/model"
)

// tagged puts a frame into a VLAN (IEEE 802.1Q).
func tagged(frame []byte, protocol, vid uint16) []byte {
	tag := binary.BigEndian.AppendUint16(binary.BigEndian.AppendUint16(nil, protocol), vid)
	return slices.Concat(frame[:12], tag, frame[12:])
}

// TestSameAddressInAnotherVLAN: subnets of VLANs may overlap. A frame of one with the address
// of a VIP of the interface below is neither an answer to a probe nor a conflict, whether or
// not this host is in the VLAN. One with a priority and no VLAN is, and so is a plain one.
func TestSameAddressInAnotherVLAN(t *testing.T) {
	const dot1Q, dot1AD = 0x8100, 0x88a8
	mv := model.MAC{2, 0, 0, 0, 0, 0x77}
	l := newLab(t)
	// Stands for eth0.5: the kernel hands its frames to sockets on eth0 as well.
	l.IP(hostA, "link add link eth0 name mv0 address "+mv.String()+" type macvlan mode bridge")
	l.IP(hostA, "link set mv0 up")
	inject := l.injector(hostB)
	for _, vip := range []netip.Addr{vip4, vip6} {
		plain := gratuitous(macB, vip)
		for _, c := range []struct {
			name  string
			frame []byte
			ours  bool
		}{
			{"of VLAN 5", tagged(plain, dot1Q, 5), false},
			{"of VLAN 5, to this host", tagged(to(macA, plain), dot1Q, 5), false},
			{"of VLAN 5 in VLAN 7", tagged(tagged(plain, dot1Q, 5), dot1AD, 7), false},
			{"with a priority", tagged(plain, dot1Q, 3<<13), true},
			{"of an interface on top", to(mv, plain), false},
			{"of this LAN", plain, true},
		} {
			h := l.driver(Options{})
			count := func() uint64 { return h.d.Stats().Conflicts }
			h.apply(announceVIP(vip))
			inject(c.frame)
			if c.ours {
				l.eventually(c.name+": a conflict", func() bool { return count() > 0 })
			} else {
				inject(gratuitous(macC, vip))
				l.eventually(c.name+": the frame after it", func() bool { return h.apply(announceVIP(vip))[vip].Foreign == macC })
				if n := count(); n != 1 {
					t.Errorf("%s: a frame %s is a conflict", vip, c.name)
				}
			}

			var got model.ProbeResult
			w := probeVIP(vip, 1)
			w.Lasts = 150 * time.Millisecond
			h.apply(w)
			inject(c.frame)
			l.eventually(c.name+": the end of the series", func() bool {
				got = h.apply(w)[vip].Probe
				return got.Done
			})
			if got.Answered != c.ours {
				t.Errorf("%s: a frame %s: answered %v, want %v", vip, c.name, got.Answered, c.ours)
			}
			h.close()
		}
	}
}
