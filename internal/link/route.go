package link

import (
	"os"
	"path/filepath"
	"strconv"
	"strings"
)

// setting is the value of a sysctl of IPv4 for an interface, or for all; 0 if it cannot be read.
func setting(conf, name string) int {
	b, err := os.ReadFile(filepath.Join("/proc/sys/net/ipv4/conf", conf, name))
	if err != nil {
		return 0
	}
	n, _ := strconv.Atoi(strings.TrimSpace(string(b)))
	return n
}

// The columns of /proc/net/route that matter, and the flag of a route through a router
// (RTF_GATEWAY, include/uapi/linux/route.h).
const (
	routeInterface, routeFlags, routeColumns = 0, 3, 4

	flagGateway = 2
)

// gateways are the interfaces by which a route of IPv4 through a router leaves, in the
// main table; of several ways of one route the first. None if it cannot be read.
func gateways() map[string]bool {
	b, err := os.ReadFile("/proc/thread-self/net/route")
	if err != nil {
		return nil
	}
	found := make(map[string]bool)
	for line := range strings.Lines(string(b)) {
		fields := strings.Fields(line)
		if len(fields) < routeColumns {
			continue
		}
		// That of the header is no number.
		if flags, err := strconv.ParseUint(fields[routeFlags], 16, 32); err == nil && flags&flagGateway != 0 {
			found[fields[routeInterface]] = true
		}
	}
	return found
}
