package model

import (
	"net/netip"
	"time"
)

// WirePhase is where this node stands with the wire of one interface; see package wire.
type WirePhase uint8

// The phases of package wire.
const (
	WireResting WirePhase = iota // asked lately enough, or never
	WireAsking                   // questions are out
	WireSilent                   // nobody answered; asked again and again
)

// WireMemory is what this node knows of the wire of one interface.
type WireMemory struct {
	Phase WirePhase
	// At is when the last questions were put, in the series of that number, to Asked; All:
	// to everybody who may be asked, and not only to who answered last. Asked is never
	// changed.
	At     time.Time
	Series uint64
	Asked  []netip.Addr
	All    bool
	// Short: a VIP is about to come, which is not to wait for long.
	Short bool
	// Mute: the last questions but these could not be put, so nothing waits for an answer.
	Mute bool
	// By is who answered last, and Heard when that was.
	By    netip.Addr
	Heard time.Time
	// Silent is since when nobody answers; zero while somebody does.
	Silent time.Time
	// Witness is since when others are known to hear each other; zero: they are not.
	Witness time.Time
	// Dark: nobody was heard since then either, nor whom the others hear.
	Dark bool
}

// Same compares two memories; Asked changes with Series.
func (m *WireMemory) Same(o *WireMemory) bool {
	return m.Phase == o.Phase && m.At.Equal(o.At) && m.Series == o.Series && m.All == o.All && m.Short == o.Short && m.Mute == o.Mute && m.By == o.By &&
		m.Heard.Equal(o.Heard) && m.Silent.Equal(o.Silent) && m.Witness.Equal(o.Witness) && m.Dark == o.Dark
}
