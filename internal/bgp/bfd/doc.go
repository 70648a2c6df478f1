// Package bfd finds out within milliseconds that the way to a peer is broken:
// Bidirectional Forwarding Detection (RFC 5880) over one hop (RFC 5881) and
// several (RFC 5883), in asynchronous mode, with keyed SHA1 authentication.
//
// Packet is the codec, machine the state machine of one session without clock
// or socket, and Manager runs machines on real sockets. All sessions of a
// Manager live on one thread of the operating system, which waits, receives and
// sends by itself: as soon as the machine is busy no packet waits for Go's network
// poller, and a session that may have timed out is looked at only after its socket
// was read empty. Sessions send together where their jitter allows it, and a packet
// that says no more than Up does not wake the thread.
package bfd
