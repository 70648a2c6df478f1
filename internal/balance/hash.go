package balance

import (
	"encoding/binary"
	"math/bits"
	"net/netip"
)

// HashSeed is the same on every node, for ever: one that takes a VIP over sends a packet where
// the one before did. The kernel draws a seed of its own for 0.
const HashSeed = 0x1bd

// SourceSeed is that of the hash that chooses the source of a connection: another one, so that each
// server has connections of all sources.
const SourceSeed = 0x2c1

// Source is which of n sources a connection of a client gets.
func Source(client netip.AddrPort, n int) int { return jenkins(client, false, n, SourceSeed) }

// Slot is the slot among n of a connection of a client, as nftables of this machine computes
// it (struct nft_jhash in net/netfilter/nft_hash.c of Linux, which scales what
// include/linux/jhash.h has): by its address, and without affinity by its port, too.
func Slot(client netip.AddrPort, affinity bool, n int) int {
	return jenkins(client, affinity, n, HashSeed)
}

func jenkins(client netip.AddrPort, affinity bool, n int, seed uint32) int {
	key := client.Addr().AsSlice()
	if !affinity {
		key = append(binary.BigEndian.AppendUint16(key, client.Port()), 0, 0)
	}
	word := func(i int) uint32 { return binary.NativeEndian.Uint32(key[4*i:]) }
	a := uint32(0xdeadbeef) + uint32(len(key)) + seed
	b, c := a, a
	rol := bits.RotateLeft32
	for len(key) > 12 {
		a, b, c = a+word(0), b+word(1), c+word(2)
		a = (a - c) ^ rol(c, 4)
		c += b
		b = (b - a) ^ rol(a, 6)
		a += c
		c = (c - b) ^ rol(b, 8)
		b += a
		a = (a - c) ^ rol(c, 16)
		c += b
		b = (b - a) ^ rol(a, 19)
		a += c
		c = (c - b) ^ rol(b, 4)
		b += a
		key = key[12:]
	}
	for i, to := range []*uint32{&a, &b, &c}[:len(key)/4] {
		*to += word(i)
	}
	c = (c ^ b) - rol(b, 14)
	a = (a ^ c) - rol(c, 11)
	b = (b ^ a) - rol(a, 25)
	c = (c ^ b) - rol(b, 16)
	a = (a ^ c) - rol(c, 4)
	b = (b ^ a) - rol(a, 14)
	c = (c ^ b) - rol(b, 24)
	return int(uint64(c) * uint64(n) >> 32)
}
