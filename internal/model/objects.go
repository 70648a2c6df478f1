package model

import (
	"cmp"
	"maps"
	"slices"
)

// objects are what users have written, as one source tells it.
type objects struct {
	vips  []VIP
	peers []BGPPeer
}

// SetLabels replaces the labels of this node as one source tells them. Of two with
// one key that of the cluster counts: it is where nodes are labelled.
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
	for _, s := range []SourceName{SourceConfig, SourceKube} {
		maps.Copy(v.Labels, v.labels[s])
	}
}

// SetObjects replaces the VIPs, sorted by Addr, and the BGP peers, sorted by Name,
// of one source, and with them those of the View. Of two with the same address or
// name that of the configuration counts, else that of the source with the lower
// name: files are there without an API server.
func (v *View) SetObjects(from SourceName, vips []VIP, peers []BGPPeer) {
	if v.objects == nil {
		v.objects = make(map[SourceName]objects)
	}
	v.objects[from] = objects{vips, peers}
	if len(v.objects) == 1 {
		v.VIPs, v.Peers = vips, peers
		return
	}
	order := make([]SourceName, 0, len(v.objects))
	for s := range v.objects {
		order = append(order, s)
	}
	slices.SortFunc(order, configFirst)
	v.VIPs, v.Peers = nil, nil
	for _, s := range order {
		v.VIPs = append(v.VIPs, v.objects[s].vips...)
		v.Peers = append(v.Peers, v.objects[s].peers...)
	}
	slices.SortStableFunc(v.VIPs, func(a, b VIP) int { return a.Addr.Compare(b.Addr) })
	v.VIPs = slices.CompactFunc(v.VIPs, func(a, b VIP) bool { return a.Addr == b.Addr })
	slices.SortStableFunc(v.Peers, func(a, b BGPPeer) int { return cmp.Compare(a.Name, b.Name) })
	v.Peers = slices.CompactFunc(v.Peers, func(a, b BGPPeer) bool { return a.Name == b.Name })
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
