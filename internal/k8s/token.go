package k8s

import (
	"context"
	"encoding/json"
	"fmt"
	"time"

	"k8s.io/apimachinery/pkg/runtime"
)

// RequestToken asks the API server for a token of a service account that is good for as long as life, or
// for less if the server says so.
func (c *Client) RequestToken(ctx context.Context, namespace, account string, life time.Duration) (string, error) {
	ask, err := json.Marshal(map[string]any{"apiVersion": "authentication.k8s.io/v1", "kind": "TokenRequest",
		"spec": map[string]any{"expirationSeconds": int64(life / time.Second)}})
	if err != nil {
		return "", err
	}
	data, err := c.Core.Post().Namespace(namespace).Resource("serviceaccounts").Name(account).SubResource("token").
		SetHeader("Content-Type", runtime.ContentTypeJSON).SetHeader("Accept", runtime.ContentTypeJSON).Body(ask).Do(ctx).Raw()
	if err != nil {
		return "", fmt.Errorf("token of %s: %w", account, err)
	}
	var given struct {
		Status struct {
			Token string `json:"token"`
		} `json:"status"`
	}
	if err := json.Unmarshal(data, &given); err != nil || given.Status.Token == "" {
		return "", fmt.Errorf("token of %s: the answer has none", account)
	}
	return given.Status.Token, nil
}
