package lease

import (
	"context"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/client-go/dynamic"
)

// noteAnnotation has the Note of a Record.
const noteAnnotation = "lbd.dev/note"

// Resource is that of Leases.
var Resource = schema.GroupVersionResource{Group: "coordination.k8s.io", Version: "v1", Resource: "leases"}

// Object is a Lease in a cluster.
type Object struct {
	leases          dynamic.ResourceInterface
	namespace, name string
}

// NewObject returns the Lease of this name; it need not exist.
func NewObject(client dynamic.Interface, namespace, name string) *Object {
	return &Object{client.Resource(Resource).Namespace(namespace), namespace, name}
}

// Get reads the Lease.
func (o *Object) Get(ctx context.Context) (Record, error) {
	return record(o.leases.Get(ctx, o.name, metav1.GetOptions{}))
}

// Create makes the Lease.
func (o *Object) Create(ctx context.Context, r Record) (Record, error) {
	return record(o.leases.Create(ctx, o.object(r), metav1.CreateOptions{}))
}

// Update replaces the Lease if it still has the version of the record.
func (o *Object) Update(ctx context.Context, r Record) (Record, error) {
	return record(o.leases.Update(ctx, o.object(r), metav1.UpdateOptions{}))
}

func (o *Object) object(r Record) *unstructured.Unstructured {
	meta := map[string]any{"namespace": o.namespace, "name": o.name}
	if r.Version != "" {
		meta["resourceVersion"] = r.Version
	}
	if r.Note != "" {
		meta["annotations"] = map[string]any{noteAnnotation: r.Note}
	}
	return &unstructured.Unstructured{Object: map[string]any{
		"apiVersion": "coordination.k8s.io/v1", "kind": "Lease", "metadata": meta,
		"spec": map[string]any{
			"holderIdentity": r.Holder, "leaseDurationSeconds": int64(max(r.Duration/time.Second, 1)), "leaseTransitions": r.Transitions,
			"acquireTime": r.Acquired.UTC().Format(metav1.RFC3339Micro), "renewTime": r.Renewed.UTC().Format(metav1.RFC3339Micro),
		},
	}}
}

// record takes what an answer has; a field that is missing or wrong is zero.
func record(u *unstructured.Unstructured, err error) (Record, error) {
	if err != nil {
		return Record{}, err
	}
	r := Record{Version: u.GetResourceVersion(), Note: u.GetAnnotations()[noteAnnotation]}
	r.Holder, _, _ = unstructured.NestedString(u.Object, "spec", "holderIdentity")
	n, _, _ := unstructured.NestedInt64(u.Object, "spec", "leaseDurationSeconds")
	r.Duration = time.Duration(n) * time.Second
	r.Transitions, _, _ = unstructured.NestedInt64(u.Object, "spec", "leaseTransitions")
	at := func(field string) time.Time {
		text, _, _ := unstructured.NestedString(u.Object, "spec", field)
		t, _ := time.Parse(time.RFC3339Nano, text)
		return t
	}
	r.Acquired, r.Renewed = at("acquireTime"), at("renewTime")
	return r, nil
}
