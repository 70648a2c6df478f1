package hub

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"time"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/types"

	"lbd.dev/lbd/api/v1alpha1"
	"lbd.dev/lbd/internal/k8s"
	"lbd.dev/lbd/internal/k8s/lease"
	"lbd.dev/lbd/internal/k8s/objects"
	"lbd.dev/lbd/internal/model"
	"lbd.dev/lbd/internal/tenants"
	"lbd.dev/lbd/internal/tenants/routes"
)

// The labels of what `lbd tenant create` prints.
const (
	labelTenant    = "lbd.dev/tenant"
	labelComponent = "app.kubernetes.io/component"
	component      = "tenant"
)

// What an agent has in its namespace: the account, and its Role with a binding of the same name.
const (
	Account  = "agent"
	roleName = "lbd-agent"
	// ingressName is that of its Role for Ingresses, and controllerName that of the binding by which the
	// controller of the hub may write what the engine reads.
	ingressName    = "lbd-agent-ingress"
	controllerName = "lbd-tenant-ingress"
	gatewayName    = "lbd-tenant-gateway" // the same for routes of a Gateway
	// tlsName and controllerTLS are the same for Secrets with certificates.
	tlsName       = "lbd-agent-tls"
	controllerTLS = "lbd-tenant-tls"
)

// The kinds of Kubernetes that are looked at here.
var (
	namespaces   = schema.GroupVersionResource{Version: "v1", Resource: "namespaces"}
	pods         = schema.GroupVersionResource{Version: "v1", Resource: "pods"}
	accounts     = schema.GroupVersionResource{Version: "v1", Resource: "serviceaccounts"}
	secrets      = schema.GroupVersionResource{Version: "v1", Resource: "secrets"}
	quotas       = schema.GroupVersionResource{Version: "v1", Resource: "resourcequotas"}
	roles        = schema.GroupVersionResource{Group: "rbac.authorization.k8s.io", Version: "v1", Resource: "roles"}
	roleBindings = schema.GroupVersionResource{Group: "rbac.authorization.k8s.io", Version: "v1", Resource: "rolebindings"}

	// ofEngine are those that the controller writes for the engine, with a label.
	ofEngine = []schema.GroupVersionResource{
		{Group: "networking.k8s.io", Version: "v1", Resource: "ingresses"},
		{Group: "gateway.networking.k8s.io", Version: "v1", Resource: "httproutes"}, {Group: "gateway.networking.k8s.io", Version: "v1", Resource: "grpcroutes"},
		{Version: "v1", Resource: "services"}, {Group: "discovery.k8s.io", Version: "v1", Resource: "endpointslices"},
	}
)

// How a deletion takes its time.
const (
	lookEvery = 500 * time.Millisecond
	// tellTime is how long agents have for the Services that have lost their addresses.
	tellTime = 3 * time.Second
)

// End is what ends with a tenant.
type End struct {
	Tenant string
	// Exists: there is a Tenant of the name. Without it there may be namespaces that an earlier deletion left.
	Exists     bool
	Namespaces []EndOf

	uid        string
	look, tell time.Duration // lookEvery and tellTime
}

// EndOf is what ends in one namespace.
type EndOf struct {
	Namespace string
	// Whole: the namespace itself ends with all that is in it. It carries the label of the tenant, and no
	// Pod is in it.
	Whole bool
	// Labelled: it carries the label of the tenant, or the account of the agent in it does, so that it is
	// found without the Tenant.
	Labelled bool
	// Services counts the TenantServices, and Addresses are theirs.
	Services  int
	Addresses []string
}

// Ending tells what the end of a tenant means. Nothing is changed.
func Ending(ctx context.Context, c *k8s.Client, name string) (*End, error) {
	if name == "" {
		return nil, errors.New("the name of a Tenant must not be empty")
	}
	r, err := readAll(ctx, c)
	if err != nil {
		return nil, err
	}
	e := &End{Tenant: name, look: lookEvery, tell: tellTime}
	owners := r.Owners()
	own, err := accountsOf(ctx, c, name)
	if err != nil {
		return nil, err
	}
	if o, ok := r.Tenants.Tenants[model.Key{Name: name}]; ok {
		e.Exists, e.uid = true, o.UID
		for _, x := range o.Value.Spec.Clusters {
			if !own[x.Namespace] {
				own[x.Namespace] = false
			}
		}
	}
	list, err := c.Dynamic.Resource(namespaces).List(ctx, metav1.ListOptions{})
	if err != nil {
		return nil, fmt.Errorf("namespaces: %w", err)
	}
	for i := range list.Items {
		u := &list.Items[i]
		labelled := has(u, labelTenant, name)
		account, named := own[u.GetName()]
		if !named && !labelled || owners[u.GetName()] != name && owners[u.GetName()] != "" {
			continue // that of another Tenant stays, whoever else names it
		}
		x := EndOf{Namespace: u.GetName(), Whole: labelled, Labelled: labelled || account}
		for _, s := range r.services(u.GetName()) {
			x.Services++
			for _, a := range s.Addresses {
				x.Addresses = append(x.Addresses, a.Address)
			}
		}
		if x.Whole {
			if x.Whole, err = empty(ctx, c, x.Namespace); err != nil {
				return nil, err
			}
		}
		e.Namespaces = append(e.Namespaces, x)
	}
	return e, nil
}

// accountsOf are the namespaces in which an account of an agent carries the label of the tenant. Who may
// not list accounts finds namespaces by their own label alone.
func accountsOf(ctx context.Context, c *k8s.Client, tenant string) (map[string]bool, error) {
	list, err := c.Dynamic.Resource(accounts).List(ctx, metav1.ListOptions{LabelSelector: labelComponent + "=" + component})
	own := make(map[string]bool)
	if apierrors.IsForbidden(err) {
		return own, nil
	}
	if err != nil {
		return nil, fmt.Errorf("serviceaccounts: %w", err)
	}
	for i := range list.Items {
		if u := &list.Items[i]; u.GetName() == Account && has(u, labelComponent, component) && has(u, labelTenant, tenant) {
			own[u.GetNamespace()] = true
		}
	}
	return own, nil
}

// empty tells whether a namespace has no Pod.
func empty(ctx context.Context, c *k8s.Client, namespace string) (bool, error) {
	list, err := c.Dynamic.Resource(pods).Namespace(namespace).List(ctx, metav1.ListOptions{Limit: 1})
	if err != nil {
		return false, fmt.Errorf("pods of %s: %w", namespace, err)
	}
	return len(list.Items) == 0, nil
}

// Run ends the tenant: first the Tenant, so that no node of the hub leads anything to its clusters, then
// the rights of its agents, and then what they wrote. In between it waits, for as long as wait, until the
// controller has taken the addresses back, so that they rest and the agents tell their Services. say is
// told each step. What is gone already is passed over.
func (e *End) Run(ctx context.Context, c *k8s.Client, wait time.Duration, say func(string)) error {
	if e.Exists {
		if err := remove(ctx, c, objects.Resource(v1alpha1.KindTenant), "", e.Tenant, e.uid); err != nil {
			return err
		}
		say("Tenant " + e.Tenant + ": deleted")
	}
	served, err := e.served(ctx, c)
	if err != nil {
		return e.left(err)
	}
	if len(served) > 0 || slices.ContainsFunc(e.Namespaces, func(x EndOf) bool { return len(x.Addresses) > 0 }) {
		if err := e.wait(ctx, c, wait, say); err != nil {
			return e.left(err)
		}
	}
	for _, x := range e.Namespaces {
		if err := x.run(ctx, c, e.Tenant); err != nil {
			return e.left(err)
		}
		if x.Whole {
			say("namespace " + x.Namespace + ": deleted, and ends once all in it has")
		} else {
			say("namespace " + x.Namespace + ": stays; what lbd has in it is deleted")
		}
	}
	return nil
}

// left names the namespaces in an error that another call cannot find, since nothing in them has the label.
func (e *End) left(err error) error {
	var names []string
	for _, x := range e.Namespaces {
		if !x.Labelled {
			names = append(names, x.Namespace)
		}
	}
	if len(names) == 0 {
		return err
	}
	return fmt.Errorf("%w; another call finds the namespaces %q only with the label %s=%s", err, names, labelTenant, e.Tenant)
}

// served are the objects that the engine reads, as "ingresses NAMESPACE/NAME". Who may not list them sees none.
func (e *End) served(ctx context.Context, c *k8s.Client) (names []string, err error) {
	for _, r := range ofEngine {
		for _, x := range e.Namespaces {
			list, err := c.Dynamic.Resource(r).Namespace(x.Namespace).List(ctx, metav1.ListOptions{LabelSelector: routes.Label + "=" + routes.LabelValue})
			if apierrors.IsNotFound(err) || apierrors.IsForbidden(err) {
				continue
			}
			if err != nil {
				return nil, fmt.Errorf("%s of %s: %w", r.Resource, x.Namespace, err)
			}
			for i := range list.Items {
				if u := &list.Items[i]; has(u, routes.Label, routes.LabelValue) {
					names = append(names, r.Resource+" "+x.Namespace+"/"+u.GetName())
				}
			}
		}
	}
	return names, nil
}

// mostNamed bounds how many objects a line names.
const mostNamed = 5

// late says what the controller has not done in time.
func late(most time.Duration, addresses int, served []string, say func(string)) {
	if addresses > 0 {
		say(fmt.Sprintf("the controller has not taken all addresses back within %s; they do not rest, and Services of the tenant keep them in their status", most))
	}
	if len(served) > 0 {
		text := strings.Join(served[:min(len(served), mostNamed)], ", ")
		if more := len(served) - mostNamed; more > 0 {
			text += fmt.Sprintf(" and %d more", more)
		}
		say(fmt.Sprintf("the controller has not deleted within %s what the engine reads; in a namespace that stays it serves the tenant until you delete: %s", most, text))
	}
}

// wait waits until no TenantService and no TenantRoute has an address, and nothing is left that the engine
// reads.
func (e *End) wait(ctx context.Context, c *k8s.Client, most time.Duration, say func(string)) error {
	ended := time.NewTimer(most)
	defer ended.Stop()
	var served []string
	for pause, addresses := time.Duration(0), 0; ; pause = e.look {
		select {
		case <-ctx.Done():
			return fmt.Errorf("interrupted: call it again for the rest: %w", ctx.Err())
		case <-ended.C:
			late(most, addresses, served, say)
			return nil
		case <-time.After(pause):
		}
		addresses = 0
		for _, x := range e.Namespaces {
			for _, kind := range []string{v1alpha1.KindTenantService, v1alpha1.KindTenantRoute} {
				err := each(ctx, c, kind, x.Namespace, func(_ model.Key, u *unstructured.Unstructured) {
					list, _, _ := unstructured.NestedSlice(u.Object, "status", "addresses") // of another type: none
					addresses += len(list)
				})
				if err != nil && !errors.Is(err, errNoKind) {
					return err
				}
			}
		}
		var err error
		if served, err = e.served(ctx, c); err != nil {
			return err
		}
		if addresses+len(served) > 0 {
			continue
		}
		select {
		case <-ctx.Done():
		case <-time.After(min(e.tell, most)):
		}
		return nil
	}
}

// run ends what is in one namespace. Without its rights the agent cannot make anew what is deleted.
func (x *EndOf) run(ctx context.Context, c *k8s.Client, tenant string) error {
	for _, name := range []string{roleName, ingressName, tlsName, controllerName, controllerTLS, gatewayName} {
		if err := removeOurs(ctx, c, roleBindings, x.Namespace, name); err != nil {
			return err
		}
	}
	if x.Whole {
		return removeLabelled(ctx, c, namespaces, "", x.Namespace, labelTenant, tenant)
	}
	for _, kind := range []string{v1alpha1.KindTenantRoute, v1alpha1.KindTenantService, v1alpha1.KindTenantNodes} {
		var names []string
		if err := each(ctx, c, kind, x.Namespace, func(k model.Key, _ *unstructured.Unstructured) { names = append(names, k.Name) }); err != nil && !errors.Is(err, errNoKind) {
			return err
		}
		for _, name := range names {
			if err := remove(ctx, c, objects.Resource(kind), x.Namespace, name, ""); err != nil {
				return err
			}
		}
	}
	if err := removeSecrets(ctx, c, x.Namespace); err != nil {
		return err
	}
	for _, o := range []struct {
		r    schema.GroupVersionResource
		name string
	}{
		{roles, roleName}, {roles, ingressName}, {roles, tlsName}, {roles, controllerTLS}, {quotas, "lbd"}, {quotas, "lbd-ingress"}, {quotas, "lbd-tls"}, {lease.Resource, tenants.PulseName},
		{accounts, Account},
	} { // the account last: another call finds the namespace by it
		if err := removeOurs(ctx, c, o.r, x.Namespace, o.name); err != nil {
			return err
		}
	}
	return nil
}

// removeSecrets deletes the certificates that an agent has written. Who may not list Secrets leaves them.
func removeSecrets(ctx context.Context, c *k8s.Client, namespace string) error {
	list, err := c.Dynamic.Resource(secrets).Namespace(namespace).List(ctx, metav1.ListOptions{LabelSelector: tenants.SecretLabel + "=" + tenants.SecretLabelValue})
	if apierrors.IsNotFound(err) || apierrors.IsForbidden(err) {
		return nil
	}
	if err != nil {
		return fmt.Errorf("secrets of %s: %w", namespace, err)
	}
	for i := range list.Items {
		u := &list.Items[i]
		if !has(u, tenants.SecretLabel, tenants.SecretLabelValue) || !strings.HasPrefix(u.GetName(), v1alpha1.HubSecretPrefix) {
			continue
		}
		if err := remove(ctx, c, secrets, namespace, u.GetName(), string(u.GetUID())); err != nil {
			return err
		}
	}
	return nil
}

// removeOurs deletes an object that `lbd tenant create` printed.
func removeOurs(ctx context.Context, c *k8s.Client, r schema.GroupVersionResource, namespace, name string) error {
	return removeLabelled(ctx, c, r, namespace, name, labelComponent, component)
}

// removeLabelled deletes an object that has a label, as it is now.
func removeLabelled(ctx context.Context, c *k8s.Client, r schema.GroupVersionResource, namespace, name, label, value string) error {
	u, err := c.Dynamic.Resource(r).Namespace(namespace).Get(ctx, name, metav1.GetOptions{})
	switch {
	case apierrors.IsNotFound(err):
		return nil
	case err != nil:
		return fmt.Errorf("%s %s: %w", r.Resource, name, err)
	case !has(u, label, value):
		return nil // somebody else's
	}
	return remove(ctx, c, r, namespace, name, string(u.GetUID()))
}

// has tells whether an object carries a label with this value.
func has(u *unstructured.Unstructured, label, value string) bool {
	v, ok := u.GetLabels()[label]
	return ok && v == value
}

// remove deletes an object, that with this UID if one is given.
func remove(ctx context.Context, c *k8s.Client, r schema.GroupVersionResource, namespace, name, uid string) error {
	var o metav1.DeleteOptions
	if uid != "" {
		o.Preconditions = &metav1.Preconditions{UID: new(types.UID(uid))}
	}
	if err := c.Dynamic.Resource(r).Namespace(namespace).Delete(ctx, name, o); err != nil && !apierrors.IsNotFound(err) {
		return fmt.Errorf("delete %s %s: %w", r.Resource, name, err)
	}
	return nil
}
