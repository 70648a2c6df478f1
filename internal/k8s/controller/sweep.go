package controller

import (
	"context"
	"encoding/json"
	"fmt"
	"strconv"
	"time"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"

	"lbd.dev/lbd/api/v1alpha1"
	"lbd.dev/lbd/internal/k8s/lease"
	"lbd.dev/lbd/internal/k8s/objects"
	"lbd.dev/lbd/internal/model"
)

// sweepEvery is the time between two looks for NodeStatus objects without a Node.
const sweepEvery = time.Minute

// onlyMetadata asks the API server for names instead of objects.
const onlyMetadata = "application/json;as=PartialObjectMetadataList;v=v1;g=meta.k8s.io"

// sweeper deletes the NodeStatus objects of Nodes that do not exist any more. Who
// wrote them does not run to do it.
type sweeper struct {
	c     *Controller
	every time.Duration
	// missing are those that had no Node the last time, by UID: a Node that is only
	// made anew keeps its object.
	missing map[types.UID]bool
}

// run sweeps until ctx ends.
func (s *sweeper) run(ctx context.Context) {
	ticker := time.NewTicker(s.every)
	defer ticker.Stop()
	for {
		if err := s.sweep(ctx); err != nil && ctx.Err() == nil {
			s.c.o.Logger.Debug("NodeStatus objects without a Node", "err", err)
		}
		select {
		case <-ctx.Done():
			return
		case <-ticker.C:
		}
	}
}

func (s *sweeper) sweep(ctx context.Context) error {
	all, err := s.list(ctx)
	if err != nil || !s.c.nodes.Synced() {
		return err
	}
	resource := s.c.o.Client.Dynamic.Resource(objects.Resource(v1alpha1.NodeStatusKind))
	missing := map[types.UID]bool{}
	for _, o := range all {
		if _, ok := s.c.nodes.Get(model.Key{Name: o.Name}); ok {
			continue
		}
		missing[o.UID] = true
		if !s.missing[o.UID] || !s.c.elector.Valid() {
			continue
		}
		limited, cancel := context.WithTimeout(ctx, lease.RequestTimeout)
		err := resource.Delete(limited, o.Name, metav1.DeleteOptions{Preconditions: &metav1.Preconditions{UID: &o.UID}})
		cancel()
		if err != nil && !apierrors.IsNotFound(err) && !apierrors.IsConflict(err) {
			return fmt.Errorf("NodeStatus %q: %w", o.Name, err)
		}
		s.c.o.Logger.Info("the status of a node that is gone is deleted", "node", o.Name)
	}
	s.missing = missing
	return nil
}

// list reads names and UIDs of all NodeStatus objects; without the definition there
// are none.
func (s *sweeper) list(ctx context.Context) ([]metav1.ObjectMeta, error) {
	gvr := objects.Resource(v1alpha1.NodeStatusKind)
	var all []metav1.ObjectMeta
	for next := ""; ; {
		limited, cancel := context.WithTimeout(ctx, lease.RequestTimeout)
		req := s.c.o.Client.Core.Get().AbsPath("apis", gvr.Group, gvr.Version, gvr.Resource).
			SetHeader("Accept", onlyMetadata).Param("limit", strconv.Itoa(pageSize))
		if next != "" {
			req = req.Param("continue", next)
		}
		data, err := req.Do(limited).Raw()
		cancel()
		if apierrors.IsNotFound(err) {
			return nil, nil
		}
		var page metav1.PartialObjectMetadataList
		if err == nil {
			err = json.Unmarshal(data, &page)
		}
		if err != nil {
			return nil, fmt.Errorf("nodestatuses: %w", err)
		}
		for i := range page.Items {
			all = append(all, page.Items[i].ObjectMeta)
		}
		if next = page.Continue; next == "" {
			return all, nil
		}
	}
}
