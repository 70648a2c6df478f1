package bfd

import (
	"bytes"
	"cmp"
	"errors"
	"fmt"
	"net/netip"
	"time"
)

// Limits and defaults of a Session.
const (
	MinSessionInterval = 50 * time.Millisecond // a thread of a busy program waits longer for its turn than a shorter one lasts
	MaxSessionInterval = 60 * time.Second
	DefaultMinTTL      = 254 // of a multihop session
)

// Session is what a Manager is asked to watch.
type Session struct {
	// Peer is the address of the other end. A link-local one has a zone, or
	// Interface is set.
	Peer netip.Addr
	// Local is the own address; invalid: the kernel chooses for each packet,
	// and packets to any own address are accepted.
	Local netip.Addr
	// Interface is where the peer is. Packets leave there, and those that
	// arrive elsewhere are dropped. Empty: as the routes say, and anywhere.
	Interface string
	// Multihop: RFC 5883, port 4784, not RFC 5881, port 3784.
	Multihop bool
	// MinTTL is the least TTL or hop limit at which a packet of a multihop
	// session may arrive; 0: DefaultMinTTL. It is 255 with a single hop.
	MinTTL uint8
	// Transmit and Receive are bfd.DesiredMinTxInterval and
	// bfd.RequiredMinRxInterval while Up, RFC 5880 section 6.8.1, from
	// MinSessionInterval to MaxSessionInterval.
	Transmit, Receive time.Duration
	// Multiplier is bfd.DetectMult, at least 1: so many packets in a row may
	// be lost, less one.
	Multiplier uint8
	// Passive: nothing is sent before the peer was heard, RFC 5880 section 6.1.
	Passive bool
	// Auth is nil without authentication.
	Auth *Auth
}

// Key names a Session. It can be compared.
type Key struct {
	Peer, Local netip.Addr // without zone
	Interface   string
	Multihop    bool
}

// String names the session for a log.
func (k Key) String() string {
	s := k.Peer.String()
	if k.Interface != "" {
		s += "%" + k.Interface
	}
	if k.Local.IsValid() {
		s += " from " + k.Local.String()
	}
	if k.Multihop {
		s += " multihop"
	}
	return s
}

// key is the name of a session that normal has seen.
func (s *Session) key() Key {
	return Key{s.Peer, s.Local, s.Interface, s.Multihop}
}

// normal checks s and returns it with defaults, and with zones turned into the
// interface. It takes a copy of the key.
func (s Session) normal() (Session, error) {
	var errs []error
	bad := func(format string, args ...any) { errs = append(errs, fmt.Errorf(format, args...)) }
	s.Peer, s.Local = s.Peer.Unmap(), s.Local.Unmap()
	name := s.Peer.String()
	for _, a := range []*netip.Addr{&s.Peer, &s.Local} {
		if zone := a.Zone(); zone != "" {
			if s.Interface != "" && s.Interface != zone {
				bad("zone %q of %s is not the interface %q", zone, *a, s.Interface)
			}
			s.Interface = zone
			*a = a.WithZone("")
		}
	}
	switch {
	case !s.Peer.IsValid(), s.Peer.IsUnspecified(), s.Peer.IsMulticast():
		bad("peer %q is not the address of a host", name)
	case s.Local.IsValid() && s.Local.Is4() != s.Peer.Is4():
		bad("local address %s is of another family", s.Local)
	case s.Local.IsValid() && (s.Local.IsUnspecified() || s.Local.IsMulticast()):
		bad("local address %s is not the address of a host", s.Local)
	case s.Multihop && (s.Peer.IsLinkLocalUnicast() || s.Interface != ""):
		bad("a multihop session has no interface, RFC 5883 section 3")
	case s.Peer.Is6() && s.Peer.IsLinkLocalUnicast() && s.Interface == "":
		bad("a link-local peer needs an interface")
	}
	if len(s.Interface) > 15 {
		bad("interface %q: longer than 15 characters", s.Interface)
	}
	s.MinTTL = cmp.Or(s.MinTTL, DefaultMinTTL)
	if !s.Multihop {
		s.MinTTL = 255
	}
	for i, d := range []time.Duration{s.Transmit, s.Receive} {
		if d < MinSessionInterval || d > MaxSessionInterval {
			bad("%s interval %s is not from %s to %s", []string{"transmit", "receive"}[i], d, MinSessionInterval, MaxSessionInterval)
		}
	}
	if s.Multiplier == 0 {
		bad("multiplier is 0")
	}
	if s.Auth != nil {
		a := *s.Auth
		a.Key = bytes.Clone(a.Key)
		s.Auth = &a
		if a.Type != KeyedSHA1 && a.Type != MeticulousKeyedSHA1 {
			bad("authentication %s is refused, %s and %s are spoken", a.Type, KeyedSHA1, MeticulousKeyedSHA1)
		}
		if len(a.Key) == 0 || len(a.Key) > 20 {
			bad("key of %d bytes: it must have 1 to 20", len(a.Key))
		}
	}
	if err := errors.Join(errs...); err != nil {
		return s, fmt.Errorf("BFD session with %s: %w", name, err)
	}
	return s, nil
}

// same tells whether two sessions want the same.
func (s *Session) same(o *Session) bool {
	a, b := *s, *o
	a.Auth, b.Auth = nil, nil
	return a == b && s.Auth.same(o.Auth)
}

func (a *Auth) same(o *Auth) bool {
	if a == nil || o == nil {
		return a == o
	}
	return a.Type == o.Type && a.KeyID == o.KeyID && bytes.Equal(a.Key, o.Key)
}
