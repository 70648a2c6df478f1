package k8s

import (
	"context"
	"log/slog"

	"k8s.io/klog/v2"
)

// routeLog has client-go log where the program does. What it finds worth a line
// are retries, which status and metrics tell better; so its information becomes
// debug and its errors become warnings.
func routeLog(log *slog.Logger) {
	klog.SetSlogLogger(slog.New(softer{log.Handler()}))
}

// softer lowers the level of every record.
type softer struct{ slog.Handler }

func lower(l slog.Level) slog.Level {
	if l >= slog.LevelError {
		return slog.LevelWarn
	}
	return min(l, slog.LevelDebug)
}

func (h softer) Enabled(ctx context.Context, l slog.Level) bool {
	return h.Handler.Enabled(ctx, lower(l))
}

func (h softer) Handle(ctx context.Context, r slog.Record) error {
	r.Level = lower(r.Level)
	return h.Handler.Handle(ctx, r)
}

func (h softer) WithAttrs(a []slog.Attr) slog.Handler { return softer{h.Handler.WithAttrs(a)} }

func (h softer) WithGroup(name string) slog.Handler { return softer{h.Handler.WithGroup(name)} }
