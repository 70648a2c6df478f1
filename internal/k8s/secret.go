package k8s

import (
	"context"
	"fmt"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
)

// CreateSecret makes a Secret with one key and tells whether it did: one of that
// name that is there already stays as it is, whatever it holds. It is never read, so
// the right to create is enough.
func (c *Client) CreateSecret(ctx context.Context, namespace, name, key string, value []byte) (created bool, err error) {
	secret := &corev1.Secret{
		ObjectMeta: metav1.ObjectMeta{Namespace: namespace, Name: name, Labels: map[string]string{"app.kubernetes.io/name": "lbd"}},
		Type:       corev1.SecretTypeOpaque,
		Data:       map[string][]byte{key: value},
	}
	err = c.Core.Post().Namespace(namespace).Resource("secrets").Body(secret).Do(ctx).Error()
	switch {
	case apierrors.IsAlreadyExists(err):
		return false, nil
	case err != nil:
		return false, fmt.Errorf("create Secret %s/%s: %w", namespace, name, err)
	}
	return true, nil
}
