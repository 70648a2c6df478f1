package hub

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"strings"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/types"

	"lbd.dev/lbd/internal/k8s"
	"lbd.dev/lbd/internal/k8s/agent"
	"lbd.dev/lbd/internal/k8s/lease"
	"lbd.dev/lbd/internal/tenants"
)

// maxUID is the most characters that a UID is believed to have.
const maxUID = 64

// refusedIn reads which cluster a Lease of an agent says is refused; without a UID: none.
func refusedIn(l *unstructured.Unstructured) Refused {
	uid, _, _ := strings.Cut(l.GetAnnotations()[tenants.AnnotationRefused], " ")
	if uid == "" || len(uid) > maxUID { // agents write it
		return Refused{}
	}
	return Refused{uid, wrote(l, agent.ManagerRefused)}
}

// ErrNobodyRefused is wrapped by the error for a namespace for which no other cluster asks.
var ErrNobodyRefused = errors.New("no other cluster with the credentials of this one has been seen in the last 3 minutes: does its agent run?")

// Asks tells whether the agent of that cluster still asks.
func (r Refused) Asks(now time.Time) bool { return r.UID != "" && now.Sub(r.Seen) < tenants.AwayAfter }

// Rebind has the cluster that is refused take the place of the one that the hub knows by the same credentials, and
// returns it.
func Rebind(ctx context.Context, c *k8s.Client, namespace string, now time.Time) (Refused, error) {
	r := c.Dynamic.Resource(lease.Resource).Namespace(namespace)
	l, err := r.Get(ctx, tenants.PulseName, metav1.GetOptions{})
	if err != nil {
		return Refused{}, fmt.Errorf("lease of the agent in %s: %w", namespace, err)
	}
	to := refusedIn(l)
	if to.UID == "" {
		return to, fmt.Errorf("%s: %w", namespace, ErrNobodyRefused)
	}
	if !to.Asks(now) { // by the clock of this computer, which may be wrong
		return to, fmt.Errorf("%s: %w The one with the UID %s was seen at %s, and it is %s now", namespace, ErrNobodyRefused, to.UID, to.Seen.UTC().Format(time.RFC3339), now.UTC().Format(time.RFC3339))
	}
	body, err := json.Marshal(map[string]any{"metadata": map[string]any{"resourceVersion": l.GetResourceVersion(),
		"annotations": map[string]any{tenants.AnnotationCluster: to.UID, tenants.AnnotationRefused: nil}}})
	if err != nil {
		return to, err
	}
	if _, err := r.Patch(ctx, tenants.PulseName, types.MergePatchType, body, metav1.PatchOptions{FieldManager: "lbd"}); err != nil {
		return to, fmt.Errorf("lease of the agent in %s: %w", namespace, err)
	}
	return to, nil
}
