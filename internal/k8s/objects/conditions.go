package objects

import (
	"context"
	"encoding/json"
	"fmt"
	"maps"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/dynamic"

	"lbd.dev/lbd/api/v1alpha1"
)

// conditionsOf reads the conditions of a status; what is malformed is left out.
func conditionsOf(u *unstructured.Unstructured) []v1alpha1.Condition {
	list, found, err := unstructured.NestedFieldNoCopy(u.Object, "status", "conditions")
	if !found || err != nil {
		return nil
	}
	data, err := json.Marshal(list)
	if err != nil {
		return nil
	}
	var out []v1alpha1.Condition
	if json.Unmarshal(data, &out) != nil {
		return nil
	}
	return out
}

// Writer writes the status of objects by server-side apply, so that each writer
// keeps to its own conditions and fields.
type Writer struct {
	// Client sends the requests.
	Client dynamic.Interface
	// Manager names the writer among those of one object.
	Manager string
	// Now is the clock; nil: time.Now.
	Now func() time.Time
}

// Write makes the status of the object say what it is to say: conditions, all that
// this writer has for the object, and fields beside them, such as the counts of a
// pool. present are those that the object has now. Without a difference in the
// conditions and without fields nothing is sent. It tells whether something was.
func (w *Writer) Write(ctx context.Context, kind, name string, present, conditions []v1alpha1.Condition, fields map[string]any) (bool, error) {
	now := time.Now
	if w.Now != nil {
		now = w.Now
	}
	merged, changed := Transition(present, conditions, now())
	if !changed && len(fields) == 0 {
		return false, nil
	}
	status := map[string]any{"conditions": merged}
	maps.Copy(status, fields)
	data, err := json.Marshal(map[string]any{
		"apiVersion": v1alpha1.APIVersion, "kind": kind, "metadata": map[string]any{"name": name}, "status": status,
	})
	if err != nil {
		return false, fmt.Errorf("status of %s %q: %w", kind, name, err)
	}
	_, err = w.Client.Resource(Resource(kind)).Patch(ctx, name, types.ApplyPatchType, data,
		metav1.PatchOptions{FieldManager: w.Manager, Force: new(true)}, "status")
	if err != nil {
		return false, fmt.Errorf("status of %s %q: %w", kind, name, err)
	}
	return true, nil
}

// Transition fills in when each condition last changed, and tells whether any is
// not there as it is.
func Transition(present, wanted []v1alpha1.Condition, now time.Time) ([]v1alpha1.Condition, bool) {
	out := make([]v1alpha1.Condition, 0, len(wanted))
	changed := false
	for _, c := range wanted {
		c.LastTransitionTime = now.UTC().Truncate(time.Second)
		known := false
		for _, old := range present {
			if old.Type != c.Type {
				continue
			}
			known = true
			if old.Status == c.Status {
				c.LastTransitionTime = old.LastTransitionTime
			}
			changed = changed || old != c
		}
		changed = changed || !known
		out = append(out, c)
	}
	return out, changed
}
