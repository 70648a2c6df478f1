package controller

import (
	"context"
	"encoding/json"
	"fmt"
	"maps"
	"math"
	"slices"
	"strings"
	"time"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/types"

	"lbd.dev/lbd/api/v1alpha1"
	"lbd.dev/lbd/internal/allocator"
	"lbd.dev/lbd/internal/k8s/lease"
	"lbd.dev/lbd/internal/model"
)

// write sends the status of one Service. It ends before others may lead: the request
// is bounded, and not cut off when ctx ends, so that what it did is known.
func (c *Controller) write(ctx context.Context, w allocator.Write) result {
	if x, k := c.standsFor(w.Service); x != nil {
		return c.writeStandIn(ctx, x, k, w)
	}
	ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), lease.RequestTimeout)
	defer cancel()
	body, err := statusPatch(w)
	if err != nil {
		return result{write: w, err: err}
	}
	k := w.Service
	var s corev1.Service
	err = c.o.Client.Core.Patch(types.MergePatchType).Namespace(k.Namespace).Resource("services").Name(k.Name).SubResource("status").
		Param("fieldManager", Manager).Body(body).Do(ctx).Into(&s)
	if err != nil {
		return result{write: w, err: fmt.Errorf("status of %s: %w", w.Service, err)}
	}
	x, ok := convertService(&s)
	return result{write: w, service: x, ok: ok}
}

// statusPatch is a merge patch (RFC 7396) of status and mark at once. UID and version
// make it fail if the Service is not the one that the decision was made about.
func statusPatch(w allocator.Write) ([]byte, error) {
	type entry struct {
		IP       string `json:"ip,omitempty"`
		Hostname string `json:"hostname,omitempty"`
	}
	var ingress []entry
	for _, x := range w.Ingress {
		ingress = append(ingress, entry(x))
	}
	var mark any
	if w.Mark != "" {
		mark = w.Mark
	}
	return json.Marshal(map[string]any{
		"metadata": map[string]any{"uid": w.UID, "resourceVersion": w.Version, "annotations": map[string]any{allocator.AllocatedFrom: mark}},
		"status":   map[string]any{"loadBalancer": map[string]any{"ingress": ingress}},
	})
}

// poolPause is the time between two writes of pools: counts change with each Service.
const poolPause = time.Second

// poolWriter writes the statuses of pools, the newest of each, in one goroutine at
// most.
type poolWriter struct {
	c       *Controller
	pending map[string]allocator.PoolStatus
	busy    bool
	next    time.Time
	wait    time.Duration
	results chan []allocator.PoolStatus // those that failed
}

func (p *poolWriter) add(list []allocator.PoolStatus) {
	for _, s := range list {
		p.pending[s.Name] = s
	}
}

// flush writes what is pending if it is time, and returns when it will be; zero:
// nothing is pending, or a result comes first.
func (p *poolWriter) flush(ctx context.Context, now time.Time) time.Time {
	if p.busy || len(p.pending) == 0 {
		return time.Time{}
	}
	if now.Before(p.next) || !p.c.elector.Valid() {
		return model.Earliest(now.Add(poolPause), p.next)
	}
	batch := slices.SortedFunc(maps.Values(p.pending), func(a, b allocator.PoolStatus) int { return strings.Compare(a.Name, b.Name) })
	clear(p.pending)
	p.busy = true
	// It writes nothing that another leader would not write too; so the end of the
	// term may cut it off.
	go func() { p.results <- p.c.writePools(ctx, batch) }()
	return time.Time{}
}

// done takes over what has failed.
func (p *poolWriter) done(failed []allocator.PoolStatus, now time.Time) {
	p.busy = false
	if len(failed) > 0 {
		p.wait = min(max(2*p.wait, poolPause), retryMost)
	} else {
		p.wait = poolPause
	}
	p.next = now.Add(p.wait)
	for _, s := range failed {
		if _, newer := p.pending[s.Name]; !newer {
			p.pending[s.Name] = s
		}
	}
}

func (c *Controller) writePools(ctx context.Context, batch []allocator.PoolStatus) (failed []allocator.PoolStatus) {
	for _, s := range batch {
		o, ok := c.objects.Pools.Get(model.Key{Name: s.Name})
		if !ok {
			continue // removed since
		}
		if !c.elector.Valid() || ctx.Err() != nil {
			failed = append(failed, s)
			continue
		}
		limited, cancel := context.WithTimeout(ctx, lease.RequestTimeout)
		_, err := c.writer.Write(limited, v1alpha1.KindIPAddressPool, s.Name, o.Conditions, conditionsOf(s), map[string]any{
			"assignedIPv4": signed(s.AssignedIPv4), "assignedIPv6": signed(s.AssignedIPv6),
			"availableIPv4": signed(s.AvailableIPv4), "availableIPv6": signed(s.AvailableIPv6),
		})
		cancel()
		if err != nil {
			c.o.Logger.Debug("status of a pool", "err", err)
			failed = append(failed, s)
		}
	}
	return failed
}

// signed bounds a count by what the API can say.
func signed(n uint64) int64 { return int64(min(n, math.MaxInt64)) }

func conditionsOf(s allocator.PoolStatus) []v1alpha1.Condition {
	list := make([]v1alpha1.Condition, len(s.Conditions))
	for i, c := range s.Conditions {
		list[i] = v1alpha1.Condition{Type: c.Type, Status: v1alpha1.ConditionFalse, ObservedGeneration: s.Generation, Reason: c.Reason, Message: c.Message}
		if c.True {
			list[i].Status = v1alpha1.ConditionTrue
		}
	}
	return list
}
