package nft

import (
	"github.com/google/nftables"
	"github.com/google/nftables/binaryutil"
	"github.com/google/nftables/expr"
	"golang.org/x/sys/unix"
)

// Reg is the register that matches use.
const Reg = 1

// States of a connection, as the kernel has them in a word (enum ip_conntrack_info in
// include/uapi/linux/netfilter/nf_conntrack_common.h).
const (
	StateInvalid     uint32 = 1
	StateEstablished uint32 = 1 << 1
	StateRelated     uint32 = 1 << 2
	StateNew         uint32 = 1 << 3
	StateUntracked   uint32 = 1 << 6
)

// Accept ends a rule: the packet goes on.
func Accept() []expr.Any { return []expr.Any{&expr.Verdict{Kind: expr.VerdictAccept}} }

// Drop ends a rule: the packet is dropped.
func Drop() []expr.Any { return []expr.Any{&expr.Verdict{Kind: expr.VerdictDrop}} }

// Goto goes to a chain; at its end the packet is accepted.
func Goto(to *nftables.Chain) []expr.Any {
	return []expr.Any{&expr.Verdict{Kind: expr.VerdictGoto, Chain: to.Name}}
}

// Equals matches what is in Reg.
func Equals(data []byte) expr.Any {
	return &expr.Cmp{Op: expr.CmpOpEq, Register: Reg, Data: data}
}

// Load puts a part of the packet into Reg.
func Load(base expr.PayloadBase, offset, length uint32) expr.Any {
	return &expr.Payload{DestRegister: Reg, Base: base, Offset: offset, Len: length}
}

// Member matches an address of the network header that is in the set.
func Member(offset uint32, s *nftables.Set) []expr.Any {
	return []expr.Any{
		Load(expr.PayloadBaseNetworkHeader, offset, s.KeyType.Bytes),
		&expr.Lookup{SourceRegister: Reg, SetName: s.Name, SetID: s.ID},
	}
}

// IsProtocol matches the protocol of the transport layer.
func IsProtocol(number byte) []expr.Any {
	return []expr.Any{&expr.Meta{Key: expr.MetaKeyL4PROTO, Register: Reg}, Equals([]byte{number})}
}

// IsTCP matches what is TCP.
func IsTCP() []expr.Any { return IsProtocol(unix.IPPROTO_TCP) }

// InState matches a packet whose connection is in one of the states.
func InState(states uint32) []expr.Any { return anyBit(expr.CtKeySTATE, states) }

// HasStatus matches a packet whose connection has one of the bits (enum ip_conntrack_status).
func HasStatus(bits uint32) []expr.Any { return anyBit(expr.CtKeySTATUS, bits) }

func anyBit(key expr.CtKey, bits uint32) []expr.Any {
	none := make([]byte, 4)
	return []expr.Any{
		&expr.Ct{Register: Reg, Key: key},
		&expr.Bitwise{SourceRegister: Reg, DestRegister: Reg, Len: 4, Mask: binaryutil.NativeEndian.PutUint32(bits), Xor: none},
		&expr.Cmp{Op: expr.CmpOpNeq, Register: Reg, Data: none},
	}
}
