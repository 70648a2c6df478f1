package machines

import (
	"context"
	"encoding/json"
	"fmt"
	"reflect"
	"time"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/dynamic"

	"lbd.dev/lbd/api/v1alpha1"
	"lbd.dev/lbd/internal/k8s/lease"
	"lbd.dev/lbd/internal/k8s/objects"
	"lbd.dev/lbd/internal/machines"
	"lbd.dev/lbd/internal/model"
)

// writer changes objects of a management cluster. Every write names the UID of the
// object, and where it rests on what was read the version too.
type writer struct {
	client  dynamic.Interface
	manager string // of fields, and the source of events
	host    string // that says so, in events
}

// patch sends a merge patch (RFC 7396) for an object.
func (w *writer) patch(ctx context.Context, r schema.GroupVersionResource, k model.Key, body map[string]any, sub ...string) (*unstructured.Unstructured, error) {
	data, err := json.Marshal(body)
	if err != nil {
		return nil, err
	}
	ctx, cancel := context.WithTimeout(ctx, lease.RequestTimeout)
	defer cancel()
	return w.client.Resource(r).Namespace(k.Namespace).Patch(ctx, k.Name, types.MergePatchType, data,
		metav1.PatchOptions{FieldManager: w.manager}, sub...)
}

// capi patches an object of Cluster API in whatever version the API server has.
func (w *writer) capi(ctx context.Context, resource string, k model.Key, body map[string]any) (err error) {
	for _, version := range versions {
		_, err = w.patch(ctx, schema.GroupVersionResource{Group: Group, Version: version, Resource: resource}, k, body)
		if !apierrors.IsNotFound(err) {
			break
		}
	}
	if err != nil {
		return fmt.Errorf("%s %s: %w", resource, k, err)
	}
	return nil
}

// status writes what has changed of the status of a balancer, and tells whether
// anything has. It fails if the object is not as it was read.
func (w *writer) status(ctx context.Context, b *machines.Balancer, s v1alpha1.MachineLoadBalancerStatus, now time.Time) (bool, error) {
	want, have, err := both(b, s, now)
	if err != nil || reflect.DeepEqual(have, want) {
		return false, err
	}
	for field := range have { // absent would mean unchanged
		if _, ok := want[field]; !ok {
			want[field] = nil
		}
	}
	_, err = w.patch(ctx, objects.Resource(v1alpha1.KindMachineLoadBalancer), b.Key, map[string]any{
		"metadata": map[string]any{"uid": b.UID, "resourceVersion": b.Version}, "status": want,
	}, "status")
	if err != nil {
		return false, fmt.Errorf("status of MachineLoadBalancer %s: %w", b.Key, err)
	}
	return true, nil
}

// both are the status that is wanted and the one that is there, as JSON has them.
func both(b *machines.Balancer, s v1alpha1.MachineLoadBalancerStatus, now time.Time) (want, have map[string]any, err error) {
	s.Conditions, _ = objects.Transition(b.Status.Conditions, s.Conditions, now)
	if want, err = plain(s); err == nil {
		have, err = plain(b.Status)
	}
	return want, have, err
}

// unchanged tells whether there is nothing to write.
func unchanged(b *machines.Balancer, s v1alpha1.MachineLoadBalancerStatus, now time.Time) (bool, error) {
	want, have, err := both(b, s, now)
	return reflect.DeepEqual(have, want), err
}

// plain is a status as JSON has it.
func plain(s v1alpha1.MachineLoadBalancerStatus) (map[string]any, error) {
	data, err := json.Marshal(s)
	if err != nil {
		return nil, err
	}
	var out map[string]any
	err = json.Unmarshal(data, &out)
	return out, err
}

// release removes the hook of lbd from a Machine and tells why in an event.
func (w *writer) release(ctx context.Context, r machines.Release) error {
	err := w.capi(ctx, "machines", r.Machine.Key, map[string]any{"metadata": map[string]any{
		"uid": r.Machine.UID, "annotations": map[string]any{machines.HookKey: nil},
	}})
	if apierrors.IsNotFound(err) {
		return nil // it is gone already
	}
	if err == nil {
		w.event(ctx, "Machine", Group+"/"+versions[0], r.Machine.Key, r.Machine.UID, r.Reason, r.Detail+": its deletion goes on", r.Reason == machines.ReleaseTimeout)
	}
	return err
}

// register puts the hook of lbd on a Machine.
func (w *writer) register(ctx context.Context, m *machines.Machine) error {
	return w.capi(ctx, "machines", m.Key, map[string]any{"metadata": map[string]any{
		"uid": m.UID, "annotations": map[string]any{machines.HookKey: ""},
	}})
}

// annotate writes the two annotations of a member; empty ones are removed.
func (w *writer) annotate(ctx context.Context, m *machines.Machine, name, status string) error {
	value := func(s string) any {
		if s == "" {
			return nil
		}
		return s
	}
	return w.capi(ctx, "machines", m.Key, map[string]any{"metadata": map[string]any{
		"uid": m.UID, "annotations": map[string]any{machines.NameAnnotation: value(name), machines.StatusAnnotation: value(status)},
	}})
}

// endpoint fills the endpoint of a Cluster in, unless somebody has meanwhile.
func (w *writer) endpoint(ctx context.Context, c *machines.Cluster, e *v1alpha1.MachineEndpoint) error {
	return w.capi(ctx, "clusters", c.Key, map[string]any{
		"metadata": map[string]any{"uid": c.UID, "resourceVersion": c.Version},
		"spec":     map[string]any{"controlPlaneEndpoint": map[string]any{"host": e.Host, "port": e.Port}},
	})
}

// event tells of an object. Nobody waits for it, so an error is forgotten.
func (w *writer) event(ctx context.Context, kind, api string, k model.Key, uid, reason, message string, warning bool) {
	e := objects.Event{
		Of:     corev1.ObjectReference{Kind: kind, APIVersion: api, Namespace: k.Namespace, Name: k.Name, UID: types.UID(uid)},
		Reason: reason, Message: message, Warning: warning, Manager: w.manager, Host: w.host,
	}
	ctx, cancel := context.WithTimeout(ctx, lease.RequestTimeout)
	defer cancel()
	_, _ = w.client.Resource(objects.Events).Namespace(k.Namespace).Create(ctx, e.Object(time.Now()), metav1.CreateOptions{})
}
