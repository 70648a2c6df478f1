// Package resolve turns valid objects of v1alpha1 into the values of the model,
// whether they come from files or from a cluster. Names of other objects are
// resolved by what the caller has found for them.
package resolve

import (
	"maps"
	"net/netip"
	"slices"

	"lbd.dev/lbd/api/v1alpha1"
	"lbd.dev/lbd/internal/model"
)

// VIPs turns a valid VirtualIP into one VIP for each address. communities are those
// of Community objects by name.
func VIPs(v *v1alpha1.VirtualIP, communities map[string]v1alpha1.CommunityValue) []model.VIP {
	base := model.VIP{
		Name:    v.Metadata.Name,
		Kind:    v1alpha1.KindVirtualIP,
		Preempt: v.Spec.Preempt,
	}
	if a := v.Spec.Advertise; a != nil {
		if a.L2 != nil {
			base.L2 = true
			base.Interfaces = slices.Clone(a.L2.Interfaces)
			base.Balanced = a.L2.Mode == v1alpha1.L2Balanced
		}
		if a.BGP != nil {
			base.BGP = []model.BGPAdvert{Advert(a.BGP, communities)}
		}
	}
	if s := v.Spec.NodeSelector; s != nil {
		base.NodeSelector = maps.Clone(s.MatchLabels)
	}
	if v.Spec.Partition == v1alpha1.PartitionQuorum {
		base.Partition = model.PartitionQuorum
	}
	if v.Spec.HealthCheck != nil {
		base.Check = v.Metadata.Name
	}
	vips := make([]model.VIP, 0, len(v.Spec.Addresses))
	for _, text := range v.Spec.Addresses {
		if addr, err := netip.ParseAddr(text); err == nil {
			vip := base
			vip.Addr = addr
			vips = append(vips, vip)
		}
	}
	return vips
}

// NoHealthCheck is the warning about a VirtualIP without spec.healthCheck.
const NoHealthCheck = "there is none: every node counts as healthy, and has the address even while nothing listens on it"
