package k8s

import (
	"maps"
	"net/http"
	"strconv"
	"sync"
)

// Request is what requests are counted by.
type Request struct {
	// Method is GET, PATCH and so on; a watch counts as WATCH.
	Method string
	// Code is the HTTP status, or "error" if none came.
	Code string
}

// counter counts requests on their way through the transport.
type counter struct {
	mu sync.Mutex // guards n
	n  map[Request]uint64
}

func (c *counter) all() map[Request]uint64 {
	c.mu.Lock()
	defer c.mu.Unlock()
	return maps.Clone(c.n)
}

func (c *counter) wrap(next http.RoundTripper) http.RoundTripper {
	return roundTripper(func(r *http.Request) (*http.Response, error) {
		res, err := next.RoundTrip(r)
		key := Request{Method: r.Method, Code: "error"}
		if w := r.URL.Query().Get("watch"); w == "true" || w == "1" {
			key.Method = "WATCH"
		}
		if err == nil {
			key.Code = strconv.Itoa(res.StatusCode)
		}
		c.mu.Lock()
		c.n[key]++
		c.mu.Unlock()
		return res, err
	})
}

type roundTripper func(*http.Request) (*http.Response, error)

func (f roundTripper) RoundTrip(r *http.Request) (*http.Response, error) { return f(r) }
