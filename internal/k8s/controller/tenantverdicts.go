package controller

import (
	"context"
	"maps"
	"net/netip"
	"slices"
	"strconv"
	"time"

	apierrors "k8s.io/apimachinery/pkg/api/errors"

	"lbd.dev/lbd/api/v1alpha1"
	"lbd.dev/lbd/internal/k8s/lease"
	"lbd.dev/lbd/internal/k8s/objects"
	"lbd.dev/lbd/internal/model"
	"lbd.dev/lbd/internal/tenants"
)

// brief is a condition in short.
type brief struct {
	kind    string
	is      bool
	reason  string
	message string
}

func (c brief) of(generation int64) v1alpha1.Condition {
	out := v1alpha1.Condition{Type: c.kind, Status: v1alpha1.ConditionFalse, ObservedGeneration: generation, Reason: c.reason, Message: c.message}
	if c.is {
		out.Status = v1alpha1.ConditionTrue
	}
	return out
}

// acceptedBy is the condition Accepted of an object of a tenant.
func acceptedBy(generation int64, errs []v1alpha1.FieldError, v tenants.Verdict) v1alpha1.Condition {
	if len(errs) > 0 {
		c := verdict(errs, nil, nil)
		c.ObservedGeneration = generation
		return c
	}
	c := brief{v1alpha1.ConditionAccepted, false, string(v.Reason), v.Message}
	switch {
	case v.Reason == tenants.ReasonNoAddress: // which is told by a condition of its own
		c = brief{v1alpha1.ConditionAccepted, true, reasonAccepted, ""}
	case v.Reason == tenants.ReasonAccepted, v.Reason.LeadsNowhere():
		c.is = true
	}
	return c.of(generation)
}

// tenantObjects are the objects of tenants, as they were before they were judged: of one that has
// changed since nothing is written, by its version.
type tenantObjects struct {
	tenants  map[model.Key]objects.Object[*v1alpha1.Tenant]
	nodes    map[model.Key]objects.Object[*v1alpha1.TenantNodes]
	services map[model.Key]tenantService
}

// look reads them. There are none while Tenants may not be read: nothing can be said of the others then.
func (j *judge) look() tenantObjects {
	set, was := j.c.objects, j.blind
	if j.blind = j.c.tenants.blind(); j.blind && !was {
		j.c.o.Logger.Warn("tenants may not be read: what their services have stays, and nothing of them is judged", "err", set.Tenants.State().Err)
	}
	if j.blind {
		return tenantObjects{}
	}
	return tenantObjects{set.Tenants.All(), set.TenantNodes.All(), set.TenantServices.All()}
}

// tellRoutes says which nodes of tenants the engine of the hub may send connections to. What is not known
// takes nothing away.
func (j *judge) tellRoutes(out tenants.Output) {
	set, before := j.c.objects, j.lacking
	j.lacking = !set.Tenants.Known() || !set.TenantNodes.Known()
	if held := len(j.c.routes.Routes()) > 0; j.lacking && !before && !j.blind && held {
		j.c.o.Logger.Warn("tenants or their nodes are lacking, or may not be read: what the engine has for Ingresses of tenants stays")
	}
	if j.lacking {
		j.c.routes.Judged(nil)
		return
	}
	if out.Clusters == nil { // there is no object of a tenant
		out.Clusters = map[string]tenants.Cluster{}
	}
	j.c.routes.Judged(out.Clusters)
}

// tenants writes the conditions of the objects of tenants, and takes addresses out of the statuses of
// those that may not have them. It returns the first error.
func (j *judge) tenants(ctx context.Context, all tenantObjects, out tenants.Output) error {
	t := j.c.tenants
	maps.DeleteFunc(j.wrote, func(k tenantObject, _ uint64) bool { return !j.exists(k) })
	var first error
	note := func(err error) {
		if first == nil {
			first = err
		}
	}
	note(judgeTenantKind(ctx, j, all.tenants, v1alpha1.KindTenant, func(k model.Key) tenants.Verdict { return out.Tenants[k.Name] }))
	note(judgeTenantKind(ctx, j, all.nodes, v1alpha1.KindTenantNodes, func(k model.Key) tenants.Verdict { return out.Nodes[k] }))
	for k, x := range all.services {
		if out.Services[k].Reason == "" && len(x.Errors) == 0 {
			continue // it went before this judgement
		}
		accepted := acceptedBy(x.Generation, x.Errors, out.Services[k])
		assigned := brief{v1alpha1.ConditionAddressAssigned, false, v1alpha1.ReasonNotAccepted, "see the condition Accepted"}.of(0)
		addresses := tellable(x.Value, out.Given[k])
		if accepted.Status == v1alpha1.ConditionTrue {
			if len(addresses) == 0 && !t.troubled(k) {
				continue // the leader is about to give it one
			}
			assigned = t.assigned(k, x.Value, addresses)
		}
		assigned.ObservedGeneration = x.Generation
		fields := map[string]any{}
		if s := x.Value.Status; s != nil && accepted.Status != v1alpha1.ConditionTrue && len(s.Addresses) > 0 {
			fields["addresses"], fields["globalName"] = []v1alpha1.TenantAddress{}, nil
		} else if s != nil && len(addresses) > 0 && s.GlobalName != x.Value.Spec.GlobalName {
			fields["globalName"] = x.Value.Spec.GlobalName
		}
		note(judgeTenant(ctx, j, v1alpha1.KindTenantService, k, x, []v1alpha1.Condition{accepted, assigned}, fields))
	}
	return first
}

// tenantObject is an object of a tenant.
type tenantObject struct {
	kind string
	model.Key
}

func (j *judge) exists(k tenantObject) (ok bool) {
	switch set := j.c.objects; k.kind {
	case v1alpha1.KindTenant:
		_, ok = set.Tenants.Get(k.Key)
	case v1alpha1.KindTenantNodes:
		_, ok = set.TenantNodes.Get(k.Key)
	default:
		_, ok = set.TenantServices.Get(k.Key)
	}
	return ok
}

// tellable are the addresses of the status of a TenantService that count.
func tellable(s *v1alpha1.TenantService, counts []netip.Addr) []v1alpha1.TenantAddress {
	out := []v1alpha1.TenantAddress{}
	if s.Status == nil {
		return out
	}
	for _, a := range s.Status.Addresses {
		if addr, err := netip.ParseAddr(a.Address); err == nil && slices.Contains(counts, addr) {
			out = append(out, a)
		}
	}
	return out
}

// judgeTenantKind writes the condition Accepted of the objects of one kind.
func judgeTenantKind[T any](ctx context.Context, j *judge, all map[model.Key]objects.Object[T], kind string, of func(model.Key) tenants.Verdict) error {
	var first error
	for k, o := range all {
		verdict := of(k)
		if verdict.Reason == "" && len(o.Errors) == 0 {
			continue // it went before this judgement
		}
		if err := judgeTenant(ctx, j, kind, k, o, []v1alpha1.Condition{acceptedBy(o.Generation, o.Errors, verdict)}, nil); err != nil && first == nil {
			first = err
		}
	}
	return first
}

// judgeTenant writes conditions and fields of the status of one object, if they are others than it has.
func judgeTenant[T any](ctx context.Context, j *judge, kind string, k model.Key, o objects.Object[T], wanted []v1alpha1.Condition, fields map[string]any) error {
	conditions, changed := objects.Transition(o.Conditions, wanted, time.Now())
	if !changed && len(fields) == 0 || !j.c.elector.Valid() {
		return nil
	}
	key := tenantObject{kind, k}
	if version, _ := strconv.ParseUint(o.Version, 10, 64); version < j.wrote[key] {
		j.c.changes.judgeAgents() // the watch has not what was written here
		return nil
	}
	status := map[string]any{"conditions": conditions}
	maps.Copy(status, fields)
	limited, cancel := context.WithTimeout(ctx, lease.RequestTimeout)
	defer cancel()
	u, err := j.c.patchStatus(limited, kind, k, map[string]any{"uid": o.UID, "resourceVersion": o.Version}, status)
	if apierrors.IsConflict(err) || apierrors.IsNotFound(err) {
		j.c.changes.judgeAgents() // the watch tells what has become of it
		return nil
	}
	if err != nil {
		return err
	}
	j.wrote[key], _ = strconv.ParseUint(u.GetResourceVersion(), 10, 64)
	j.tell(kind, k, o.UID, o.Conditions, wanted[0])
	return nil
}
