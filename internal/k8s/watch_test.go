package k8s_test

import (
	"context"
	"fmt"
	"net/http"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/fields"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/client-go/tools/cache"

	"lbd.dev/lbd/internal/k8s"
	"lbd.dev/lbd/internal/k8s/apitest"
	"lbd.dev/lbd/internal/model"
)

const nodes = "v1/nodes"

func node(name string, labels map[string]string) *corev1.Node {
	return &corev1.Node{ObjectMeta: metav1.ObjectMeta{Name: name, Labels: labels}}
}

// news collects what a Watch tells.
type news struct {
	mu    sync.Mutex
	calls [][]model.Key
}

func (n *news) changed(keys []model.Key) {
	n.mu.Lock()
	defer n.mu.Unlock()
	n.calls = append(n.calls, slices.Clone(keys))
}

// take returns the names since the last call, sorted.
func (n *news) take() []string {
	n.mu.Lock()
	defer n.mu.Unlock()
	var out []string
	for _, c := range n.calls {
		for _, k := range c {
			out = append(out, k.Name)
		}
	}
	n.calls = nil
	slices.Sort(out)
	return out
}

func client(t *testing.T, s *apitest.Server) *k8s.Client {
	t.Helper()
	c, err := k8s.NewFor(s.Config(), k8s.Options{UserAgent: "lbd-test", QPS: 1000, Burst: 1000})
	if err != nil {
		t.Fatal(err)
	}
	return c
}

// patience stands for k8s.AbsentAfter.
const patience = 2 * time.Second

// zones watches the label "zone" of Nodes that have one.
func zones(t *testing.T, c *k8s.Client, n *news, optional bool) *k8s.Watch[string] {
	t.Helper()
	return start(t, zonesOptions(c, n, optional))
}

func zonesOptions(c *k8s.Client, n *news, optional bool) k8s.WatchOptions[string] {
	o := k8s.WatchOptions[string]{
		Name:      "nodes",
		ListWatch: cache.NewListWatchFromClient(c.Core, "nodes", "", fields.Everything()),
		Object:    &corev1.Node{},
		Convert: func(obj runtime.Object) (string, bool) {
			z := obj.(*corev1.Node).Labels["zone"]
			return z, z != ""
		},
		Same:    func(a, b string) bool { return a == b },
		Changed: n.changed,
	}
	if optional {
		o.Lacks = func(ctx context.Context) (bool, error) { return c.Lacks(ctx, "", []string{"v1"}, "nodes") }
	}
	return o
}

// start runs a Watch until the end of the test.
func start(t *testing.T, o k8s.WatchOptions[string]) *k8s.Watch[string] {
	t.Helper()
	w := k8s.NewWatch(o)
	w.SetPatience(patience)
	ctx, cancel := context.WithCancel(t.Context())
	done := make(chan struct{})
	go func() { defer close(done); w.Run(ctx) }()
	t.Cleanup(func() { cancel(); <-done })
	return w
}

func eventually(t *testing.T, what string, ok func() bool) {
	t.Helper()
	for end := time.Now().Add(30 * time.Second); time.Now().Before(end); time.Sleep(2 * time.Millisecond) {
		if ok() {
			return
		}
	}
	t.Fatalf("after 30 s still not: %s", what)
}

func state(w *k8s.Watch[string]) string {
	all := w.All()
	var out []string
	for k, v := range all {
		out = append(out, k.Name+"="+v)
	}
	slices.Sort(out)
	return strings.Join(out, " ")
}

func TestWatchFollows(t *testing.T) {
	api := apitest.New(t, map[string]string{nodes: "Node"})
	api.Put(nodes, node("a", map[string]string{"zone": "x"}))
	api.Put(nodes, node("b", nil))
	var n news
	w := zones(t, client(t, api), &n, false)
	eventually(t, "synced", w.Synced)
	if got := state(w); got != "a=x" {
		t.Errorf("the list gave %q", got)
	}
	if got := n.take(); !slices.Equal(got, []string{"a"}) {
		t.Errorf("the list told of %v", got)
	}
	api.Put(nodes, node("b", map[string]string{"zone": "y"}))
	eventually(t, "b has a zone", func() bool { return state(w) == "a=x b=y" })
	api.Put(nodes, node("a", map[string]string{"zone": "x", "other": "1"})) // nothing that counts
	api.Put(nodes, node("b", nil))
	eventually(t, "b has none", func() bool { return state(w) == "a=x" })
	api.Delete(nodes, "", "a")
	eventually(t, "a is gone", func() bool { return state(w) == "" })
	var got []string
	eventually(t, "three are told", func() bool { // each a moment after it is there
		got = append(got, n.take()...)
		return len(got) >= 3
	})
	if slices.Sort(got); !slices.Equal(got, []string{"a", "b", "b"}) {
		t.Errorf("the watch told of %v", got)
	}
	if st := w.State(); !st.Connected || st.Absent || st.Err != nil {
		t.Errorf("state %+v", st)
	}
}

// TestWatchKeepsItsState: what was known stays through an outage, what has changed
// meanwhile is told once, and what has not is not.
func TestWatchKeepsItsState(t *testing.T) {
	for _, outage := range []struct {
		name       string
		begin, end func(*apitest.Server)
	}{
		{"no listener", (*apitest.Server).Stop, (*apitest.Server).Start},
		{"errors", func(s *apitest.Server) { s.Fail(http.StatusServiceUnavailable) }, func(s *apitest.Server) { s.Fail(0) }},
		{"forbidden", func(s *apitest.Server) { s.Fail(http.StatusForbidden) }, func(s *apitest.Server) { s.Fail(0) }},
		{"not found", func(s *apitest.Server) { s.Fail(http.StatusNotFound) }, func(s *apitest.Server) { s.Fail(0) }},
	} {
		t.Run(outage.name, func(t *testing.T) {
			t.Parallel()
			api := apitest.New(t, map[string]string{nodes: "Node"})
			for _, name := range []string{"a", "b", "c"} {
				api.Put(nodes, node(name, map[string]string{"zone": "x"}))
			}
			var n news
			w := zones(t, client(t, api), &n, false)
			eventually(t, "synced", w.Synced)
			n.take()
			outage.begin(api)
			eventually(t, "disconnected", func() bool { return !w.State().Connected })
			api.Put(nodes, node("a", map[string]string{"zone": "y"}))
			api.Delete(nodes, "", "b")
			time.Sleep(700 * time.Millisecond)
			if got := state(w); got != "a=x b=x c=x" || !w.Synced() || w.State().Err == nil {
				t.Errorf("in the outage %q, %+v", got, w.State())
			}
			if got := n.take(); len(got) > 0 {
				t.Errorf("the outage told of %v", got)
			}
			outage.end(api)
			eventually(t, "caught up", func() bool { return state(w) == "a=y c=x" })
			eventually(t, "connected", func() bool { return w.State().Connected })
			var got []string
			eventually(t, "two are told", func() bool {
				got = append(got, n.take()...)
				return len(got) >= 2
			})
			if slices.Sort(got); !slices.Equal(got, []string{"a", "b"}) {
				t.Errorf("the end of the outage told of %v", got)
			}
		})
	}
}

// TestSyncedWhenTold: a watch counts as read once all that was read has been told, and
// says so: who asks in between would take a part for the whole.
func TestSyncedWhenTold(t *testing.T) {
	api := apitest.New(t, map[string]string{nodes: "Node"})
	for _, name := range []string{"a", "b", "c"} {
		api.Put(nodes, node(name, map[string]string{"zone": "x"}))
	}
	c := client(t, api)
	told := make(chan string, 10)
	var w *k8s.Watch[string]
	w = k8s.NewWatch(k8s.WatchOptions[string]{
		Name: "nodes", ListWatch: cache.NewListWatchFromClient(c.Core, "nodes", "", fields.Everything()), Object: &corev1.Node{},
		Convert: func(runtime.Object) (string, bool) { return "", true },
		Changed: func(keys []model.Key) { told <- fmt.Sprint(len(keys), " ", w.Synced()) },
	})
	go w.Run(t.Context())
	if first, then := <-told, <-told; first != "3 false" || then != "0 true" {
		t.Errorf("told %q, then %q", first, then)
	}
}

// TestWatchRetriesSoon: however long an outage was, its end is noticed in seconds,
// and an outage does not cost many requests.
func TestWatchRetriesSoon(t *testing.T) {
	t.Parallel()
	api := apitest.New(t, map[string]string{nodes: "Node"})
	api.Fail(http.StatusInternalServerError)
	var n news
	w := zones(t, client(t, api), &n, false)
	begin := time.Now()
	time.Sleep(4 * time.Second)
	eventually(t, "two requests", func() bool { return len(api.Requests()) >= 2 })
	if got, took := len(api.Requests()), time.Since(begin); got > 30+int(took/time.Second) {
		t.Errorf("%d requests in %v of errors", got, took)
	}
	api.Fail(0)
	end := time.Now()
	eventually(t, "synced", w.Synced)
	if took := time.Since(end); took > 2*k8s.RetryMost {
		t.Errorf("noticed after %v", took)
	}
}

// TestWatchOfAbsentKind: a kind that need not exist counts as read, and is found
// when it comes.
func TestWatchOfAbsentKind(t *testing.T) {
	t.Parallel()
	api := apitest.New(t, map[string]string{})
	var n news
	w := zones(t, client(t, api), &n, true)
	eventually(t, "synced without the kind", w.Synced)
	if st := w.State(); !st.Connected || !st.Absent {
		t.Errorf("state %+v", st)
	}
	api.Serve(nodes, "Node")
	api.Put(nodes, node("a", map[string]string{"zone": "x"}))
	eventually(t, "found", func() bool { return state(w) == "a=x" && !w.State().Absent })
}

// TestNotFoundForgetsNothing: an answer that is not the API server's word about its
// kinds costs nothing of what was known, however long it lasts and whatever comes back. One
// attempt of client-go is a request for a stream, and then one for a list.
func TestNotFoundForgetsNothing(t *testing.T) {
	for _, c := range []struct {
		name  string
		lasts time.Duration
		wrong func(*http.Request) bool
	}{
		{"one attempt", 0, func(r *http.Request) bool { return strings.HasSuffix(r.URL.Path, "/nodes") }},
		{"a path", 3 * patience, func(r *http.Request) bool { return strings.HasSuffix(r.URL.Path, "/nodes") }},
		{"a proxy without a backend", 3 * patience, func(*http.Request) bool { return true }},
	} {
		t.Run(c.name, func(t *testing.T) {
			t.Parallel()
			api := apitest.New(t, map[string]string{nodes: "Node"})
			api.Put(nodes, node("a", map[string]string{"zone": "x"}))
			var n news
			w := zones(t, client(t, api), &n, true)
			eventually(t, "connected", func() bool { return w.Synced() && w.State().Connected })
			n.take()
			answered := make(chan bool, 1000)
			var end atomic.Int64
			end.Store(time.Now().Add(c.lasts).UnixNano())
			api.Gate(func(r *http.Request) int {
				if !c.wrong(r) || time.Now().UnixNano() > end.Load() && len(answered) > 1 {
					return 0
				}
				answered <- true
				return http.StatusNotFound
			})
			api.Fail(http.StatusNotFound) // ends the watch
			api.Fail(0)
			eventually(t, "wrong answers", func() bool { return len(answered) > 1 })
			eventually(t, "watched again", func() bool {
				if got := state(w); got != "a=x" {
					t.Fatalf("known is %q after an answer that was not found: %+v", got, w.State())
				}
				return time.Now().UnixNano() > end.Load() && w.State().Connected && !w.State().Absent
			})
			if got := n.take(); len(got) > 0 {
				t.Errorf("told of %v", got)
			}
		})
	}
}

// TestKindRemovedForGood: what was known of a kind goes when the API server has said
// for a while that it does without, and comes back with it.
func TestKindRemovedForGood(t *testing.T) {
	t.Parallel()
	api := apitest.New(t, map[string]string{nodes: "Node"})
	api.Put(nodes, node("a", map[string]string{"zone": "x"}))
	var n news
	w := zones(t, client(t, api), &n, true)
	eventually(t, "connected", func() bool { return w.Synced() && w.State().Connected })
	n.take()
	api.Withdraw(nodes)
	removed := time.Now()
	eventually(t, "let go", func() bool { return state(w) == "" })
	if took := time.Since(removed); took < patience {
		t.Errorf("let go after %v", took)
	}
	eventually(t, "told", func() bool { return slices.Equal(n.take(), []string{"a"}) })
	if st := w.State(); !st.Absent || !st.Connected || !w.Synced() {
		t.Errorf("state %+v", st)
	}
	api.Serve(nodes, "Node")
	api.Put(nodes, node("b", map[string]string{"zone": "y"}))
	eventually(t, "back", func() bool { return state(w) == "b=y" && !w.State().Absent })
}

// TestWatchesReturnTogether: with many watches the end of an outage is noticed soon
// by all of them, however long each waits by itself.
func TestWatchesReturnTogether(t *testing.T) {
	api := apitest.New(t, map[string]string{nodes: "Node"})
	c := client(t, api)
	var n news
	var all []*k8s.Watch[string]
	for range 10 {
		all = append(all, zones(t, c, &n, false))
	}
	every := func(ok func(k8s.WatchState) bool) func() bool {
		return func() bool {
			return !slices.ContainsFunc(all, func(w *k8s.Watch[string]) bool { return !ok(w.State()) })
		}
	}
	eventually(t, "all are connected", every(func(s k8s.WatchState) bool { return s.Connected }))
	for round := 1; ; round++ { // on a busy machine one may be slow
		api.Stop()
		eventually(t, "none is", every(func(s k8s.WatchState) bool { return !s.Connected }))
		time.Sleep(6 * time.Second) // each waits for 5 to 10 s now
		api.Start()
		began := time.Now()
		eventually(t, "all are again", every(func(s k8s.WatchState) bool { return s.Connected }))
		took := time.Since(began)
		if took <= k8s.RetryMost {
			break
		}
		if round == 3 {
			t.Fatalf("all were back after %v", took)
		}
	}
}

func TestRequestsAreCounted(t *testing.T) {
	api := apitest.New(t, map[string]string{nodes: "Node"})
	var n news
	c := client(t, api)
	w := zones(t, c, &n, false)
	eventually(t, "synced", w.Synced)
	eventually(t, "the watch was counted", func() bool { return c.Requests()[k8s.Request{Method: "WATCH", Code: "200"}] > 0 })
	api.Stop()
	eventually(t, "an error was counted", func() bool { return c.Requests()[k8s.Request{Method: "WATCH", Code: "error"}] > 0 })
}

// TestRequestsAreBounded: all clients of one Client share one bucket.
func TestRequestsAreBounded(t *testing.T) {
	api := apitest.New(t, map[string]string{nodes: "Node"})
	c, err := k8s.NewFor(api.Config(), k8s.Options{QPS: 20, Burst: 2})
	if err != nil {
		t.Fatal(err)
	}
	began := time.Now()
	for i := range 12 {
		var err error
		if i%2 == 0 {
			err = c.Core.Get().AbsPath("/api/v1/nodes").Do(t.Context()).Error()
		} else {
			_, err = c.Dynamic.Resource(corev1.SchemeGroupVersion.WithResource("nodes")).List(t.Context(), metav1.ListOptions{})
		}
		if err != nil {
			t.Fatal(err)
		}
	}
	if took := time.Since(began); took < 400*time.Millisecond {
		t.Errorf("12 requests of which 2 at once and 20 a second took %v", took)
	}
	if got := fmt.Sprint(c.Requests()); got != "map[{GET 200}:12]" {
		t.Errorf("counted %s", got)
	}
}
