package health

import (
	"context"
	"errors"
	"io"
	"net/http"
	"net/http/httptest"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"lbd.dev/lbd/api/v1alpha1"
	"lbd.dev/lbd/internal/model"
)

// soon is a timeout of which a part is over before long, and the rest is long.
const soon = time.Second

// apiServer answers like kube-apiserver: it asks etcd once a second at most for /livez, which
// hangs while etcd does, and meanwhile says what the last such request that ended has said.
type apiServer struct {
	mu                  sync.Mutex
	full, required      int // requests
	hangs, fails, badly bool
	back                chan struct{} // closed once etcd answers again
}

func (a *apiServer) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	a.mu.Lock()
	full := r.URL.RawQuery == ""
	if full {
		a.full++
	} else {
		a.required++
	}
	hangs, fails := full && a.hangs, full && a.fails || !full && a.badly
	a.hangs = a.hangs && !full // the next one gets the last result
	a.mu.Unlock()
	if hangs {
		select {
		case <-a.back:
		case <-r.Context().Done():
			return
		}
	}
	if fails {
		w.WriteHeader(http.StatusInternalServerError)
		io.WriteString(w, "[+]ping ok\n[-]etcd failed: reason withheld\nlivez check failed\n")
	}
}

func (a *apiServer) set(f func()) {
	a.mu.Lock()
	defer a.mu.Unlock()
	f()
}

func (a *apiServer) asked() (full, required int) {
	a.mu.Lock()
	defer a.mu.Unlock()
	return a.full, a.required
}

func newAPIServer(t *testing.T) (*apiServer, *httptest.Server, *httpProber) {
	t.Helper()
	a := &apiServer{back: make(chan struct{})}
	server := httptest.NewServer(a)
	t.Cleanup(server.Close)
	p := newHTTPProber(v1alpha1.HTTPCheck{
		Host: "127.0.0.1", Port: port(server.Listener.Addr()), Path: "/livez?exclude=etcd", PreferredPath: "/livez",
	})
	t.Cleanup(p.drop)
	return a, server, p
}

func verdict(t *testing.T, p prober, timeout time.Duration) (level, text string) {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), timeout)
	defer cancel()
	switch err := p.probe(ctx); {
	case err == nil:
		return "up", ""
	case isDegraded(err):
		return "degraded", err.Error()
	default:
		return "down", err.Error()
	}
}

func TestPreferredIsAskedAlone(t *testing.T) {
	a, _, p := newAPIServer(t)
	for range 5 {
		if level, text := verdict(t, p, long); level != "up" {
			t.Fatal(level, text)
		}
	}
	if full, required := a.asked(); full != 5 || required != 0 {
		t.Errorf("%d requests for the preferred page and %d for the other, want 5 and 0", full, required)
	}
}

func TestPreferredFails(t *testing.T) {
	a, server, p := newAPIServer(t)
	a.set(func() { a.fails = true })
	level, text := verdict(t, p, long)
	if want := server.URL + "/livez: status 500 Internal Server Error: [-]etcd failed: reason withheld"; level != "degraded" || text != want {
		t.Errorf("%s %q, want degraded %q", level, text, want)
	}
	a.set(func() { a.badly = true })
	if level, text = verdict(t, p, long); level != "down" || !strings.HasPrefix(text, server.URL+"/livez?exclude=etcd: status 500") {
		t.Errorf("%s %q, want down for the required page", level, text)
	}
	a.set(func() { a.fails, a.badly = false, false })
	if level, text = verdict(t, p, long); level != "up" {
		t.Errorf("%s %q, want up", level, text)
	}
	server.Close()
	full, required := a.asked()
	if level, text = verdict(t, p, long); level != "down" || !strings.HasSuffix(text, "/livez?exclude=etcd: connection refused") {
		t.Errorf("%s %q, want down since it refuses", level, text)
	}
	if x, y := a.asked(); x != full || y != required {
		t.Error("somebody has answered")
	}
}

// A request that hangs counts for as long as it is open, whatever others would be told.
func TestPreferredHangs(t *testing.T) {
	a, server, p := newAPIServer(t)
	a.set(func() { a.hangs = true })
	for range 3 {
		if level, text := verdict(t, p, soon); level != "degraded" || text != server.URL+"/livez: no answer in time" {
			t.Fatalf("%s %q, want degraded for want of an answer", level, text)
		}
	}
	if full, required := a.asked(); full != 1 || required != 3 {
		t.Errorf("%d requests for the preferred page and %d for the other, want 1 and 3", full, required)
	}
	close(a.back)
	if level, text := verdict(t, p, long); level != "up" {
		t.Errorf("%s %q once it has answered, want up", level, text)
	}
}

// An answer that came while nobody looked is out of date.
func TestPreferredAnswersLate(t *testing.T) {
	a, _, p := newAPIServer(t)
	a.set(func() { a.hangs = true })
	if level, text := verdict(t, p, soon); level != "degraded" {
		t.Fatal(level, text)
	}
	close(a.back)
	for len(p.preferred.open.done) == 0 {
		time.Sleep(time.Millisecond)
	}
	a.set(func() { a.fails = true })
	if level, text := verdict(t, p, long); level != "degraded" || !strings.Contains(text, "etcd failed") {
		t.Errorf("%s %q, want degraded by a new answer", level, text)
	}
}

// A server that does not answer at all is down within the timeout, as without a preferred
// page.
func TestPreferredServerHangs(t *testing.T) {
	p := newHTTPProber(v1alpha1.HTTPCheck{Host: "127.0.0.1", Port: listenRaw(t, hold(t)), Path: "/livez?exclude=etcd", PreferredPath: "/livez"})
	defer p.drop()
	for range 2 {
		if level, text := verdict(t, p, short); level != "down" || !strings.HasSuffix(text, "no answer in time (waiting for an answer)") {
			t.Errorf("%s %q, want down for want of an answer", level, text)
		}
	}
}

func TestSamePageIsNotPreferred(t *testing.T) {
	for _, path := range []string{"", "/x"} {
		if p := newHTTPProber(v1alpha1.HTTPCheck{Host: "127.0.0.1", Port: 1, Path: "/x", PreferredPath: path}); p.preferred != nil {
			t.Errorf("preferredPath %q beside path /x is asked for", path)
		}
	}
}

// TestDebounceLevels plays results, u(p), d(egraded), f(ailure), and wants the
// states after each.
func TestDebounceLevels(t *testing.T) {
	result := map[rune]model.Health{'u': model.HealthUp, 'd': model.HealthDegraded, 'f': model.HealthDown}
	letter := map[model.Health]string{model.HealthUnknown: "?", model.HealthUp: "U", model.HealthDegraded: "D", model.HealthDown: "F"}
	for _, tt := range []struct{ name, results, states string }{
		{"up at once", "uu", "UU"},
		{"degraded at the start", "ddd", "?DD"},
		{"one miss", "uduuduu", "UUUUUUU"},
		{"falls in two steps", "uddff", "UUDDF"},
		{"falls at once", "uff", "UUF"},
		{"by turns", "udfdf", "UUDDD"},
		{"rises", "udduu", "UUDUU"},
		{"comes back whole", "ffu", "?FU"},
		{"comes back without the rest", "ffddd", "?FDDD"},
		{"one failure of what is degraded", "uddfd", "UUDDD"},
	} {
		d := debouncer{fall: 2, rise: 1}
		got := ""
		for _, r := range tt.results {
			was := d.state
			if turned := d.observe(result[r]); turned != (d.state != was) {
				t.Errorf("%s: turned=%v from %v to %v", tt.name, turned, was, d.state)
			}
			got += letter[d.state]
		}
		if got != tt.states {
			t.Errorf("%s: %s leads to %s, want %s", tt.name, tt.results, got, tt.states)
		}
	}
}

// A service that begins to miss the preferred check is asked again at once, and its state
// and the counters tell it from one that is down.
func TestDegraded(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		api := &service{}
		b := newBench(t, map[string]*service{"api": api})
		b.SetChecks(map[string]v1alpha1.HealthCheck{"api": fakeCheck("api")})
		sleep(5 * time.Second)
		api.set(degraded{"/livez: no etcd"}, false)
		died := time.Now()
		sleep(3 * time.Second)
		if got := b.state("api"); got.State != model.HealthDegraded || got.Detail != "/livez: no etcd" {
			t.Fatalf("state = %+v, want degraded", got)
		}
		if took := b.lastAt().Sub(died); took > 555*time.Millisecond {
			t.Errorf("degraded after %v", took)
		}
		if s := b.Stats()["api"]; s.Degraded == 0 || s.Failures != 0 {
			t.Errorf("Stats = %+v, want runs that were degraded and no failure", s)
		}
		api.set(errors.New("refused"), false)
		sleep(time.Second)
		if got := b.state("api"); got.State != model.HealthDown {
			t.Fatalf("state = %+v, want down", got)
		}
	})
}
