package lab_test

import (
	"errors"
	"net/netip"
	"slices"
	"testing"
	"time"

	"lbd.dev/lbd/tests/lab"
	"lbd.dev/lbd/tests/lab/measure"
)

const (
	// flushedBack is how long lbd may take to put its tables back. It takes milliseconds;
	// without its watch of the tables it took up to 3 s for silence and 10 s for rings.
	flushedBack = time.Second
	// flushedDual is how long a node that should be silent may answer.
	flushedDual = 50 * time.Millisecond
)

// TestFlushedRules: somebody flushes all rules of nftables, on one node after the other, while
// connections to addresses that all of them serve are open and new ones are made. What is
// silent stays silent and rings stay whole but for a moment. Of what comes in at the owner in
// that moment some is reset, so nobody speaks on an open connection then; where a node is
// silent nothing is lost at all.
func TestFlushedRules(t *testing.T) { // P13
	t.Parallel()
	c := cluster(t, &lab.LBD{Balanced: true}, 3)
	ctx, owner := t.Context(), ownerOf(t, c, lab.VIP4())
	watches := map[*lab.Node]*lab.Instrument[measure.Rules]{}
	for _, n := range c.Nodes {
		watches[n] = watchRules(t, c, n)
	}
	idle := idleTalks(t, c)
	if err := errors.Join(c.Stable(ctx), c.Eyes.OpenConns(ctx, lab.VIP4(), 30)); err != nil {
		t.Fatal(err)
	}
	from := measure.Now()
	for _, n := range append(c.Others(owner), c.Others(owner)...) {
		flush(t, c, n, watches[n], idle)
	}
	if conns := c.Eyes.Conns(from, measure.Now()); conns.Survived() != 30 {
		t.Errorf("nodes that are silent were flushed: of 30 connections: %+v", conns)
	}
	c.Eyes.CloseConns()
	for range 3 {
		flush(t, c, owner, watches[owner], idle)
	}
}

// idleTalks are connections to nodes besides the owner, too.
func idleTalks(t *testing.T, c *lab.Cluster) (talks []*talk) {
	t.Helper()
	for _, vip := range c.Eyes.VIPs {
		at := map[string]int{}
		for len(at) < len(c.Nodes) {
			if len(talks) > 100 {
				t.Fatalf("%s: none of them serves: %v", vip, at)
			}
			k, err := newTalk(t.Context(), c, vip)
			if err != nil {
				t.Fatal(err)
			}
			t.Cleanup(func() { _ = k.Close() })
			talks = append(talks, k)
			at[k.node]++
		}
		t.Logf("%s: idle connections are at %v", vip, at)
	}
	return talks
}

// watchRules returns when the kernel tells of every change.
func watchRules(t *testing.T, c *lab.Cluster, n *lab.Node) *lab.Instrument[measure.Rules] {
	t.Helper()
	w, err := c.WatchRules(&n.Host)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = w.Close() })
	err = lab.Wait(t.Context(), 5*time.Second, 20*time.Millisecond, "events of "+n.Name, func() error {
		_, err := c.Exec(t.Context(), &n.Host, "nft", "add table inet labtold; delete table inet labtold")
		all, told := w.Events()
		if len(all) == 0 {
			told = errors.Join(told, errors.New("none yet"))
		}
		return errors.Join(err, told)
	})
	if err != nil {
		t.Fatal(err)
	}
	return w
}

// flush does it on one node. What waits meanwhile goes on after it, and new connections, too.
func flush(t *testing.T, c *lab.Cluster, n *lab.Node, w *lab.Instrument[measure.Rules], idle []*talk) {
	t.Helper()
	owners := map[netip.Addr]*lab.Node{}
	for _, vip := range c.Eyes.VIPs {
		owners[vip] = ownerOf(t, c, vip)
	}
	time.Sleep(100 * time.Millisecond) // the last ACKs
	stood, from := measure.Standstill(), measure.Now()
	if _, err := c.Exec(t.Context(), &n.Host, "nft", "flush", "ruleset"); err != nil {
		t.Fatal(err)
	}
	rules := putBack(t, n, w, from, owners)
	for i, k := range idle {
		if err := k.exchange(4 << 10); err != nil {
			t.Errorf("%s was flushed: connection %d, to %s: %v", n.Name, i, k.node, err)
		}
	}
	time.Sleep(500 * time.Millisecond) // attempts that are under way
	still := stood()
	t.Logf("%s: %v; the machine stood still for %v", n.Name, rules, still)
	for what, took := range rules {
		if took > flushedBack+still {
			t.Errorf("%s: %s is back after %v", n.Name, what, took)
		}
	}
	for vip, owner := range owners {
		r, dual := c.Eyes.Reach(vip, from, measure.Now()), c.Eyes.Dual(vip, from, measure.Now())
		most := 0
		if n == owner { // those that began in that moment, or before
			most = 2 + int((rules[ring(vip)]+still)/bin.ProbeEvery)
		}
		t.Logf("%s: %s of %s: two claimants for %v, %d of %d failed %v", n.Name, vip, owner.Name, dual, r.Failed, r.Attempts, r.Errors)
		if dual > slack*flushedDual+still || r.Failed > most || ownerOf(t, c, vip) != owner {
			t.Errorf("%s: %s of %s: two claimants for %v, %d of %d failed %v", n.Name, vip, owner.Name, dual, r.Failed, r.Attempts, r.Errors)
		}
	}
}

// ring is the table by which a node relays, and silence that by which it does not answer.
func ring(vip netip.Addr) string {
	if vip.Is6() {
		return "ip6 lbd-relay"
	}
	return "ip lbd-relay"
}

func silence(vip netip.Addr) string {
	if vip.Is6() {
		return "ip6 lbd"
	}
	return "arp lbd"
}

// putBack waits until a node has all rules again that it needs, and tells for how long it had
// none.
func putBack(t *testing.T, n *lab.Node, w *lab.Instrument[measure.Rules], from measure.Time, owners map[netip.Addr]*lab.Node) (took map[string]time.Duration) {
	t.Helper()
	err := lab.Wait(t.Context(), 30*time.Second, time.Millisecond, "rules", func() error {
		all, err := w.Events()
		if slices.ContainsFunc(all, func(e measure.Rules) bool { return e.Missed }) {
			err = errors.New("the kernel dropped messages")
		}
		took = gaps(all, from)
		for vip, owner := range owners {
			if took[ring(vip)] == 0 {
				err = errors.Join(err, errors.New("no "+ring(vip)))
			}
			if n != owner && took[silence(vip)] == 0 {
				err = errors.Join(err, errors.New("no "+silence(vip)))
			}
		}
		return err
	})
	if err != nil {
		t.Errorf("%s: %v", n.Name, err)
	}
	return took
}

// gaps are how long each table was gone that was deleted since then.
func gaps(all []measure.Rules, from measure.Time) map[string]time.Duration {
	gone, took := map[string]measure.Time{}, map[string]time.Duration{}
	for _, e := range all {
		name := e.Family + " " + e.Table
		switch at, is := gone[name]; {
		case e.At < from:
		case e.Del && !is:
			gone[name] = e.At
		case !e.Del && is && took[name] == 0:
			took[name] = e.At.Sub(at)
		}
	}
	return took
}
