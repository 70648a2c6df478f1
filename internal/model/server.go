package model

import (
	"net/netip"
	"time"
)

// ServerMemory is what became of a server of a LoadBalancer.
type ServerMemory struct {
	Addr  netip.Addr
	Port  uint16
	Ports string
	State ServerState
	Why   ServerWhy
	By    NodeName // who says so, with ServerOwnerSays
	// Since is when State last changed.
	Since time.Time
}

// ServerState is whether a server gets new connections.
type ServerState uint8

// The states of servers.
const (
	ServerIn        ServerState = iota
	ServerDraining              // none by configuration, and those that it has go on
	ServerOut                   // none
	ServerUnchecked             // nothing is known of it, nor of a better one: it gets them so that none is refused
)

// String is the word that people see.
func (s ServerState) String() string {
	switch s {
	case ServerDraining:
		return "draining"
	case ServerOut:
		return "out"
	case ServerUnchecked:
		return "pending"
	}
	return "in"
}

// ServerWhy is why a server gets no new connections, or gets them all the same.
type ServerWhy uint8

// The reasons.
const (
	ServerWell       ServerWhy = iota // it gets some, as it should
	ServerNoWeight                    // its weight is 0
	ServerLeaving                     // its Machine is about to go
	ServerRemoved                     // it is configured no more
	ServerIsVIP                       // it is an address of lbd itself
	ServerDown                        // it fails its check
	ServerFailing                     // the last run of its check failed
	ServerPending                     // its check has not passed yet
	ServerOwnerSays                   // the owner of the VIP, or the last one, says so
	ServerNoneBetter                  // it is not well, and no other is better
	ServerNoPlace                     // this node forwards nothing: no VIP of the LoadBalancer has a place here
	numServerWhy     = iota
)

var serverWhys = [numServerWhy]string{
	"", "NoWeight", "Leaving", "Removed", "IsVIP", "CheckFails", "LastCheckFailed", "CheckPending", "OwnerSays", "NoneBetter", "NoPlace",
}

// String is the word that programs see; empty for ServerWell.
func (w ServerWhy) String() string { return serverWhys[w] }

// ServerWhys are all of them.
func ServerWhys() (all []ServerWhy) {
	for w := range ServerWhy(numServerWhy) {
		all = append(all, w)
	}
	return all
}

// Configured tells whether the configuration wants it so: connections go on for the drain timeout.
func (w ServerWhy) Configured() bool {
	return w == ServerNoWeight || w == ServerLeaving || w == ServerRemoved
}
