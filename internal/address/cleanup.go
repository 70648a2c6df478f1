package address

import (
	"context"
	"fmt"
	"log/slog"
	"net/netip"
	"time"
)

// Held is one address with lbd's mark in the kernel.
type Held struct {
	Prefix    netip.Prefix // /32 or /128
	Interface string
	// Remaining is the rest of the lifetime, rounded up to whole seconds; -1 if it
	// does not end.
	Remaining time.Duration
}

// List returns the addresses with lbd's mark, in kernel order, whoever of lbd's
// processes bound them.
func List() ([]Held, error) {
	k, err := openKernel()
	if err != nil {
		return nil, err
	}
	defer k.close()
	return k.held()
}

func (k *kernel) held() ([]Held, error) {
	entries, err := k.dump()
	if err != nil {
		return nil, err
	}
	var list []Held
	for _, e := range entries {
		if !e.own() {
			continue
		}
		h := Held{Prefix: e.prefix, Interface: k.linkName(e.index), Remaining: -1}
		if e.valid != forever {
			h.Remaining = time.Duration(e.valid) * time.Second
		}
		list = append(list, h)
	}
	return list, nil
}

// Cleanup unbinds every address with lbd's mark on every interface and returns
// those it unbound. It is for when no daemon runs: one that does puts them back.
func Cleanup(ctx context.Context, logger *slog.Logger) ([]netip.Prefix, error) {
	if logger == nil {
		logger = slog.New(slog.DiscardHandler)
	}
	k, err := openKernel()
	if err != nil {
		return nil, err
	}
	defer k.close()
	entries, err := k.dump()
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
		o := &op{verb: remove, addr: e.prefix.Addr(), index: e.index}
		if k.do([]*op{o}); !gone(o.err) {
			errs = append(errs, fmt.Errorf("vip %q: unbind from %q: %w", o.addr, k.linkName(e.index), o.err))
			continue
		}
		removed = append(removed, e.prefix)
		logger.Info("unbound the VIP", "vip", o.addr, "iface", k.linkName(e.index), "reason", "cleanup")
	}
	return removed, fold(errs)
}
