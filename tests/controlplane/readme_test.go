package controlplane_test

import (
	"errors"
	"net/netip"
	"os"
	"regexp"
	"strings"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"lbd.dev/lbd/tests/controlplane"
)

var yamlBlock = regexp.MustCompile("(?s)```yaml\n(.*?)```")

// chapter returns the blocks of YAML in a chapter of the README, with its addresses
// in the LAN of the lab.
func chapter(t *testing.T, title string) []string {
	t.Helper()
	b, err := os.ReadFile("../../README.md")
	if err != nil {
		t.Fatal(err)
	}
	_, rest, found := strings.Cut(string(b), "\n## "+title+"\n")
	if !found {
		t.Fatalf("the README has no chapter %q", title)
	}
	text, _, _ := strings.Cut(rest, "\n## ")
	var blocks []string
	for _, m := range yamlBlock.FindAllStringSubmatch(text, -1) {
		blocks = append(blocks, strings.ReplaceAll(m[1], " [10.0.0.220-10.0.0.", " [10.77.0.220-10.77.0."))
	}
	return blocks
}

// TestReadme follows the chapter of the README about Services: its pool, and its
// Service, for which the controllers of Kubernetes find a Pod.
func TestReadme(t *testing.T) {
	t.Parallel() // it measures nothing
	blocks := chapter(t, "Services in Kubernetes")
	if len(blocks) != 2 || !strings.Contains(blocks[0], "[10.77.0.220-10.77.0.239]") {
		t.Fatalf("want a pool of 10.0.0.220-10.0.0.239 and a Service, got\n%s", strings.Join(blocks, "---\n"))
	}
	f := newFleetWith(t, blocks[0], controlplane.Options{Controllers: controlplane.DefaultControllers()})
	f.runPod(t, f.pods[1], map[string]string{"app": "web"})
	if err := f.Apply(t.Context(), blocks[1]); err != nil {
		t.Fatal(err)
	}
	vip := netip.MustParseAddr("10.77.0.220")
	err := controlplane.Eventually(t.Context(), 15*time.Second, "the Service is reached", func() error {
		name, err := controlplane.Ask(t.Context(), f.Lab, f.Lab.Client, netip.AddrPortFrom(vip, 80))
		if err == nil && name != f.pods[1].Name {
			t.Errorf("%s answers, want %s", name, f.pods[1].Name)
		}
		return err
	})
	if err != nil {
		t.Error(err)
	}
	announces := regexp.MustCompile(`^True Owner \S+ announces 10\.77\.0\.220 on \S+$`)
	err = controlplane.Eventually(t.Context(), 20*time.Second, "the Service says who announces it", func() error {
		const path = `{range .status.conditions[?(@.type=="lbd.dev/Announced")]}{.status} {.reason} {.message}{end}`
		out, err := f.Kubectl(t.Context(), "get", "service", "web", "--output=jsonpath="+path)
		if err == nil && !announces.MatchString(out) {
			err = errors.New(out)
		}
		return err
	})
	if err != nil {
		t.Error(err)
	}
	for _, x := range []struct{ ask, want string }{
		{"wait --for=condition=lbd.dev/Announced service/web --timeout=5s", "condition met"},
		{"get lbdnodes --no-headers", f.pods[1].Node.Name},
		{"get service web --no-headers", " 10.77.0.220 "},
		{"describe service web", "IPAllocated"},
		{"get ipaddresspools.lbd.dev --no-headers", " True "},
		{"get l2advertisements.lbd.dev", "default"},
	} {
		out, err := f.Kubectl(t.Context(), strings.Fields(x.ask)...)
		if err != nil || !strings.Contains(out, x.want) {
			t.Errorf("kubectl %s: want %q: %v in\n%s", x.ask, x.want, err, out)
		}
		t.Logf("kubectl %s\n%s", x.ask, out)
	}
}

// runPod has the Pod serve on port 80 and makes an object of it, as kubelet does.
func (f *fleet) runPod(t *testing.T, p *controlplane.Pod, labels map[string]string) {
	t.Helper()
	if _, err := f.Lab.Exec(t.Context(), &p.Host, "nft", "add table ip nat; add chain ip nat in { type nat hook prerouting priority -100; }; add rule ip nat in tcp dport 80 redirect to :8080"); err != nil {
		t.Fatal(err)
	}
	pod := &corev1.Pod{
		ObjectMeta: metav1.ObjectMeta{Namespace: metav1.NamespaceDefault, Name: p.Name, Labels: labels},
		Spec:       corev1.PodSpec{NodeName: p.Node.Name, Containers: []corev1.Container{{Name: "server", Image: "example.com/server"}}},
	}
	err := controlplane.Eventually(t.Context(), 20*time.Second, "create a Pod", func() error { // once there is a service account
		_, err := f.client.CoreV1().Pods(metav1.NamespaceDefault).Create(t.Context(), pod, metav1.CreateOptions{})
		return err
	})
	if err != nil {
		t.Fatal(err)
	}
	pod.Status = corev1.PodStatus{
		Phase: corev1.PodRunning, PodIP: p.IP4.String(), PodIPs: []corev1.PodIP{{IP: p.IP4.String()}, {IP: p.IP6.String()}},
		Conditions: []corev1.PodCondition{{Type: corev1.PodReady, Status: corev1.ConditionTrue}},
	}
	if _, err := f.client.CoreV1().Pods(metav1.NamespaceDefault).UpdateStatus(t.Context(), pod, metav1.UpdateOptions{}); err != nil {
		t.Fatal(err)
	}
}
