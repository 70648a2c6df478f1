package hub

import (
	"context"
	"fmt"
	"time"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"

	"lbd.dev/lbd/internal/k8s"
)

// Rotate makes the account of an agent anew, so that all its tokens end, and returns a token of the new
// one. If it fails half way it can be called again; the old tokens may have ended then.
func Rotate(ctx context.Context, c *k8s.Client, namespace string, life time.Duration) (string, error) {
	r := c.Dynamic.Resource(accounts).Namespace(namespace)
	fresh := &unstructured.Unstructured{Object: map[string]any{
		"apiVersion": "v1", "kind": "ServiceAccount", "automountServiceAccountToken": false,
		"metadata": map[string]any{"name": Account, "namespace": namespace},
	}}
	fresh.SetLabels(map[string]string{"app.kubernetes.io/name": "lbd", labelComponent: component})
	old, err := r.Get(ctx, Account, metav1.GetOptions{})
	switch {
	case err == nil:
		fresh.SetLabels(old.GetLabels())
		fresh.SetAnnotations(old.GetAnnotations())
		if err := remove(ctx, c, accounts, namespace, Account, string(old.GetUID())); err != nil {
			return "", err
		}
	case !apierrors.IsNotFound(err):
		return "", fmt.Errorf("account of the agent in %s: %w", namespace, err)
	}
	if _, err := r.Create(ctx, fresh, metav1.CreateOptions{FieldManager: "lbd"}); err != nil {
		return "", fmt.Errorf("account of the agent in %s is to be made anew, call it again: %w", namespace, err)
	}
	return c.RequestToken(ctx, namespace, Account, life)
}
