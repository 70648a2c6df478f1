package bgp

import (
	"testing"

	"lbd.dev/lbd/internal/fieldtest"
)

// TestSamePeer: a session begins anew for each field of its peer but those by which others
// go: the name, who has the peer, the router ID, which needs a restart of the daemon, the
// paths, and BFD, which has sessions of its own.
func TestSamePeer(t *testing.T) {
	fieldtest.Same(t, samePeer, "Name", "NodeSelectors", "RouterID", "RestartTime", "ShutdownDelay", "BFD")
}
