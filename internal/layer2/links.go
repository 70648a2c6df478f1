package layer2

import (
	"encoding/binary"
	"errors"
	"fmt"
	"net"
	"net/netip"
	"os"
	"path/filepath"
	"syscall"

	"golang.org/x/sys/unix"

	"lbd.dev/lbd/internal/model"
)

func (*linux) Links() (map[string]Link, error) {
	all, err := net.Interfaces()
	if err != nil {
		return nil, fmt.Errorf("links: list: %w", err)
	}
	links := make(map[string]Link, len(all))
	for _, ifi := range all {
		l := Link{
			Name: ifi.Name, Index: ifi.Index,
			Up:      ifi.Flags&net.FlagUp != 0,
			Carrier: ifi.Flags&net.FlagRunning != 0,
		}
		if len(ifi.HardwareAddr) == len(l.MAC) {
			l.MAC = model.MAC(ifi.HardwareAddr)
		}
		links[l.Name] = l
	}
	return links, nil
}

func (*linux) Addresses() ([]Address, error) {
	rib, err := syscall.NetlinkRIB(syscall.RTM_GETADDR, syscall.AF_UNSPEC)
	if err != nil {
		return nil, fmt.Errorf("addresses: list: %w", err)
	}
	msgs, err := syscall.ParseNetlinkMessage(rib)
	if err != nil {
		return nil, fmt.Errorf("addresses: parse: %w", err)
	}
	var all []Address
	for i := range msgs {
		if a, ok := parseAddress(&msgs[i]); ok {
			all = append(all, a)
		}
	}
	return all, nil
}

// parseAddress reads one RTM_NEWADDR message (rtnetlink(7)).
func parseAddress(m *syscall.NetlinkMessage) (Address, bool) {
	if m.Header.Type != syscall.RTM_NEWADDR || len(m.Data) < syscall.SizeofIfAddrmsg {
		return Address{}, false
	}
	attrs, err := syscall.ParseNetlinkRouteAttr(m)
	if err != nil {
		return Address{}, false
	}
	bits, flags := int(m.Data[1]), uint32(m.Data[2])
	index := int(binary.NativeEndian.Uint32(m.Data[4:]))
	var local, addr netip.Addr
	for _, a := range attrs {
		switch a.Attr.Type {
		case unix.IFA_LOCAL: // the own end of a point-to-point link
			local, _ = netip.AddrFromSlice(a.Value)
		case unix.IFA_ADDRESS:
			addr, _ = netip.AddrFromSlice(a.Value)
		case unix.IFA_FLAGS:
			if len(a.Value) >= 4 {
				flags = binary.NativeEndian.Uint32(a.Value)
			}
		}
	}
	if local.IsValid() {
		addr = local
	}
	if !addr.IsValid() {
		return Address{}, false
	}
	return Address{
		Index:  index,
		Prefix: netip.PrefixFrom(addr, bits),
		Usable: flags&(unix.IFA_F_TENTATIVE|unix.IFA_F_DADFAILED) == 0,
	}, true
}

func (*linux) Ready(l Link) error {
	ifr, err := unix.NewIfreq(l.Name)
	if err != nil {
		return fmt.Errorf("interface %q: %w", l.Name, err)
	}
	fd, err := unix.Socket(unix.AF_INET, unix.SOCK_DGRAM|unix.SOCK_CLOEXEC, 0)
	if err != nil {
		return fmt.Errorf("interface %q: open control socket: %w", l.Name, err)
	}
	defer func() { _ = unix.Close(fd) }()
	if err := unix.IoctlIfreq(fd, unix.SIOCGIFFLAGS, ifr); err != nil {
		return fmt.Errorf("interface %q: read flags: %w", l.Name, err)
	}
	flags := ifr.Uint16()
	l.Up, l.Carrier = flags&unix.IFF_UP != 0, flags&unix.IFF_RUNNING != 0
	return l.usable()
}

// usable is nil if frames can be sent and received on the link.
func (l Link) usable() error {
	switch {
	case l.MAC == model.MAC{}:
		return fmt.Errorf("interface %q: is not an Ethernet interface", l.Name)
	case !l.Up:
		return fmt.Errorf("interface %q: is down", l.Name)
	case !l.Carrier:
		return fmt.Errorf("interface %q: has no carrier", l.Name)
	}
	return nil
}

func (*linux) Router(name string) bool {
	b, err := os.ReadFile(filepath.Join("/proc/sys/net/ipv6/conf", name, "forwarding"))
	return err == nil && len(b) > 0 && b[0] == '1'
}

// groupsPerSocket keeps the memberships of one socket below the smallest usual
// net.core.optmem_max (20 KiB).
const groupsPerSocket = 128

// memberships are the multicast groups that this process has joined, so that the
// kernel tells switches (MLD) and the network card let the group pass. The
// sockets receive nothing; packets are read elsewhere.
type memberships struct {
	sockets []membershipSocket
	in      map[Group]int // index in sockets
}

type membershipSocket struct {
	fd     int
	groups int
}

func (k *linux) Listen(want map[Group]struct{}) error {
	m := &k.joined
	var errs []error
	for g := range m.in {
		if _, ok := want[g]; !ok {
			m.leave(g)
		}
	}
	for g := range want {
		if _, ok := m.in[g]; ok {
			continue
		}
		if err := m.join(g); err != nil {
			errs = append(errs, fmt.Errorf("group %s: join: %w", g.Addr, err))
		}
	}
	if len(m.in) == 0 {
		for _, s := range m.sockets {
			_ = unix.Close(s.fd)
		}
		*m = memberships{}
	}
	return errors.Join(errs...)
}

func (m *memberships) join(g Group) error {
	i := 0
	for i < len(m.sockets) && m.sockets[i].groups >= groupsPerSocket {
		i++
	}
	if i == len(m.sockets) {
		fd, err := unix.Socket(unix.AF_INET6, unix.SOCK_DGRAM|unix.SOCK_CLOEXEC, 0)
		if err != nil {
			return err
		}
		m.sockets = append(m.sockets, membershipSocket{fd: fd})
	}
	req := unix.IPv6Mreq{Multiaddr: g.Addr.As16(), Interface: uint32(g.Index)}
	err := unix.SetsockoptIPv6Mreq(m.sockets[i].fd, unix.IPPROTO_IPV6, unix.IPV6_JOIN_GROUP, &req)
	if err != nil {
		return err
	}
	m.sockets[i].groups++
	if m.in == nil {
		m.in = make(map[Group]int)
	}
	m.in[g] = i
	return nil
}

// leave also forgets a group whose interface is gone.
func (m *memberships) leave(g Group) {
	i := m.in[g]
	req := unix.IPv6Mreq{Multiaddr: g.Addr.As16(), Interface: uint32(g.Index)}
	_ = unix.SetsockoptIPv6Mreq(m.sockets[i].fd, unix.IPPROTO_IPV6, unix.IPV6_LEAVE_GROUP, &req)
	m.sockets[i].groups--
	delete(m.in, g)
}
