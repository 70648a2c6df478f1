package controller

import (
	"fmt"
	"net/http"
	"net/netip"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"

	"lbd.dev/lbd/api/v1alpha1"
	"lbd.dev/lbd/internal/k8s/apitest"
	"lbd.dev/lbd/internal/model"
)

// vip is an address of a Service as a node has it in its status.
func vip(name, addr string, change ...func(*v1alpha1.VIPStatus)) v1alpha1.VIPStatus {
	v := v1alpha1.VIPStatus{Name: "default/" + name, Kind: "Service", Address: addr, Mode: "l2", Interface: "eth0", Reason: "Standby"}
	for _, f := range change {
		f(&v)
	}
	return v
}

// owned is that the node with this name announces the address.
func owned(node string, epoch uint64) func(*v1alpha1.VIPStatus) {
	return func(v *v1alpha1.VIPStatus) { v.Owner, v.Reason, v.Announced, v.Epoch = node, "Owner", true, epoch }
}

func advertised(v *v1alpha1.VIPStatus) {
	v.Mode, v.Interface, v.Reason, v.Announced = "bgp", "", "Advertised", true
}

func why(reason, detail string) func(*v1alpha1.VIPStatus) {
	return func(v *v1alpha1.VIPStatus) { v.Reason, v.Detail = reason, detail }
}

// says puts the NodeStatus of a node. more are addresses that its list leaves out.
func says(api *apitest.Server, node string, more int, vips ...v1alpha1.VIPStatus) {
	list := []any{}
	for _, v := range vips {
		list = append(list, map[string]any{"name": v.Name, "kind": v.Kind, "address": v.Address, "mode": v.Mode, "interface": v.Interface, "owner": v.Owner,
			"reason": v.Reason, "detail": v.Detail, "announced": v.Announced, "epoch": v.Epoch, "healthy": true, "bound": false})
	}
	api.Put(nodeStatuses, map[string]any{"metadata": map[string]any{"name": node, "uid": "uid-" + node}, "node": node,
		"summary": map[string]any{"vips": len(vips) + more}, "vips": list})
}

func putNode(api *apitest.Server, name string, ready corev1.ConditionStatus) {
	api.Put("v1/nodes", &corev1.Node{ObjectMeta: metav1.ObjectMeta{Name: name},
		Status: corev1.NodeStatus{Conditions: []corev1.NodeCondition{{Type: corev1.NodeReady, Status: ready}}}})
}

// TestAnnouncement: what the condition says of what the nodes say.
func TestAnnouncement(t *testing.T) {
	const a = "192.0.2.1"
	node := func(more int, vips ...v1alpha1.VIPStatus) sight {
		api := newAnnouncedAPI(t)
		says(api, "x", more, vips...)
		s, ok := convertSight(&unstructured.Unstructured{Object: api.Get(nodeStatuses, "", "x")})
		if !ok {
			t.Fatal("not read")
		}
		return s
	}
	bgp := func(n int) map[string]sight {
		all := map[string]sight{}
		for i := range n {
			all[fmt.Sprintf("n%d", i+1)] = node(0, vip("web", a, advertised))
		}
		return all
	}
	for _, c := range []struct {
		name   string
		addrs  string
		nodes  map[string]sight
		silent string
		want   string
	}{
		{"at layer 2", a, map[string]sight{"n1": node(0, vip("web", a, owned("n1", 1))), "n2": node(0, vip("web", a))}, "",
			"True Owner n1 announces 192.0.2.1 on eth0"},
		{"the status of the owner before is old", a, map[string]sight{"n1": node(0, vip("web", a, owned("n1", 1))), "n2": node(0, vip("web", a, owned("n2", 2)))}, "",
			"True Owner n2 announces 192.0.2.1 on eth0"},
		{"by one router", a, bgp(1), "", "True Advertised n1 advertises 192.0.2.1 by BGP"},
		{"by BGP", a, bgp(3), "", "True Advertised n1, n2 and n3 advertise 192.0.2.1 by BGP"},
		{"by BGP from many", a, bgp(9), "", "True Advertised 9 nodes advertise 192.0.2.1 by BGP"},
		{"both", a, map[string]sight{"n1": node(0, vip("web", a, owned("n1", 1)), vip("web", a, advertised)), "n2": node(0, vip("web", a), vip("web", a, advertised))}, "",
			"True Owner n1 announces 192.0.2.1 on eth0, and n1 and n2 advertise 192.0.2.1 by BGP"},
		{"two families, one is not announced", a + " 2001:db8::1", map[string]sight{"n1": node(0, vip("web", a, owned("n1", 1)), vip("web", "2001:db8::1", why("FamilyDisabled", "IPv6 is disabled on eth0")))}, "",
			"False FamilyDisabled n1 announces 192.0.2.1 on eth0; nobody announces 2001:db8::1: FamilyDisabled on n1 (IPv6 is disabled on eth0)"},
		{"nobody", a, map[string]sight{"n1": node(0, vip("web", a, why("NodeExcluded", "label x"))), "n2": node(0, vip("web", a, why("NoEndpoint", "none is ready"))), "n3": node(0, vip("web", a, why("NoEndpoint", "none is ready")))}, "",
			"False NoEndpoint nobody announces 192.0.2.1: NoEndpoint on n2 and n3 (none is ready), NodeExcluded on n1 (label x)"},
		{"no address", "", bgp(1), "", "False NoAddress the Service has no address; if it cannot have one, an event AllocationFailed says why"},
		{"no advertisement", a, bgp(0), "no advertisement is for it", "False NotAnnounced no advertisement is for it"},
		{"no node", a, nil, "", "False NoNode no node announces anything: there is no NodeStatus of a Node that is ready"},
		{"another Service has the address", a, map[string]sight{"n1": node(0, vip("other", a, owned("n1", 1)))}, "", "Unknown NotListed no node says anything of 192.0.2.1"},
		{"more than a status lists", a, map[string]sight{"n1": node(1)}, "", "Unknown NotListed no node says anything of 192.0.2.1; a status lists 500 addresses at most"},
		{"the owner has more than it lists", a, map[string]sight{"n1": node(1), "n2": node(0, vip("web", a, func(v *v1alpha1.VIPStatus) { v.Owner = "n1" }))}, "",
			"True Owner n1 announces 192.0.2.1, as n2 says"},
		{"the owner lists all, and does not announce yet", a, map[string]sight{"n1": node(0), "n2": node(0, vip("web", a, func(v *v1alpha1.VIPStatus) { v.Owner = "n1" }))}, "",
			"False Standby nobody announces 192.0.2.1: Standby on n2"},
	} {
		var addrs []netip.Addr
		for f := range strings.FieldsSeq(c.addrs) {
			addrs = append(addrs, netip.MustParseAddr(f))
		}
		got := announcement("default/web", addrs, newTellings(c.nodes), c.silent)
		if text := fmt.Sprintf("%s %s %s", got.Status, got.Reason, got.Message); text != c.want {
			t.Errorf("%s:\ngot  %s\nwant %s", c.name, text, c.want)
		}
	}
}

func TestNames(t *testing.T) {
	if got := names([]string{"a", "b", "c", "d", "e", "f", "g"}); got != "a, b, c, d, e and 2 more" {
		t.Error(got)
	}
}

// quick is the pace for tests.
var quick = announcePace{look: 10 * time.Millisecond, most: 25, again: 20 * time.Millisecond, hold: 100 * time.Millisecond, beat: 200 * time.Millisecond, retry: 50 * time.Millisecond}

// announcedIn is the condition of a Service in the API; "" if there is none.
func announcedIn(api *apitest.Server, name string) string {
	list, _, _ := nested[[]any](api.Get(resource, "default", name), "status", "conditions")
	for _, x := range list {
		if m := x.(map[string]any); m["type"] == conditionAnnounced {
			return fmt.Sprintf("%v %v %v", m["status"], m["reason"], m["message"])
		}
	}
	return ""
}

func newAnnouncedAPI(t *testing.T) *apitest.Server {
	api := newAPI(t)
	api.Serve(nodeStatuses, "NodeStatus")
	putNode(api, "n1", corev1.ConditionTrue)
	putNode(api, "n2", corev1.ConditionTrue)
	putPool(api, "p", "192.0.2.0/24")
	api.Put(adverts, map[string]any{"metadata": map[string]any{"name": "a", "uid": "uid-a"}, "spec": map[string]any{}})
	return api
}

// TestAnnounced walks a Service through its life, in the API: who announces it, who does next,
// nobody, and then it is not lbd's any more. The condition of somebody else stays.
func TestAnnounced(t *testing.T) {
	api := newAnnouncedAPI(t)
	web := func(change ...func(*corev1.Service)) *corev1.Service {
		s := service("web", append([]func(*corev1.Service){shows("192.0.2.1")}, change...)...)
		s.Status.Conditions = []metav1.Condition{{Type: "example.net/Other", Status: "True"}}
		return s
	}
	api.Put(resource, web())
	says(api, "n1", 0, vip("web", "192.0.2.1", owned("n1", 1)))
	says(api, "n2", 0, vip("web", "192.0.2.1"))
	c := build(t, api, "a")
	c.announce = quick
	run(t, c)
	becomes := func(want string) {
		t.Helper()
		eventually(t, want, func() bool { return announcedIn(api, "web") == want })
		if list, _, _ := nested[[]any](api.Get(resource, "default", "web"), "status", "conditions"); !strings.Contains(fmt.Sprint(list), "example.net/Other") {
			t.Errorf("the condition of somebody else is gone: %v", list)
		}
	}
	becomes("True Owner n1 announces 192.0.2.1 on eth0")

	says(api, "n2", 0, vip("web", "192.0.2.1", owned("n2", 2)))
	becomes("True Owner n2 announces 192.0.2.1 on eth0")
	says(api, "n1", 0, vip("web", "192.0.2.1", why("NoEndpoint", "")))
	says(api, "n2", 0, vip("web", "192.0.2.1", why("NoEndpoint", "")))
	becomes("False NoEndpoint nobody announces 192.0.2.1: NoEndpoint on n1 and n2")
	says(api, "n1", 0, vip("web", "192.0.2.1", owned("n1", 3)))
	becomes("True Owner n1 announces 192.0.2.1 on eth0")
	eventually(t, "events tell of both", func() bool {
		all := told(api)
		return slices.Contains(all, "Service default/web Warning NotAnnounced: nobody announces 192.0.2.1: NoEndpoint on n1 and n2") &&
			slices.Contains(all, "Service default/web Normal Announced: n1 announces 192.0.2.1 on eth0")
	})
	// What a node said that is not ready may be long over.
	putNode(api, "n1", corev1.ConditionUnknown)
	becomes("False NoEndpoint nobody announces 192.0.2.1: NoEndpoint on n2")
	putNode(api, "n2", corev1.ConditionFalse) // then it is the control plane
	becomes("True Owner n1 announces 192.0.2.1 on eth0")

	before := announcedIn(api, "web")
	if x := web(func(s *corev1.Service) { s.Spec.LoadBalancerClass = new("example.net/other") }); before != "" {
		x.Status.Conditions = append(x.Status.Conditions, metav1.Condition{Type: conditionAnnounced, Status: "True", Reason: "Owner", Message: "n1"})
		api.Put(resource, x)
	}
	eventually(t, "the condition goes with the class", func() bool { return announcedIn(api, "web") == "" })
	if list, _, _ := nested[[]any](api.Get(resource, "default", "web"), "status", "conditions"); len(list) != 1 {
		t.Errorf("conditions %v", list)
	}
}

// TestAnnouncedOfAnotherType: a Service that becomes one of another type looks deleted, and its
// condition goes all the same.
func TestAnnouncedOfAnotherType(t *testing.T) {
	api := newAnnouncedAPI(t)
	api.Put(resource, service("web", shows("192.0.2.1")))
	says(api, "n1", 0, vip("web", "192.0.2.1", owned("n1", 1)))
	c := build(t, api, "a")
	c.announce = quick
	run(t, c)
	eventually(t, "it has the condition", func() bool { return announcedIn(api, "web") != "" })
	s := service("web", shows("192.0.2.1"), func(s *corev1.Service) { s.Spec.Type, s.Spec.LoadBalancerClass = corev1.ServiceTypeClusterIP, nil })
	s.Status.Conditions = []metav1.Condition{{Type: conditionAnnounced, Status: "True", Reason: "Owner", Message: "n1"}}
	api.Put(resource, s)
	eventually(t, "the condition goes", func() bool { return announcedIn(api, "web") == "" })
	api.Delete(resource, "default", "web")
	n := 0
	eventually(t, "a deleted one is not asked for again and again", func() bool {
		was := n
		n = conditionPatches(api)
		time.Sleep(2 * quick.beat)
		return n == was
	})
}

func conditionPatches(api *apitest.Server) (n int) {
	for _, r := range api.Requests() {
		if strings.HasPrefix(r, "PATCH ") && strings.Contains(r, "/services/") && strings.Contains(r, "/status") {
			n++
		}
	}
	return n
}

// TestAnnouncedIsPaced: when the addresses of very many Services move at once, a bounded number is written
// after each look, none is forgotten, and what is unchanged costs nothing.
func TestAnnouncedIsPaced(t *testing.T) {
	const all = 60
	api := newAnnouncedAPI(t)
	var vips [2][]v1alpha1.VIPStatus
	for i := range all {
		name, addr := fmt.Sprintf("s%d", i), fmt.Sprintf("192.0.2.%d", i+1)
		api.Put(resource, service(name, shows(addr)))
		vips[0] = append(vips[0], vip(name, addr, owned("n1", 1)))
		vips[1] = append(vips[1], vip(name, addr, owned("n2", 2)))
	}
	c := build(t, api, "a")
	var mu sync.Mutex
	var at []time.Time
	api.Gate(func(r *http.Request) int {
		if r.Method == http.MethodPatch && strings.HasPrefix(r.Header.Get("Content-Type"), "application/strategic") {
			mu.Lock()
			defer mu.Unlock()
			at = append(at, time.Now())
		}
		return 0
	})
	count := func() int { mu.Lock(); defer mu.Unlock(); return len(at) }
	c.announce = announcePace{look: 100 * time.Millisecond, most: 10, again: 50 * time.Millisecond, hold: 100 * time.Millisecond, beat: 300 * time.Millisecond, retry: 50 * time.Millisecond}
	says(api, "n1", 0, vips[0]...)
	run(t, c)
	have := func(node string) func() bool {
		return func() bool {
			n := 0
			for i := range all {
				if strings.Contains(announcedIn(api, fmt.Sprintf("s%d", i)), node+" announces ") {
					n++
				}
			}
			return n == all
		}
	}
	eventually(t, "n1 announces all", have("n1"))
	says(api, "n2", 0, vips[1]...)
	eventually(t, "n2 announces all", have("n2"))
	mu.Lock()
	for i := range at {
		// Eleven in a row are of two looks.
		if i >= 10 && at[i].Sub(at[i-10]) < 80*time.Millisecond {
			t.Errorf("11 writes in %v", at[i].Sub(at[i-10]))
			break
		}
	}
	mu.Unlock()
	was := count()
	time.Sleep(700 * time.Millisecond) // two beats
	if n := count(); n != was || n > 2*all {
		t.Errorf("%d writes, %d more while nothing happens; want %d and none", n, n-was, 2*all)
	}
}

// TestAnnouncedHolds: for the moment in which an address moves, when neither node says that it
// announces it, the condition does not say that nobody does. A Service has no two writes in a row.
func TestAnnouncedHolds(t *testing.T) {
	now := time.Unix(1000, 0)
	a := &announcer{pace: announceSlowly, wanted: map[model.Key]wanted{}, wrote: map[model.Key]wrote{}}
	is := func(status v1alpha1.ConditionStatus, reason, message string) v1alpha1.Condition {
		return v1alpha1.Condition{Type: conditionAnnounced, Status: status, Reason: reason, Message: message}
	}
	key := model.Key{Namespace: "default", Name: "web"}
	before := is("True", "Owner", "n1")
	at := func(after time.Duration, want v1alpha1.Condition) bool {
		list := a.add(nil, change{key: key, before: before, is: want}, now.Add(after))
		if len(list) == 1 {
			a.wrote[key] = wrote{want, now.Add(after)}
			delete(a.wanted, key)
		}
		return len(list) == 1
	}
	nobody, other := is("False", "Standby", "nobody"), is("True", "Owner", "n2")
	for _, c := range []struct {
		after time.Duration
		is    v1alpha1.Condition
		due   bool
	}{
		{0, before, false},
		{1 * time.Second, nobody, false},
		{9 * time.Second, nobody, false},
		{10 * time.Second, other, true}, // it has moved: at once
		{11 * time.Second, nobody, false},
		{20 * time.Second, nobody, false},
		{21 * time.Second, nobody, true}, // it lasts
		{22 * time.Second, other, false}, // not so soon after the last
		{26 * time.Second, other, true},
		{40 * time.Second, is("True", "Advertised", "n1"), false}, // routers come and go: words can wait
		{49 * time.Second, is("True", "Advertised", "n1 and n2"), false},
		{50 * time.Second, is("True", "Advertised", "n1"), true},
		{51 * time.Second, v1alpha1.Condition{}, false},
		{55 * time.Second, v1alpha1.Condition{}, true},
	} {
		if got := at(c.after, c.is); got != c.due {
			t.Errorf("after %v %s %s: due %v, want %v", c.after, c.is.Status, c.is.Message, got, c.due)
		}
	}
}

// TestRefusedConditionHoldsNobodyUp: a Service whose status somebody does not let lbd write keeps no
// other from its condition.
func TestRefusedConditionHoldsNobodyUp(t *testing.T) {
	api := newAnnouncedAPI(t)
	var vips []v1alpha1.VIPStatus
	for i, name := range []string{"a", "b", "c"} {
		addr := fmt.Sprintf("192.0.2.%d", i+1)
		api.Put(resource, service(name, shows(addr)))
		vips = append(vips, vip(name, addr, owned("n1", 1)))
	}
	c := build(t, api, "a")
	api.Gate(func(r *http.Request) int {
		if r.Method == http.MethodPatch && strings.HasPrefix(r.Header.Get("Content-Type"), "application/strategic") && strings.Contains(r.URL.Path, "/a/") {
			return http.StatusForbidden
		}
		return 0
	})
	c.announce = announcePace{look: 100 * time.Millisecond, most: 1, again: time.Second, hold: 100 * time.Millisecond, beat: 300 * time.Millisecond, retry: 50 * time.Millisecond}
	says(api, "n1", 0, vips...)
	run(t, c)
	eventually(t, "n1 announces the others", func() bool {
		return strings.Contains(announcedIn(api, "b"), "n1 announces ") && strings.Contains(announcedIn(api, "c"), "n1 announces ")
	})
}
