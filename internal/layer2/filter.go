package layer2

import (
	"encoding/binary"
	"net/netip"

	"golang.org/x/net/bpf"

	"lbd.dev/lbd/internal/layer2/arp"
	"lbd.dev/lbd/internal/layer2/nd"
	"lbd.dev/lbd/internal/layer2/silence"
)

// maxFiltered is how many VIPs the packet filter names; with more of them it lets
// every frame of the protocol pass. Twice as many comparisons still fit the
// 8-bit jumps of a filter.
const maxFiltered = 64

// program is the packet filter that wakes this process only for frames about
// addrs.
func program(f family, addrs []netip.Addr) ([]bpf.RawInstruction, error) {
	if f == silence.ND {
		return bpf.Assemble(ndFilter(addrs))
	}
	return bpf.Assemble(arpFilter(addrs))
}

// arpFilter passes ARP whose SPA or TPA is a VIP.
func arpFilter(addrs []netip.Addr) []bpf.Instruction {
	if len(addrs) > maxFiltered {
		return []bpf.Instruction{bpf.RetConstant{Val: receiveLen}}
	}
	var p []bpf.Instruction
	for _, offset := range [...]uint32{arp.OffsetSPA, arp.OffsetTPA} {
		p = append(p, bpf.LoadAbsolute{Off: offset, Size: 4})
		for _, a := range addrs {
			ip := a.As4()
			p = append(p, accept(binary.BigEndian.Uint32(ip[:])))
		}
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
	if len(addrs) > maxFiltered {
		return append(head, bpf.RetConstant{Val: receiveLen})
	}
	p := []bpf.Instruction{bpf.LoadAbsolute{Off: nd.OffsetTarget + 12, Size: 4}}
	for _, a := range addrs {
		ip := a.As16()
		p = append(p, accept(binary.BigEndian.Uint32(ip[12:])))
	}
	return append(head, verdict(p)...)
}

// accept is a comparison whose jump verdict fills in.
func accept(v uint32) bpf.Instruction { return bpf.JumpIf{Cond: bpf.JumpEqual, Val: v} }

// verdict appends "drop" and "pass" to a program of loads and comparisons and
// lets every comparison that holds jump to "pass".
func verdict(p []bpf.Instruction) []bpf.Instruction {
	for i, in := range p {
		if j, ok := in.(bpf.JumpIf); ok {
			j.SkipTrue = uint8(len(p) - i)
			p[i] = j
		}
	}
	return append(p, bpf.RetConstant{}, bpf.RetConstant{Val: receiveLen})
}
