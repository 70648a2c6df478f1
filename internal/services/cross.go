package services

import (
	"fmt"
	"strings"

	"lbd.dev/lbd/api/v1alpha1"
	"lbd.dev/lbd/internal/agree"
)

// words are what each rule between objects says; the other rules nobody breaks, or they
// are reported where the object is read. @mine is what the field at fault says, @value what
// the other one says, @kind and @name the other object.
var words = map[agree.Rule]string{
	agree.AddressTwice:     "the address @mine is also one of @kind @name, which has it",
	agree.BackendIsVirtual: `the backend @mine is an address of @kind @name; give the server's own address`,
	agree.AddressInPool:    "the address @mine is in IPAddressPool @name: no Service is announced with it",
	agree.CommunityTwice:   `the name "@mine" is also defined by Community @name, which counts`,
	agree.UnknownPool:      `spec.ipAddressPools names "@mine", and there is no valid IPAddressPool of that name`,
	agree.UnknownPeer:      `names the peer "@mine", and there is no valid BGPPeer of that name`,
	agree.UnknownCommunity: `names the community "@mine", and no valid Community defines it: nothing is advertised by it`,
	agree.PeerIsVirtual:    `spec.peerAddress "@mine" is an address of @kind @name; give the router's own address`,
	agree.SourceIsVirtual:  `spec.sourceAddress "@mine" is an address of @kind @name, which is not always on the node`,
	agree.PeerInPool:       `spec.peerAddress "@mine" is in IPAddressPool @name; a Service could be given it`,
	agree.PeerTwice:        `spec.peerAddress "@mine" is also that of BGPPeer @name, and a node could match both`,
	agree.RouterIDTwice:    "spec.routerID @mine is not that of BGPPeer @name, @value, and a node could match both: a node has one",
	agree.PeerIsSource:     `spec.peerAddress "@mine" is spec.sourceAddress of BGPPeer @name, and a node could match both: a node has no session with itself`,
	agree.FamilyUntold:     "the address @mine cannot be advertised: none of its BGP peers has its family in spec.families",
	agree.PrefixTooWide:    `@path @mine makes prefixes larger than "@value" of IPAddressPool @name: each address is advertised by itself`,
}

// judge reports what objects ask for together and no node can give them, or not the
// nodes that match both, and notes what is left out for that; the objects stay in use.
// What peers of this node have is reported where it is read.
func (c *config) judge(labels map[string]string) {
	o := &c.objects
	here := func(at agree.Field) bool { return agree.Selects(o.Peers[at.Index].Spec.NodeSelectors, labels) }
	second := make(map[agree.Field]bool) // addresses that another object has
	j := agree.Judge{VirtualIPs: o.VirtualIPs, LoadBalancers: o.LoadBalancers, Peers: o.Peers, Profiles: o.Profiles, Communities: o.Communities, Pools: o.Pools,
		L2Advertisements: o.L2Advertisements, BGPAdvertisements: o.BGPAdvertisements, Complete: true}
	j.Report = func(f agree.Finding) {
		object := [2]string{f.At.Kind, f.At.Name}
		switch f.Rule {
		case agree.PeerTwice, agree.RouterIDTwice:
			if here(f.At) && here(f.Other) {
				return
			}
		case agree.AddressTwice:
			second[f.At] = true
		case agree.AddressInPool:
			if second[f.At] {
				return
			}
		case agree.UnknownCommunity:
			c.mute[object] = true
		case agree.PrefixTooWide:
			c.single[[2]string{f.At.Name, f.At.Path}] = true
		}
		if text, ok := words[f.Rule]; ok {
			c.bad(f.At.Kind, f.At.Name, "%s", strings.NewReplacer("@mine", fmt.Sprint(f.At.Value), "@value", fmt.Sprint(f.Other.Value),
				"@kind", f.Other.Kind, "@name", fmt.Sprintf("%q", f.Other.Name), "@path", f.At.Path).Replace(text))
		}
	}
	j.Run()
}

// communities are the valid communities by name; the first of several counts.
func communities(list []*v1alpha1.Community) map[string]v1alpha1.CommunityValue {
	all := make(map[string]v1alpha1.CommunityValue)
	for _, o := range list {
		for _, e := range o.Spec.Communities {
			if v, err := v1alpha1.ParseCommunity(e.Value); err == nil {
				if _, again := all[e.Name]; !again {
					all[e.Name] = v
				}
			}
		}
	}
	return all
}
