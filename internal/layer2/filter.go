package layer2

import (
	"cmp"
	"encoding/binary"
	"net/netip"
	"slices"

	"golang.org/x/net/bpf"

	"lbd.dev/lbd/internal/layer2/arp"
	"lbd.dev/lbd/internal/layer2/nd"
	"lbd.dev/lbd/internal/layer2/silence"
)

// maxFiltered is how many VIPs the packet filter names. Of more of them, which come
// from pools and lie together, it names ranges: as many as leave out the widest gaps.
// Twice as many comparisons still fit the 8-bit jumps of a filter, and a filter fits
// the memory of a socket for options (net.core.optmem_max) twice.
const maxFiltered = 64

// maxRanges is how many ranges it names: each takes two comparisons.
const maxRanges = 60

// span is a range of the last 32 bits of addresses, both ends included.
type span struct{ low, high uint32 }

// spans covers sorted values with at most so many ranges, that leave out the widest
// gaps.
func spans(values []uint32, most int) []span {
	var gaps []uint32
	for i, v := range values[1:] {
		if gap := v - values[i]; gap > 1 {
			gaps = append(gaps, gap)
		}
	}
	least, equal := uint32(2), len(gaps) // gaps that are left out; how many of just that width
	if len(gaps) >= most {
		slices.SortFunc(gaps, func(a, b uint32) int { return cmp.Compare(b, a) })
		least, equal = gaps[most-2], 0
		for _, g := range gaps[:most-1] {
			if g == least {
				equal++
			}
		}
	}
	out := []span{{values[0], values[0]}}
	for i, v := range values[1:] {
		gap := v - values[i]
		split := gap > least || gap == least && equal > 0
		if gap == least && split {
			equal--
		}
		if split {
			out = append(out, span{v, v})
		} else {
			out[len(out)-1].high = v
		}
	}
	return out
}

// tails are the last 32 bits of addresses, sorted, each once.
func tails(addrs []netip.Addr) []uint32 {
	out := make([]uint32, 0, len(addrs))
	for _, a := range addrs {
		b := a.AsSlice()
		out = append(out, binary.BigEndian.Uint32(b[len(b)-4:]))
	}
	slices.Sort(out)
	return slices.Compact(out)
}

// among compares what was loaded with all addresses.
func among(p []bpf.Instruction, addrs []netip.Addr) []bpf.Instruction {
	all := tails(addrs)
	if len(all) <= maxFiltered {
		for _, v := range all {
			p = append(p, accept(v))
		}
		return p
	}
	for _, s := range spans(all, maxRanges) {
		// Below the range: skip the other comparison.
		p = append(p, bpf.JumpIf{Cond: bpf.JumpLessThan, Val: s.low, SkipTrue: 1}, bpf.JumpIf{Cond: bpf.JumpLessOrEqual, Val: s.high})
	}
	return p
}

// program is the packet filter that wakes this process only for frames about
// addrs that are for the interface with this index.
func program(index int, f Family, addrs []netip.Addr) ([]bpf.RawInstruction, error) {
	about := arpFilter(addrs)
	if f == silence.ND {
		about = ndFilter(addrs)
	}
	return bpf.Assemble(slices.Concat(ours(index), about))
}

// ours drops frames of a VLAN, in which the same addresses may be others. The kernel has
// taken the tag off before it hands them to a socket of one protocol, also on the
// interface on which they came in. If there is an interface for the VLAN it names that one;
// else it marks the frame as one for another host (__netif_receive_skb_core in
// net/core/dev.c), which is what a frame that only a promiscuous card has seen is, too. A
// tag with a priority and no VLAN is neither. The last is for frames whose tag it leaves.
func ours(index int) []bpf.Instruction {
	const otherHost, vid = 3, 0xfff // PACKET_OTHERHOST in include/uapi/linux/if_packet.h
	return []bpf.Instruction{
		bpf.LoadExtension{Num: bpf.ExtInterfaceIndex},
		bpf.JumpIf{Cond: bpf.JumpEqual, Val: uint32(index), SkipTrue: 1},
		bpf.RetConstant{},
		bpf.LoadExtension{Num: bpf.ExtType},
		bpf.JumpIf{Cond: bpf.JumpNotEqual, Val: otherHost, SkipTrue: 1},
		bpf.RetConstant{},
		bpf.LoadExtension{Num: bpf.ExtVLANTag},
		bpf.JumpIf{Cond: bpf.JumpBitsNotSet, Val: vid, SkipTrue: 1},
		bpf.RetConstant{},
	}
}

// arpFilter passes ARP whose SPA or TPA is a VIP.
func arpFilter(addrs []netip.Addr) []bpf.Instruction {
	var p []bpf.Instruction
	for _, offset := range [...]uint32{arp.OffsetSPA, arp.OffsetTPA} {
		p = among(append(p, bpf.LoadAbsolute{Off: offset, Size: 4}), addrs)
	}
	return verdict(p)
}

// ndFilter passes solicitations and advertisements whose target ends like a VIP;
// the parser compares the whole address.
func ndFilter(addrs []netip.Addr) []bpf.Instruction {
	head := []bpf.Instruction{
		bpf.LoadAbsolute{Off: nd.OffsetNextHeader, Size: 1},
		bpf.JumpIf{Cond: bpf.JumpEqual, Val: nd.ProtocolICMPv6, SkipTrue: 1},
		bpf.RetConstant{},
		bpf.LoadAbsolute{Off: nd.OffsetHopLimit, Size: 1},
		bpf.JumpIf{Cond: bpf.JumpEqual, Val: nd.HopLimit, SkipTrue: 1},
		bpf.RetConstant{},
		bpf.LoadAbsolute{Off: nd.OffsetType, Size: 1},
		bpf.JumpIf{Cond: bpf.JumpEqual, Val: uint32(nd.Solicitation), SkipTrue: 2},
		bpf.JumpIf{Cond: bpf.JumpEqual, Val: uint32(nd.Advertisement), SkipTrue: 1},
		bpf.RetConstant{},
	}
	p := among([]bpf.Instruction{bpf.LoadAbsolute{Off: nd.OffsetTarget + 12, Size: 4}}, addrs)
	return append(head, verdict(p)...)
}

// accept is a comparison whose jump verdict fills in.
func accept(v uint32) bpf.Instruction { return bpf.JumpIf{Cond: bpf.JumpEqual, Val: v} }

// verdict appends "drop" and "pass" to a program of loads and comparisons and
// lets every comparison that holds, unless it jumps elsewhere, jump to "pass".
func verdict(p []bpf.Instruction) []bpf.Instruction {
	for i, in := range p {
		if j, ok := in.(bpf.JumpIf); ok && j.SkipTrue == 0 {
			j.SkipTrue = uint8(len(p) - i)
			p[i] = j
		}
	}
	return append(p, bpf.RetConstant{}, bpf.RetConstant{Val: receiveLen})
}
