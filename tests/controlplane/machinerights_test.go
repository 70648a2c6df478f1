package controlplane_test

import (
	"context"
	"fmt"
	"strings"
	"testing"

	authv1 "k8s.io/api/authentication/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/dynamic"
	"k8s.io/client-go/rest"

	"lbd.dev/lbd/tests/controlplane"
)

// holder is somebody who has a token of an account.
type holder struct {
	name   string
	client dynamic.Interface
}

// tokenOf is for the holder of a real token of an account of lbd.
func tokenOf(t *testing.T, c *controlplane.ControlPlane, account string) holder {
	t.Helper()
	admin, err := c.Client()
	must(t, err)
	token, err := admin.CoreV1().ServiceAccounts(controlplane.InstallNamespace).CreateToken(t.Context(), account, &authv1.TokenRequest{}, metav1.CreateOptions{})
	must(t, err)
	cfg, err := c.Config(c.APIServers[0].Host, c.Host.IP4, controlplane.User{Name: "nobody"})
	must(t, err)
	cfg.CertData, cfg.KeyData, cfg.BearerToken, cfg.WarningHandler = nil, nil, token.Status.Token, rest.NoWarnings{}
	client, err := dynamic.NewForConfig(cfg)
	must(t, err)
	return holder{account, client}
}

// may has the holder do something, and compares what the API server says of its rights.
func (h holder) may(t *testing.T, want bool, verb, what string) {
	t.Helper()
	if err := h.try(t.Context(), verb, what); apierrors.IsForbidden(err) == want || err != nil && !apierrors.IsForbidden(err) {
		t.Errorf("%s: %s %s: %v, want that it may: %v", h.name, verb, what, err, want)
	}
}

// try does something to "resource[/status].group namespace/name".
func (h holder) try(ctx context.Context, verb, what string) error {
	kind, path, _ := strings.Cut(what, " ")
	kind, group, _ := strings.Cut(kind, ".")
	kind, sub, _ := strings.Cut(kind, "/")
	namespace, name, _ := strings.Cut(path, "/")
	version := map[string]string{"": "v1", "lbd.dev": "v1alpha1", "cluster.x-k8s.io": "v1beta2"}[group]
	r := h.client.Resource(schema.GroupVersionResource{Group: group, Version: version, Resource: kind}).Namespace(namespace)
	var err error
	switch verb {
	case "get":
		_, err = r.Get(ctx, name, metav1.GetOptions{})
	case "list":
		_, err = r.List(ctx, metav1.ListOptions{})
	case "delete":
		err = r.Delete(ctx, name, metav1.DeleteOptions{DryRun: []string{metav1.DryRunAll}})
	case "watch":
		w, e := r.Watch(ctx, metav1.ListOptions{})
		if err = e; err == nil {
			w.Stop()
		}
	default: // the body of a patch
		var subs []string
		if sub != "" {
			subs = append(subs, sub)
		}
		_, err = r.Patch(ctx, name, types.MergePatchType, []byte(verb), metav1.PatchOptions{DryRun: []string{metav1.DryRunAll}}, subs...)
	}
	return err
}

// TestMachineRights: a token of the hosts, in the hands of somebody else, changes no
// Machine, shows no Secret, and says nothing of other namespaces than those that it was
// bound in. The API server is asked with real tokens and the rights as they are shipped.
func TestMachineRights(t *testing.T) {
	t.Parallel() // it measures nothing
	c := start(t, newLab(t, 1), controlplane.Options{Families: []controlplane.Family{controlplane.IPv4}})
	ctx := t.Context()
	must(t, c.ApplyClusterAPI(ctx), c.ApplyCRDs(ctx), c.ApplyRights(ctx), c.BindHosts(ctx, "mine"))
	for _, ns := range []string{"mine", "theirs"} {
		m, err := c.NewMachineCluster(ctx, ns, "prod")
		must(t, err)
		for _, name := range []string{"m1", "m2"} {
			must(t, m.Create(ctx, controlplane.Machine{Name: name, Annotations: map[string]string{controlplane.DrainHook: ""}}))
		}
		must(t, c.Apply(ctx, fmt.Sprintf(balancerManifest, "api", ns, "prod", "10.77.0.210")+
			"---\napiVersion: v1\nkind: Secret\nmetadata: {name: prod-kubeconfig, namespace: "+ns+"}\n"))
	}
	must(t, c.Apply(ctx, "apiVersion: v1\nkind: Secret\nmetadata: {name: lbd-gossip, namespace: "+controlplane.InstallNamespace+"}\n"))
	const (
		unhook  = `{"metadata":{"annotations":{"` + controlplane.DrainHook + `":null}}}`
		drain   = `{"metadata":{"labels":{"lbd.dev/drain":""}}}`
		gone    = `{"status":{"phase":"Deleted"}}`
		drained = `{"status":{"members":[{"machine":"m1","namespace":"mine","state":"Drained"}],"memberCount":1,"healthyCount":0,"ready":false}}`
		moved   = `{"spec":{"address":"10.77.0.211"}}`
		other   = `{"spec":{"paused":true}}`
	)
	host, steward := tokenOf(t, c, "lbd-machines"), tokenOf(t, c, "lbd-controller")
	for _, x := range []struct {
		verb, what    string
		host, steward bool
	}{
		{"get", "machines.cluster.x-k8s.io mine/m1", true, true},
		{"list", "machines.cluster.x-k8s.io mine", true, true},
		{"watch", "machines.cluster.x-k8s.io mine", true, true},
		{"list", "machines.cluster.x-k8s.io theirs", false, true},
		{"list", "machines.cluster.x-k8s.io", false, true},
		{unhook, "machines.cluster.x-k8s.io mine/m1", false, true},
		{unhook, "machines.cluster.x-k8s.io theirs/m1", false, true},
		{drain, "machines.cluster.x-k8s.io mine/m2", false, true},
		{gone, "machines/status.cluster.x-k8s.io mine/m1", false, false},
		{"delete", "machines.cluster.x-k8s.io mine/m1", false, false},
		{other, "clusters.cluster.x-k8s.io mine/prod", false, true},
		{"get", "clusters.cluster.x-k8s.io mine/prod", false, true},
		{"watch", "machineloadbalancers.lbd.dev mine", true, true},
		{"watch", "machineloadbalancers.lbd.dev theirs", false, true},
		{drained, "machineloadbalancers/status.lbd.dev mine/api", true, true},
		{drained, "machineloadbalancers/status.lbd.dev theirs/api", false, true},
		{moved, "machineloadbalancers.lbd.dev mine/api", false, false},
		{"delete", "machineloadbalancers.lbd.dev mine/api", false, false},
		{"get", "secrets. mine/prod-kubeconfig", false, false},
		{"list", "secrets. mine", false, false},
		{"get", "secrets. " + controlplane.InstallNamespace + "/lbd-gossip", false, false},
		{"list", "secrets.", false, false},
		{"list", "configmaps. mine", false, false},
		{"list", "nodes.", false, true},
	} {
		host.may(t, x.host, x.verb, x.what)
		steward.may(t, x.steward, x.verb, x.what)
	}
}
