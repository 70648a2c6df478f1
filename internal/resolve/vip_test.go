package resolve

import (
	"net/netip"
	"reflect"
	"testing"

	"lbd.dev/lbd/api/v1alpha1"
	"lbd.dev/lbd/internal/model"
)

// TestVIPs: each part of an object reaches each of its addresses, and nothing else does.
func TestVIPs(t *testing.T) {
	addr := netip.MustParseAddr
	object := func(spec v1alpha1.VirtualIPSpec) *v1alpha1.VirtualIP {
		spec.Addresses = []string{"10.0.0.200", "fd00::200"}
		return &v1alpha1.VirtualIP{Metadata: v1alpha1.ObjectMeta{Name: "api"}, Spec: spec}
	}
	for name, c := range map[string]struct {
		spec v1alpha1.VirtualIPSpec
		want model.VIP // without address, name and kind
	}{
		"nothing":     {v1alpha1.VirtualIPSpec{}, model.VIP{}},
		"layer 2":     {v1alpha1.VirtualIPSpec{Advertise: &v1alpha1.Advertise{L2: &v1alpha1.L2Advertise{}}}, model.VIP{L2: true}},
		"balanced":    {v1alpha1.VirtualIPSpec{Advertise: &v1alpha1.Advertise{L2: &v1alpha1.L2Advertise{Mode: v1alpha1.L2Balanced}}}, model.VIP{L2: true, Balanced: true}},
		"a named NIC": {v1alpha1.VirtualIPSpec{Advertise: &v1alpha1.Advertise{L2: &v1alpha1.L2Advertise{Interfaces: []string{"eth1"}}}}, model.VIP{L2: true, Interfaces: []string{"eth1"}}},
		"BGP":         {v1alpha1.VirtualIPSpec{Advertise: &v1alpha1.Advertise{BGP: &v1alpha1.BGPAdvertise{}}}, model.VIP{BGP: []model.BGPAdvert{Advert(&v1alpha1.BGPAdvertise{}, nil)}}},
		"some nodes":  {v1alpha1.VirtualIPSpec{NodeSelector: &v1alpha1.LabelSelector{MatchLabels: map[string]string{"rack": "a"}}}, model.VIP{NodeSelector: map[string]string{"rack": "a"}}},
		"a quorum":    {v1alpha1.VirtualIPSpec{Partition: v1alpha1.PartitionQuorum}, model.VIP{Partition: model.PartitionQuorum}},
		"preemption":  {v1alpha1.VirtualIPSpec{Preempt: true}, model.VIP{Preempt: true}},
		"a check":     {v1alpha1.VirtualIPSpec{HealthCheck: &v1alpha1.HealthCheck{}}, model.VIP{Check: "api"}},
	} {
		var want []model.VIP
		for _, a := range []string{"10.0.0.200", "fd00::200"} {
			vip := c.want
			vip.Addr, vip.Name, vip.Kind = addr(a), "api", v1alpha1.KindVirtualIP
			want = append(want, vip)
		}
		if got := VIPs(object(c.spec), nil); !reflect.DeepEqual(got, want) {
			t.Errorf("%s: %+v, want %+v", name, got, want)
		}
	}
}
