package cluster

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"net/netip"
	"os"
	"path/filepath"
	"regexp"
	"strings"
	"time"

	"lbd.dev/lbd/tests/controlplane"
)

// Spec is one of Kubernetes' end-to-end tests, as it went.
type Spec struct {
	Name    string // with all that it is part of
	State   string // "passed", "failed", "skipped", "timedout" and so on
	Took    time.Duration
	Failure string // why, in the words of the test
}

// PrepareConformance gives the cluster what the tests need: the image of their Pods on
// every machine, and a CoreDNS.
func (c *Cluster) PrepareConformance(ctx context.Context, p *controlplane.Conformance) error {
	files, err := c.Parts.withLibraries(ctx, "/usr/bin/busybox", "/usr/bin/curl", "/usr/bin/nc.openbsd")
	if err != nil {
		return err
	}
	wget := filepath.Join(c.Dir, "wget")
	if err := os.WriteFile(wget, []byte(wgetByCurl), 0o755); err != nil {
		return fmt.Errorf("conformance: %w", err)
	}
	files = append(files, ImageFile{Path: "/agnhost", From: p.Agnhost}, ImageFile{Path: "/bin/wget", From: wget},
		ImageFile{Path: "/bin/nc", Link: "/usr/bin/nc.openbsd"})
	for _, name := range strings.Fields("sh cat date echo hostname ls nslookup seq sleep test timeout true") {
		files = append(files, ImageFile{Path: "/bin/" + name, Link: "/usr/bin/busybox"})
	}
	agnhost := Image{Name: p.Image, Entrypoint: []string{"/agnhost"}, Files: files}
	names, err := command(ctx, nil, os.Environ(), c.Parts.Programs.Kubeadm, "config", "images", "list", "--kubernetes-version="+c.Parts.Programs.Kubernetes)
	if err != nil {
		return err
	}
	dns := Image{Entrypoint: []string{"/coredns"}, Files: []ImageFile{{Path: "/coredns", From: p.CoreDNS}}}
	for name := range strings.FieldsSeq(names) {
		if strings.Contains(name, "/coredns:") {
			dns.Name = name
		}
	}
	if err := errors.Join(c.loadEverywhere(ctx, agnhost), c.loadEverywhere(ctx, dns)); err != nil {
		return err
	}
	_, err = c.Machines[0].Shell(ctx, "kubeadm init phase addon coredns --config /etc/kubeadm/kube-proxy.yaml\nkubectl -n kube-system rollout status --timeout=180s deployment/coredns")
	return err
}

// wgetByCurl stands in for wget with the options that the specs use. That of busybox in
// Debian 12 crashes where it is given a time limit.
const wgetByCurl = `#!/bin/sh
limit=60
while getopts qO:T: option; do
	if [ "$option" = T ]; then limit=$OPTARG; fi
done
shift $((OPTIND - 1))
exec curl --silent --fail --max-time "$limit" "$1"
`

// loadEverywhere imports an image on every machine.
func (c *Cluster) loadEverywhere(ctx context.Context, i Image) error {
	archive := filepath.Join(c.Dir, "image.tar")
	if err := i.write(archive); err != nil {
		return err
	}
	err := atOnce(c.Machines, func(m *Machine) error {
		f, err := os.Open(archive)
		if err != nil {
			return fmt.Errorf("image: %w", err)
		}
		defer f.Close()
		_, err = m.run(ctx, f, "ctr", "-n", "k8s.io", "images", "import", "-")
		return err
	})
	return errors.Join(err, os.Remove(archive))
}

// Conformance runs the specs whose whole names match one of the expressions, one after
// the other, from a host outside the subnet of the nodes. A spec that fails is no error.
func (c *Cluster) Conformance(ctx context.Context, p *controlplane.Conformance, names ...string) ([]Spec, error) {
	if err := c.connectRemote(ctx); err != nil {
		return nil, err
	}
	dir := filepath.Join(c.Dir, "conformance")
	if err := os.MkdirAll(dir, 0o755); err != nil {
		return nil, fmt.Errorf("conformance: %w", err)
	}
	out, runErr := command(ctx, nil, os.Environ(), "ip", "netns", "exec", c.namespace(remote), p.Tests,
		"--kubeconfig="+c.kubeconfig, "--provider=local", "--kubectl-path="+c.Parts.Programs.Kubectl, "--minStartupPods=0",
		"--disable-log-dump", "--report-dir="+dir, "--report-complete-ginkgo", "--ginkgo.no-color",
		"--ginkgo.focus="+strings.Join(names, "|"))
	if err := os.WriteFile(filepath.Join(dir, "output"), []byte(out), 0o644); err != nil {
		return nil, fmt.Errorf("conformance: %w", err)
	}
	specs, err := readSpecs(filepath.Join(dir, "ginkgo", "report.json"))
	if err != nil {
		return nil, errors.Join(err, runErr)
	}
	if len(specs) == 0 {
		return nil, errors.Join(errors.New("conformance: no spec ran"), runErr)
	}
	return specs, nil
}

// readSpecs reads a report of Ginkgo. Specs that were not asked for are left out.
func readSpecs(name string) ([]Spec, error) {
	b, err := os.ReadFile(name)
	if err != nil {
		return nil, fmt.Errorf("conformance: %w", err)
	}
	var reports []struct {
		SpecReports []struct {
			ContainerHierarchyTexts []string
			LeafNodeText            string
			LeafNodeType            string
			State                   string
			RunTime                 time.Duration
			NumAttempts             int
			Failure                 struct{ Message string }
		}
	}
	if err := json.Unmarshal(b, &reports); err != nil {
		return nil, fmt.Errorf("conformance: %s: %w", name, err)
	}
	var all []Spec
	for _, r := range reports {
		for _, s := range r.SpecReports {
			if s.LeafNodeType == "It" && s.NumAttempts > 0 {
				all = append(all, Spec{
					Name:  strings.Join(append(s.ContainerHierarchyTexts, s.LeafNodeText), " "),
					State: s.State, Took: s.RunTime, Failure: s.Failure.Message,
				})
			}
		}
	}
	return all, nil
}

// Exactly is an expression for one spec by the end of its name.
func Exactly(name string) string { return regexp.QuoteMeta(name) + "$" }

// remote is a host behind the router, and its subnet.
const remote = "remote"

var remoteSubnet = netip.MustParsePrefix("10.1.0.0/24")

// connectRemote makes the host behind the router, unless it is there.
func (c *Cluster) connectRemote(ctx context.Context) error {
	if _, err := os.Stat("/run/netns/" + c.namespace(remote)); err == nil {
		return nil
	}
	if _, err := command(ctx, nil, os.Environ(), "ip", "netns", "add", c.namespace(remote)); err != nil {
		return fmt.Errorf("%s: network: %w", remote, err)
	}
	router := remoteSubnet.Addr().Next()
	pods := ""
	for _, m := range c.Machines { // the router leads to Pods as the nodes do
		pods += fmt.Sprintf("route add 10.244.%d.0/24 via %s\n", m.number, m.Address)
	}
	err := errors.Join(
		c.ip(ctx, "switch", fmt.Sprintf("link add p-remote type veth peer name eth0 netns %s\naddr add %s/24 dev p-remote\nlink set p-remote up\n%s",
			c.namespace(remote), router, pods)),
		c.ip(ctx, remote, fmt.Sprintf("link set lo up\naddr add %s/24 dev eth0\nlink set eth0 up\nroute add default via %s\n", router.Next(), router)),
	)
	if err != nil {
		return fmt.Errorf("%s: network: %w", remote, err)
	}
	_, err = command(ctx, nil, os.Environ(), "ip", "netns", "exec", c.namespace("switch"), "sysctl", "-qw", "net.ipv4.ip_forward=1")
	return err
}
