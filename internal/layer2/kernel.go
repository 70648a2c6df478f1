package layer2

import (
	"net/netip"

	"lbd.dev/lbd/internal/layer2/silence"
	"lbd.dev/lbd/internal/model"
)

// kernel is the host as this driver needs it; tests have their own.
type kernel interface {
	// links returns all interfaces by name.
	links() (map[string]link, error)
	// addresses returns the addresses of all interfaces.
	addresses() ([]address, error)
	// open starts to receive and send on an interface. Frames are given to port
	// users through ev, on a goroutine of the port.
	open(l link, f family, addrs []netip.Addr, ev portEvents) (port, error)
	// ready is nil while the interface can send: up and with carrier.
	ready(l link) error
	// router tells whether the kernel says of itself, on this interface, that it
	// is an IPv6 router.
	router(name string) bool
	// listen joins exactly these multicast groups; what cannot be joined is
	// returned as an error, the others are joined.
	listen(groups map[group]struct{}) error
	// close leaves all groups and waits for the goroutines of closed ports.
	close()
}

// port sends and receives on one interface in one family.
type port interface {
	// filter limits what is received to frames about these addresses, as far as
	// the kernel can do that.
	filter(addrs []netip.Addr) error
	// send puts one frame on the wire; it never waits.
	send(frame []byte) error
	// drain has handled every frame that arrived before the call when it returns.
	drain()
	// close ends the port without waiting for its goroutine.
	close()
}

// portEvents is what a port tells. Both may be called on any goroutine; the frame
// is only valid during the call.
type portEvents struct {
	frame  func(b []byte)
	broken func(err error)
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

// family tells ARP from neighbour discovery.
type family = silence.Family

// familyOf returns the protocol that serves addr.
func familyOf(addr netip.Addr) family {
	if addr.Is4() {
		return silence.ARP
	}
	return silence.ND
}

// families is the number of families, for arrays indexed by one.
const families = 2

// link is one interface.
type link struct {
	name    string
	index   int
	mac     model.MAC // zero unless it is an Ethernet interface
	up      bool      // administratively
	carrier bool
}

// address is one address of an interface.
type address struct {
	index  int
	prefix netip.Prefix // not masked
	// usable: neither tentative nor refused by duplicate address detection.
	usable bool
}

// group is a multicast group on an interface.
type group struct {
	index int
	addr  netip.Addr
}

// portKey names a port.
type portKey struct {
	iface  string
	family family
}
