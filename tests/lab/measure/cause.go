package measure

import (
	"errors"
	"net"
	"syscall"
)

// Cause is why a connection failed, in one word where it is a usual one.
func Cause(err error) string {
	var ne net.Error
	switch {
	case errors.As(err, &ne) && ne.Timeout():
		return "timeout"
	case errors.Is(err, syscall.ECONNREFUSED):
		return "refused"
	case errors.Is(err, syscall.ECONNRESET):
		return "reset"
	case errors.Is(err, syscall.EHOSTUNREACH):
		return "unreachable"
	}
	return err.Error()
}
