package controller

import (
	"net/http"
	"strings"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
)

const nodeStatuses = "lbd.dev/v1alpha1/nodestatuses"

// TestSweep: the NodeStatus of a Node that is gone is deleted, that of others is not,
// and nothing before the second look.
func TestSweep(t *testing.T) {
	api := newAPI(t)
	api.Serve(nodeStatuses, "NodeStatus")
	node := func(name string) { api.Put("v1/nodes", &corev1.Node{ObjectMeta: metav1.ObjectMeta{Name: name}}) }
	object := func(name string) {
		api.Put(nodeStatuses, map[string]any{"metadata": map[string]any{"name": name, "uid": "uid-" + name}, "node": name})
	}
	node("stays")
	object("stays")
	object("gone")
	accept := make(chan string, 1000)
	api.Gate(func(r *http.Request) int {
		if q := r.URL.Query(); strings.HasSuffix(r.URL.Path, "/nodestatuses") && !q.Has("watch") && !q.Has("resourceVersion") { // those are of a watch
			accept <- r.Header.Get("Accept")
		}
		return 0
	})
	c := build(t, api, "a")
	c.sweepEvery = 200 * time.Millisecond
	p := run(t, c)
	for range 2 {
		if got := <-accept; !strings.Contains(got, "as=PartialObjectMetadataList") {
			t.Errorf("whole objects are read: %s", got)
		}
	}
	eventually(t, "it is deleted", func() bool { return api.Get(nodeStatuses, "", "gone") == nil })
	for range 3 {
		<-accept
	}
	if api.Get(nodeStatuses, "", "stays") == nil {
		t.Error("the other one is deleted too")
	}
	// A Node that is made anew between two looks keeps its object.
	p.stop()
	s := &sweeper{c: c}
	object("brief")
	if err := s.sweep(t.Context()); err != nil || api.Get(nodeStatuses, "", "brief") == nil || !s.missing["uid-brief"] {
		t.Errorf("after one look: %v, %v", err, s.missing)
	}
}
