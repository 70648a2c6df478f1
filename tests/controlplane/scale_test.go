package controlplane_test

import (
	"context"
	"errors"
	"fmt"
	"net/netip"
	"os"
	"strconv"
	"strings"
	"sync"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"lbd.dev/lbd/tests/controlplane"
	"lbd.dev/lbd/tests/lab/measure"
)

// manyPool has room for thousands of Services, in a subnet that each node is given.
const manyPool = `apiVersion: lbd.dev/v1alpha1
kind: IPAddressPool
metadata: {name: lan}
spec: {addresses: [10.78.64.0/18]}
---
apiVersion: lbd.dev/v1alpha1
kind: L2Advertisement
metadata: {name: lan}
`

// TestScale measures what many Services cost lbd alone: there is no kube-proxy.
// LBD_SCALE is how many; bounds hold for 5000.
func TestScale(t *testing.T) {
	services := 200
	if text := os.Getenv("LBD_SCALE"); text != "" {
		var err error
		if services, err = strconv.Atoi(text); err != nil || services < 1 || services > 10000 {
			t.Fatalf("LBD_SCALE=%q: want 1 to 10000: %v", text, err)
		}
	}
	f := newScaled(t)
	from := time.Now()
	f.createMany(t, services)
	t.Logf("%d Services are created after %v", services, time.Since(from).Round(100*time.Millisecond))
	f.announcedAll(t, services, 5*time.Minute)
	t.Logf("all have an address that is announced after %v", time.Since(from).Round(100*time.Millisecond))
	for _, n := range f.nodes {
		if err := n.Daemon.Kill(); err != nil {
			t.Fatal(err)
		}
	}
	from = time.Now()
	for _, n := range f.nodes {
		if err := f.lbd.StartSpeaker(t.Context(), n); err != nil {
			t.Fatal(err)
		}
	}
	const startWithin = 20 * time.Second
	f.announcedAll(t, services, slack*startWithin)
	t.Logf("all daemons started at once: all is announced after %v", time.Since(from).Round(100*time.Millisecond))
	if took := time.Since(from); took > slack*startWithin {
		t.Errorf("all was announced after %v, want %v at most", took, slack*startWithin)
	}
	f.cost(t)
}

// newScaled is a fleet without kube-proxy and Pods.
func newScaled(t *testing.T) *fleet {
	t.Helper()
	l := newLab(t, 3)
	f := &fleet{ControlPlane: start(t, l, controlplane.Options{Families: []controlplane.Family{controlplane.IPv4}})}
	var err error
	if f.client, err = f.Client(); err != nil {
		t.Fatal(err)
	}
	for i, h := range l.Nodes {
		if err := l.IP(t.Context(), &h.Host, fmt.Sprintf("addr add 10.78.0.%d/16 dev eth0", 11+i)); err != nil {
			t.Fatal(err)
		}
		n, err := f.AddNode(t.Context(), h, nil)
		if err != nil {
			t.Fatal(err)
		}
		f.nodes = append(f.nodes, n)
	}
	if f.lbd, err = f.StartLBD(t.Context()); err != nil {
		t.Fatal(err)
	}
	if err := f.Apply(t.Context(), manyPool); err != nil {
		t.Fatal(err)
	}
	// Endpoints that nobody connects to.
	for _, n := range f.nodes {
		p := &controlplane.Pod{Node: n}
		p.IP4 = netip.AddrFrom4([4]byte{10, 244, byte(n.Number), 10})
		f.pods = append(f.pods, p)
	}
	return f
}

func (f *fleet) createMany(t *testing.T, services int) {
	t.Helper()
	work := make(chan int)
	var wg sync.WaitGroup
	errs := make([]error, 8)
	for w := range errs {
		wg.Go(func() {
			for i := range work {
				errs[w] = errors.Join(errs[w], f.createOne(t.Context(), i))
			}
		})
	}
	for i := range services {
		work <- i
	}
	close(work)
	wg.Wait()
	if err := errors.Join(errs...); err != nil {
		t.Fatal(err)
	}
}

func (f *fleet) createOne(ctx context.Context, i int) error {
	s := f.loadBalancer(fmt.Sprintf("s%d", i))
	if i%4 == 3 {
		s.Spec.ExternalTrafficPolicy = corev1.ServiceExternalTrafficPolicyLocal
	}
	if err := f.SetEndpoints(ctx, f.client, s.Name, f.pods[i%len(f.pods)]); err != nil {
		return err
	}
	_, err := f.client.CoreV1().Services(metav1.NamespaceDefault).Create(ctx, s, metav1.CreateOptions{})
	return err
}

// announcedAll waits until the nodes announce n addresses in sum.
func (f *fleet) announcedAll(t *testing.T, n int, limit time.Duration) {
	t.Helper()
	var spread []int
	err := controlplane.Eventually(t.Context(), limit, "all addresses are announced", func() error {
		sum := 0
		var each []int
		for _, node := range f.nodes {
			st, err := f.lbd.Status(t.Context(), f.Lab, node.Node)
			if err != nil {
				return err
			}
			own := 0
			for _, v := range st.VIPs {
				if v.Owner == node.Name && v.Announced {
					own++
				}
			}
			sum += own
			each = append(each, own)
		}
		if spread = each; sum != n {
			return fmt.Errorf("%d of %d: %v", sum, n, each)
		}
		return nil
	})
	if err != nil {
		t.Fatal(err)
	}
	t.Logf("announced by each node: %v", spread)
}

// cost measures the daemons, and the controller, for a while in which nothing
// happens.
func (f *fleet) cost(t *testing.T) {
	t.Helper()
	const during, rss = 5 * time.Second, 150 << 20
	type reading struct {
		name string
		pid  int
		cpu  time.Duration
	}
	var all []reading
	for _, n := range f.nodes {
		all = append(all, reading{name: n.Name, pid: n.Daemon.PID()})
	}
	all = append(all, reading{name: "controller", pid: f.lbd.Controllers[0].Proc().PID()})
	time.Sleep(3 * time.Second) // what the start has left
	for i := range all {
		var err error
		if all[i].cpu, err = measure.ProcessCPU(all[i].pid); err != nil {
			t.Fatal(err)
		}
	}
	time.Sleep(during)
	for _, r := range all {
		cpu, err := measure.ProcessCPU(r.pid)
		mem, err2 := measure.RSS(r.pid)
		if err = errors.Join(err, err2); err != nil {
			t.Fatal(err)
		}
		t.Logf("%s: %d MiB, %.2f %% of a core", r.name, mem>>20, 100*float64(cpu-r.cpu)/float64(during))
		if mem > rss {
			t.Errorf("%s: %d MiB, want %d at most", r.name, mem>>20, rss>>20)
		}
	}
	for _, n := range f.nodes {
		page, err := f.Metrics(t.Context(), n)
		if err != nil {
			t.Fatal(err)
		}
		for line := range strings.Lines(page) {
			if strings.HasPrefix(line, "lbd_kubernetes_") {
				t.Logf("%s: %s", n.Name, strings.TrimSpace(line))
			}
		}
	}
}
