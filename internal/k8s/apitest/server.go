// Package apitest is an API server for tests: it lists, watches and patches objects
// over HTTP as a real one does, holds them in memory, and dies on request. It
// checks nothing and knows no defaults; tests/controlplane has a real one.
package apitest

import (
	"encoding/json"
	"maps"
	"net"
	"net/http"
	"net/http/httptest"
	"net/netip"
	"slices"
	"strconv"
	"strings"
	"sync"
	"testing"

	"k8s.io/client-go/rest"

	"lbd.dev/lbd/internal/testnet"
)

// Server is the API server.
type Server struct {
	t    testing.TB
	addr string

	mu        sync.Mutex // guards all below
	http      *httptest.Server
	rv        int
	resources map[string]*resource // by group/version/resource: "v1/services"
	kinds     map[string]string    // those that are served, by resource
	failing   int                  // HTTP status of every answer; 0: none
	gate      func(*http.Request) int
	log       []string
}

type resource struct {
	objects map[string]map[string]any // by namespace/name
	events  []event
	news    chan struct{} // closed at the next event
}

type event struct {
	rv   int
	kind string
	key  string // namespace/name
	obj  []byte
}

// New starts a Server that ends with the test. kinds are those that it serves, by
// resource: {"v1/services": "Service"}.
func New(t testing.TB, kinds map[string]string) *Server {
	t.Helper()
	s := &Server{t: t, rv: 1, resources: make(map[string]*resource), kinds: maps.Clone(kinds)}
	s.Start()
	t.Cleanup(s.Stop)
	return s
}

// Config is that of a client.
func (s *Server) Config() *rest.Config { return &rest.Config{Host: "http://" + s.addr} }

// Start serves, at the address of before if it was stopped.
func (s *Server) Start() {
	s.t.Helper()
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.http != nil {
		return
	}
	addr := s.addr
	if addr == "" {
		addr = netip.AddrPortFrom(testnet.Loopback(), 0).String()
	}
	l, err := net.Listen("tcp", addr)
	if err != nil {
		s.t.Fatal(err)
	}
	s.addr = l.Addr().String()
	s.http = &httptest.Server{Listener: l, Config: &http.Server{Handler: s}}
	s.http.Start()
}

// Stop ends every connection and listens no more. Objects stay.
func (s *Server) Stop() {
	s.mu.Lock()
	h := s.http
	s.http = nil
	s.mu.Unlock()
	if h == nil {
		return
	}
	h.Listener.Close()
	h.CloseClientConnections()
	h.Close()
}

// Fail answers every request with this HTTP status and ends open watches; 0 ends
// that.
func (s *Server) Fail(code int) {
	s.mu.Lock()
	s.failing = code
	h := s.http
	s.mu.Unlock()
	if code != 0 && h != nil {
		h.CloseClientConnections()
	}
}

// Gate asks f about each request before it is carried out: an HTTP status is the
// answer, 0 lets it pass. f may block.
func (s *Server) Gate(f func(*http.Request) int) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.gate = f
}

// Serve adds a kind, as a new definition does.
func (s *Server) Serve(res, kind string) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.kinds[res] = kind
}

// Withdraw removes a kind with its objects, as the end of a definition does, and ends
// all watches.
func (s *Server) Withdraw(res string) {
	s.mu.Lock()
	delete(s.kinds, res)
	delete(s.resources, res)
	h := s.http
	s.mu.Unlock()
	if h != nil {
		h.CloseClientConnections()
	}
}

// Requests are the method and URL of all requests until now.
func (s *Server) Requests() []string {
	s.mu.Lock()
	defer s.mu.Unlock()
	return slices.Clone(s.log)
}

func (s *Server) of(res string) *resource {
	r := s.resources[res]
	if r == nil {
		r = &resource{objects: make(map[string]map[string]any), news: make(chan struct{})}
		s.resources[res] = r
	}
	return r
}

// Put creates or replaces an object, which is anything that JSON can tell. It
// raises metadata.generation if the spec has changed.
func (s *Server) Put(res string, obj any) {
	s.t.Helper()
	data, err := json.Marshal(obj)
	if err != nil {
		s.t.Fatal(err)
	}
	var o map[string]any
	if err := json.Unmarshal(data, &o); err != nil {
		s.t.Fatal(err)
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	s.put(res, o)
}

func (s *Server) put(res string, o map[string]any) {
	meta, _ := o["metadata"].(map[string]any)
	if meta == nil || meta["name"] == nil {
		s.t.Errorf("%s: an object without a name", res)
		return
	}
	r, key := s.of(res), keyOf(meta)
	s.rv++
	meta["resourceVersion"] = strconv.Itoa(s.rv)
	api, _, _ := cutLast(res)
	o["apiVersion"], o["kind"] = api, s.kinds[res]
	old, had := r.objects[key]
	gen := 1.0
	if had {
		gen = old["metadata"].(map[string]any)["generation"].(float64)
		if !equal(old["spec"], o["spec"]) {
			gen++
		}
	}
	meta["generation"] = gen
	r.objects[key] = o
	kind := "ADDED"
	if had {
		kind = "MODIFIED"
	}
	r.happened(s.rv, kind, o)
}

// Delete removes an object; namespace is empty for those of the cluster.
func (s *Server) Delete(res, namespace, name string) {
	s.t.Helper()
	s.mu.Lock()
	defer s.mu.Unlock()
	r, key := s.of(res), namespace+"/"+name
	o, ok := r.objects[key]
	if !ok {
		s.t.Errorf("%s %s is not there", res, key)
		return
	}
	delete(r.objects, key)
	s.rv++
	o["metadata"].(map[string]any)["resourceVersion"] = strconv.Itoa(s.rv)
	r.happened(s.rv, "DELETED", o)
}

// Get returns an object as it is, or nil.
func (s *Server) Get(res, namespace, name string) map[string]any {
	s.mu.Lock()
	defer s.mu.Unlock()
	o := s.of(res).objects[namespace+"/"+name]
	if o == nil {
		return nil
	}
	return clone(o)
}

// Versions counts the states that an object has had, by whoever wrote them: what the
// server refused is not among them.
func (s *Server) Versions(res, namespace, name string) (n int) {
	s.mu.Lock()
	defer s.mu.Unlock()
	for _, e := range s.of(res).events {
		if e.key == namespace+"/"+name {
			n++
		}
	}
	return n
}

// All returns the objects of a resource.
func (s *Server) All(res string) []map[string]any {
	s.mu.Lock()
	defer s.mu.Unlock()
	var list []map[string]any
	for _, o := range s.of(res).objects {
		list = append(list, clone(o))
	}
	return list
}

func clone(o map[string]any) map[string]any {
	data, _ := json.Marshal(o) // it came from JSON
	var out map[string]any
	_ = json.Unmarshal(data, &out)
	return out
}

func (r *resource) happened(rv int, kind string, o map[string]any) {
	data, _ := json.Marshal(o) // it came from JSON
	r.events = append(r.events, event{rv, kind, keyOf(o["metadata"].(map[string]any)), data})
	close(r.news)
	r.news = make(chan struct{})
}

func equal(a, b any) bool {
	x, _ := json.Marshal(a)
	y, _ := json.Marshal(b)
	return string(x) == string(y)
}

func keyOf(meta map[string]any) string {
	ns, _ := meta["namespace"].(string)
	return ns + "/" + meta["name"].(string)
}

func cutLast(s string) (before, after string, ok bool) {
	i := strings.LastIndexByte(s, '/')
	if i < 0 {
		return s, "", false
	}
	return s[:i], s[i+1:], true
}
