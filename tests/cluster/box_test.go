package cluster_test

import (
	"fmt"
	"slices"
	"testing"
	"time"

	"lbd.dev/lbd/tests/cluster"
	"lbd.dev/lbd/tests/lab/measure"
)

// boxOutage is how long writes by the box may fail when a master loses its power, on an idle machine: BFD
// ends its session within 0.3 s, and etcd may have to elect a leader.
const boxOutage = 4 * time.Second

// TestBox follows docs/box.md: a box that knows no master, and masters that boot at once with the user data
// of the page. The second and third one join by the box; the first one loses its power, and comes back.
func TestBox(t *testing.T) {
	need(t)
	pack := deb(t, "v0.1.0-9-gccccccc")
	c := started(t, 3, cluster.NewBehindBox)
	from := time.Now()
	must(t, c.SetUpBox(t.Context(), pack))
	t.Logf("the box is set up after %v", since(from))
	first, others := c.Masters()[0], c.Masters()[1:]
	joined := make(chan error, len(others))
	for _, m := range others { // they may boot before the first one
		go func() { joined <- c.BootMaster(t.Context(), m, pack, false) }()
	}
	must(t, c.BootMaster(t.Context(), first, pack, true))
	t.Logf("kubeadm init has ended after %v", since(from))
	for range others {
		must(t, <-joined)
	}
	leadsTo(t, c, c.Masters()...)
	t.Logf("the box leads to all masters after %v", since(from))
	if says, err := c.Box().Run(t.Context(), "lbd", "status"); err != nil {
		t.Error(err)
	} else {
		t.Logf("lbd status on the box\n%s", says)
	}

	unlessBusy(t, nil, func() (broken []string) {
		w, err := c.Write(t.Context(), 50*time.Millisecond)
		must(t, err)
		defer w.Stop()
		pause(t, 2*time.Second)
		cut := measure.Now()
		must(t, first.PowerCut(t.Context()))
		leadsTo(t, c, others...)
		pause(t, 8*time.Second)
		r := w.Reach(cut.Add(-time.Second), measure.Now().Add(-time.Second))
		t.Logf("%s lost its power: %d of %d writes failed %v, outage %v", first.Name, r.Failed, r.Attempts, r.Errors, r.Outage.Round(time.Millisecond))
		if r.Attempts == 0 || r.Never || r.Outage > slack*boxOutage {
			broken = append(broken, fmt.Sprintf("%s lost its power: outage %v, never over: %v, want %v", first.Name, r.Outage, r.Never, slack*boxOutage))
		}
		must(t, first.Start(t.Context()))
		leadsTo(t, c, c.Masters()...)
		t.Logf("%s is back after %v", first.Name, since(from))
		return broken
	})
}

// leadsTo waits until the box leads to exactly these masters, and the API answers by it.
func leadsTo(t *testing.T, c *cluster.Cluster, masters ...*cluster.Machine) {
	t.Helper()
	var want []string
	for _, m := range masters {
		want = append(want, m.Address.String())
	}
	eventually(t, 3*time.Minute, fmt.Sprintf("the box leads to %v", want), func() error {
		got, err := c.NextHops(t.Context())
		if err != nil {
			return err
		}
		if !slices.Equal(got, want) {
			return fmt.Errorf("it leads to %v", got)
		}
		_, err = c.Kubectl(t.Context(), "get", "--raw", "/livez")
		return err
	})
}
