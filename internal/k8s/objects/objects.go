// Package objects reads the objects of the group lbd.dev of a cluster: typed,
// defaulted and validated as those in files are, and writes their conditions.
package objects

import (
	"bytes"
	"cmp"
	"context"
	"encoding/json"
	"fmt"
	"maps"
	"reflect"
	"slices"
	"sync"
	"time"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"

	"lbd.dev/lbd/api/v1alpha1"
	"lbd.dev/lbd/internal/k8s"
	"lbd.dev/lbd/internal/model"
	"lbd.dev/lbd/internal/services"
)

// resources are the names of the kinds in URLs.
var resources = map[string]string{
	v1alpha1.KindVirtualIP:        "virtualips",
	v1alpha1.KindLoadBalancer:     "loadbalancers",
	v1alpha1.KindBGPPeer:          "bgppeers",
	v1alpha1.KindBFDProfile:       "bfdprofiles",
	v1alpha1.KindCommunity:        "communities",
	v1alpha1.KindIPAddressPool:    "ipaddresspools",
	v1alpha1.KindL2Advertisement:  "l2advertisements",
	v1alpha1.KindBGPAdvertisement: "bgpadvertisements",
	v1alpha1.KindTenant:           "tenants",
	v1alpha1.KindTenantNodes:      "tenantnodes",
	v1alpha1.KindTenantService:    "tenantservices",
	v1alpha1.KindTenantRoute:      "tenantroutes", // not in a Set
	v1alpha1.NodeStatusKind:       "nodestatuses", // not in a Set

	v1alpha1.KindMachineLoadBalancer: "machineloadbalancers", // not in a Set
}

// Resource returns the name of a kind for a dynamic client.
func Resource(kind string) schema.GroupVersionResource {
	return schema.GroupVersionResource{Group: v1alpha1.Group, Version: v1alpha1.Version, Resource: resources[kind]}
}

// Object is one object and what the API server and we know about it.
type Object[T any] struct {
	Value T // defaulted; not to be changed
	// UID and Created are when and as what the API server made it, and Version is its
	// resourceVersion.
	UID     string
	Created time.Time
	Version string
	// Generation counts the changes of its spec.
	Generation int64
	// Errors are the rules that it breaks; an object with any is not to be used.
	Errors []v1alpha1.FieldError
	// Conditions are those of its status now.
	Conditions []v1alpha1.Condition
}

// Invalid is an object that breaks a rule.
type Invalid struct {
	Kind, Name string
	Errors     []v1alpha1.FieldError
}

// Objects are the valid objects, each kind sorted by name, and the others. None of
// it may be changed.
type Objects struct {
	services.Objects           // without Secrets
	Invalid          []Invalid // by kind and name
}

// Set watches all kinds.
type Set struct {
	VirtualIPs        *k8s.Watch[Object[*v1alpha1.VirtualIP]]
	LoadBalancers     *k8s.Watch[Object[*v1alpha1.LoadBalancer]]
	Peers             *k8s.Watch[Object[*v1alpha1.BGPPeer]]
	Profiles          *k8s.Watch[Object[*v1alpha1.BFDProfile]]
	Communities       *k8s.Watch[Object[*v1alpha1.Community]]
	Pools             *k8s.Watch[Object[*v1alpha1.IPAddressPool]]
	L2Advertisements  *k8s.Watch[Object[*v1alpha1.L2Advertisement]]
	BGPAdvertisements *k8s.Watch[Object[*v1alpha1.BGPAdvertisement]]
	Tenants           *k8s.Watch[Object[*v1alpha1.Tenant]]
	TenantNodes       *k8s.Watch[Object[*v1alpha1.TenantNodes]]
	TenantServices    *k8s.Watch[Object[*v1alpha1.TenantService]]
}

// kindWatch is what all watches of a Set have in common.
type kindWatch interface {
	Run(context.Context)
	Synced() bool
	State() k8s.WatchState
	Name() string
}

// NewSet returns a Set; Run fills it. changed is called for each change of a spec,
// of labels or of validity, not for a change of a status, and once for each kind
// when it was read first, without keys then; it must not block.
func NewSet(client *k8s.Client, changed func(kind string, keys []model.Key)) *Set {
	return &Set{
		VirtualIPs:        newWatch[v1alpha1.VirtualIP](client, v1alpha1.KindVirtualIP, changed),
		LoadBalancers:     newOptionalWatch[v1alpha1.LoadBalancer](client, v1alpha1.KindLoadBalancer, changed),
		Peers:             newWatch[v1alpha1.BGPPeer](client, v1alpha1.KindBGPPeer, changed),
		Profiles:          newWatch[v1alpha1.BFDProfile](client, v1alpha1.KindBFDProfile, changed),
		Communities:       newWatch[v1alpha1.Community](client, v1alpha1.KindCommunity, changed),
		Pools:             newWatch[v1alpha1.IPAddressPool](client, v1alpha1.KindIPAddressPool, changed),
		L2Advertisements:  newWatch[v1alpha1.L2Advertisement](client, v1alpha1.KindL2Advertisement, changed),
		BGPAdvertisements: newWatch[v1alpha1.BGPAdvertisement](client, v1alpha1.KindBGPAdvertisement, changed),
		Tenants:           newOptionalWatch[v1alpha1.Tenant](client, v1alpha1.KindTenant, changed),
		TenantNodes:       newOptionalWatch[v1alpha1.TenantNodes](client, v1alpha1.KindTenantNodes, changed),
		TenantServices:    newOptionalWatch[v1alpha1.TenantService](client, v1alpha1.KindTenantService, changed),
	}
}

func (s *Set) watches() []kindWatch {
	return []kindWatch{s.VirtualIPs, s.LoadBalancers, s.Peers, s.Profiles, s.Communities, s.Pools, s.L2Advertisements, s.BGPAdvertisements,
		s.Tenants, s.TenantNodes, s.TenantServices}
}

// Run watches all kinds until ctx ends.
func (s *Set) Run(ctx context.Context) {
	var wg sync.WaitGroup
	for _, w := range s.watches() {
		wg.Go(func() { w.Run(ctx) })
	}
	wg.Wait()
}

// Synced tells whether all kinds have been read. A kind that the API server does
// not know counts as read and empty.
func (s *Set) Synced() bool {
	for _, w := range s.watches() {
		if !w.Synced() {
			return false
		}
	}
	return true
}

// States tells how each watch is doing, by resource.
func (s *Set) States() map[string]k8s.WatchState {
	all := make(map[string]k8s.WatchState)
	for _, w := range s.watches() {
		all[w.Name()] = w.State()
	}
	return all
}

// Objects returns what there is now.
func (s *Set) Objects() Objects {
	var o Objects
	o.VirtualIPs = valid(s.VirtualIPs, v1alpha1.KindVirtualIP, &o.Invalid)
	o.LoadBalancers = valid(s.LoadBalancers, v1alpha1.KindLoadBalancer, &o.Invalid)
	o.Peers = valid(s.Peers, v1alpha1.KindBGPPeer, &o.Invalid)
	o.Profiles = valid(s.Profiles, v1alpha1.KindBFDProfile, &o.Invalid)
	o.Communities = valid(s.Communities, v1alpha1.KindCommunity, &o.Invalid)
	o.Pools = valid(s.Pools, v1alpha1.KindIPAddressPool, &o.Invalid)
	o.L2Advertisements = valid(s.L2Advertisements, v1alpha1.KindL2Advertisement, &o.Invalid)
	o.BGPAdvertisements = valid(s.BGPAdvertisements, v1alpha1.KindBGPAdvertisement, &o.Invalid)
	s.readTenants(&o)
	slices.SortFunc(o.Invalid, func(a, b Invalid) int {
		return cmp.Or(cmp.Compare(a.Kind, b.Kind), cmp.Compare(a.Name, b.Name))
	})
	return o
}

// valid returns the objects without errors by name, and adds the others to invalid.
func valid[T any](w *k8s.Watch[Object[T]], kind string, invalid *[]Invalid) []T {
	all := w.All()
	var out []T
	for _, k := range slices.SortedFunc(maps.Keys(all), model.Key.Compare) {
		o := all[k]
		if len(o.Errors) > 0 {
			*invalid = append(*invalid, Invalid{Kind: kind, Name: k.String(), Errors: o.Errors})
			continue
		}
		out = append(out, o.Value)
	}
	return out
}

// target is what every object of v1alpha1 can do.
type target[T any] interface {
	*T
	Default()
	Validate() []v1alpha1.FieldError
}

// Forbidden are the kinds that count as empty, since they may not be read, with the reason.
func (s *Set) Forbidden() map[string]error {
	out := make(map[string]error)
	for kind, st := range map[string]k8s.WatchState{
		v1alpha1.KindLoadBalancer: s.LoadBalancers.State(), v1alpha1.KindTenant: s.Tenants.State(),
		v1alpha1.KindTenantNodes: s.TenantNodes.State(), v1alpha1.KindTenantService: s.TenantServices.State(),
	} {
		if st.Absent && apierrors.IsForbidden(st.Err) {
			out[kind] = st.Err
		}
	}
	return out
}

func newWatch[T any, P target[T]](client *k8s.Client, kind string, changed func(string, []model.Key)) *k8s.Watch[Object[P]] {
	return k8s.NewWatch(watchOptions[T, P](client, kind, changed))
}

// newOptionalWatch watches a kind that the roles of an earlier version do not name.
func newOptionalWatch[T any, P target[T]](client *k8s.Client, kind string, changed func(string, []model.Key)) *k8s.Watch[Object[P]] {
	o := watchOptions[T, P](client, kind, changed)
	o.Optional = true
	return k8s.NewWatch(o)
}

func watchOptions[T any, P target[T]](client *k8s.Client, kind string, changed func(string, []model.Key)) k8s.WatchOptions[Object[P]] {
	return k8s.WatchOptions[Object[P]]{
		Name:      resources[kind],
		ListWatch: k8s.ListWatch(client.Dynamic, client.Dynamic.Resource(Resource(kind))),
		Object:    &unstructured.Unstructured{},
		Convert: func(obj runtime.Object) (Object[P], bool) {
			u, ok := obj.(*unstructured.Unstructured)
			if !ok {
				return Object[P]{}, false
			}
			return Read[T, P](u, kind), true
		},
		Same: func(a, b Object[P]) bool {
			return reflect.DeepEqual(a.Value, b.Value) && reflect.DeepEqual(a.Errors, b.Errors) && a.Generation == b.Generation && a.UID == b.UID
		},
		Changed: func(keys []model.Key) { changed(kind, keys) },
		Lacks: func(ctx context.Context) (bool, error) {
			return client.Lacks(ctx, v1alpha1.Group, []string{v1alpha1.Version}, resources[kind])
		},
	}
}

// Read turns an object of the API server into ours. The name is always filled in.
func Read[T any, P target[T]](u *unstructured.Unstructured, kind string) Object[P] {
	value := P(new(T))
	o := Object[P]{Value: value, UID: string(u.GetUID()), Created: u.GetCreationTimestamp().Time, Version: u.GetResourceVersion(), Generation: u.GetGeneration(), Conditions: conditionsOf(u)}
	meta := map[string]any{"name": u.GetName()}
	if l := u.GetLabels(); len(l) > 0 {
		meta["labels"] = l
	}
	doc := map[string]any{"apiVersion": v1alpha1.APIVersion, "kind": kind, "metadata": meta}
	if spec, ok := u.Object["spec"]; ok {
		doc["spec"] = spec
	}
	if kind == v1alpha1.KindTenantService { // the addresses that it has are told there alone
		if given, ok, err := unstructured.NestedSlice(u.Object, "status", "addresses"); ok && err == nil {
			status := map[string]any{"addresses": given}
			if name, ok, err := unstructured.NestedString(u.Object, "status", "globalName"); ok && err == nil {
				status["globalName"] = name
			}
			doc["status"] = status
		}
	}
	if kind == v1alpha1.KindTenantRoute { // so are its hostnames
		doc["status"] = given(u, "addresses", "hostnames")
	}
	data, err := json.Marshal(doc)
	if err == nil {
		d := json.NewDecoder(bytes.NewReader(data))
		d.DisallowUnknownFields()
		err = d.Decode(value)
	}
	if err != nil {
		o.Errors = []v1alpha1.FieldError{{Path: "spec", Rule: fmt.Sprintf("cannot be read: %v", err)}}
		return o
	}
	value.Default()
	o.Errors = value.Validate()
	if v, ok := any(value).(interface{ ValidateInCluster() []v1alpha1.FieldError }); ok {
		o.Errors = v.ValidateInCluster()
	}
	return o
}
