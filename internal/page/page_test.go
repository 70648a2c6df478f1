package page

import (
	"bufio"
	"context"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"net"
	"net/http"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"lbd.dev/lbd/api/v1alpha1"
	"lbd.dev/lbd/internal/control"
)

// fake is a daemon of values. What it does not have nobody may ask for.
type fake struct {
	control.Backend
	mu       sync.Mutex
	snapshot Snapshot
	list     []v1alpha1.Explanation
	err      error
	asked    map[string]int
	wait     chan struct{} // Status waits for it
}

func (f *fake) Healthy() error { return nil }
func (f *fake) Ready() error   { return nil }

func (f *fake) count(what string) {
	f.mu.Lock()
	defer f.mu.Unlock()
	f.asked[what]++
}

func (f *fake) Status(ctx context.Context) (v1alpha1.NodeStatus, error) {
	f.count("status")
	if f.wait != nil {
		select {
		case <-f.wait:
		case <-ctx.Done():
			return v1alpha1.NodeStatus{}, ctx.Err()
		}
	}
	f.mu.Lock()
	defer f.mu.Unlock()
	return f.snapshot.Status, f.err
}

func (f *fake) Explain(_ context.Context, vip, _ string) (out []v1alpha1.Explanation, err error) {
	f.count("explain " + vip)
	for _, e := range f.list {
		if e.Name == vip || e.Address == vip {
			out = append(out, e)
		}
	}
	if out == nil {
		err = fmt.Errorf("VIP %q: %w", vip, control.ErrNotFound)
	}
	return out, err
}

func (f *fake) Events(context.Context, string, time.Duration, uint64) (v1alpha1.NodeEvents, error) {
	f.mu.Lock()
	defer f.mu.Unlock()
	return f.snapshot.Events, nil
}

// happens adds an event.
func (f *fake) happens(e v1alpha1.Event) {
	f.mu.Lock()
	defer f.mu.Unlock()
	ev := &f.snapshot.Events
	ev.Newest++
	e.Seq = ev.Newest
	ev.Events = append(append([]v1alpha1.Event(nil), ev.Events...), e)
}

func newFake(t *testing.T) *fake {
	s, list := sample(t)
	return &fake{snapshot: *s, list: list, asked: map[string]int{}}
}

// serve serves a page as the daemon does, until stop is called or the test ends.
func serve(t *testing.T, f *fake) (url string, stop func()) {
	t.Helper()
	log := slog.New(slog.NewTextHandler(t.Output(), nil))
	server := control.New(control.Options{Logger: log, HTTPAddress: "127.0.0.1:0", Backend: f, Page: New(log, f)})
	return run(t, server)
}

func run(t *testing.T, server *control.Server) (url string, stop func()) {
	t.Helper()
	ctx, cancel := context.WithCancel(context.Background())
	var running sync.WaitGroup
	running.Go(func() { server.RunHTTP(ctx) })
	stop = sync.OnceFunc(func() {
		cancel()
		running.Wait()
	})
	t.Cleanup(stop)
	for range 3000 {
		if at := server.HTTPAddr(); at != nil {
			return "http://" + at.String(), stop
		}
		time.Sleep(10 * time.Millisecond)
	}
	t.Fatal("the server does not listen")
	return "", nil
}

// get asks with a method and a Host, "" for the usual ones.
func get(t *testing.T, method, url, host string) (*http.Response, string) {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), 30*time.Second)
	defer cancel()
	r, err := http.NewRequestWithContext(ctx, method, url, nil)
	if err != nil {
		t.Fatal(err)
	}
	r.Host = host
	answer, err := http.DefaultTransport.RoundTrip(r) // follows nothing
	if err != nil {
		t.Fatal(err)
	}
	defer answer.Body.Close()
	body, err := io.ReadAll(answer.Body)
	if err != nil {
		t.Fatal(err)
	}
	return answer, string(body)
}

func TestPaths(t *testing.T) {
	f := newFake(t)
	f.snapshot.Status.VIPs = append(f.snapshot.Status.VIPs, v1alpha1.VIPStatus{Address: "10.0.0.251", Mode: "l2"}) // no name, which is asked for
	f.happens(v1alpha1.Event{Kind: v1alpha1.EventVIP, VIP: "gone", Address: "10.0.0.250", Mode: "l2", From: "configured"})
	url, _ := serve(t, f)
	for path, want := range map[string]struct {
		code       int
		kind, text string
	}{
		"/":                      {200, "text/html; charset=utf-8", "<h1>m1</h1>"},
		"/?all":                  {200, "text/html; charset=utf-8", "<h1>m1</h1>"},
		"/vip/10.0.0.200":        {200, "text/html; charset=utf-8", "<h1>10.0.0.200</h1>"},
		"/vip/registry":          {200, "text/html; charset=utf-8", "<h1>10.0.0.210</h1>"},
		"/vip/::ffff:10.0.0.210": {200, "text/html; charset=utf-8", "<h1>10.0.0.210</h1>"},
		"/vip/gone":              {200, "text/html; charset=utf-8", "no VIP of the configuration any more"},
		"/vip/10.9.9.9":          {404, "text/plain; charset=utf-8", "no such VIP"},
		"/vip/:443":              {404, "text/plain; charset=utf-8", "no such VIP"},
		"/vip/":                  {404, "text/plain; charset=utf-8", "no such VIP"},
		"/page.css":              {200, "text/css; charset=utf-8", "prefers-color-scheme"},
		"/page.js":               {200, "text/javascript; charset=utf-8", "EventSource"},
		"/icon.svg":              {200, "image/svg+xml", "<svg"},
		"/assets/page.html":      {404, "text/plain; charset=utf-8", "404"},
		"/nothing":               {404, "text/plain; charset=utf-8", "404"},
		"/healthz":               {200, "text/plain; charset=utf-8", "ok"},
	} {
		answer, body := get(t, http.MethodGet, url+path, "")
		if kind := answer.Header.Get("Content-Type"); answer.StatusCode != want.code || kind != want.kind || !strings.Contains(body, want.text) {
			t.Errorf("%s: %d %s %.80q, want %+v", path, answer.StatusCode, kind, body, want)
		}
		if path == "/healthz" {
			continue
		}
		for name, value := range map[string]string{
			"Content-Security-Policy": "default-src 'none'; style-src 'self'; script-src 'self'; img-src 'self'; connect-src 'self'; base-uri 'none'; form-action 'none'; frame-ancestors 'none'",
			"X-Content-Type-Options":  "nosniff", "X-Frame-Options": "DENY", "Referrer-Policy": "no-referrer", "Cross-Origin-Resource-Policy": "same-origin",
		} {
			if got := answer.Header.Get(name); got != value {
				t.Errorf("%s: %s is %q", path, name, got)
			}
		}
		if got := answer.Header.Get("Access-Control-Allow-Origin"); got != "" {
			t.Errorf("%s: other sites may read it: %q", path, got)
		}
	}
	for _, method := range []string{http.MethodPost, http.MethodPut, http.MethodDelete, http.MethodOptions} {
		if answer, _ := get(t, method, url+"/", ""); answer.StatusCode != http.StatusMethodNotAllowed {
			t.Errorf("%s: %d", method, answer.StatusCode)
		}
	}
	if answer, body := get(t, http.MethodHead, url+"/", ""); answer.StatusCode != 200 || body != "" {
		t.Errorf("HEAD: %d %q", answer.StatusCode, body)
	}
	for question := range f.asked {
		if question == "explain " || strings.Contains(question, "10.9.9.9") || strings.Contains(question, ":443") {
			t.Errorf("the daemon was asked to %q", question)
		}
	}
}

// TestNoPage: without a page nothing of it is there, and the rest is.
func TestNoPage(t *testing.T) {
	url, _ := run(t, control.New(control.Options{Logger: slog.New(slog.DiscardHandler), HTTPAddress: "127.0.0.1:0", Backend: newFake(t)}))
	for path, code := range map[string]int{"/": 404, "/vip/10.0.0.200": 404, "/updates": 404, "/page.js": 404, "/healthz": 200} {
		if answer, _ := get(t, http.MethodGet, url+path, ""); answer.StatusCode != code {
			t.Errorf("%s: %d, want %d", path, answer.StatusCode, code)
		}
	}
}

// TestOtherNames: a name of somebody else's that leads to this host reads nothing.
func TestOtherNames(t *testing.T) {
	url, _ := serve(t, newFake(t))
	port := url[strings.LastIndex(url, ":"):]
	for host, code := range map[string]int{
		"localhost" + port: 200, "LOCALHOST": 200, "127.0.0.1" + port: 200, "127.0.0.1": 200, "[::1]" + port: 200, "[::1]": 200, "10.0.0.11:80": 200,
		"evil.example" + port: 403, "evil.example": 403, "localhost.evil.example": 403, "127.0.0.1.evil.example" + port: 403, "m1": 403,
	} {
		for _, path := range []string{"/", "/updates", "/vip/10.0.0.200"} {
			method := http.MethodGet
			if path == "/updates" {
				method = http.MethodHead // else it would go on
			}
			if answer, body := get(t, method, url+path, host); answer.StatusCode != code || code == 403 && strings.Contains(body, "10.0.0.200") {
				t.Errorf("%s as %s: %d, want %d", path, host, answer.StatusCode, code)
			}
		}
	}
	local := context.WithValue(t.Context(), http.LocalAddrContextKey, net.Addr(&net.TCPAddr{IP: net.IPv4(10, 0, 0, 11), Port: 7477}))
	r, err := http.NewRequestWithContext(local, http.MethodGet, "http://m1.example:7477/", nil)
	if err != nil || !mayAsk(r) {
		t.Errorf("a node that other hosts ask has a name: %v", err)
	}
}

// stream reads updates: each is the ID and the words.
type stream struct {
	answer *http.Response
	lines  chan string // closed at the end
}

func open(t *testing.T, url string) *stream {
	t.Helper()
	r, err := http.NewRequestWithContext(t.Context(), http.MethodGet, url+"/updates", nil)
	if err != nil {
		t.Fatal(err)
	}
	answer, err := http.DefaultTransport.RoundTrip(r)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { answer.Body.Close() })
	s := &stream{answer, make(chan string, 100)}
	go func() {
		defer close(s.lines)
		for scan := bufio.NewScanner(answer.Body); scan.Scan(); {
			s.lines <- scan.Text()
		}
	}()
	return s
}

// next waits for a line with a prefix and returns the rest; false if there is none.
func (s *stream) next(t *testing.T, prefix string) (string, bool) {
	t.Helper()
	limit := time.After(30 * time.Second)
	for {
		select {
		case line, ok := <-s.lines:
			if rest, is := strings.CutPrefix(line, prefix); is || !ok {
				return rest, ok
			}
		case <-limit:
			t.Fatalf("no line with %q", prefix)
		}
	}
}

// TestUpdates: whoever has the page open hears of a change soon, finds it on the page that is
// loaded then, and hears nothing while there is none.
func TestUpdates(t *testing.T) {
	f := newFake(t)
	url, _ := serve(t, f)
	s := open(t, url)
	if kind := s.answer.Header.Get("Content-Type"); kind != "text/event-stream" || s.answer.Header.Get("Cache-Control") != "no-store" {
		t.Errorf("%q, %q", kind, s.answer.Header.Get("Cache-Control"))
	}
	first, _ := s.next(t, "id: ")
	if _, body := get(t, http.MethodGet, url+"/", ""); !strings.Contains(body, `data-id="`+first+`"`) {
		t.Errorf("the page is not the one that %q was told of", first)
	}
	began := time.Now()
	f.happens(v1alpha1.Event{Time: began, Kind: v1alpha1.EventOwner, VIP: "control-plane", Address: "10.0.0.200", Mode: "l2", From: "m3", To: "m1", Reason: "Unhealthy"})
	second, _ := s.next(t, "id: ")
	took := time.Since(began)
	words, _ := s.next(t, "data: ")
	t.Logf("heard after %v", took)
	if second == first || words != "control-plane: m3 → m1" {
		t.Errorf("heard %q, %q after %q", second, words, first)
	}
	if _, body := get(t, http.MethodGet, url+"/", ""); !strings.Contains(body, `data-id="`+second+`"`) || !strings.Contains(body, "m3 → m1") {
		t.Error("the page does not have what was told")
	}
}

// TestHeardSoon: an event is heard of within a second, what is no event within six, and nothing
// while nothing happens. Who has left is told nothing, and then nobody asks the daemon.
func TestHeardSoon(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		f := newFake(t)
		p := New(slog.New(slog.DiscardHandler), f)
		defer p.Close()
		news := p.join()
		<-news
		silent := func(long time.Duration) {
			t.Helper()
			time.Sleep(long)
			select {
			case <-news:
				t.Error("news, and nothing has happened")
			default:
			}
		}
		silent(time.Minute)
		heard := func(within time.Duration) {
			t.Helper()
			began := time.Now()
			<-news
			if took := time.Since(began); took > within {
				t.Errorf("heard after %v, want %v", took, within)
			}
		}
		for i := range 7 { // at any time of its round
			f.happens(v1alpha1.Event{Time: time.Now(), Kind: v1alpha1.EventMember, Node: "m2", From: "alive", To: "dead"})
			heard(time.Second)
			silent(time.Duration(i) * 330 * time.Millisecond)
		}
		f.mu.Lock()
		f.snapshot.Status.Health = append([]v1alpha1.HealthStatus(nil), f.snapshot.Status.Health...)
		f.snapshot.Status.Health[1].State = "down"
		f.mu.Unlock()
		heard(lookEvery + time.Second)
		p.leave(news)
		time.Sleep(time.Minute)
		before := f.asks("status")
		time.Sleep(time.Hour)
		if after := f.asks("status"); after != before {
			t.Errorf("nobody looks, and the daemon is asked %d times", after-before)
		}
	})
}

// TestOnlyTimeHasPassed: what counts and what grows older is no news.
func TestOnlyTimeHasPassed(t *testing.T) {
	s, _ := sample(t)
	now := &taken{Snapshot: *s}
	before := identity(now)
	now.Forwards[0].Backends[0].Connections = new(int)
	now.Status.LoadBalancers = []v1alpha1.BalancerStatus{{Name: "registry"}}
	now.Status.Time = now.Status.Time.Add(time.Minute)
	now.Status.Health[0].Failures++
	now.Status.Health[0].LastDuration = "1ms"
	now.Status.Gossip.KeyMismatches++
	if got := identity(now); got != before {
		t.Errorf("%s after %s", got, before)
	}
	now.Status.VIPs[0].Owner = "m2"
	if got := identity(now); got == before {
		t.Error("another owner is no news")
	}
}

// TestReadersAreBounded, and those that are there do not hold the end of the daemon up.
func TestReadersAreBounded(t *testing.T) {
	f := newFake(t)
	url, stop := serve(t, f)
	var all []*stream
	for range maxReaders {
		s := open(t, url)
		s.next(t, "id: ")
		all = append(all, s)
	}
	if answer, body := get(t, http.MethodGet, url+"/updates", ""); answer.StatusCode != http.StatusServiceUnavailable || !strings.Contains(body, "16 pages") {
		t.Errorf("one more: %d %q", answer.StatusCode, body)
	}
	if answer, _ := get(t, http.MethodGet, url+"/", ""); answer.StatusCode != 200 {
		t.Errorf("the page beside them: %d", answer.StatusCode)
	}
	all[0].answer.Body.Close()
	for range 3000 { // its place becomes free
		s := open(t, url)
		if s.answer.StatusCode == 200 {
			all[0] = s
			break
		}
		time.Sleep(10 * time.Millisecond)
	}
	began := time.Now()
	stop()
	if took := time.Since(began); took > 1500*time.Millisecond {
		t.Errorf("the daemon waited %v for those who read", took)
	}
	for i, s := range all {
		if _, ok := s.next(t, "nothing begins like this"); ok {
			t.Errorf("stream %d goes on", i)
		}
	}
}

// TestManyAskAtOnce: the daemon is asked once for all who look at one moment, and one that does
// not answer is given up.
func TestManyAskAtOnce(t *testing.T) {
	f := newFake(t)
	f.wait = make(chan struct{})
	url, _ := serve(t, f)
	codes := make(chan int)
	began := time.Now()
	for range 20 {
		go func() {
			answer, err := http.Get(url + "/")
			if err != nil {
				codes <- 0
				return
			}
			answer.Body.Close()
			codes <- answer.StatusCode
		}()
	}
	for f.asks("status") == 0 {
		time.Sleep(time.Millisecond)
	}
	time.Sleep(50 * time.Millisecond)
	if n := f.asks("status"); n != 1 {
		t.Errorf("the daemon was asked %d times at once", n)
	}
	close(f.wait)
	for range 20 {
		if code := <-codes; code != 200 {
			t.Errorf("answer %d", code)
		}
	}
	if n, most := f.asks("status"), 3+int(time.Since(began)/fresh); n > most {
		t.Errorf("the daemon was asked %d times for 20 pages, at most %d were allowed", n, most)
	}
	f.mu.Lock()
	f.err = errors.New("the daemon is stopping")
	f.mu.Unlock()
	for end := time.Now().Add(30 * time.Second); ; time.Sleep(fresh / 10) { // until no page is fresh
		answer, body := get(t, http.MethodGet, url+"/", "")
		if answer.StatusCode == 503 && strings.Contains(body, "the daemon is stopping") {
			return
		}
		if time.Now().After(end) {
			t.Fatalf("%d %q", answer.StatusCode, body)
		}
	}
}

func (f *fake) asks(what string) int {
	f.mu.Lock()
	defer f.mu.Unlock()
	return f.asked[what]
}
