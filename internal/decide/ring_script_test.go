package decide

import (
	"net/netip"
	"strings"

	"lbd.dev/lbd/internal/model"
)

// way IFACE [strict] [gateway]: how packets to clients leave, and are taken.
func (s *stage) way(args []string) {
	l := s.v.Links[args[0]]
	l.Strict, l.Gateway = false, false
	for _, a := range args[1:] {
		switch a {
		case "strict":
			l.Strict = true
		case "gateway":
			l.Gateway = true
		default:
			s.t.Fatalf("unknown %q", a)
		}
	}
	s.v.Links[args[0]] = l
}

// host [kernel=WHY] [drops=CHAIN] [listener=ADDRESS:PORT]: what the relay driver has seen.
func (s *stage) host(args []string) {
	var seen model.RingHost
	for _, a := range args {
		k, val, _ := strings.Cut(a, "=")
		switch k {
		case "kernel":
			seen.Kernel[0] = val
		case "drops":
			seen.Drops[0] = val
		case "listener":
			seen.Listeners = append(seen.Listeners, netip.MustParseAddrPort(val))
		default:
			s.t.Fatalf("unknown %q", a)
		}
	}
	s.v.Applied[model.SinkRelay] = model.Applied{Ring: &seen}
}
