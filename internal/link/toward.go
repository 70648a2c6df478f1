package link

import (
	"fmt"
	"net"
	"net/netip"

	"github.com/vishvananda/netlink"
)

// Toward is the name of the interface by which the kernel would send to an address now.
func Toward(to netip.Addr) (string, error) {
	routes, err := netlink.RouteGet(net.IP(to.AsSlice()))
	if err != nil {
		return "", fmt.Errorf("no route to %s: %w", to, err)
	}
	if len(routes) == 0 {
		return "", fmt.Errorf("no route to %s", to)
	}
	l, err := netlink.LinkByIndex(routes[0].LinkIndex)
	if err != nil {
		return "", fmt.Errorf("the interface toward %s: %w", to, err)
	}
	return l.Attrs().Name, nil
}
