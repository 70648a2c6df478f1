package ipam

import (
	"encoding/binary"
	"math"
	"math/bits"
	"net/netip"
)

// number is an unsigned integer of 128 bits: an address, an index or a count.
type number struct{ hi, lo uint64 }

func small(n uint64) number { return number{lo: n} }

func (a number) less(b number) bool { return a.hi < b.hi || a.hi == b.hi && a.lo < b.lo }

func (a number) plus(b number) number {
	lo, carry := bits.Add64(a.lo, b.lo, 0)
	hi, _ := bits.Add64(a.hi, b.hi, carry)
	return number{hi, lo}
}

func (a number) minus(b number) number {
	lo, borrow := bits.Sub64(a.lo, b.lo, 0)
	hi, _ := bits.Sub64(a.hi, b.hi, borrow)
	return number{hi, lo}
}

func (a number) next() number { return a.plus(number{lo: 1}) }

// clamp is the number as far as 64 bits can hold it.
func (a number) clamp() uint64 {
	if a.hi > 0 {
		return math.MaxUint64
	}
	return a.lo
}

// numberOf is the address as a number in its family: 32 or 128 bits.
func numberOf(addr netip.Addr) number {
	if addr.Is4() {
		b := addr.As4()
		return number{lo: uint64(binary.BigEndian.Uint32(b[:]))}
	}
	b := addr.As16()
	return number{binary.BigEndian.Uint64(b[:8]), binary.BigEndian.Uint64(b[8:])}
}

// addr is the address that has this number in the family.
func (a number) addr(f Family) netip.Addr {
	if f == IPv4 {
		var b [4]byte
		binary.BigEndian.PutUint32(b[:], uint32(a.lo))
		return netip.AddrFrom4(b)
	}
	var b [16]byte
	binary.BigEndian.PutUint64(b[:8], a.hi)
	binary.BigEndian.PutUint64(b[8:], a.lo)
	return netip.AddrFrom16(b)
}
