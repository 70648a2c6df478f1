package k8s

import (
	"context"
	"encoding/json"
	"fmt"
	"slices"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
)

// Lacks tells whether the API server has a resource in none of these versions of a
// group. Only discovery can say so: a request that is not found may be the word of a
// proxy, or of an API server that has not read its definitions yet. An error says that
// it is not known; who may not ask has to take not found for an answer.
func (c *Client) Lacks(ctx context.Context, group string, versions []string, resource string) (bool, error) {
	for _, version := range versions {
		lacks, err := c.lacks(ctx, group, version, resource)
		switch {
		case apierrors.IsForbidden(err):
		case err != nil || !lacks:
			return false, err
		}
	}
	return true, nil
}

// lacks asks about one version. That one is not found counts if the list of groups,
// which every API server has, does not name it either.
func (c *Client) lacks(ctx context.Context, group, version, resource string) (bool, error) {
	root, gv := "/apis", group+"/"+version
	if group == "" {
		root, gv = "/api", version
	}
	var resources metav1.APIResourceList
	err := c.discover(ctx, root+"/"+gv, &resources)
	if err == nil {
		return !slices.ContainsFunc(resources.APIResources, func(r metav1.APIResource) bool { return r.Name == resource }), nil
	}
	if group == "" || !apierrors.IsNotFound(err) {
		return false, err
	}
	var groups metav1.APIGroupList
	if err := c.discover(ctx, root, &groups); err != nil {
		return false, err
	}
	return !slices.ContainsFunc(groups.Groups, func(g metav1.APIGroup) bool {
		return g.Name == group && slices.ContainsFunc(g.Versions, func(v metav1.GroupVersionForDiscovery) bool { return v.Version == version })
	}), nil
}

func (c *Client) discover(ctx context.Context, path string, into any) error {
	data, err := c.Core.Get().AbsPath(path).SetHeader("Accept", "application/json").Do(ctx).Raw()
	if err == nil {
		err = json.Unmarshal(data, into)
	}
	if err != nil {
		return fmt.Errorf("%s: %w", path, err)
	}
	return nil
}
