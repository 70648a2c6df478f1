package controller

import (
	"fmt"
	"net/http"
	"slices"
	"strings"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"lbd.dev/lbd/internal/allocator"
	"lbd.dev/lbd/internal/k8s/apitest"
)

// judged is the condition of an object, in one line; "" without.
func judged(api *apitest.Server, resource, name string) string {
	list, _, _ := nested[[]any](api.Get(resource, "", name), "status", "conditions")
	for _, x := range list {
		m := x.(map[string]any)
		return fmt.Sprint(m["type"], " ", m["status"], " ", m["reason"], ": ", m["message"])
	}
	return ""
}

// TestJudge: an object that asks for what is not there says so, with one event, until
// it is there.
func TestJudge(t *testing.T) {
	api := newAPI(t)
	advert := func(name string, pools ...string) {
		api.Put(adverts, map[string]any{"metadata": map[string]any{"name": name}, "spec": map[string]any{"ipAddressPools": pools}})
	}
	accepted := func(name string) string { return judged(api, adverts, name) }
	advert("good")
	advert("early", "late")
	advert("wrong", "Not A Name")
	p := run(t, build(t, api, "a"))
	eventually(t, "good is accepted", func() bool { return strings.HasPrefix(accepted("good"), "Accepted True Accepted: ") })
	eventually(t, "early names nothing", func() bool {
		return strings.HasPrefix(accepted("early"), "Accepted False Problem: ") && strings.Contains(accepted("early"), `"late"`)
	})
	eventually(t, "wrong is wrong", func() bool {
		return strings.HasPrefix(accepted("wrong"), "Accepted False Invalid: spec.ipAddressPools[0]: ")
	})
	putPool(api, "late", "192.0.2.0/30")
	eventually(t, "early is accepted", func() bool { return strings.HasPrefix(accepted("early"), "Accepted True ") })
	said := func() (list []string) {
		for _, e := range told(api) {
			if strings.HasPrefix(e, "L2Advertisement /early ") {
				list = append(list, e)
			}
		}
		slices.Sort(list)
		return list
	}
	eventually(t, "two events", func() bool { return len(said()) == 2 })
	if list := said(); !strings.Contains(list[0], "Normal ObjectAccepted: ") || !strings.Contains(list[1], "Warning ObjectProblem: Problem: ") {
		t.Errorf("events %q", list)
	}
	p.stop()
	before := len(api.Requests())
	b := run(t, build(t, api, "b"))
	eventually(t, "b leads", func() bool { return b.Stats().Leader })
	time.Sleep(300 * time.Millisecond)
	for _, r := range api.Requests()[before:] {
		if strings.HasPrefix(r, "PATCH ") && strings.Contains(r, "/l2advertisements/") {
			t.Errorf("the next leader writes again: %s", r)
		}
	}
}

// TestJudgeWarns: a VirtualIP without a check is used as it is written, and its condition
// says what that means.
func TestJudgeWarns(t *testing.T) {
	const vips = "lbd.dev/v1alpha1/virtualips"
	api := newAPI(t)
	api.Serve(vips, "VirtualIP")
	api.Put(vips, map[string]any{"metadata": map[string]any{"name": "api"}, "spec": map[string]any{"addresses": []string{"198.51.100.1"}}})
	run(t, build(t, api, "x"))
	eventually(t, "it is judged", func() bool { return judged(api, vips, "api") != "" })
	if is := judged(api, vips, "api"); !strings.HasPrefix(is, "Accepted True ") || !strings.Contains(is, "spec.healthCheck: ") {
		t.Error(is)
	}
	for _, e := range told(api) {
		if strings.Contains(e, "ObjectProblem") {
			t.Errorf("event %s", e)
		}
	}
}

// TestJudgeNodes: a LoadBalancer that selects Nodes is judged by those that there are.
func TestJudgeNodes(t *testing.T) {
	const balancers = "lbd.dev/v1alpha1/loadbalancers"
	api := newAPI(t)
	api.Serve(balancers, "LoadBalancer")
	api.Put(balancers, map[string]any{"metadata": map[string]any{"name": "web"}, "spec": map[string]any{
		"addresses": []string{"198.51.100.1"}, "ports": []any{map[string]any{"port": 443}},
		"backendNodes": map[string]any{"matchLabels": map[string]any{"role": "ingress"}}}})
	put := func(name, role string) {
		api.Put("v1/nodes", &corev1.Node{ObjectMeta: metav1.ObjectMeta{Name: name, Labels: map[string]string{"role": role}},
			Status: corev1.NodeStatus{Addresses: []corev1.NodeAddress{{Type: corev1.NodeInternalIP, Address: "192.0.2.9"}}}})
	}
	is := func(what, want string) {
		t.Helper()
		eventually(t, what, func() bool { return strings.HasPrefix(judged(api, balancers, "web"), want) })
	}
	const none = "Accepted False Problem: spec.backendNodes: no Node that matches has an InternalIP "
	put("early", "ingress")
	run(t, build(t, api, "x"))
	is("a Node was there before", "Accepted True ")
	put("early", "other")
	is("its label is another one", none)
	put("late", "ingress")
	is("another Node", "Accepted True ")
	api.Delete("v1/nodes", "", "late")
	is("that Node is gone", none)
}

// TestJudgeWaits: a pool that is read late does not look missing.
func TestJudgeWaits(t *testing.T) {
	api := newAPI(t)
	putPool(api, "p", "192.0.2.0/30")
	api.Put(adverts, map[string]any{"metadata": map[string]any{"name": "a"}, "spec": map[string]any{"ipAddressPools": []string{"p"}}})
	api.Put("lbd.dev/v1alpha1/bgppeers", map[string]any{"metadata": map[string]any{"name": "r"}, "spec": map[string]any{
		"myASN": 64512, "peerASN": 64513, "peerAddress": "192.0.2.9", "bfdProfile": "fast"}})
	api.Put("lbd.dev/v1alpha1/bfdprofiles", map[string]any{"metadata": map[string]any{"name": "fast"}, "spec": map[string]any{}})
	api.Gate(func(r *http.Request) int {
		if strings.HasSuffix(r.URL.Path, "/bfdprofiles") {
			time.Sleep(500 * time.Millisecond)
		}
		return 0
	})
	api.Serve("lbd.dev/v1alpha1/bgppeers", "BGPPeer")
	api.Serve("lbd.dev/v1alpha1/bfdprofiles", "BFDProfile")
	run(t, build(t, api, "x"))
	eventually(t, "the peer is accepted", func() bool {
		list, _, _ := nested[[]any](api.Get("lbd.dev/v1alpha1/bgppeers", "", "r"), "status", "conditions")
		return len(list) == 1 && list[0].(map[string]any)["status"] == "True"
	})
	for _, e := range told(api) {
		if strings.Contains(e, "ObjectProblem") || strings.Contains(e, "ObjectAccepted") {
			t.Errorf("event %s", e)
		}
	}
}

// TestSilent: a Service with an address that no advertisement covers is told so once,
// and one that asks lbd under the class of another too.
func TestSilent(t *testing.T) {
	api := newAPI(t)
	putPool(api, "p", "192.0.2.0/30")
	run(t, build(t, api, "a"))
	said := func(name string) (list []string) {
		for _, e := range told(api) {
			if strings.HasPrefix(e, "Service default/"+name+" Warning ") {
				list = append(list, e)
			}
		}
		return list
	}
	api.Put(resource, service("web"))
	api.Put(resource, service("other", func(s *corev1.Service) {
		s.Spec.LoadBalancerClass, s.Annotations = new("other"), map[string]string{"lbd.dev/address-pool": "p"}
	}))
	api.Put(resource, service("mine", func(s *corev1.Service) {
		s.Spec.LoadBalancerClass, s.Annotations = new("other"), map[string]string{"metallb.io/address-pool": "p"}
	}))
	eventually(t, "events", func() bool { return len(said("web")) == 1 && len(said("other")) == 1 })
	if got := said("web")[0]; !strings.Contains(got, "NotAnnounced: no L2Advertisement") || !strings.Contains(got, "192.0.2.0 is not announced") {
		t.Error(got)
	}
	if got := said("other")[0]; !strings.Contains(got, `ClassNotServed: spec.loadBalancerClass is "other"`) {
		t.Error(got)
	}
	// Changes that change nothing about it are no news.
	for i := range 3 {
		api.Put(resource, service("web", shows("192.0.2.0"), func(s *corev1.Service) {
			s.Labels = map[string]string{"n": fmt.Sprint(i)}
			s.Annotations[allocator.AllocatedFrom] = "192.0.2.0=p"
		}))
		api.Put(adverts, map[string]any{"metadata": map[string]any{"name": "far"}, "spec": map[string]any{
			"ipAddressPools": []string{"q"}, "interfaces": []string{fmt.Sprint("eth", i)}}})
		time.Sleep(judgePause)
	}
	if len(said("web")) != 1 || len(said("other")) != 1 || len(said("mine")) != 0 {
		t.Errorf("%q, %q, %q", said("web"), said("other"), said("mine"))
	}
	// Covered, and not any more: that is news.
	api.Put(adverts, map[string]any{"metadata": map[string]any{"name": "near"}, "spec": map[string]any{}})
	eventually(t, "it is judged", func() bool {
		list, _, _ := nested[[]any](api.Get(adverts, "", "near"), "status", "conditions")
		return len(list) > 0
	})
	api.Delete(adverts, "", "near")
	eventually(t, "another event", func() bool { return len(said("web")) == 2 })
}
