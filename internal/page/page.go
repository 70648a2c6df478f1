// Package page is what people look at with a browser: one page about what a node sees, one for
// each VIP, and word when there is news. It changes nothing. What it shows is made of the values
// that the commands print, in the same words; Overview and VIP need nothing else.
package page

import (
	"bytes"
	"context"
	"crypto/sha256"
	"encoding/hex"
	"errors"
	"fmt"
	"log/slog"
	"net"
	"net/http"
	"net/netip"
	"strings"
	"sync"
	"time"

	"lbd.dev/lbd/api/v1alpha1"
	"lbd.dev/lbd/internal/control"
)

// Source is the daemon as this package needs it; control.Backend says what its methods do.
type Source interface {
	Status(ctx context.Context) (v1alpha1.NodeStatus, error)
	Explain(ctx context.Context, vip, client string) ([]v1alpha1.Explanation, error)
	Events(ctx context.Context, vip string, since time.Duration, after uint64) (v1alpha1.NodeEvents, error)
}

const (
	// answerTimeout is how long somebody waits for a page.
	answerTimeout = 4 * time.Second
	// atOnce is how many pages are made at the same time. The loop of the daemon needs the processor,
	// too, so nobody makes one for a while afterwards: see restFactor.
	atOnce = 1
	// longestRest bounds that while, for a page of thousands of VIPs.
	longestRest = time.Second
)

// Page serves the pages. It is a control.Page.
type Page struct {
	log    *slog.Logger
	source Source
	mux    *http.ServeMux
	making chan struct{} // has room for as many pages as are made at once
	asking chan struct{} // has room for one who asks the source
	closed chan struct{}
	close  sync.Once

	mu      sync.Mutex // guards all below
	newest  *taken
	pages   map[string][]byte      // see kept
	more    chan struct{}          // closed once another page is kept
	readers map[chan struct{}]bool // told of news
	stop    context.CancelFunc     // ends the watch; nil: nobody watches
}

// New returns a Page that shows what source says.
func New(log *slog.Logger, source Source) *Page {
	p := &Page{
		log: log, source: source, mux: http.NewServeMux(),
		making: make(chan struct{}, atOnce), asking: make(chan struct{}, 1), closed: make(chan struct{}),
		readers: map[chan struct{}]bool{}, pages: map[string][]byte{}, more: make(chan struct{}),
	}
	p.mux.HandleFunc("GET /{$}", p.overview)
	p.mux.HandleFunc("GET /vip/{vip...}", p.vip)
	p.mux.HandleFunc("GET /updates", p.updates)
	for name, kind := range map[string]string{"page.css": "text/css; charset=utf-8", "page.js": "text/javascript; charset=utf-8", "icon.svg": "image/svg+xml"} {
		p.mux.HandleFunc("GET /"+name, asset(name, kind))
	}
	return p
}

// Close ends the answers of /updates, and there are no more.
func (p *Page) Close() { p.close.Do(func() { close(p.closed) }) }

// policy lets a browser load nothing but the two files beside the page, and ask only the daemon.
const policy = "default-src 'none'; style-src 'self'; script-src 'self'; img-src 'self'; connect-src 'self'; base-uri 'none'; form-action 'none'; frame-ancestors 'none'"

func (p *Page) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	h := w.Header()
	h.Set("Content-Security-Policy", policy)
	h.Set("X-Content-Type-Options", "nosniff")
	h.Set("X-Frame-Options", "DENY")
	h.Set("Referrer-Policy", "no-referrer")
	h.Set("Cross-Origin-Resource-Policy", "same-origin")
	h.Set("Cross-Origin-Opener-Policy", "same-origin")
	h.Set("Cache-Control", "no-store")
	if !mayAsk(r) {
		http.Error(w, "this page answers to addresses and to localhost, not to the name "+control.Line(r.Host), http.StatusForbidden)
		return
	}
	p.mux.ServeHTTP(w, r)
}

// mayAsk is false for a request that came to a loopback address by another name than localhost.
// Whoever owns a name can let it lead there, and have the browser of somebody on this host read
// the page to a site of that name.
func mayAsk(r *http.Request) bool {
	local, ok := r.Context().Value(http.LocalAddrContextKey).(net.Addr)
	if !ok {
		return true
	}
	at, err := netip.ParseAddrPort(local.String())
	if err != nil || !at.Addr().Unmap().IsLoopback() {
		return true
	}
	host := r.Host
	if name, _, err := net.SplitHostPort(host); err == nil {
		host = name
	}
	_, err = netip.ParseAddr(strings.Trim(host, "[]"))
	return err == nil || strings.EqualFold(host, "localhost")
}

func (p *Page) overview(w http.ResponseWriter, r *http.Request) {
	all := r.URL.Query().Has("all")
	p.answer(w, r, fmt.Sprintf("all: %v", all), func(ctx context.Context) ([]byte, error) {
		s, err := p.look(ctx, fresh)
		if err != nil {
			return nil, err
		}
		return Overview(&s.Snapshot, all), nil
	})
}

// vip answers about a VIP. The daemon is asked only for one that it has: to find that there is
// none is work for it, and anybody can make up names.
func (p *Page) vip(w http.ResponseWriter, r *http.Request) {
	name := r.PathValue("vip")
	if a, err := netip.ParseAddr(name); err == nil {
		name = a.Unmap().String()
	}
	p.answer(w, r, "vip "+name, func(ctx context.Context) ([]byte, error) {
		s, err := p.look(ctx, fresh)
		if err != nil {
			return nil, err
		}
		var list []v1alpha1.Explanation
		switch {
		case name == "": // the daemon would explain them all
			return nil, control.ErrNotFound
		case s.names[name]:
			if list, err = p.explain(ctx, name); err != nil {
				return nil, err
			}
		case !s.remembered[name]:
			return nil, control.ErrNotFound
		}
		return VIP(&s.Snapshot, name, list), nil
	})
}

// answer sends a page, or says in plain text why there is none.
func (p *Page) answer(w http.ResponseWriter, r *http.Request, key string, made func(context.Context) ([]byte, error)) {
	ctx, cancel := context.WithTimeout(r.Context(), answerTimeout)
	defer cancel()
	body, err := p.make(ctx, key, made)
	switch {
	case err == nil:
		w.Header().Set("Content-Type", "text/html; charset=utf-8")
		_, _ = w.Write(body) // a client that has gone needs no answer
	case errors.Is(err, control.ErrNotFound):
		http.Error(w, "this node has no such VIP, and remembers none", http.StatusNotFound)
	case errors.Is(err, context.DeadlineExceeded), errors.Is(err, context.Canceled):
		http.Error(w, "the daemon is too busy to answer", http.StatusServiceUnavailable)
	default:
		p.log.Debug("a page was not made", "path", r.URL.Path, "err", err)
		http.Error(w, "the daemon does not answer: "+control.Line(err.Error()), http.StatusServiceUnavailable)
	}
}

// make makes a page once there is room. What many ask for at the same time is made once, and they
// have it as soon as it is made.
func (p *Page) make(ctx context.Context, key string, made func(context.Context) ([]byte, error)) ([]byte, error) {
	for {
		body, more := p.kept(key)
		if body != nil {
			return body, nil
		}
		select {
		case p.making <- struct{}{}:
			if body, _ := p.kept(key); body != nil {
				<-p.making
				return body, nil
			}
			began := time.Now()
			defer func() { time.AfterFunc(min(restFactor*time.Since(began), longestRest), func() { <-p.making }) }()
			body, err := made(ctx)
			if err == nil {
				p.keep(key, body)
			}
			return body, err
		case <-more:
		case <-ctx.Done():
			return nil, ctx.Err()
		}
	}
}

// kept is a page that was made a moment ago, nil if it was not, and what tells of the next.
func (p *Page) kept(key string) (body []byte, more <-chan struct{}) {
	p.mu.Lock()
	defer p.mu.Unlock()
	return p.pages[key], p.more
}

// keep keeps a page as long as a snapshot is fresh.
func (p *Page) keep(key string, body []byte) {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.pages[key] = body
	close(p.more)
	p.more = make(chan struct{})
	time.AfterFunc(fresh, func() {
		p.mu.Lock()
		defer p.mu.Unlock()
		delete(p.pages, key)
	})
}

// asset serves a file that is the same for as long as the program is.
func asset(name, kind string) http.HandlerFunc {
	body, err := assets.ReadFile("assets/" + name)
	if err != nil {
		panic(err) // the program was built without it
	}
	sum := sha256.Sum256(body)
	tag := `"` + hex.EncodeToString(sum[:8]) + `"`
	return func(w http.ResponseWriter, r *http.Request) {
		w.Header().Set("Content-Type", kind)
		w.Header().Set("Cache-Control", "no-cache") // asked for each time, sent once
		w.Header().Set("ETag", tag)
		http.ServeContent(w, r, name, time.Time{}, bytes.NewReader(body))
	}
}
