package control

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"net/http"
	"net/http/pprof"
	"strings"
	"time"

	"github.com/prometheus/client_golang/prometheus/promhttp"
)

// maxRequest bounds the body of a request, in bytes.
const maxRequest = 4 << 10

// socketHandler serves the API of the commands.
func (s *Server) socketHandler() http.Handler {
	mux := http.NewServeMux()
	mux.HandleFunc("GET "+pathStatus, func(w http.ResponseWriter, r *http.Request) {
		status, err := s.opts.Backend.Status(r.Context())
		if status.Time.IsZero() {
			status.Time = time.Now()
		}
		s.answer(w, status, err)
	})
	mux.HandleFunc("GET "+pathExplain, func(w http.ResponseWriter, r *http.Request) {
		found, err := s.opts.Backend.Explain(r.Context(), r.URL.Query().Get("vip"), r.URL.Query().Get("client"))
		s.answer(w, explanations{Explanations: found}, err)
	})
	mux.HandleFunc("GET "+pathEvents, func(w http.ResponseWriter, r *http.Request) {
		q, err := readEventQuery(r.URL.Query())
		if err != nil {
			s.answer(w, nil, err)
			return
		}
		found, err := s.opts.Backend.Events(r.Context(), q.VIP, q.Since, q.After)
		s.answer(w, found, err)
	})
	if s.opts.Gatherer != nil {
		mux.Handle("GET "+pathMetrics, s.scrape())
	}
	mux.HandleFunc("PUT "+pathDraining, func(w http.ResponseWriter, r *http.Request) {
		var request drainRequest
		if err := json.NewDecoder(http.MaxBytesReader(w, r.Body, maxRequest)).Decode(&request); err != nil {
			s.write(w, http.StatusBadRequest, problem{Error: "request: " + err.Error()})
			return
		}
		s.answer(w, request, s.opts.Backend.SetDraining(r.Context(), request.Draining))
	})
	mux.HandleFunc("POST "+pathReload, func(w http.ResponseWriter, r *http.Request) {
		s.answer(w, struct{}{}, s.opts.Backend.Reload(r.Context()))
	})
	mux.HandleFunc("POST "+pathRestart, func(w http.ResponseWriter, r *http.Request) {
		s.answer(w, struct{}{}, s.opts.Backend.Restart(r.Context()))
	})
	mux.HandleFunc("/", func(w http.ResponseWriter, r *http.Request) {
		s.write(w, http.StatusNotFound, problem{Error: fmt.Sprintf("this daemon does not know %s %s; it may be older than the command", r.Method, r.URL.Path)})
	})
	return within(s.slowest, http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		ctx, cancel := context.WithTimeout(r.Context(), backendTimeout)
		defer cancel()
		mux.ServeHTTP(w, r.WithContext(ctx))
	}))
}

// answer writes the value, or the error if there is one.
func (s *Server) answer(w http.ResponseWriter, value any, err error) {
	switch {
	case err == nil:
		s.write(w, http.StatusOK, value)
	case errors.Is(err, ErrQuestion):
		s.write(w, http.StatusBadRequest, problem{Error: err.Error()})
	case errors.Is(err, ErrNotFound):
		s.write(w, http.StatusNotFound, problem{Error: err.Error()})
	case errors.Is(err, context.DeadlineExceeded):
		s.write(w, http.StatusServiceUnavailable, problem{Error: "the daemon is too busy to answer"})
	default:
		s.write(w, http.StatusInternalServerError, problem{Error: err.Error()})
	}
}

// write sends a JSON body. An encoding error is a bug of the types, a writing
// error a client that has gone; neither has another receiver than the log.
func (s *Server) write(w http.ResponseWriter, code int, body any) {
	w.Header().Set("Content-Type", "application/json")
	w.WriteHeader(code)
	if err := json.NewEncoder(w).Encode(body); err != nil {
		s.opts.Logger.Debug("control answer was not written", "err", err)
	}
}

// httpHandler serves metrics, liveness and readiness, and the page.
func (s *Server) httpHandler() http.Handler {
	mux := http.NewServeMux()
	if s.opts.Gatherer != nil && s.opts.Metrics == nil {
		mux.Handle("GET "+MetricsPath, s.scrape())
	}
	mux.HandleFunc("GET /healthz", condition(s.opts.Backend.Healthy))
	notMeant := condition(func() error { return errNotMeant })
	ready := condition(s.opts.Backend.Ready)
	mux.HandleFunc("GET /readyz", func(w http.ResponseWriter, r *http.Request) {
		if r.URL.Query().Get("daemon") == "pod" && !s.opts.InDaemonSet {
			notMeant(w, r)
			return
		}
		ready(w, r)
	})
	if s.opts.Page != nil {
		mux.Handle("/", within(readTimeout, s.opts.Page))
	}
	if s.opts.Pprof {
		mux.HandleFunc("/debug/pprof/", pprof.Index)
		mux.HandleFunc("/debug/pprof/cmdline", pprof.Cmdline)
		mux.HandleFunc("/debug/pprof/profile", pprof.Profile)
		mux.HandleFunc("/debug/pprof/symbol", pprof.Symbol)
		mux.HandleFunc("/debug/pprof/trace", pprof.Trace)
	}
	return mux
}

// errNotMeant is what kubelet is told of a pod that stands aside: it asks the host's daemon, whose
// network the pod shares.
var errNotMeant = errors.New("the daemon of this host is no pod of the DaemonSet: label the node lbd.dev/daemon=host")

// MetricsPath is where the metrics are, and the non-resource URL that the API server is
// asked about.
const MetricsPath = "/metrics"

// scrape serves the metrics to everybody.
func (s *Server) scrape() http.Handler {
	return within(readTimeout, promhttp.HandlerFor(s.opts.Gatherer, promhttp.HandlerOpts{
		// One bad collector must not hide the others.
		ErrorHandling:       promhttp.ContinueOnError,
		ErrorLog:            slog.NewLogLogger(s.opts.Logger.Handler(), slog.LevelWarn),
		MaxRequestsInFlight: 4,
	}))
}

// metricsHandler serves the metrics to those who may read them.
func (s *Server) metricsHandler() http.Handler {
	mux := http.NewServeMux()
	scrape := s.scrape()
	mux.HandleFunc("GET "+MetricsPath, func(w http.ResponseWriter, r *http.Request) {
		token, ok := strings.CutPrefix(r.Header.Get("Authorization"), "Bearer ")
		if !ok || token == "" {
			w.Header().Set("WWW-Authenticate", "Bearer")
			http.Error(w, "a bearer token is required", http.StatusUnauthorized)
			return
		}
		ctx, cancel := context.WithTimeout(r.Context(), backendTimeout)
		defer cancel()
		if code, err := s.opts.Metrics.Authorize(ctx, token); code != http.StatusOK {
			s.opts.Logger.Debug("metrics were refused", "from", r.RemoteAddr, "status", code, "err", err)
			http.Error(w, http.StatusText(code), code) // why is for the log alone
			return
		}
		scrape.ServeHTTP(w, r)
	})
	return mux
}

// readTimeout is how long a client may take to get and read an answer of the socket, or the
// metrics.
const readTimeout = 10 * time.Second

// within bounds how long a client may take to read an answer. Unlike a handler with
// a timeout it does not hold the whole answer in memory, which may be megabytes.
func within(limit time.Duration, h http.Handler) http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		// A writer that knows no deadline has no client that could be slow.
		_ = http.NewResponseController(w).SetWriteDeadline(time.Now().Add(limit))
		h.ServeHTTP(w, r)
	})
}

// prompt bounds how long a client may take to send the body of a request. The server reads what a
// handler has left of it, and a client that never ends would hold its connection for good.
// A request without a body has no such bound: it would end answers that go on for long.
func (s *Server) prompt(h http.Handler) http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if r.ContentLength != 0 {
			_ = http.NewResponseController(w).SetReadDeadline(time.Now().Add(s.slowest)) // a reader that knows none is no client
		}
		h.ServeHTTP(w, r)
	})
}

// condition answers 200 "ok" or 503 with the reason.
func condition(check func() error) http.HandlerFunc {
	return func(w http.ResponseWriter, _ *http.Request) {
		w.Header().Set("Content-Type", "text/plain; charset=utf-8")
		w.Header().Set("Cache-Control", "no-store")
		text := "ok"
		if err := check(); err != nil {
			w.WriteHeader(http.StatusServiceUnavailable)
			text = err.Error()
		}
		_, _ = io.WriteString(w, text+"\n") // a client that has gone needs no answer
	}
}
