package controlplane_test

import (
	"fmt"
	"net/netip"
	"slices"
	"strconv"
	"strings"
	"sync"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"

	"lbd.dev/lbd/tests/controlplane"
	"lbd.dev/lbd/tests/lab"
	"lbd.dev/lbd/tests/lab/measure"
)

// TestLoadBalancerNodeDies cuts the link of a node that owns addresses of many
// Services: each of them is reachable again, and only those move.
func TestLoadBalancerNodeDies(t *testing.T) {
	f := newFleet(t)
	const services = 20
	dead := f.nodes[1]
	live, pods := f.others(dead)
	var all []netip.Addr
	for i := range services {
		s := f.loadBalancer(fmt.Sprintf("web%d", i))
		f.create(t, s, pods...) // on the other nodes: what is measured is the VIPs
	}
	for i := range services {
		err := controlplane.Eventually(t.Context(), 20*time.Second, "addresses", func() error {
			vips, err := f.addresses(t.Context(), fmt.Sprintf("web%d", i))
			if err == nil {
				all = append(all, vips...)
			}
			return err
		})
		if err != nil {
			t.Fatal(err)
		}
	}
	f.settled(t, all...)
	f.answered(t, all, pods...) // and the client has resolved each
	before := f.owners(t, live[0])
	var hit []netip.Addr
	for _, vip := range all {
		if before[vip] == dead.Name {
			hit = append(hit, vip)
		}
	}
	if len(hit) == 0 {
		t.Fatalf("of %d addresses %s owns none", len(all), dead.Name)
	}
	from := time.Now()
	if err := f.Lab.LinkDown(t.Context(), &dead.Host); err != nil {
		t.Fatal(err)
	}
	took := f.reachable(t, from, hit)
	t.Logf("%s died with %d of %d addresses: reachable again: %s", dead.Name, len(hit), len(all), spread(took))
	if worst := slices.Max(took); worst > slack*diesWithin {
		t.Errorf("an address was reachable again after %v, want %v at most", worst, slack*diesWithin)
	}
	for vip, now := range f.owners(t, live[0]) {
		if before[vip] != dead.Name && now != before[vip] {
			t.Errorf("%s moved from %s, which lives, to %s", vip, before[vip], now)
		}
	}
	if err := f.Lab.LinkUp(t.Context(), &dead.Host); err != nil {
		t.Fatal(err)
	}
	f.settled(t, all...)
	for vip, now := range f.owners(t, live[0]) {
		if now == dead.Name {
			t.Errorf("%s went back to %s", vip, dead.Name)
		}
	}
}

// reachable asks for each address until it answers, and returns how long after
// from that was. Each ask of an address that nobody serves takes 250 ms.
func (f *fleet) reachable(t *testing.T, from time.Time, vips []netip.Addr) []time.Duration {
	took := make([]time.Duration, len(vips))
	var wg sync.WaitGroup
	for i, vip := range vips {
		wg.Go(func() {
			_, err := f.ask(t.Context(), vip)
			for err != nil && time.Since(from) < 15*time.Second {
				_, err = f.ask(t.Context(), vip)
			}
			took[i] = time.Since(from)
			if err != nil {
				t.Errorf("%s is not reachable: %v", vip, err)
			}
		})
	}
	wg.Wait()
	return took
}

// caught is how many connections a move may reset. A new one goes through one node
// or the other; one whose handshake is under way goes on through a node whose
// kube-proxy has never heard of it, and which sends it to a Pod that has not either.
const caught = 2

// TestLoadBalancerNodeSignals: each way in which a cluster says that a node is not
// to be used moves the addresses away, without a failed connection but those that
// are caught half open, and what it takes back moves nothing.
func TestLoadBalancerNodeSignals(t *testing.T) {
	f := newFleet(t)
	vips := f.serve(t, f.loadBalancer("web"), f.pods...)
	eyes := f.open(t, vips...)
	for _, x := range []struct {
		name string
		set  func(t *testing.T, n *controlplane.Node, on bool)
	}{
		{"label " + corev1.LabelNodeExcludeBalancers, f.labelled(corev1.LabelNodeExcludeBalancers, "")},
		{"label lbd.dev/drain", f.labelled("lbd.dev/drain", "true")},
		{"taint ToBeDeletedByClusterAutoscaler", f.tainted("ToBeDeletedByClusterAutoscaler")},
		{"taint " + corev1.TaintNodeOutOfService, f.tainted(corev1.TaintNodeOutOfService)},
		{"NetworkUnavailable", f.condition(corev1.NodeNetworkUnavailable, corev1.ConditionTrue, corev1.ConditionFalse)},
		{"not Ready", f.condition(corev1.NodeReady, corev1.ConditionFalse, corev1.ConditionTrue)},
	} {
		t.Run(x.name, func(t *testing.T) { f.testSignal(t, eyes, x.set) })
	}
	t.Run("excluded: false", func(t *testing.T) { // and cordoned
		n := f.owner(t, f.nodes[0], vips[0])
		from := f.begin(t)
		f.labelled(corev1.LabelNodeExcludeBalancers, "false")(t, n, true)
		f.patchNode(t, n, `{"spec":{"unschedulable":true}}`)
		time.Sleep(time.Second)
		f.stays(t, eyes, vips[0], n, from)
	})
}

func (f *fleet) testSignal(t *testing.T, eyes *lab.Eyes, set func(*testing.T, *controlplane.Node, bool)) {
	f.settled(t, eyes.VIPs...)
	old := f.owner(t, f.nodes[0], eyes.VIPs[0])
	before := measure.Now().Add(-200 * time.Millisecond)
	from := measure.Now()
	set(t, old, true)
	err := controlplane.Eventually(t.Context(), 10*time.Second, "no address is with "+old.Name, func() error {
		for _, vip := range eyes.VIPs {
			if names := eyes.Claimants(vip, 5*measure.AskEvery); len(names) != 1 || names[0] == old.Name {
				return fmt.Errorf("%s is claimed by %v", vip, names)
			}
		}
		return nil
	})
	if err != nil {
		t.Fatal(err)
	}
	moved := measure.Since(from)
	f.settled(t, eyes.VIPs...)
	set(t, old, false)
	back := f.begin(t)
	time.Sleep(measure.Calm)
	for _, vip := range eyes.VIPs {
		r := eyes.Reach(vip, before, measure.Now().Add(-300*time.Millisecond))
		t.Logf("%s left %s within %v; %d of %d attempts failed %v", vip, old.Name, moved.Round(10*time.Millisecond), r.Failed, r.Attempts, r.Errors)
		if r.Failed > r.Errors["reset"] || r.Failed > caught || r.Attempts < 100 {
			t.Errorf("%s: %d of %d attempts failed: %v", vip, r.Failed, r.Attempts, r.Errors)
		}
		f.stays(t, eyes, vip, f.owner(t, f.nodes[0], vip), back)
	}
}

// stays wants that nobody but the node has claimed the address since from. A daemon
// that the machine has starved in that time may have lost it: then it only says so.
func (f *fleet) stays(t *testing.T, eyes *lab.Eyes, vip netip.Addr, n *controlplane.Node, from measure.Time) {
	t.Helper()
	names := eyes.Claimants(vip, measure.Since(from))
	if slices.Equal(names, []string{n.Name}) {
		return
	}
	if now := f.countLapses(t); now != f.lapses {
		t.Logf("%s: claimed by %v: daemons stood still %d times", vip, names, now-f.lapses)
		return
	}
	t.Errorf("%s: claimed by %v, want only %s", vip, names, n.Name)
}

// begin is the moment from which stays is asked.
func (f *fleet) begin(t *testing.T) measure.Time {
	t.Helper()
	f.lapses = f.countLapses(t)
	return measure.Now()
}

// countLapses tells how often the daemons that run have stood still for so long that
// another one may take what is not bound.
func (f *fleet) countLapses(t *testing.T) int {
	t.Helper()
	sum := 0
	for _, n := range f.nodes {
		page, err := f.Metrics(t.Context(), n)
		if err != nil {
			t.Fatal(err)
		}
		for line := range strings.Lines(page) {
			if count, ok := strings.CutPrefix(strings.TrimSpace(line), "lbd_lapses_total "); ok {
				n, err := strconv.Atoi(count)
				if err != nil {
					t.Fatal(err)
				}
				sum += n
			}
		}
	}
	return sum
}

func (f *fleet) patchNode(t *testing.T, n *controlplane.Node, patch string, sub ...string) {
	t.Helper()
	if _, err := f.client.CoreV1().Nodes().Patch(t.Context(), n.Name, types.StrategicMergePatchType, []byte(patch), metav1.PatchOptions{}, sub...); err != nil {
		t.Fatal(err)
	}
}

func (f *fleet) labelled(key, value string) func(*testing.T, *controlplane.Node, bool) {
	return func(t *testing.T, n *controlplane.Node, on bool) {
		if on {
			f.patchNode(t, n, fmt.Sprintf(`{"metadata":{"labels":{%q:%q}}}`, key, value))
		} else {
			f.patchNode(t, n, fmt.Sprintf(`{"metadata":{"labels":{%q:null}}}`, key))
		}
	}
}

func (f *fleet) tainted(key string) func(*testing.T, *controlplane.Node, bool) {
	return func(t *testing.T, n *controlplane.Node, on bool) {
		taints := "[]"
		if on {
			taints = fmt.Sprintf(`[{"key":%q,"effect":"NoSchedule"}]`, key)
		}
		f.patchNode(t, n, `{"spec":{"taints":`+taints+`}}`)
	}
}

func (f *fleet) condition(kind corev1.NodeConditionType, bad, good corev1.ConditionStatus) func(*testing.T, *controlplane.Node, bool) {
	return func(t *testing.T, n *controlplane.Node, on bool) {
		status := good
		if on {
			status = bad
		}
		f.patchNode(t, n, fmt.Sprintf(`{"status":{"conditions":[{"type":%q,"status":%q,"reason":"Lab"}]}}`, kind, status), "status")
	}
}
