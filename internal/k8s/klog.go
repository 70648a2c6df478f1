package k8s

import (
	"context"
	"log/slog"
	"sync"
	"sync/atomic"

	"k8s.io/klog/v2"
)

// routed is where client-go logs. klog may be told that once, before anything of
// client-go runs: it has no lock.
var (
	routed    atomic.Pointer[slog.Handler]
	routeOnce sync.Once
)

// routeLog has client-go log where the program does. What it finds worth a line
// are retries, which status and metrics tell better; so its information becomes
// debug and its errors become warnings.
func routeLog(log *slog.Logger) {
	h := log.Handler()
	routed.Store(&h)
	routeOnce.Do(func() { klog.SetSlogLogger(slog.New(softer{})) })
}

// softer lowers the level of every record. next is nil for what routeLog was told
// last.
type softer struct{ next slog.Handler }

func (h softer) handler() slog.Handler {
	if h.next != nil {
		return h.next
	}
	return *routed.Load()
}

func lower(l slog.Level) slog.Level {
	if l >= slog.LevelError {
		return slog.LevelWarn
	}
	return min(l, slog.LevelDebug)
}

func (h softer) Enabled(ctx context.Context, l slog.Level) bool {
	return h.handler().Enabled(ctx, lower(l))
}

func (h softer) Handle(ctx context.Context, r slog.Record) error {
	r.Level = lower(r.Level)
	return h.handler().Handle(ctx, r)
}

func (h softer) WithAttrs(a []slog.Attr) slog.Handler { return softer{h.handler().WithAttrs(a)} }

func (h softer) WithGroup(name string) slog.Handler { return softer{h.handler().WithGroup(name)} }
