package layer2

import (
	"errors"
	"fmt"

	"golang.org/x/sys/unix"
)

// groupsPerSocket keeps the memberships of one socket below the smallest usual
// net.core.optmem_max (20 KiB).
const groupsPerSocket = 128

// memberships are the multicast groups that this process has joined, so that the
// kernel tells switches (MLD) and the network card let the group pass. The
// sockets receive nothing; packets are read elsewhere.
type memberships struct {
	sockets []membershipSocket
	in      map[group]int // index in sockets
}

type membershipSocket struct {
	fd     int
	groups int
}

func (k *linux) listen(want map[group]struct{}) error {
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
			errs = append(errs, fmt.Errorf("group %s: join: %w", g.addr, err))
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

func (m *memberships) join(g group) error {
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
	req := unix.IPv6Mreq{Multiaddr: g.addr.As16(), Interface: uint32(g.index)}
	err := unix.SetsockoptIPv6Mreq(m.sockets[i].fd, unix.IPPROTO_IPV6, unix.IPV6_JOIN_GROUP, &req)
	if err != nil {
		return err
	}
	m.sockets[i].groups++
	if m.in == nil {
		m.in = make(map[group]int)
	}
	m.in[g] = i
	return nil
}

// leave also forgets a group whose interface is gone.
func (m *memberships) leave(g group) {
	i := m.in[g]
	req := unix.IPv6Mreq{Multiaddr: g.addr.As16(), Interface: uint32(g.index)}
	_ = unix.SetsockoptIPv6Mreq(m.sockets[i].fd, unix.IPPROTO_IPV6, unix.IPV6_LEAVE_GROUP, &req)
	m.sockets[i].groups--
	delete(m.in, g)
}
