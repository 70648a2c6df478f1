package bfd

// Reason is why a received packet was dropped. None is fatal: anybody can send
// to a port.
type Reason uint8

// The reasons.
const (
	accepted      Reason = iota
	DropMalformed        // Parse refused it
	DropNoSession        // no session has its discriminator, or expects its sender
	DropTTL              // it came from farther away than the session allows, RFC 5881 section 5
	DropAddress          // sender or destination are not those of the session
	DropInterface        // it came in elsewhere
	DropAuth             // without the authentication of the session, or with a wrong hash
	DropSequence         // authentic, but the sequence number says that it is old
	reasons
)

// String is a word for a log or the label of a metric.
func (r Reason) String() string {
	return pick(uint8(r), "accepted", "malformed", "no_session", "ttl", "address", "interface", "authentication", "sequence")
}

// words tells who has to set up what, if authentication is the reason.
func (r Reason) words() string {
	switch r {
	case DropAuth:
		return "the authentication of the peer's packets is not that of the session: type, key ID and key must be the same on both ends"
	case DropSequence:
		return "the peer's packets are authentic but have an old sequence number"
	}
	return ""
}

// Drops counts dropped packets by Reason.
type Drops [reasons]uint64

// Sum is the number of all of them.
func (d *Drops) Sum() (n uint64) {
	for r := DropMalformed; r < reasons; r++ {
		n += d[r]
	}
	return n
}
