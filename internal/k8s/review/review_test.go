package review

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"net/http"
	"net/http/httptest"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"k8s.io/client-go/rest"

	"lbd.dev/lbd/internal/k8s"
)

// api server of two tokens: good may get /metrics, other is somebody who may not.
func apiServer(t *testing.T, path string, failing *atomic.Bool) *Reviewer {
	t.Helper()
	server := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if failing.Load() {
			http.Error(w, "etcd is away", http.StatusInternalServerError)
			return
		}
		var in map[string]any
		if err := json.NewDecoder(r.Body).Decode(&in); err != nil || r.Method != http.MethodPost {
			t.Errorf("%s %s: %v", r.Method, r.URL, err)
		}
		spec := in["spec"].(map[string]any)
		w.Header().Set("Content-Type", "application/json")
		w.WriteHeader(http.StatusCreated)
		switch r.URL.Path {
		case "/apis/authentication.k8s.io/v1/tokenreviews":
			in["status"] = map[string]any{"error": "expired"}
			if token := spec["token"]; token == "good" || token == "other" {
				in["status"] = map[string]any{"authenticated": true, "user": map[string]any{
					"username": token, "uid": "7", "groups": []string{"g"}, "extra": map[string]any{"pod": []string{"p"}},
				}}
			}
		case "/apis/authorization.k8s.io/v1/subjectaccessreviews":
			const want = `map[extra:map[pod:[p]] groups:[g] nonResourceAttributes:map[path:/metrics verb:get] uid:7 user:good]`
			in["status"] = map[string]any{"allowed": fmt.Sprint(spec) == want, "reason": "no rule"}
		default:
			t.Errorf("%s", r.URL)
		}
		_ = json.NewEncoder(w).Encode(in)
	}))
	t.Cleanup(server.Close)
	return New(func() (*k8s.Client, error) {
		return k8s.NewFor(&rest.Config{Host: server.URL}, k8s.Options{QPS: QPS, Burst: Burst})
	}, path)
}

// TestReviews: both reviews are as the API server wants them, and decide.
func TestReviews(t *testing.T) {
	var failing atomic.Bool
	r := apiServer(t, "/metrics", &failing)
	for token, want := range map[string]int{"good": 200, "other": 403, "old": 401} {
		if code, err := r.Allow(t.Context(), token); code != want || (err == nil) != (want == 200) {
			t.Errorf("%s: %d %v, want %d", token, code, err, want)
		}
	}
	if code, _ := apiServer(t, "/other", &failing).Allow(t.Context(), "good"); code != 403 {
		t.Errorf("another path: %d", code)
	}
	failing.Store(true)
	if code, err := r.Allow(t.Context(), "new"); code != 503 || err == nil {
		t.Errorf("without API server: %d %v", code, err)
	}
}

// TestNotConnected: who has no client asks for one again.
func TestNotConnected(t *testing.T) {
	n := 0
	r := New(func() (*k8s.Client, error) { n++; return nil, errors.New("no kubeconfig") }, "/metrics")
	for range 2 {
		if code, err := r.Allow(t.Context(), "a"); code != 503 || err == nil || err.Error() != "no kubeconfig" {
			t.Errorf("%d %v", code, err)
		}
	}
	if n != 2 {
		t.Errorf("connected %d times", n)
	}
}

// asked is an API server that says the same to everybody.
type asked struct{ code, n int }

func (a *asked) ask(context.Context, string) (int, error) {
	a.n++
	if a.code == 200 {
		return 200, nil
	}
	return a.code, errors.New("no")
}

// TestRemembers: a yes holds for a minute, and for an hour while nobody can say more.
// A no holds for no time, and ends a yes.
func TestRemembers(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		a := &asked{code: 200}
		r := newReviewer(a.ask)
		step := func(after time.Duration, code, want, n int) {
			t.Helper()
			time.Sleep(after)
			a.code = code
			if got, _ := r.Allow(t.Context(), "a"); got != want || a.n != n {
				t.Errorf("%d after %d questions, want %d after %d", got, a.n, want, n)
			}
		}
		step(0, 200, 200, 1)
		step(fresh-1, 403, 200, 1)
		step(1, 503, 200, 2)
		step(stale-fresh-1, 503, 200, 3)
		step(1, 503, 503, 4)
		step(0, 503, 503, 5) // forgotten
		step(0, 200, 200, 6)
		step(fresh, 401, 401, 7)
		step(0, 503, 503, 8)
	})
}

// TestStrangers: many tokens make few questions and little memory, and whoever was
// allowed before goes on being.
func TestStrangers(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		a := &asked{code: 200}
		r := newReviewer(a.ask)
		for i := range 10 * most {
			time.Sleep(time.Second / perSecond)
			if code, _ := r.Allow(t.Context(), fmt.Sprint(i)); code != 200 {
				t.Fatal(i, code)
			}
		}
		if len(r.allowed) != most {
			t.Errorf("%d tokens are remembered", len(r.allowed))
		}
		last := fmt.Sprint(10*most - 1)
		time.Sleep(fresh)
		a.code, a.n = 401, 0
		for i := range 1000 {
			_, _ = r.Allow(t.Context(), fmt.Sprint("x", i))
		}
		if a.n > burst {
			t.Errorf("1000 strangers made %d questions", a.n)
		}
		a.code = 200
		if code, _ := r.Allow(t.Context(), last); code != 200 {
			t.Errorf("they keep out whom the API server lets in: %d", code)
		}
		a.code = 401
		time.Sleep(fresh)
		for i := range 1000 {
			_, _ = r.Allow(t.Context(), fmt.Sprint("y", i))
		}
		if code, _ := r.Allow(t.Context(), last); code != 401 {
			t.Errorf("they keep the API server from shutting out whom it had let in: %d", code)
		}
	})
}
