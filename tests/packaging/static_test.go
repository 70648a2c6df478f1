package packaging

import (
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	"sigs.k8s.io/yaml"

	"github.com/google/go-cmp/cmp"
)

// staticPod is the manifest that the program prints, as kubelet reads it.
func staticPod(t *testing.T) *corev1.Pod {
	t.Helper()
	pod := new(corev1.Pod)
	if err := yaml.UnmarshalStrict([]byte(run(t, "manifest", "static-pod", "--image", "registry.example.net/lbd:v9")), pod); err != nil {
		t.Fatal(err)
	}
	return pod
}

// speaker is the container of the DaemonSet, as kubelet reads it.
func speaker(t *testing.T) corev1.Container {
	t.Helper()
	data, err := yaml.Marshal(containers(index(t, kustomized(t))["DaemonSet/lbd-system/lbd"])[0])
	if err != nil {
		t.Fatal(err)
	}
	var c corev1.Container
	if err := yaml.UnmarshalStrict(data, &c); err != nil {
		t.Fatal(err)
	}
	return c
}

// frozen is the longest time from the moment a daemon stands still until kubelet
// kills it: the next probe begins within a period, each one waits for its timeout
// before it fails, and then the container has its grace.
func frozen(p *corev1.Probe, grace int64) time.Duration {
	if p.TerminationGracePeriodSeconds != nil {
		grace = *p.TerminationGracePeriodSeconds
	}
	each := max(p.PeriodSeconds, p.TimeoutSeconds)
	return time.Duration(int64(p.PeriodSeconds+(p.FailureThreshold-1)*each+p.TimeoutSeconds)+grace) * time.Second
}

// TestFrozen: a daemon that stands still does not hear SIGTERM, so nothing is won by
// waiting for it. A static pod is the only daemon of its node and is to be back within
// 8 s, one of which is for kubelet and the runtime to start it.
func TestFrozen(t *testing.T) {
	pod := staticPod(t)
	if got := frozen(pod.Spec.Containers[0].LivenessProbe, *pod.Spec.TerminationGracePeriodSeconds); got > 7*time.Second {
		t.Errorf("a frozen static pod is killed after %v", got)
	}
	if g := speaker(t).LivenessProbe.TerminationGracePeriodSeconds; g == nil || *g != 1 {
		t.Errorf("a frozen speaker has a grace period of its own of %v", g)
	}
}

// TestPatience: a daemon that is merely late is not killed. The loop may stand still
// for as long as an address lives, and then some.
func TestPatience(t *testing.T) {
	for name, p := range map[string]*corev1.Probe{
		"static pod": staticPod(t).Spec.Containers[0].LivenessProbe, "speaker": speaker(t).LivenessProbe,
	} {
		each := max(p.PeriodSeconds, p.TimeoutSeconds)
		if least := time.Duration((p.FailureThreshold-1)*each+p.TimeoutSeconds) * time.Second; least < 5*time.Second {
			t.Errorf("%s: a daemon that answers nothing for %v is killed", name, least)
		}
	}
}

// TestStaticPodShare: under load the weight of a container is its request, so that of
// lbd is what kubeadm gives to kube-apiserver; and no limit stops it for whole periods.
func TestStaticPodShare(t *testing.T) {
	pod := staticPod(t)
	r := pod.Spec.Containers[0].Resources
	if server := resource.MustParse("250m"); r.Requests.Cpu().Cmp(server) < 0 {
		t.Errorf("requests %v, kube-apiserver of kubeadm %v", r.Requests.Cpu(), &server)
	}
	if len(r.Limits) > 0 {
		t.Errorf("limits: %v", r.Limits)
	}
	if pod.Spec.PriorityClassName != "system-node-critical" { // also the OOM score of the container
		t.Errorf("priority class %q", pod.Spec.PriorityClassName)
	}
}

// TestStaticPodConfined: the static pod has the rights of the speaker, no more.
func TestStaticPodConfined(t *testing.T) {
	if diff := cmp.Diff(speaker(t).SecurityContext, staticPod(t).Spec.Containers[0].SecurityContext); diff != "" {
		t.Errorf("speaker (-) and static pod (+):\n%s", diff)
	}
}
