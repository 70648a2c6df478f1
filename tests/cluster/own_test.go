package cluster_test

import (
	"fmt"
	"testing"
	"time"

	"lbd.dev/lbd/tests/cluster"
	"lbd.dev/lbd/tests/lab/measure"
)

const (
	// ownSilence is how long a client on a node may hear nothing because of a move, and
	// hangs how long it may take before until a server that hangs is left.
	ownSilence = time.Second
	hangs      = 1500 * time.Millisecond
	// A node that serves nobody from outside is drained, and its daemon restarted, within.
	ownDrain   = 2 * time.Second
	ownRestart = 3 * time.Second
)

// TestOwnClients: kube-proxy of every node watches the API through the VIP, and so does
// this test from every node. That keeps no drain and no restart waiting, and goes on
// after a moment, also at a node whose own API server hangs.
func TestOwnClients(t *testing.T) {
	c := unitCluster(t)
	unlessBusy(t, c, func() (broken []string) {
		for range 3 {
			broken = append(broken, watching(t, c, "drain", ownSilence, func(owner *cluster.Machine) []string {
				defer func() { mustRun(t, owner, "lbd", "undrain") }()
				return took(t, owner, ownDrain, "lbd", "drain")
			})...)
		}
		broken = append(broken, watching(t, c, "restart", ownSilence, func(owner *cluster.Machine) []string {
			return took(t, owner, ownRestart, "systemctl", "restart", "lbd")
		})...)
		return append(broken, watching(t, c, "API server hangs", hangs+ownSilence, func(owner *cluster.Machine) (late []string) {
			mustRun(t, owner, "pkill", "-STOP", "-x", "kube-apiserver")
			defer func() { mustRun(t, owner, "pkill", "-CONT", "-x", "kube-apiserver") }()
			_, err := c.WaitOwner(t.Context(), 30*time.Second, c.Others(owner)...)
			must(t, err)
			pause(t, ownSilence)
			return took(t, owner, ownSilence, "curl", "-sk", "-m", "20", "https://"+cluster.VIP().String()+":6443/livez")
		})...)
	})
}

// watching does something to the owner of the VIP, which reports what was late, while every
// node watches what a client outside writes, and tells what is broken if one of them hears
// nothing for longer than silence.
func watching(t *testing.T, c *cluster.Cluster, what string, silence time.Duration, do func(owner *cluster.Machine) []string) (broken []string) {
	t.Helper()
	must(t, c.WaitWhole(t.Context()))
	watchers := map[string]*cluster.Watcher{}
	for _, m := range c.Machines {
		config, err := c.ConfigOn(m)
		must(t, err)
		w, err := c.Watch(t.Context(), config)
		must(t, err)
		defer w.Stop()
		watchers[m.Name] = w
	}
	var was *cluster.Machine
	var from, to measure.Time
	writing(t, c, what, func(owner *cluster.Machine) {
		was, from = owner, measure.Now()
		broken = do(owner)
		pause(t, slack*silence+time.Second) // longer than any silence that is allowed
		to = measure.Now()
	})
	for name, w := range watchers {
		longest := w.LongestSilence(from, to)
		t.Logf("%s of %s: a watch from %s heard nothing for %v", what, was.Name, name, longest.Round(time.Millisecond))
		if longest > slack*silence {
			broken = append(broken, fmt.Sprintf("%s of %s: a watch from %s heard nothing for %v, want %v", what, was.Name, name, longest, silence))
		}
	}
	return broken
}

// took runs a command on a machine and tells what is broken if that takes too long.
func took(t *testing.T, m *cluster.Machine, limit time.Duration, argv ...string) []string {
	t.Helper()
	from := time.Now()
	out, err := m.Run(t.Context(), argv...)
	d := time.Since(from)
	t.Logf("%s: %v took %v: %v %s", m.Name, argv, d.Round(time.Millisecond), err, out)
	if err != nil || d > slack*limit {
		return []string{fmt.Sprintf("%s: %v took %v, want %v: %v", m.Name, argv, d, limit, err)}
	}
	return nil
}

func mustRun(t *testing.T, m *cluster.Machine, argv ...string) {
	t.Helper()
	_, err := m.Run(t.Context(), argv...)
	must(t, err)
}
