package objects

import (
	"fmt"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime/schema"
)

// Events is the resource of events.
var Events = schema.GroupVersionResource{Version: "v1", Resource: "events"}

// Event is what is said of an object by an event.
type Event struct {
	// Of is the object, with its UID, by which kubectl describe finds its events.
	Of corev1.ObjectReference
	// Reason is one word, and Message the whole.
	Reason, Message string
	Warning         bool
	// Manager names the program that says so, and Host where it runs.
	Manager, Host string
}

// Namespace is where the event is to be: with the object, or for an object of the cluster in
// the namespace default, where Kubernetes looks for it.
func (e *Event) Namespace() string {
	if e.Of.Namespace == "" {
		return metav1.NamespaceDefault
	}
	return e.Of.Namespace
}

// Object is the event as the API server takes it. Its name is made of the time.
func (e *Event) Object(now time.Time) *unstructured.Unstructured {
	kind := corev1.EventTypeNormal
	if e.Warning {
		kind = corev1.EventTypeWarning
	}
	stamp := now.UTC().Format(time.RFC3339)
	return &unstructured.Unstructured{Object: map[string]any{
		"apiVersion": "v1", "kind": "Event",
		"metadata": map[string]any{"namespace": e.Namespace(), "name": fmt.Sprintf("%s.%x", e.Of.Name, now.UnixNano())},
		"involvedObject": map[string]any{
			"kind": e.Of.Kind, "apiVersion": e.Of.APIVersion, "namespace": e.Of.Namespace, "name": e.Of.Name, "uid": string(e.Of.UID),
		},
		"reason": e.Reason, "message": e.Message, "type": kind, "count": int64(1), "firstTimestamp": stamp, "lastTimestamp": stamp,
		"source": map[string]any{"component": e.Manager}, "reportingComponent": e.Manager, "reportingInstance": e.Host,
	}}
}
