package layer2

import (
	"encoding/binary"
	"fmt"
	"net"
	"net/netip"
	"os"
	"path/filepath"
	"syscall"

	"golang.org/x/sys/unix"

	"lbd.dev/lbd/internal/model"
)

func (*linux) links() (map[string]link, error) {
	all, err := net.Interfaces()
	if err != nil {
		return nil, fmt.Errorf("links: list: %w", err)
	}
	links := make(map[string]link, len(all))
	for _, ifi := range all {
		l := link{
			name: ifi.Name, index: ifi.Index,
			up:      ifi.Flags&net.FlagUp != 0,
			carrier: ifi.Flags&net.FlagRunning != 0,
		}
		if len(ifi.HardwareAddr) == len(l.mac) {
			l.mac = model.MAC(ifi.HardwareAddr)
		}
		links[l.name] = l
	}
	return links, nil
}

func (*linux) addresses() ([]address, error) {
	rib, err := syscall.NetlinkRIB(syscall.RTM_GETADDR, syscall.AF_UNSPEC)
	if err != nil {
		return nil, fmt.Errorf("addresses: list: %w", err)
	}
	msgs, err := syscall.ParseNetlinkMessage(rib)
	if err != nil {
		return nil, fmt.Errorf("addresses: parse: %w", err)
	}
	var all []address
	for i := range msgs {
		if a, ok := parseAddress(&msgs[i]); ok {
			all = append(all, a)
		}
	}
	return all, nil
}

// parseAddress reads one RTM_NEWADDR message (rtnetlink(7)).
func parseAddress(m *syscall.NetlinkMessage) (address, bool) {
	if m.Header.Type != syscall.RTM_NEWADDR || len(m.Data) < syscall.SizeofIfAddrmsg {
		return address{}, false
	}
	attrs, err := syscall.ParseNetlinkRouteAttr(m)
	if err != nil {
		return address{}, false
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
		return address{}, false
	}
	return address{
		index:  index,
		prefix: netip.PrefixFrom(addr, bits),
		usable: flags&(unix.IFA_F_TENTATIVE|unix.IFA_F_DADFAILED) == 0,
	}, true
}

func (*linux) ready(l link) error {
	ifr, err := unix.NewIfreq(l.name)
	if err != nil {
		return fmt.Errorf("interface %q: %w", l.name, err)
	}
	fd, err := unix.Socket(unix.AF_INET, unix.SOCK_DGRAM|unix.SOCK_CLOEXEC, 0)
	if err != nil {
		return fmt.Errorf("interface %q: open control socket: %w", l.name, err)
	}
	defer func() { _ = unix.Close(fd) }()
	if err := unix.IoctlIfreq(fd, unix.SIOCGIFFLAGS, ifr); err != nil {
		return fmt.Errorf("interface %q: read flags: %w", l.name, err)
	}
	flags := ifr.Uint16()
	l.up, l.carrier = flags&unix.IFF_UP != 0, flags&unix.IFF_RUNNING != 0
	return l.usable()
}

// usable is nil if frames can be sent and received on the link.
func (l link) usable() error {
	switch {
	case l.mac == model.MAC{}:
		return fmt.Errorf("interface %q: is not an Ethernet interface", l.name)
	case !l.up:
		return fmt.Errorf("interface %q: is down", l.name)
	case !l.carrier:
		return fmt.Errorf("interface %q: has no carrier", l.name)
	}
	return nil
}

func (*linux) router(name string) bool {
	b, err := os.ReadFile(filepath.Join("/proc/sys/net/ipv6/conf", name, "forwarding"))
	return err == nil && len(b) > 0 && b[0] == '1'
}
