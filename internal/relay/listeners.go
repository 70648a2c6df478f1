package relay

import (
	"net/netip"
	"slices"

	"lbd.dev/lbd/internal/sockdiag"
)

// listeners are the TCP servers that are bound to one address, without those of the
// loopback interface, sorted.
func listeners() ([]netip.AddrPort, error) {
	var out []netip.AddrPort
	err := sockdiag.TCP(sockdiag.Listening, false, func(s sockdiag.Socket) {
		if a := s.Local.Addr(); !a.IsUnspecified() && !a.IsLoopback() {
			out = append(out, s.Local)
		}
	})
	if err != nil {
		return nil, err
	}
	slices.SortFunc(out, netip.AddrPort.Compare)
	return slices.Compact(out), nil
}
