package controller

import (
	"cmp"
	"fmt"
	"net/netip"
	"reflect"
	"slices"
	"strings"
	"testing"
	"time"

	"pgregory.net/rapid"

	"lbd.dev/lbd/api/v1alpha1"
	"lbd.dev/lbd/internal/allocator"
	"lbd.dev/lbd/internal/k8s/objects"
	"lbd.dev/lbd/internal/model"
	"lbd.dev/lbd/internal/tenants"
)

// sharing is a hub with TenantServices and a few addresses, as judge and allocator see it: what is decided is written in any
// order, or not at all, while users and thieves of statuses write as well.
type sharing struct {
	t       *rapid.T
	of      *tenantServices
	a       *allocator.Allocator
	all     map[model.Key]tenantService
	told    map[model.Key]allocator.Service // what the allocator was told last
	now     time.Time
	version int
	pool    string // what the pool has that both Tenants may have addresses of
}

func newSharing(t *rapid.T) *sharing {
	w := &sharing{t: t, pool: "192.0.2.0/30", all: map[model.Key]tenantService{}, now: time.Date(2026, 1, 1, 0, 0, 0, 0, time.UTC)}
	w.of = &tenantServices{c: &Controller{o: Options{Allocator: allocator.Options{Class: "lbd.dev/lbd"}}}}
	w.restart()
	return w
}

func (w *sharing) setPools() {
	p := v1alpha1.IPAddressPool{Spec: v1alpha1.IPAddressPoolSpec{Addresses: []string{w.pool}}}
	p.Default()
	w.a.SetPools([]allocator.Pool{{Name: "p", UID: "p", Spec: p.Spec}})
}

// restart has another controller lead, which knows what rests.
func (w *sharing) restart() {
	before := w.a
	w.a = allocator.New(allocator.Options{Class: "lbd.dev/lbd", Quarantine: time.Minute})
	if before != nil {
		for a, until := range before.Resting() {
			w.a.Rest(a, until)
		}
	}
	w.told = map[model.Key]allocator.Service{}
	w.setPools()
}

func (w *sharing) put(k model.Key, o tenantService) {
	w.version++
	o.Version = fmt.Sprint(w.version)
	w.all[k] = o
}

// judge is what controller and nodes of the hub say.
func (w *sharing) judge() tenants.Output {
	has, err := v1alpha1.ParseAddressRange(w.pool)
	if err != nil {
		w.t.Fatal(err)
	}
	in := &tenants.Input{
		Room: 1000, Services: map[model.Key]*tenants.Service{}, Pools: map[string][]v1alpha1.AddressRange{"p": {has}},
		Announced: map[string]tenants.Announced{"p": {L2: true}},
	}
	for i, name := range []string{"shop", "bank"} {
		x := &v1alpha1.Tenant{Metadata: v1alpha1.ObjectMeta{Name: name}, Spec: v1alpha1.TenantSpec{Pools: []string{"p"},
			Clusters: []v1alpha1.TenantCluster{{Name: "main", Namespace: name, NodeCIDRs: []string{fmt.Sprintf("10.%d.0.0/24", i+1)}}}}}
		x.Default()
		in.Tenants = append(in.Tenants, tenants.Tenant{Tenant: x})
	}
	for k, o := range w.all {
		in.Services[k] = objects.TenantService(o)
	}
	return tenants.Judge(in)
}

// group says with whom a Service may share.
func (w *sharing) group(k model.Key) string {
	return cmp.Or(w.all[k].Value.Spec.GlobalName, k.Name) + " of " + k.Namespace
}

// owners are the groups that are served, by address; of one that two are the test fails.
func (w *sharing) owners(after string) map[netip.Addr]string {
	owners := map[netip.Addr]string{}
	for k, given := range w.judge().Given {
		for _, a := range given {
			if by := owners[a]; by != "" && by != w.group(k) {
				w.t.Fatalf("after %s: %s is of %s and of %s", after, a, by, w.group(k))
			}
			owners[a] = w.group(k)
		}
	}
	return owners
}

// step decides, and carries out some of the writes: as assign does, and as the judge takes back what is not accepted.
func (w *sharing) step(all bool) {
	out, now := w.judge(), map[model.Key]allocator.Service{}
	for _, s := range w.of.asServices(w.all, out) {
		if now[s.Key] = s; !reflect.DeepEqual(w.told[s.Key], s) {
			w.a.SetService(s)
		}
	}
	for k := range w.told {
		if _, ok := now[k]; !ok {
			w.a.RemoveService(k)
		}
	}
	w.told = now
	writes := w.a.Step(w.now).Writes
	if !all {
		writes = rapid.Permutation(writes).Draw(w.t, "order")
		writes = writes[:rapid.IntRange(0, len(writes)).Draw(w.t, "written")]
	}
	for _, x := range writes {
		k := model.Key{Namespace: x.Service.Namespace, Name: strings.TrimPrefix(x.Service.Name, w.of.kind()+"/")}
		o, ok := w.all[k]
		if !ok || o.Version != x.Version {
			w.a.Retry(x.Service)
			continue
		}
		owners := w.owners("a judgement")
		v, before := *o.Value, o.Value.Status
		v.Status = &v1alpha1.TenantServiceStatus{}
		from, met := poolsIn(x), true
		for _, a := range addrsIn(x) {
			if by := owners[a]; by != "" && by != w.group(k) {
				w.t.Fatalf("%s is told of %s, by which %s is served", w.group(k), a, by)
			}
			v.Status.Addresses = append(v.Status.Addresses, v1alpha1.TenantAddress{Address: a.String(), Pool: from[a]})
		}
		for _, a := range w.of.requests[k].Fixed {
			met = met && slices.Contains(addrsIn(x), a)
		}
		if len(v.Status.Addresses) > 0 && (met || before != nil && before.GlobalName == v.Spec.GlobalName) {
			v.Status.GlobalName = v.Spec.GlobalName
		}
		o.Value = &v
		w.put(k, o)
		w.owners("a write")
	}
	for k, o := range w.all {
		if verdict := out.Services[k].Reason; verdict != tenants.ReasonAccepted && verdict != tenants.ReasonNoAddress && !verdict.LeadsNowhere() && o.Value.Status != nil &&
			(all || rapid.Bool().Draw(w.t, "taken back")) {
			v := *o.Value
			v.Status = nil
			o.Value = &v
			w.put(k, o)
		}
	}
}

// TestNoAddressServedTwice: whoever is made, renamed, deleted or moved out of a pool, whatever somebody writes into statuses,
// and whenever another controller leads: no two Services are ever served by one address unless they share it, and the
// allocator tells none of an address by which another one is served.
func TestNoAddressServedTwice(t *testing.T) {
	t.Parallel()
	rapid.Check(t, func(t *rapid.T) {
		w := newSharing(t)
		for i := range rapid.IntRange(1, 30).Draw(t, "steps") {
			k := model.Key{Namespace: rapid.SampledFrom([]string{"shop", "bank"}).Draw(t, "tenant"), Name: rapid.SampledFrom([]string{"a.a", "a.b", "a.c"}).Draw(t, "name")}
			o, there := w.all[k]
			what := rapid.SampledFrom([]string{"put", "put", "delete", "status", "pool", "time", "restart", "step", "step", "step"}).Draw(t, "do")
			switch what {
			case "put": // makes it, or gives it another name
				v := v1alpha1.TenantService{Metadata: v1alpha1.ObjectMeta{Namespace: k.Namespace, Name: k.Name}}
				if there {
					v = *o.Value
				} else {
					o = tenantService{UID: fmt.Sprint("u", i), Created: w.now.Add(time.Duration(i) * time.Second), Generation: 1}
				}
				v.Spec.Ports = []v1alpha1.TenantPort{{Port: 80, NodePort: 30080 + int32(k.Name[2]-'a')}}
				v.Spec.GlobalName = rapid.SampledFrom([]string{"", "web", "api"}).Draw(t, "global")
				v.Spec.Addresses = rapid.SampledFrom([][]string{nil, nil, {"192.0.2.1"}, {"198.51.100.1"}}).Draw(t, "asks")
				v.Default()
				o.Value = &v
				w.put(k, o)
			case "delete":
				delete(w.all, k)
			case "status":
				if there {
					v := *o.Value
					v.Status = &v1alpha1.TenantServiceStatus{GlobalName: rapid.SampledFrom([]string{"", "web", "api"}).Draw(t, "shown"),
						Addresses: []v1alpha1.TenantAddress{{Address: fmt.Sprintf("192.0.2.%d", rapid.IntRange(0, 3).Draw(t, "address")), Pool: "p"}}}
					o.Value = &v
					w.put(k, o)
				}
			case "pool":
				w.pool = rapid.SampledFrom([]string{"192.0.2.0/30", "192.0.2.0/31", "192.0.2.2/31"}).Draw(t, "addresses")
				w.setPools()
			case "time":
				w.now = w.now.Add(time.Duration(rapid.IntRange(1, 120).Draw(t, "seconds")) * time.Second)
			case "restart":
				w.restart()
			case "step":
				w.step(false)
			}
			w.owners(what)
		}
		for range 20 {
			w.step(true)
			w.now = w.now.Add(5 * time.Minute)
		}
	})
}
