package address

import (
	"errors"
	"fmt"

	"golang.org/x/sys/unix"

	"lbd.dev/lbd/internal/model"
)

// errStale: nothing is bound on the word of a decision that may be overtaken.
var errStale = errors.New("waits for a newer decision, the last one is out of date")

// explain turns the error of the kernel for one binding into words that say what
// to do. The error stays inside for errors.Is.
func explain(b model.Binding, err error) error {
	v6 := b.Addr.Is6()
	switch {
	case errors.Is(err, unix.ENODEV):
		return reason{fmt.Sprintf("interface %q does not exist", b.Interface), err}
	case errors.Is(err, unix.EPERM):
		return reason{"not allowed to change addresses: run as root or give CAP_NET_ADMIN", err}
	case v6 && errors.Is(err, unix.EACCES):
		return reason{fmt.Sprintf("IPv6 is disabled on %q: set sysctl net.ipv6.conf.%s.disable_ipv6=0", b.Interface, b.Interface), err}
	case v6 && (errors.Is(err, unix.EAFNOSUPPORT) || errors.Is(err, unix.EOPNOTSUPP)):
		return reason{"the kernel has no IPv6: boot without ipv6.disable=1", err}
	case errors.Is(err, unix.EEXIST):
		return reason{fmt.Sprintf("is already configured on %s by somebody else", b.Interface), err}
	}
	return fmt.Errorf("bind on %q: %w", b.Interface, err)
}

// reason is an error in words.
type reason struct {
	words string
	cause error
}

func (r reason) Error() string { return r.words }
func (r reason) Unwrap() error { return r.cause }

// failures are the errors of the holds, for the report as a whole.
func (d *Driver) failures() []error {
	var errs []error
	for _, h := range d.holds.list {
		if h.err != nil {
			errs = append(errs, fmt.Errorf("vip %q: %w", h.want.Addr, h.err))
		}
	}
	return errs
}

// fold joins errors in one line; of many it keeps the first ones and the number.
func fold(errs []error) (joined error) {
	const most = 3
	for i, err := range errs {
		switch {
		case i == 0:
			joined = err
		case i == most:
			return fmt.Errorf("%w; and %d more", joined, len(errs)-most)
		default:
			joined = fmt.Errorf("%w; %w", joined, err)
		}
	}
	return joined
}

// errUndelivered: IPv6 addresses become local by a worker of the kernel, which may have to wait
// for others.
var errUndelivered = errors.New("bound, but the kernel does not deliver to it yet")
