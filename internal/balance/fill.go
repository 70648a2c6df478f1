package balance

import (
	"encoding/binary"
	"hash/fnv"
	"math"
	"math/bits"
	"slices"

	"lbd.dev/lbd/internal/model"
)

// slotsFor is how many slots a table for so many servers has: ten for each server at least, so
// that the shares come out even.
func slotsFor(servers int) int {
	switch {
	case servers <= 100:
		return 1024
	case servers <= 400:
		return 4096
	}
	return 16384
}

// fill gives each slot to one of the servers that are in, by weighted rendezvous hashing. No server
// gets a slot more or less than its share, so that among a hundred of them none is left out. First
// all servers have their slots. Those of servers that are out are then shared among the others,
// which keep their own; so when one fails or comes back no slot of another one changes hands, and
// when the configuration changes few do. All nodes fill a table alike, so there is no floating
// point in it, whose last bit differs between processors.
func fill(servers []model.Server, in []bool) []uint16 {
	if !slices.Contains(in, true) {
		return nil
	}
	f := filling{servers: servers, seeds: make([]uint64, len(servers)), slots: make([]uint16, slotsFor(len(servers)))}
	for i := range servers {
		f.seeds[i] = seed(&servers[i])
	}
	f.share(func(int) bool { return true })
	for slot := range f.slots {
		f.give(slot)
	}
	if !slices.Contains(in, false) {
		return f.slots
	}
	had := f.slots
	f.slots = slices.Clone(had)
	f.share(func(i int) bool { return in[i] })
	for _, i := range had {
		if in[i] {
			f.take(int(i))
		}
	}
	for slot, i := range had {
		if !in[i] {
			f.give(slot)
		}
	}
	return f.slots
}

// filling is a table that is being filled.
type filling struct {
	servers []model.Server
	seeds   []uint64
	slots   []uint16 // numbers of servers
	// room is how many whole slots of its share a server has left, and beyond that -1 if it has one
	// of the left ones, which remain of the shares of all; lower than that: it gets none.
	room []int
	left int
}

const noRoom = -2

// share gives the servers for which in holds the room that they are due.
func (f *filling) share(in func(i int) bool) {
	total := 0
	for i := range f.servers {
		if in(i) {
			total += f.servers[i].Weight
		}
	}
	f.room, f.left = make([]int, len(f.servers)), len(f.slots)
	for i := range f.servers {
		if f.room[i] = noRoom; in(i) {
			f.room[i] = len(f.slots) * f.servers[i].Weight / total
			f.left -= f.room[i]
		}
	}
}

// give gives a slot to the server that it prefers of those that have room.
func (f *filling) give(slot int) {
	best := nearest(f.servers, f.seeds, slot, func(i int) bool { return f.room[i] > 0 || f.room[i] == 0 && f.left > 0 })
	f.take(best)
	f.slots[slot] = uint16(best)
}

// take counts a slot that a server has.
func (f *filling) take(i int) {
	if f.room[i]--; f.room[i] < 0 {
		f.left--
	}
}

// nearest is the number of the server that a slot prefers of those that have room.
func nearest(servers []model.Server, seeds []uint64, slot int, hasRoom func(i int) bool) int {
	best, least := 0, uint64(math.MaxUint64)
	for i := range servers {
		if !hasRoom(i) {
			continue
		}
		if d := distance(mix(seeds[i]+uint64(slot))) / uint64(servers[i].Weight); d < least {
			best, least = i, d
		}
	}
	return best
}

// seed is a number for a server, the same on all nodes. Slots count up from it, so it is far
// from those of other servers.
func seed(s *model.Server) uint64 {
	h := fnv.New64a()
	a := s.Addr.As16()
	h.Write(a[:])
	h.Write(binary.BigEndian.AppendUint16(nil, s.Port))
	return mix(h.Sum64())
}

// mix is the finalizer of SplitMix64 (Steele, Lea, Flood: Fast Splittable Pseudorandom Number
// Generators, 2014).
func mix(x uint64) uint64 {
	x += 0x9e3779b97f4a7c15
	x = (x ^ x>>30) * 0xbf58476d1ce4e5b9
	x = (x ^ x>>27) * 0x94d049bb133111eb
	return x ^ x>>31
}

// fraction is how many bits of a logarithm are behind the point.
const fraction = 32

// distance is -log2(x / 2^64) with fraction bits behind the point. Divided by a weight it is
// an exponential variate with that rate, of which the least wins with the probability
// weight / sum of weights.
func distance(x uint64) uint64 {
	x |= 1 // a logarithm of 0 is none
	zeros := bits.LeadingZeros64(x)
	x <<= zeros
	const low = 63 - steps
	at := x << 1 >> (low + 1) // the bits behind the leading one that choose a step
	from, to := logs[at], logs[at+1]
	part := x << (steps + 1) >> fraction // the fraction of the step, of 32 bits
	log := from + (to-from)*part>>fraction
	return (uint64(zeros)+1)<<fraction - log
}

// steps is how many bits choose a step of logs.
const steps = 8

// logs are log2(1 + i / 2^steps) with fraction bits behind the point.
var logs = func() (out [1<<steps + 1]uint64) {
	for i := range out {
		out[i] = log2(uint64(1<<steps+i) << (62 - steps))
	}
	return out
}()

// log2 is the logarithm of x / 2^62, for 1 to 2, by squaring: each time it is 2 or more the
// next bit is set.
func log2(x uint64) (log uint64) {
	if x == 1<<63 {
		return 1 << fraction
	}
	for range fraction {
		high, low := bits.Mul64(x, x)
		x = high<<2 | low>>62
		log <<= 1
		if x >= 1<<63 {
			x >>= 1
			log |= 1
		}
	}
	return log
}
