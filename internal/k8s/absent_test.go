package k8s_test

import (
	"net/http"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"lbd.dev/lbd/internal/k8s"
	"lbd.dev/lbd/internal/k8s/apitest"
	"lbd.dev/lbd/internal/membership"
)

// answering has the API server answer each request for Nodes with what code is, 0 being the truth,
// and counts the answers that are not.
func answering(api *apitest.Server, code, count *atomic.Int64) {
	api.Gate(func(r *http.Request) int {
		c := code.Load()
		if c == 0 || !strings.HasSuffix(r.URL.Path, "/nodes") {
			return 0
		}
		count.Add(1)
		return int(c)
	})
}

// forbiddenZones watches Nodes that need not be readable.
func forbiddenZones(t *testing.T, api *apitest.Server, n *news) *k8s.Watch[string] {
	o := zonesOptions(client(t, api), n, true)
	o.Optional = true
	return start(t, o)
}

// TestForbiddenAtFirst: an API server that refuses for a moment, since it has just started, has
// nobody take its objects for none.
func TestForbiddenAtFirst(t *testing.T) {
	t.Parallel()
	api := apitest.New(t, map[string]string{nodes: "Node"})
	api.Put(nodes, node("a", map[string]string{"zone": "x"}))
	var code, refused atomic.Int64
	code.Store(http.StatusForbidden)
	answering(api, &code, &refused)
	var n news
	w := forbiddenZones(t, api, &n)
	eventually(t, "refused several times", func() bool {
		if w.Synced() {
			t.Fatalf("read as %q after %d refusals", state(w), refused.Load())
		}
		return refused.Load() >= 4 // an attempt is one for a stream, and one for a list
	})
	code.Store(0)
	eventually(t, "read", func() bool {
		synced := w.Synced() // before what it stands for
		if got := state(w); synced && got != "a=x" {
			t.Fatalf("read as %q", got)
		}
		return synced
	})
}

// TestAbsentAfterOutage: a cluster without one of our kinds is connected again with the first
// answer after an outage, although that answer says that the kind is lacking.
func TestAbsentAfterOutage(t *testing.T) {
	t.Parallel()
	api := apitest.New(t, map[string]string{})
	var n news
	w := zones(t, client(t, api), &n, true)
	eventually(t, "synced without the kind", w.Synced)
	api.Stop()
	eventually(t, "the outage is noticed", func() bool { return !w.State().Connected })
	if w.Known() {
		t.Error("that there is nothing is known in the outage")
	}
	before := askedOfCore(api)
	api.Start()
	eventually(t, "connected again", func() bool { return w.State().Connected })
	if answers := askedOfCore(api) - before; answers > 1 {
		t.Errorf("connected after %d answers that the kind is lacking", answers)
	}
	if !w.State().Absent || w.Known() {
		t.Errorf("state %+v, known %t", w.State(), w.Known())
	}
	api.Serve(nodes, "Node")
	eventually(t, "known once the kind is there", w.Known)
}

// askedOfCore counts the requests for the list of kinds of the group that Nodes are in.
func askedOfCore(api *apitest.Server) int {
	return strings.Count(strings.Join(api.Requests(), "\n")+"\n", "GET /api/v1\n")
}

// TestForbiddenForGood: a kind that may not be read counts as empty in time for the rest to start,
// and is found when it may.
func TestForbiddenForGood(t *testing.T) {
	t.Parallel()
	api := apitest.New(t, map[string]string{nodes: "Node"})
	api.Put(nodes, node("a", map[string]string{"zone": "x"}))
	var code, refused atomic.Int64
	code.Store(http.StatusForbidden)
	answering(api, &code, &refused)
	var n news
	began := time.Now()
	w := forbiddenZones(t, api, &n)
	eventually(t, "taken for empty", w.Synced)
	took := time.Since(began)
	t.Logf("taken for empty after %v and %d refusals", took, refused.Load())
	if took < k8s.ForbiddenAfter || refused.Load() < 6 {
		t.Errorf("taken for empty after %v and %d refusals", took, refused.Load())
	}
	if took > membership.ClusterPatience {
		t.Errorf("taken for empty after %v: the node has not waited for it", took)
	}
	if st := w.State(); !st.Connected || !st.Absent || st.Err == nil {
		t.Errorf("state %+v", st)
	}
	code.Store(0)
	eventually(t, "found", func() bool { return state(w) == "a=x" && !w.State().Absent })
}

// TestLackingIsOneStretch: a kind that was not found, then for long could not be read, and is then
// not found again, has not been lacking for that long.
func TestLackingIsOneStretch(t *testing.T) {
	t.Parallel()
	api := apitest.New(t, map[string]string{nodes: "Node"})
	api.Put(nodes, node("a", map[string]string{"zone": "x"}))
	var code, refused atomic.Int64
	answering(api, &code, &refused)
	var n news
	w := forbiddenZones(t, api, &n)
	eventually(t, "read", func() bool { return w.Synced() && w.State().Connected })
	n.take()
	lacks := func() int { return askedOfCore(api) }
	api.Withdraw(nodes)
	eventually(t, "the API server says that it has no such kind", func() bool { return lacks() > 0 })
	code.Store(http.StatusForbidden)
	began := time.Now()
	eventually(t, "refused for longer than the patience", func() bool { return time.Since(began) > 2*patience && refused.Load() >= 2 })
	code.Store(0)
	before := lacks()
	eventually(t, "it says so again", func() bool { return lacks() > before })
	time.Sleep(patience / 4)
	if got := state(w); got != "a=x" || len(n.take()) > 0 {
		t.Errorf("known is %q after one answer", got)
	}
	eventually(t, "let go when that has lasted", func() bool { return state(w) == "" })
}

// TestLackingThenForbidden: a kind that was lacking and then may not be read is there by now, with objects
// that nobody knows: it counts as empty by a guess, until it may be read.
func TestLackingThenForbidden(t *testing.T) {
	t.Parallel()
	api := apitest.New(t, map[string]string{})
	var n news
	w := forbiddenZones(t, api, &n)
	eventually(t, "synced without the kind", w.Synced)
	if st := w.State(); !st.Absent || st.Guessed {
		t.Fatalf("state %+v", st)
	}
	var code, refused atomic.Int64
	code.Store(http.StatusForbidden)
	answering(api, &code, &refused)
	api.Serve(nodes, "Node")
	api.Put(nodes, node("a", map[string]string{"zone": "x"}))
	began := time.Now()
	eventually(t, "it is a guess", func() bool { return w.State().Guessed })
	if took := time.Since(began); took < k8s.ForbiddenAfter {
		t.Errorf("a guess after %v: the API server may have just started", took)
	}
	if st := w.State(); !st.Absent || !st.Connected || !w.Synced() {
		t.Errorf("state %+v", st)
	}
	code.Store(0)
	eventually(t, "read", func() bool { st := w.State(); return state(w) == "a=x" && !st.Guessed && !st.Absent })
}
