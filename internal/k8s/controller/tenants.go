package controller

import (
	"cmp"
	"context"
	"encoding/json"
	"fmt"
	"maps"
	"net/netip"
	"slices"
	"strings"
	"sync"
	"time"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/types"

	"lbd.dev/lbd/api/v1alpha1"
	"lbd.dev/lbd/internal/allocator"
	"lbd.dev/lbd/internal/ipam"
	"lbd.dev/lbd/internal/k8s/objects"
	"lbd.dev/lbd/internal/model"
	"lbd.dev/lbd/internal/services"
	"lbd.dev/lbd/internal/tenants"
)

// tenantService is a TenantService as it is read.
type tenantService = objects.Object[*v1alpha1.TenantService]

// tenantServices stands for the Services of tenants.
type tenantServices struct {
	c *Controller

	mu       sync.Mutex // guards all below
	requests map[model.Key]tenants.Request
	problems map[model.Key]string
	rests    map[string]int // see services.Objects; never changed
	unlisted error          // why not all TenantServices are known; nil: they are
	told     string         // what the log says of that
}

func (t *tenantServices) kind() string { return v1alpha1.KindTenantService }

// addrs are the addresses that a TenantService has by its status.
func (t *tenantServices) addrs(k model.Key) []netip.Addr {
	o, ok := t.c.objects.TenantServices.Get(k)
	if !ok {
		return nil
	}
	return objects.Given(o.Value)
}

// judge judges which TenantServices are to have addresses. Whether there is room to lead them anywhere
// is no question here.
func (t *tenantServices) judge(o *services.Objects) tenants.Output {
	o.TenantRests = t.resting()
	nodes := make(map[string]*services.Node)
	for k, n := range t.c.nodes.All() {
		nodes[k.Name] = n.Node
	}
	return services.JudgeTenants(o, nodes, 0)
}

func (t *tenantServices) claims() []allocator.Service {
	all := t.c.objects.TenantServices.All()
	if len(all) == 0 {
		return nil
	}
	if t.blind() {
		return t.asServices(all, kept(all))
	}
	o := t.c.objects.Objects().Objects
	return t.asServices(all, t.judge(&o))
}

// blind tells whether Tenants may not be read, and never were. Nothing can be said of what their agents
// write then, and what their Services have is theirs.
func (t *tenantServices) blind() bool { return t.c.objects.Tenants.State().Guessed }

// kept asks for what TenantServices have by their statuses, and for nothing else. Of those that share an address
// the oldest does: who may share it is not known.
func kept(all map[model.Key]tenantService) tenants.Output {
	out := tenants.Output{Given: make(map[model.Key][]netip.Addr)}
	taken := make(map[netip.Addr]bool)
	for _, k := range slices.SortedFunc(maps.Keys(all), func(a, b model.Key) int { return cmp.Or(all[a].Created.Compare(all[b].Created), a.Compare(b)) }) {
		o := all[k]
		given := objects.Given(o.Value)
		if len(given) == 0 || o.Value.Status.GlobalName != "" && slices.ContainsFunc(given, func(a netip.Addr) bool { return taken[a] }) {
			continue
		}
		for _, a := range given {
			taken[a] = true
		}
		r := tenants.Request{Key: k, Ports: o.Value.Spec.Ports}
		r.Keep(given)
		out.Requests, out.Given[k] = append(out.Requests, r), given
	}
	return out
}

func (t *tenantServices) read(ctx context.Context) ([]allocator.Service, error) {
	all, err := t.list(ctx)
	if apierrors.IsForbidden(err) {
		all, err = t.known(ctx, err)
	} else if err == nil {
		t.note(nil)
	}
	if err != nil || len(all) == 0 {
		return nil, err
	}
	if t.blind() {
		return t.asServices(all, kept(all)), nil
	}
	o := t.c.objects.Objects().Objects
	o.TenantServices = make(map[model.Key]*tenants.Service, len(all))
	for k, x := range all {
		if len(x.Errors) == 0 {
			o.TenantServices[k] = objects.TenantService(x)
		}
	}
	return t.asServices(all, t.judge(&o)), nil
}

// list reads the TenantServices from the API server's store; without the definition there are none.
func (t *tenantServices) list(ctx context.Context) (map[model.Key]tenantService, error) {
	all := map[model.Key]tenantService{}
	r := t.c.o.Client.Dynamic.Resource(objects.Resource(v1alpha1.KindTenantService))
	for next := ""; ; {
		list, err := r.List(ctx, metav1.ListOptions{Limit: pageSize, Continue: next})
		if s := t.c.objects.TenantServices.State(); apierrors.IsNotFound(err) && s.Absent && !s.Guessed {
			return nil, nil
		}
		if err != nil {
			return nil, fmt.Errorf("tenantservices: %w", err)
		}
		for i := range list.Items {
			u := &list.Items[i]
			all[model.Key{Namespace: u.GetNamespace(), Name: u.GetName()}] = objects.Read[v1alpha1.TenantService](u, v1alpha1.KindTenantService)
		}
		if next = list.GetContinue(); next == "" {
			return all, nil
		}
	}
}

// known are the TenantServices that the watch has, while they may not be listed: others may have been given
// addresses since it was last opened. A cluster without the definition has none.
func (t *tenantServices) known(ctx context.Context, refused error) (map[model.Key]tenantService, error) {
	lacks, err := t.c.o.Client.Lacks(ctx, v1alpha1.Group, []string{v1alpha1.Version}, objects.Resource(t.kind()).Resource)
	switch {
	case err != nil:
		return nil, err
	case lacks:
		t.note(nil)
		return nil, nil
	}
	t.note(refused)
	return t.c.objects.TenantServices.All(), nil
}

// note notes why not all TenantServices are known; nil: they are.
func (t *tenantServices) note(unlisted error) {
	t.mu.Lock()
	t.unlisted = unlisted
	t.mu.Unlock()
	t.tell()
}

// tell logs once what follows from what is not known.
func (t *tenantServices) tell() {
	blind := t.blind()
	t.mu.Lock()
	before, unlisted := t.told, t.unlisted
	switch {
	case unlisted == nil:
		t.told = ""
	case blind:
		t.told = "neither tenants nor tenantservices may be read: which pools are of a Tenant is not known, and all give out addresses"
	default:
		t.told = "tenantservices may not be listed: what is known of them stays, and no pool of a Tenant gives out an address"
	}
	now := t.told
	t.mu.Unlock()
	switch {
	case now != "" && now != before:
		t.c.o.Logger.Warn(now, "err", unlisted)
	case now == "" && before != "":
		t.c.o.Logger.Info("all tenantservices are known again")
	}
}

// partial tells whether not all TenantServices are known.
func (t *tenantServices) partial() bool {
	t.mu.Lock()
	defer t.mu.Unlock()
	return t.unlisted != nil
}

// pools are the IPAddressPools. While not all TenantServices are known, those that tenants may have are
// closed: who has which of their addresses is not known.
func (t *tenantServices) pools() []allocator.Pool {
	list := poolsOf(t.c.objects)
	if !t.partial() {
		return list
	}
	t.tell()
	theirs := map[string]bool{}
	for _, o := range t.c.objects.Tenants.All() {
		for _, name := range o.Value.Spec.Pools {
			theirs[name] = true
		}
	}
	for i := range list {
		if theirs[list[i].Name] {
			list[i].Closed = "the controller may not list the tenantservices that have addresses of it"
		}
	}
	return list
}

func (t *tenantServices) asServices(all map[model.Key]tenantService, out tenants.Output) []allocator.Service {
	requests := make(map[model.Key]tenants.Request, len(out.Requests))
	list := make([]allocator.Service, 0, len(out.Requests))
	for _, r := range out.Requests {
		requests[r.Key] = r
		if o, ok := all[r.Key]; ok { // else it went meanwhile
			list = append(list, t.asService(r, o, out.Given[r.Key]))
		}
	}
	t.mu.Lock()
	defer t.mu.Unlock()
	t.requests = requests
	return list
}

// asService is a TenantService as the allocator sees it. Of the addresses of its status it has
// those that count: the others are not the allocator's, and are overwritten.
func (t *tenantServices) asService(r tenants.Request, o tenantService, counts []netip.Addr) allocator.Service {
	s := allocator.Service{Key: standInKey(t.kind(), r.Key), UID: o.UID, Version: o.Version, Created: o.Created, Rested: true, Share: r.Share}
	for _, f := range r.Families {
		if f == v1alpha1.FamilyIPv6 {
			s.Families = append(s.Families, ipam.IPv6.String())
		} else {
			s.Families = append(s.Families, ipam.IPv4.String())
		}
	}
	for _, p := range r.Ports {
		if s.Share != "" {
			break // all that share its addresses have its ports
		}
		s.Ports = append(s.Ports, ipam.Port{Protocol: string(p.Protocol), Number: uint16(p.Port)})
	}
	t.c.ask(&s, r.Fixed)
	if len(r.Pools) > 0 {
		s.Annotations[allocator.AddressPool] = strings.Join(r.Pools, ",")
	}
	if o.Value.Status == nil {
		return s
	}
	for _, a := range o.Value.Status.Addresses {
		if addr, err := netip.ParseAddr(a.Address); err == nil && slices.Contains(counts, addr) {
			has(&s, addr, a.Pool)
		}
	}
	return s
}

func (t *tenantServices) assign(ctx context.Context, k model.Key, w allocator.Write) (allocator.Service, error) {
	from := poolsIn(w)
	addresses := []v1alpha1.TenantAddress{}
	for _, addr := range addrsIn(w) {
		addresses = append(addresses, v1alpha1.TenantAddress{Address: addr.String(), Pool: from[addr]})
	}
	before, ok := t.c.objects.TenantServices.Get(k)
	if !ok {
		return allocator.Service{}, apierrors.NewNotFound(objects.Resource(v1alpha1.KindTenantService).GroupResource(), k.String())
	}
	wanted := t.assigned(k, before.Value, addresses)
	wanted.ObservedGeneration = before.Generation
	accepted := brief{v1alpha1.ConditionAccepted, true, reasonAccepted, ""}.of(before.Generation)
	conditions, _ := objects.Transition(before.Conditions, []v1alpha1.Condition{accepted, wanted}, time.Now())
	status := map[string]any{"addresses": addresses, "conditions": conditions, "globalName": nil}
	t.mu.Lock()
	req := t.requests[k]
	t.mu.Unlock()
	met := !slices.ContainsFunc(req.Fixed, func(a netip.Addr) bool { return !slices.Contains(addrsIn(w), a) })
	if name := before.Value.Spec.GlobalName; name != "" && len(addresses) > 0 && (met || before.Value.Status != nil && before.Value.Status.GlobalName == name) { // with the addresses, or they would be its own for a moment
		status["globalName"] = name
	}
	u, err := t.c.patchStatus(ctx, t.kind(), k, map[string]any{"uid": w.UID, "resourceVersion": w.Version}, status)
	if err != nil {
		return allocator.Service{}, err
	}
	t.mu.Lock()
	r, asks := t.requests[k]
	t.mu.Unlock()
	if !asks {
		return allocator.Service{}, fmt.Errorf("TenantService %s asks for no address any more", k)
	}
	return t.asService(r, objects.Read[v1alpha1.TenantService](u, t.kind()), addrsIn(w)), nil
}

// words name nothing that is of others: neither who has an address, nor pools that the tenant has not.
func (t *tenantServices) words(e allocator.Event) string {
	if e.Reason == allocator.EventConflict {
		return "another object has an address of the status"
	}
	switch rule, _, _ := strings.Cut(e.Message, ":"); rule {
	case ipam.InUse.String(), ipam.SharingKey.String(), ipam.SharingBackend.String(), ipam.PortInUse.String():
		return rule + ": an address that is asked for is in use, or was until a minute ago"
	case ipam.WrongPool.String(), ipam.NotInPool.String(), ipam.NodeAddress.String():
		return rule + ": an address that is asked for is in no pool of the Tenant"
	case ipam.PoolClosed.String():
		return rule + ": the pool gives out no addresses for now"
	}
	return e.Message
}

func (t *tenantServices) problem(k model.Key, text string) {
	t.mu.Lock()
	changed := t.problems[k] != text
	if text == "" {
		delete(t.problems, k)
	} else {
		t.problems[k] = text
	}
	t.mu.Unlock()
	if changed {
		t.c.changes.judgeAgents()
	}
}

// resting counts the addresses of tenants that rest, by namespace.
func (t *tenantServices) resting() map[string]int {
	t.mu.Lock()
	defer t.mu.Unlock()
	return t.rests
}

// rest notes how many addresses rest, by the names under which the allocator knows those that gave
// them up. It tells whether any is of a tenant.
func (t *tenantServices) rest(gaveUp map[model.Key]int) bool {
	now := map[string]int{}
	for k, n := range gaveUp {
		if x, _ := t.c.standsFor(k); x == t {
			now[k.Namespace] += n
		}
	}
	t.mu.Lock()
	changed := !maps.Equal(now, t.rests)
	t.rests = now
	t.mu.Unlock()
	if changed {
		t.c.changes.mark(&t.c.changes.agents)
		t.c.changes.judgeAgents()
	}
	return len(now) > 0
}

// troubled tells whether something keeps a TenantService from an address.
func (t *tenantServices) troubled(k model.Key) bool {
	t.mu.Lock()
	defer t.mu.Unlock()
	return t.problems[k] != ""
}

// assigned is the condition ConditionAddressAssigned of a TenantService that is accepted: False while it
// lacks an address that it asks for.
func (t *tenantServices) assigned(k model.Key, s *v1alpha1.TenantService, addresses []v1alpha1.TenantAddress) v1alpha1.Condition {
	lacks := func(text string) bool {
		addr, err := netip.ParseAddr(text)
		return err == nil && !slices.ContainsFunc(addresses, func(a v1alpha1.TenantAddress) bool { return a.Address == addr.String() })
	}
	if len(addresses) < max(len(s.Spec.Families), 1) || slices.ContainsFunc(s.Spec.Addresses, lacks) {
		t.mu.Lock()
		defer t.mu.Unlock()
		words := cmp.Or(t.problems[k], "no address was chosen yet")
		return brief{v1alpha1.ConditionAddressAssigned, false, string(tenants.ReasonNoAddress), words}.of(0)
	}
	var words []string
	for _, a := range addresses {
		words = append(words, fmt.Sprintf("%s of the pool %s", a.Address, a.Pool))
	}
	return brief{v1alpha1.ConditionAddressAssigned, true, v1alpha1.ReasonAssigned, strings.Join(words, ", ")}.of(0)
}

// patchStatus is a merge patch (RFC 7396) of the status of an object. meta makes it fail if the object
// is not the one that it is about.
func (c *Controller) patchStatus(ctx context.Context, kind string, k model.Key, meta, status map[string]any) (*unstructured.Unstructured, error) {
	body, err := json.Marshal(map[string]any{"metadata": meta, "status": status})
	if err != nil {
		return nil, fmt.Errorf("status of %s %s: %w", kind, k, err)
	}
	u, err := c.o.Client.Dynamic.Resource(objects.Resource(kind)).Namespace(k.Namespace).
		Patch(ctx, k.Name, types.MergePatchType, body, metav1.PatchOptions{FieldManager: Manager}, "status")
	if err != nil {
		return nil, fmt.Errorf("status of %s %s: %w", kind, k, err)
	}
	return u, nil
}
