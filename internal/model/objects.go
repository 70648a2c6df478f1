package model

import (
	"cmp"
	"maps"
	"net/netip"
	"slices"
	"strings"
)

// Objects are what users have written, as one source tells it. It is never changed.
type Objects struct {
	VIPs          []VIP          // sorted by Addr
	Peers         []BGPPeer      // sorted by Name
	LoadBalancers []LoadBalancer // sorted by Name; their VIPs are among VIPs
	Listeners     []BGPListener  // sorted by Name; so are theirs
}

// SetLabels replaces the labels of this node as one source tells them. Of two with
// one key that of the cluster counts, which is where nodes are labelled, then that of
// the other sources, of those the one with the higher name, and last that of files.
func (v *View) SetLabels(from SourceName, labels map[string]string) {
	if v.labels == nil {
		v.labels = make(map[SourceName]map[string]string)
	}
	v.labels[from] = labels
	if len(v.labels) == 1 {
		v.Labels = labels
		return
	}
	v.Labels = make(map[string]string)
	for _, s := range slices.SortedFunc(maps.Keys(v.labels), clusterLast) {
		maps.Copy(v.Labels, v.labels[s])
	}
}

// SetObjects replaces the objects of one source, and with them those of the View. Of two
// with the same address or name that of the configuration counts, else that of the source
// with the lower name: files are there without an API server.
func (v *View) SetObjects(from SourceName, o Objects) {
	if v.objects == nil {
		v.objects = make(map[SourceName]Objects)
	}
	v.objects[from] = o
	v.VIPs, v.Peers, v.LoadBalancers, v.Listeners = nil, nil, nil, nil
	for _, s := range slices.SortedFunc(maps.Keys(v.objects), configFirst) {
		o := v.objects[s]
		v.VIPs = merge(v.VIPs, withoutNamesakes(o, v.LoadBalancers), func(a, b *VIP) int { return a.Addr.Compare(b.Addr) })
		v.Peers = merge(v.Peers, o.Peers, func(a, b *BGPPeer) int { return cmp.Compare(a.Name, b.Name) })
		v.LoadBalancers = merge(v.LoadBalancers, o.LoadBalancers, func(a, b *LoadBalancer) int { return cmp.Compare(a.Name, b.Name) })
		v.Listeners = merge(v.Listeners, o.Listeners, func(a, b *BGPListener) int { return cmp.Compare(a.Name, b.Name) })
	}
	v.LoadBalancers = withTheirVIPs(v.LoadBalancers, v.VIPs)
}

// WithVIPs is the View with other VIPs; itself if they are the ones that it has.
func (v *View) WithVIPs(vips []VIP) *View {
	if len(vips) == 0 || len(v.VIPs) > 0 && &vips[0] == &v.VIPs[0] {
		return v
	}
	with := *v
	with.VIPs = vips
	return &with
}

// withoutNamesakes are the VIPs of a source without those of LoadBalancers whose names others
// have that count more.
func withoutNamesakes(o Objects, others []LoadBalancer) []VIP {
	namesake := func(name string) bool {
		return slices.ContainsFunc(others, func(lb LoadBalancer) bool { return lb.Name == name })
	}
	if !slices.ContainsFunc(o.LoadBalancers, func(lb LoadBalancer) bool { return namesake(lb.Name) }) {
		return o.VIPs // thousands, and nearly always
	}
	return slices.DeleteFunc(slices.Clone(o.VIPs), func(vip VIP) bool { return vip.Forwarded() && namesake(vip.Name) })
}

// withTheirVIPs are the LoadBalancers with those of their VIPs that they have: an object of
// another source may have the address and count more.
func withTheirVIPs(all []LoadBalancer, vips []VIP) []LoadBalancer {
	others := func(lb *LoadBalancer) func(netip.Addr) bool {
		return func(a netip.Addr) bool {
			i, is := FindVIP(vips, a)
			return !is || !vips[i].Forwarded() || vips[i].Name != lb.Name
		}
	}
	if !slices.ContainsFunc(all, func(lb LoadBalancer) bool { return slices.ContainsFunc(lb.VIPs, others(&lb)) }) {
		return all
	}
	var out []LoadBalancer
	for _, lb := range all {
		if lb.VIPs = slices.DeleteFunc(slices.Clone(lb.VIPs), others(&lb)); len(lb.VIPs) > 0 {
			out = append(out, lb)
		}
	}
	return out
}

// merge joins two sorted lists; of two that are equal that of the first counts. With
// thousands of Services there is an update of one all the time, so what needs no
// copy gets none.
func merge[T any](a, b []T, compare func(a, b *T) int) []T {
	switch {
	case len(a) == 0:
		return b
	case len(b) == 0:
		return a
	}
	out := make([]T, 0, len(a)+len(b))
	for len(a) > 0 && len(b) > 0 {
		c := compare(&a[0], &b[0])
		if c <= 0 {
			out, a = append(out, a[0]), a[1:]
		} else {
			out = append(out, b[0])
		}
		if c >= 0 {
			b = b[1:]
		}
	}
	return append(append(out, a...), b...)
}

// clusterLast is configFirst, but the cluster comes after all others.
func clusterLast(a, b SourceName) int {
	if a != b && (a == SourceKube || b == SourceKube) {
		if a == SourceKube {
			return 1
		}
		return -1
	}
	return configFirst(a, b)
}

func configFirst(a, b SourceName) int {
	switch {
	case a == b:
		return 0
	case a == SourceConfig:
		return -1
	case b == SourceConfig:
		return 1
	}
	return cmp.Compare(a, b)
}

// Key names an object of a cluster. Namespace is empty for a kind that has none.
type Key struct{ Namespace, Name string }

// ParseKey reads what String returns.
func ParseKey(text string) Key {
	if namespace, name, ok := strings.Cut(text, "/"); ok {
		return Key{namespace, name}
	}
	return Key{Name: text}
}

// String returns "namespace/name", or the name alone without a namespace.
func (k Key) String() string {
	if k.Namespace == "" {
		return k.Name
	}
	return k.Namespace + "/" + k.Name
}

// Compare orders by namespace and name.
func (k Key) Compare(o Key) int {
	return cmp.Or(cmp.Compare(k.Namespace, o.Namespace), cmp.Compare(k.Name, o.Name))
}
