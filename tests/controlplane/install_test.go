package controlplane_test

import (
	"bytes"
	"encoding/base64"
	"os/exec"
	"strings"
	"testing"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"lbd.dev/lbd/tests/controlplane"
)

// TestInstall has the API server take everything that lbd is installed with, and
// looks what its accounts may do.
func TestInstall(t *testing.T) {
	t.Parallel() // it measures nothing
	l := newLab(t, 0)
	c := start(t, l, controlplane.Options{})
	lbd, err := c.Install(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	t.Run("again", func(t *testing.T) { // as an upgrade does
		key, err := lbd.Keygen(t.Context())
		if err != nil {
			t.Fatal(err)
		}
		if _, err := c.Install(t.Context()); err != nil {
			t.Error(err)
		}
		again, err := lbd.Keygen(t.Context())
		if err != nil || !bytes.Equal(key, again) {
			t.Errorf("the gossip key is another: %v", err)
		}
		if raw, err := base64.StdEncoding.DecodeString(strings.TrimSpace(string(again))); err != nil || len(raw) != 32 {
			t.Errorf("the gossip key has %d bytes, want 32: %v", len(raw), err)
		}
	})
	t.Run("kustomize", func(t *testing.T) {
		if _, err := c.Kubectl(t.Context(), "apply", "--server-side", "--dry-run=server", "-k", "../../packaging/kustomize"); err != nil {
			t.Error(err)
		}
	})
	t.Run("helm", func(t *testing.T) {
		cmd := exec.CommandContext(t.Context(), "go", "run", "./cmd/render", "helm", "../../packaging/helm/lbd")
		cmd.Dir = "../packaging"
		var errs bytes.Buffer
		cmd.Stderr = &errs
		objects, err := cmd.Output()
		if err != nil {
			t.Fatalf("%v: %s", err, errs.String())
		}
		// What the base has installed is its own; a real user has one or the other.
		if err := c.Apply(t.Context(), string(objects), "--dry-run=server", "--force-conflicts"); err != nil {
			t.Error(err)
		}
	})
	t.Run("pods", func(t *testing.T) { testPods(t, c) })
	t.Run("rights", func(t *testing.T) { testRights(t, c) })
}

// testPods has admission judge the Pods that the DaemonSet and the Deployment
// would make.
func testPods(t *testing.T, c *controlplane.ControlPlane) {
	client, err := c.Client()
	if err != nil {
		t.Fatal(err)
	}
	templates := map[string]corev1.PodTemplateSpec{}
	sets, err := client.AppsV1().DaemonSets(controlplane.InstallNamespace).List(t.Context(), metav1.ListOptions{})
	if err != nil {
		t.Fatal(err)
	}
	for _, s := range sets.Items {
		templates["daemonset "+s.Name] = s.Spec.Template
	}
	deployments, err := client.AppsV1().Deployments(controlplane.InstallNamespace).List(t.Context(), metav1.ListOptions{})
	if err != nil {
		t.Fatal(err)
	}
	for _, d := range deployments.Items {
		templates["deployment "+d.Name] = d.Spec.Template
	}
	if len(templates) != 2 {
		t.Errorf("%d DaemonSets and %d Deployments, want one each", len(sets.Items), len(deployments.Items))
	}
	for name, template := range templates {
		pod := &corev1.Pod{ObjectMeta: template.ObjectMeta, Spec: template.Spec}
		pod.GenerateName = "try-"
		_, err := client.CoreV1().Pods(controlplane.InstallNamespace).Create(t.Context(), pod, metav1.CreateOptions{DryRun: []string{metav1.DryRunAll}})
		if err != nil {
			t.Errorf("a Pod of %s: %v", name, err)
		}
	}
}

func testRights(t *testing.T, c *controlplane.ControlPlane) {
	for _, x := range []struct {
		user controlplane.User
		ask  string
		want bool
	}{
		{controlplane.Speaker, "watch services --all-namespaces", true},
		{controlplane.Speaker, "watch endpointslices.discovery.k8s.io --all-namespaces", true},
		{controlplane.Speaker, "watch nodes", true},
		{controlplane.Speaker, "watch ipaddresspools.lbd.dev", true},
		{controlplane.Speaker, "patch services --subresource=status --all-namespaces", false},
		{controlplane.Speaker, "list secrets --all-namespaces", false},
		{controlplane.Speaker, "get secrets -n " + controlplane.InstallNamespace, false},
		{controlplane.Speaker, "patch nodes", false},
		{controlplane.Speaker, "watch pods --all-namespaces", false},
		{controlplane.Controller, "patch services --subresource=status --all-namespaces", true},
		{controlplane.Controller, "update services --subresource=status --all-namespaces", false},
		{controlplane.Controller, "update services --all-namespaces", false},
		{controlplane.Controller, "update leases.coordination.k8s.io/lbd-controller -n " + controlplane.InstallNamespace, true},
		{controlplane.Controller, "update leases.coordination.k8s.io/other -n " + controlplane.InstallNamespace, false},
		{controlplane.Controller, "get leases.coordination.k8s.io/agent -n default", true}, // the sign of life of an agent
		{controlplane.Controller, "get leases.coordination.k8s.io/other -n default", false},
		{controlplane.Controller, "create secrets -n " + controlplane.InstallNamespace, true},
		{controlplane.Controller, "get secrets -n " + controlplane.InstallNamespace, false},
		{controlplane.Controller, "create secrets -n default", false},
		{controlplane.Controller, "list secrets --all-namespaces", false},
		{controlplane.Controller, "patch nodes", false},
	} {
		args := append([]string{"auth", "can-i", "--as=" + x.user.Name}, strings.Fields(x.ask)...)
		out, err := c.Kubectl(t.Context(), args...)
		answer := strings.TrimSpace(out)
		if got := answer == "yes"; got != x.want || !got && !strings.HasPrefix(answer, "no") {
			t.Errorf("%s: may it %s? %q %v, want %v", x.user.Name, x.ask, answer, err, x.want)
		}
	}
}
