package machines

import (
	"fmt"
	"testing"
	"time"

	"lbd.dev/lbd/api/v1alpha1"
	"lbd.dev/lbd/internal/machines"
)

// hears waits until the source has told these peers.
func (b *bed) hears(want string) {
	b.t.Helper()
	eventually(b.t, "the peers are "+want, func() bool {
		b.mu.Lock()
		defer b.mu.Unlock()
		return fmt.Sprint(b.peers) == want
	})
}

// TestPeersFollowARollout: new Machines become peers as soon as they have an address, and old ones are
// peers until they are gone; a management cluster that is lost or empty takes none away.
func TestPeersFollowARollout(t *testing.T) {
	t.Parallel()
	b := start(t, served(), func(s *v1alpha1.MachinesSpec) { s.Peers = true })
	for i := range 3 {
		b.api.Put(resMachines, aMachine(fmt.Sprintf("a/m%d", i+1), fmt.Sprintf("cp%d", i+1), fmt.Sprintf("10.0.0.1%d", i+1), ``))
	}
	b.decide(false)
	b.hears("[10.0.0.11 10.0.0.12 10.0.0.13]")
	for i := 1; i < 3; i++ { // a new one first, as KubeadmControlPlane does
		b.api.Put(resMachines, aMachine(fmt.Sprintf("a/n%d", i+1), "", fmt.Sprintf("10.0.0.2%d", i+1), ``))
		b.api.Put(resMachines, aMachine(fmt.Sprintf("a/m%d", i+1), fmt.Sprintf("cp%d", i+1), fmt.Sprintf("10.0.0.1%d", i+1), deleted))
		b.api.Delete(resMachines, "a", fmt.Sprintf("m%d", i+1))
	}
	b.hears("[10.0.0.11 10.0.0.22 10.0.0.23]")
	for _, name := range []string{"m1", "n2", "n3"} {
		b.api.Delete(resMachines, "a", name)
	}
	time.Sleep(2 * lookEvery)
	b.looked()
	b.hears("[10.0.0.11 10.0.0.22 10.0.0.23]")
}

// TestTooManyPeers: Machines that somebody adds by the hundred are no peers, those that were there go on
// being some, and the status says so until they are gone.
func TestTooManyPeers(t *testing.T) {
	t.Parallel()
	b := start(t, served(), func(s *v1alpha1.MachinesSpec) { s.Peers = true })
	for i := range machines.MaxPeers {
		b.api.Put(resMachines, aMachine(fmt.Sprintf("a/m%d", i+1), fmt.Sprintf("cp%d", i+1), fmt.Sprintf("10.0.0.%d", i+11), ``))
	}
	b.decide(false)
	b.looked()
	eventually(t, "all are peers", func() bool { b.mu.Lock(); defer b.mu.Unlock(); return len(b.peers) == machines.MaxPeers })
	b.mu.Lock()
	before := fmt.Sprint(b.peers)
	b.mu.Unlock()
	for i := range 300 {
		m := aMachine(fmt.Sprintf("a/x%d", i), "", fmt.Sprintf("10.0.%d.%d", i/100+1, i%100+100), ``)
		m["metadata"].(map[string]any)["creationTimestamp"] = "2026-01-02T03:04:06Z"
		b.api.Put(resMachines, m)
	}
	const want = "machines.peers: of 364 Machines of the control plane only the 64 oldest are gossip peers"
	eventually(t, "the status says so", func() bool { err := b.src.Err(); return err != nil && err.Error() == want })
	b.hears(before)
	for i := range 300 {
		b.api.Delete(resMachines, "a", fmt.Sprintf("x%d", i))
	}
	eventually(t, "the status says no more so", func() bool { return b.src.Err() == nil })
	b.hears(before)
}

// TestNoPeers: nobody is told of Machines as peers who has not asked for it.
func TestNoPeers(t *testing.T) {
	t.Parallel()
	b := startManaged(t)
	b.looked()
	b.hears("[]")
}
