package relay

import (
	"errors"
	"fmt"

	"golang.org/x/sys/unix"
)

// links asks the kernel about interfaces, without the list of all of them.
type links struct {
	fd   int
	seen map[string]uint32
}

func openLinks() (links, error) {
	fd, err := unix.Socket(unix.AF_INET, unix.SOCK_DGRAM|unix.SOCK_CLOEXEC, 0)
	if errors.Is(err, unix.EAFNOSUPPORT) {
		fd, err = unix.Socket(unix.AF_INET6, unix.SOCK_DGRAM|unix.SOCK_CLOEXEC, 0)
	}
	return links{fd, make(map[string]uint32)}, err
}

func (l links) close() { _ = unix.Close(l.fd) }

// ethernet returns the index of an interface with Ethernet addresses. On another
// one relayed packets could not be told from new ones.
func (l links) ethernet(name string) (index uint32, err error) {
	if index, ok := l.seen[name]; ok {
		return index, nil
	}
	defer func() {
		if err != nil {
			err = fmt.Errorf("interface %q: %w", name, err)
		} else {
			l.seen[name] = index
		}
	}()
	r, err := unix.NewIfreq(name)
	if err != nil {
		return 0, err
	}
	if err := unix.IoctlIfreq(l.fd, unix.SIOCGIFHWADDR, r); err != nil {
		return 0, err
	}
	if r.Uint16() != unix.ARPHRD_ETHER {
		return 0, errors.New("not Ethernet")
	}
	if err := unix.IoctlIfreq(l.fd, unix.SIOCGIFINDEX, r); err != nil {
		return 0, err
	}
	return r.Uint32(), nil
}
