package cluster_test

import (
	"fmt"
	"net/netip"
	"strings"
	"testing"
	"time"

	"lbd.dev/lbd/tests/cluster"
	"lbd.dev/lbd/tests/lab/measure"
)

const kubernetesPage = "docs/kubernetes.md"

// TestDaemonSetOnWorkers follows docs/kubernetes.md with lbd as a unit on the node of the
// control plane, and as a DaemonSet on two workers. Clients outside ask a Service while
// the node that announces it is marked, the DaemonSet is started again, and a worker loses
// its power; then lbd is removed.
func TestDaemonSetOnWorkers(t *testing.T) {
	c := newCluster(t, 3)
	first, workers := c.Machines[0], c.Machines[1:]
	from := time.Now()
	must(t, c.InstallUnit(t.Context(), first))
	must(t, c.Init(t.Context(), first))
	must(t, c.JoinWorker(t.Context(), workers...))
	must(t, c.WaitWhole(t.Context()))
	t.Logf("one control-plane node and two workers are there after %v", since(from))
	must(t, c.ServeServices(t.Context(), first))
	t.Logf("lbd serves Services after %v", since(from))
	address := exposeWeb(t, c)
	t.Logf("a Service is reached after %v", since(from))

	node := func(t *testing.T) *cluster.Machine {
		t.Helper()
		var m *cluster.Machine
		eventually(t, 20*time.Second, "a worker announces", func() error {
			if m = c.Machine(c.Neighbor(t.Context(), address)); m == nil || m == first {
				return fmt.Errorf("%s leads to %v", address, m)
			}
			return nil
		})
		return m
	}
	t.Run("marked node", func(t *testing.T) {
		unlessBusy(t, c, func() []string {
			was := node(t)
			return asking(t, c, address, "label lbd.dev/drain", func() {
				kubectl(t, c, "label", "node", was.Name, "lbd.dev/drain=true")
				eventually(t, 20*time.Second, "another node announces", func() error {
					if node(t) == was {
						return fmt.Errorf("it is %s", was.Name)
					}
					return nil
				})
				kubectl(t, c, "label", "node", was.Name, "lbd.dev/drain-")
			}).moved(1)
		})
	})
	t.Run("restart", func(t *testing.T) {
		unlessBusy(t, c, func() []string {
			return asking(t, c, address, "rollout restart", func() {
				mustRun(t, first, "kubectl", "-n", "lbd-system", "rollout", "restart", "daemonset/lbd")
				mustRun(t, first, "kubectl", "-n", "lbd-system", "rollout", "status", "daemonset/lbd", "--timeout=2m")
			}).moved(2)
		})
	})
	t.Run("power cut", func(t *testing.T) {
		unlessBusy(t, c, func() []string {
			was := node(t)
			s := asking(t, c, address, "power cut of a worker", func() {
				must(t, was.PowerCut(t.Context()))
				pause(t, 5*time.Second)
			})
			must(t, was.Start(t.Context()))
			must(t, c.WaitWhole(t.Context()))
			mustRun(t, first, "kubectl", "-n", "lbd-system", "rollout", "status", "daemonset/lbd", "--timeout=2m")
			return s.within(slack * 600 * time.Millisecond)
		})
	})
	t.Run("remove", func(t *testing.T) { removeServices(t, c, address) })
}

// web are two Pods on two workers. Each answers for its own node only, so that the Pod of
// a worker that died takes no requests until Kubernetes notices.
const web = `
apiVersion: apps/v1
kind: Deployment
metadata: {name: web}
spec:
  replicas: 2
  selector: {matchLabels: {app: web}}
  template:
    metadata: {labels: {app: web}}
    spec:
      containers: [{name: web, image: ` + cluster.Web + `}]
      topologySpreadConstraints:
      - {maxSkew: 1, topologyKey: kubernetes.io/hostname, whenUnsatisfiable: DoNotSchedule, labelSelector: {matchLabels: {app: web}}}
`

// exposeWeb makes the Service of the page, runs the commands below it, and returns its
// address once it answers.
func exposeWeb(t *testing.T, c *cluster.Cluster) netip.Addr {
	t.Helper()
	must(t, c.LoadWeb(t.Context()))
	blocks, err := cluster.Blocks(t.Context(), kubernetesPage, "The first Service", "yaml")
	must(t, err)
	first := c.Machines[0]
	must(t, first.WriteFile("/srv/web.yaml", []byte(web+"---\n"+blocks[len(blocks)-1]), 0o644))
	_, err = first.Shell(t.Context(), "kubectl apply -f web.yaml\nkubectl rollout status --timeout=2m deployment/web\n"+
		`kubectl patch service web --patch '{"spec": {"externalTrafficPolicy": "Local"}}'`)
	must(t, err)
	var address netip.Addr
	eventually(t, time.Minute, "the Service has an address", func() error {
		address, err = netip.ParseAddr(kubectl(t, c, "get", "service", "web", "--output=jsonpath={.status.loadBalancer.ingress[0].ip}"))
		return err
	})
	eventually(t, time.Minute, "the Service answers", func() error {
		_, err := c.Run(t.Context(), "curl", "--silent", "--show-error", "--fail", "--max-time", "2", "http://"+address.String())
		return err
	})
	commands, err := cluster.Blocks(t.Context(), kubernetesPage, "The first Service", "sh")
	must(t, err)
	said, err := first.Shell(t.Context(), strings.Join(commands, ""))
	must(t, err)
	t.Log(said)
	if !strings.Contains(said, address.String()) || !strings.Contains(said, "default/web") {
		t.Errorf("the commands of %s do not show %s of default/web", kubernetesPage, address)
	}
	return address
}

// asking has clients ask the Service while something is done, and tells what they saw.
func asking(t *testing.T, c *cluster.Cluster, address netip.Addr, what string, do func()) seen {
	t.Helper()
	asks := c.Get(t.Context(), "http://"+address.String(), writeEvery/4)
	defer asks.Stop()
	pause(t, 2*time.Second)
	from := measure.Now().Add(-time.Second)
	do()
	pause(t, calm)
	to := measure.Now()
	s := seen{what: what, Reach: asks.Reach(from, to), gap: asks.LongestGap(from, to)}
	t.Logf("%s: %d of %d requests failed %v, outage %v, longest time without an answer %v", what, s.Failed, s.Attempts, s.Errors,
		s.Outage.Round(time.Millisecond), s.gap.Round(time.Millisecond))
	for _, a := range asks.Attempts() {
		if !a.OK() && a.Start >= from {
			t.Logf("failed after %v: %s, %v after the begin", a.End.Sub(a.Start).Round(time.Millisecond), a.Err, a.Start.Sub(from).Round(time.Millisecond))
		}
	}
	return s
}

// removeServices takes lbd out of the cluster as the page says: the address is gone, and
// the VIP of the control plane stays, which a unit serves.
func removeServices(t *testing.T, c *cluster.Cluster, address netip.Addr) {
	kubectl(t, c, "delete", "service", "web")
	commands, err := cluster.Blocks(t.Context(), kubernetesPage, "Remove", "sh")
	must(t, err)
	_, err = c.Machines[0].Shell(t.Context(), strings.Join(commands, ""))
	must(t, err)
	eventually(t, 20*time.Second, "nobody answers for the address", func() error {
		_, _ = c.Run(t.Context(), "ip", "neigh", "del", address.String(), "dev", "eth0") // it may have none
		_, err := c.Run(t.Context(), "curl", "--silent", "--max-time", "2", "http://"+address.String())
		if by := c.Neighbor(t.Context(), address); err == nil || by != "" {
			return fmt.Errorf("%q answers for %s", by, address)
		}
		return nil
	})
	if out := kubectl(t, c, "get", "nodes"); !strings.Contains(out, " Ready ") {
		t.Error(out)
	}
}

// kubectl runs kubectl outside, and returns what it prints.
func kubectl(t *testing.T, c *cluster.Cluster, args ...string) string {
	t.Helper()
	out, err := c.Kubectl(t.Context(), args...)
	must(t, err)
	return out
}
