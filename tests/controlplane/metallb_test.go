package controlplane_test

import (
	"errors"
	"fmt"
	"net/netip"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"

	"lbd.dev/lbd/tests/controlplane"
	"lbd.dev/lbd/tests/lab/measure"
)

const metallbPage = "docs/metallb.md"

// movedWithin is how long an address is away at most in a move from MetalLB, on an idle machine.
const movedWithin = 2 * time.Second

// metallbObjects are the pool of the other tests, as MetalLB has it.
var metallbObjects = strings.NewReplacer("lbd.dev/v1alpha1", "metallb.io/v1beta1", "{name: lan}", "{name: lan, namespace: "+controlplane.MetalLBNamespace+"}").Replace(poolAndAdvertisement)

// TestMoveFromMetalLB follows docs/metallb.md in a cluster whose Services have addresses from MetalLB: each
// keeps its addresses, and is away no longer than the page says.
func TestMoveFromMetalLB(t *testing.T) {
	f := newNodes(t, controlplane.Options{})
	old, err := f.StartMetalLB(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	if err := f.Apply(t.Context(), metallbObjects); err != nil {
		t.Fatal(err)
	}
	before := map[string]string{}
	for i := range 3 {
		s := f.loadBalancer(fmt.Sprintf("web%d", i))
		s.Spec.LoadBalancerClass = nil
		f.create(t, s, f.pods...)
		before[s.Name] = f.given(t, s)
	}
	vips, err := f.addresses(t.Context(), "web0")
	if err != nil {
		t.Fatal(err)
	}
	f.announcedByMetalLB(t, "web0", vips)
	f.answered(t, vips, f.pods...)

	dir := t.TempDir()
	f.follow(t, dir, "for kind in ")
	f.follow(t, dir, "lbd convert metallb ")
	converted, err := os.ReadFile(filepath.Join(dir, "converted"))
	if err != nil {
		t.Fatal(err)
	}
	if f.lbd, err = f.Install(t.Context()); err != nil {
		t.Fatal(err)
	}
	if err := f.Apply(t.Context(), string(converted)); err != nil {
		t.Fatal(err)
	}

	eyes := f.open(t, vips...)
	from := measure.Now()
	if err := old.Controller.Stop(10 * time.Second); err != nil {
		t.Fatal(err)
	}
	f.lbd.Classless = true
	if err := f.lbd.StartController(t.Context()); err != nil {
		t.Fatal(err)
	}
	for _, n := range f.nodes {
		if err := f.lbd.StartSpeaker(t.Context(), n); err != nil {
			t.Fatal(err)
		}
	}
	// The nodes hear each other's MetalLB, and none its own: that one takes the address in place.
	f.settled(t, vips...)
	for _, v := range vips {
		names := eyes.Claimants(v, measure.Since(from))
		if owner := f.owner(t, f.nodes[0], v).Name; !slices.Equal(names, []string{owner}) {
			t.Errorf("%s belongs to %s, and was claimed by %v", v, owner, names)
		}
	}
	for _, s := range old.Speakers {
		if err := s.Stop(10 * time.Second); err != nil {
			t.Error(err)
		}
	}
	f.settled(t, vips...)
	f.answered(t, vips, f.pods...)
	time.Sleep(2 * time.Second)
	for _, v := range vips {
		r := eyes.Reach(v, from, measure.Now().Add(-time.Second))
		t.Logf("%s: %d of %d connections failed, away for %v at most", v, r.Failed, r.Attempts, r.Outage)
		if r.Never || r.Outage > slack*movedWithin {
			t.Errorf("%s was away for %v, want %v at most", v, r.Outage, movedWithin)
		}
	}
	for name, was := range before {
		vips, err := f.addresses(t.Context(), name)
		if now := fmt.Sprint(vips); err != nil || now != was {
			t.Errorf("%s has %s, %v; with MetalLB it had %s", name, now, err, was)
		}
	}
}

// announcedByMetalLB waits until the addresses of a Service answer. A speaker of MetalLB that was about to
// start when the Service came may leave it out until the Service changes, so that is done meanwhile.
func (f *fleet) announcedByMetalLB(t *testing.T, service string, vips []netip.Addr) {
	t.Helper()
	err := controlplane.Eventually(t.Context(), 20*time.Second, "MetalLB announces "+service, func() error {
		for _, vip := range vips {
			if _, err := f.ask(t.Context(), vip); err != nil {
				_, touched := f.Kubectl(t.Context(), "annotate", "service", service, "--overwrite", "touched="+time.Now().Format("150405.000"))
				return errors.Join(err, touched)
			}
		}
		return nil
	})
	if err != nil {
		t.Fatal(err)
	}
}

// given waits until a Service has its addresses.
func (f *fleet) given(t *testing.T, s *corev1.Service) (addresses string) {
	t.Helper()
	err := controlplane.Eventually(t.Context(), 40*time.Second, "addresses of "+s.Name, func() error {
		vips, err := f.addresses(t.Context(), s.Name)
		addresses = fmt.Sprint(vips)
		return err
	})
	if err != nil {
		t.Fatal(err)
	}
	return addresses
}

// follow runs the block of commands of docs/metallb.md that begins so, in a folder.
func (f *fleet) follow(t *testing.T, dir, begin string) {
	t.Helper()
	page, err := os.ReadFile("../../" + metallbPage)
	if err != nil {
		t.Fatal(err)
	}
	_, block, found := strings.Cut(string(page), "```sh\n"+begin)
	block, _, _ = strings.Cut(begin+block, "```\n")
	if !found {
		t.Fatalf("%s has no block that begins with %q", metallbPage, begin)
	}
	kubeconfig, err := f.Kubeconfig(f.Host.IP4, controlplane.Admin)
	if err != nil {
		t.Fatal(err)
	}
	// kubectl and lbd of the tests, on the host of the API server.
	bins := t.TempDir()
	kubectl := fmt.Sprintf("#!/bin/sh\nexec %s --kubeconfig %s \"$@\"\n", f.Programs.Kubectl, kubeconfig)
	if err := errors.Join(os.WriteFile(filepath.Join(bins, "kubectl"), []byte(kubectl), 0o755), os.Symlink(f.Lab.Bin.LBD, filepath.Join(bins, "lbd"))); err != nil {
		t.Fatal(err)
	}
	c := exec.CommandContext(t.Context(), "ip", "netns", "exec", f.Host.NS, "sh", "-euc", block)
	c.Dir, c.Env = dir, append(slices.Clone(os.Environ()), "PATH="+bins+":"+os.Getenv("PATH"), "HOME="+dir)
	if out, err := c.CombinedOutput(); err != nil {
		t.Fatalf("%v\n%s\n%s", err, block, out)
	}
}
