package address

import (
	"cmp"
	"context"
	"fmt"
	"log/slog"
	"net/netip"
)

// Cleanup unbinds every address with lbd's mark on every interface and returns
// those it unbound. It is for when no daemon runs: one that does puts them back.
func Cleanup(ctx context.Context, logger *slog.Logger) ([]netip.Prefix, error) {
	logger = cmp.Or(logger, slog.New(slog.DiscardHandler))
	k, err := openKernel()
	if err != nil {
		return nil, err
	}
	defer k.Close()
	entries, err := k.Addresses()
	if err != nil {
		return nil, err
	}
	var removed []netip.Prefix
	var errs []error
	for _, e := range entries {
		if !e.own() {
			continue
		}
		if err := ctx.Err(); err != nil {
			errs = append(errs, err)
			break
		}
		o := &Op{Verb: Remove, Addr: e.Prefix.Addr(), Index: e.Index}
		if k.Change([]*Op{o}); !gone(o.Err) {
			errs = append(errs, fmt.Errorf("vip %q: unbind from %q: %w", o.Addr, k.LinkName(e.Index), o.Err))
			continue
		}
		removed = append(removed, e.Prefix)
		logger.Info("unbound the VIP", "vip", o.Addr, "iface", k.LinkName(e.Index), "reason", "cleanup")
	}
	return removed, fold(errs)
}
