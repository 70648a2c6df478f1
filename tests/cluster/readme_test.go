package cluster_test

import (
	"fmt"
	"net/netip"
	"strings"
	"testing"
	"time"

	"lbd.dev/lbd/tests/cluster"
)

// speakers asks for the pods of the DaemonSet: name, node, whether it is ready and how often it
// was restarted.
var speakers = []string{"-n", "lbd-system", "get", "pods", "--selector=app.kubernetes.io/component=speaker", "--no-headers",
	"--output=custom-columns=NAME:.metadata.name,NODE:.spec.nodeName,READY:.status.containerStatuses[0].ready,RESTARTS:.status.containerStatuses[0].restartCount"}

// TestReadmeServices follows the chapter of the README about Services, block after block, in a
// cluster whose control plane runs lbd as a unit already. Then the label of that node is
// forgotten: the pod stands aside, also while the unit restarts, and goes with the label.
func TestReadmeServices(t *testing.T) {
	c := newCluster(t, 2)
	host := c.Machines[0]
	must(t, c.InstallUnit(t.Context(), host))
	must(t, c.Init(t.Context(), host))
	must(t, c.JoinWorker(t.Context(), c.Machines[1]))
	must(t, c.WaitWhole(t.Context()))
	must(t, c.LoadWeb(t.Context()))
	for _, m := range c.Machines {
		must(t, c.LoadImage(t.Context(), m))
	}
	followServices(t, c)

	eventually(t, time.Minute, "the Service answers", func() error {
		address, err := netip.ParseAddr(kubectl(t, c, "get", "service", "web", "--output=jsonpath={.status.loadBalancer.ingress[0].ip}"))
		if err != nil {
			return err
		}
		_, err = c.Run(t.Context(), "curl", "--silent", "--show-error", "--fail", "--max-time", "2", "http://"+address.String())
		return err
	})
	if pods := kubectl(t, c, speakers...); strings.Contains(pods, " "+host.Name+" ") {
		t.Errorf("the DaemonSet is on %s, which has the label:\n%s", host.Name, pods)
	}
	kubectl(t, c, "label", "node", host.Name, "lbd.dev/daemon-")
	aside := standsAside(t, c, host)
	mustRun(t, host, "systemctl", "restart", "lbd")
	_, err := c.WaitOwner(t.Context(), 30*time.Second, host)
	must(t, err)
	pause(t, 15*time.Second) // kubelet asks every 2 s whether it is ready, and looks for the other daemon are 5 s apart
	if again := standsAside(t, c, host); again != aside {
		t.Errorf("the pod was %q and is %q", aside, again)
	}
	kubectl(t, c, "label", "node", host.Name, "lbd.dev/daemon=host")
	eventually(t, time.Minute, "the pod is gone", func() error {
		if pods := kubectl(t, c, speakers...); strings.Contains(pods, " "+host.Name+" ") {
			return fmt.Errorf("pods\n%s", pods)
		}
		return nil
	})
}

// followServices carries out what the README says of Services on the host of the control plane.
// What it leaves to its readers is done here: the nodes have the image, and Pods run.
func followServices(t *testing.T, c *cluster.Cluster) {
	t.Helper()
	host := c.Machines[0]
	files, err := cluster.Blocks(t.Context(), "README.md", "Services in Kubernetes", "yaml")
	must(t, err)
	if len(files) != 2 {
		t.Fatalf("the README has %d files, want pool.yaml and web.yaml", len(files))
	}
	must(t, host.WriteFile("/srv/pool.yaml", []byte(files[0]), 0o644))
	must(t, host.WriteFile("/srv/web.yaml", []byte(files[1]+"---"+strings.Replace(web, "replicas: 2", "replicas: 1", 1)), 0o644))
	blocks, err := cluster.Marked(t.Context(), "README.md", "TestReadmeServices")
	must(t, err)
	if all := strings.Join(blocks, ""); !strings.Contains(all, " m1 m2 m3 ") || strings.Index(all, "kubectl label") > strings.Index(all, "lbd manifest") {
		t.Fatalf("the README labels no nodes before it installs: %s", all)
	}
	for _, block := range blocks {
		block = strings.Replace(block, " m1 m2 m3 ", " "+host.Name+" ", 1)
		var commands []string
		for line := range strings.Lines(block) {
			if !strings.HasPrefix(line, "make image ") {
				commands = append(commands, line)
			}
		}
		said, err := host.Shell(t.Context(), strings.Join(commands, ""))
		must(t, err)
		t.Log(said)
	}
}

// standsAside waits for a pod on the host that is not ready, was not restarted, and has said in
// one line what to do. It returns its name.
func standsAside(t *testing.T, c *cluster.Cluster, host *cluster.Machine) string {
	t.Helper()
	var name string
	eventually(t, time.Minute, "a pod stands aside", func() error {
		for line := range strings.Lines(kubectl(t, c, speakers...)) {
			f := strings.Fields(line)
			if len(f) != 4 || f[1] != host.Name {
				continue
			}
			name = f[0]
			if f[2] != "false" || f[3] != "0" {
				return fmt.Errorf("ready and restarts: %s", line)
			}
			log, err := c.Kubectl(t.Context(), "-n", "lbd-system", "logs", name)
			if err != nil {
				return err
			}
			if strings.Count(log, "\n") != 1 || !strings.Contains(log, "kubectl label node "+host.Name+" lbd.dev/daemon=host") {
				return fmt.Errorf("it says %s", log)
			}
			return nil
		}
		return fmt.Errorf("none is on %s", host.Name)
	})
	return name
}
