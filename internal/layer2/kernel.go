package layer2

import (
	"net/netip"
	"time"

	"lbd.dev/lbd/internal/announce"
	"lbd.dev/lbd/internal/layer2/silence"
	"lbd.dev/lbd/internal/model"
)

// Kernel is the host as this driver needs it; tests and simulations have their own.
type Kernel interface {
	// Links returns all interfaces by name.
	Links() (map[string]Link, error)
	// Addresses returns the addresses of all interfaces.
	Addresses() ([]Address, error)
	// Open starts to receive and send on an interface. Frames are given to port
	// users through ev, on a goroutine of the port.
	Open(l Link, f Family, addrs []netip.Addr, ev Events) (Port, error)
	// Ready is nil while the interface can send: up and with carrier.
	Ready(l Link) error
	// Router tells whether the kernel says of itself, on this interface, that it
	// is an IPv6 router.
	Router(name string) bool
	// Listen joins exactly these multicast groups; what cannot be joined is
	// returned as an error, the others are joined.
	Listen(groups map[Group]struct{}) error
	// Rules are those of a family, with the lifetime of what is silent.
	Rules(f Family, lifetime time.Duration) silence.Rules
	// Mutex makes a lock for the goroutines of the driver.
	Mutex() announce.Mutex
	// Close leaves all groups and waits for the goroutines of closed ports.
	Close()
}

// Port sends and receives on one interface in one family.
type Port interface {
	// Filter limits what is received to frames about these addresses, as far as
	// the kernel can do that.
	Filter(addrs []netip.Addr) error
	// Send puts one frame on the wire; it never waits.
	Send(frame []byte) error
	// Drain has handled every frame that arrived before the call when it returns.
	Drain()
	// Close ends the port without waiting for its goroutine.
	Close()
}

// Events is what a port tells. Both may be called on any goroutine; the frame
// is only valid during the call.
type Events struct {
	Frame  func(b []byte)
	Broken func(err error)
}

// silencer is one family of package silence.
type silencer interface {
	Set(want silence.Want) error
	Prepare(speakers []silence.Speaker) error
	Clear() error
	Close() error
	// Leftover lists what an earlier process left silent.
	Leftover() ([]netip.Addr, error)
}

// Family tells ARP from neighbour discovery.
type Family = silence.Family

// familyOf returns the protocol that serves addr.
func familyOf(addr netip.Addr) Family {
	if addr.Is4() {
		return silence.ARP
	}
	return silence.ND
}

// families is the number of families, for arrays indexed by one.
const families = 2

// Link is one interface.
type Link struct {
	Name    string
	Index   int
	MAC     model.MAC // zero unless it is an Ethernet interface
	Up      bool      // administratively
	Carrier bool
}

// Address is one address of an interface.
type Address struct {
	Index  int
	Prefix netip.Prefix // not masked
	// Usable: neither tentative nor refused by duplicate address detection.
	Usable bool
}

// Group is a multicast group on an interface.
type Group struct {
	Index int
	Addr  netip.Addr
}

// portKey names a port.
type portKey struct {
	iface  string
	family Family
}
