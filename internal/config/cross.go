package config

import (
	"fmt"
	"iter"
	"maps"
	"slices"
	"strings"

	"lbd.dev/lbd/api/v1alpha1"
	"lbd.dev/lbd/internal/agree"
)

// crossCheck adds errors for rules that hold between objects, and returns the
// NodeConfiguration, or nil if there is none. complete says that all files could
// be read to their end.
func crossCheck(objects []*object, complete bool) *object {
	node := oneNode(objects)
	uniqueNames(objects)
	c := &cross{node: node, names: newNamed(objects, complete), kinds: make(map[string][]*object)}
	j := agree.Judge{Complete: c.names.complete, Report: c.report}
	j.Broken = func(at agree.Field) bool { return c.object(at).isBroken(at.Path) }
	if node != nil {
		j.Node = node.node
	}
	for _, o := range objects {
		c.kinds[o.kind] = append(c.kinds[o.kind], o)
		switch b := o.body.(type) {
		case *v1alpha1.VirtualIP:
			j.VirtualIPs = append(j.VirtualIPs, b)
		case *v1alpha1.LoadBalancer:
			j.LoadBalancers = append(j.LoadBalancers, b)
		case *v1alpha1.BGPPeer:
			j.Peers = append(j.Peers, b)
		case *v1alpha1.BGPListener:
			j.Listeners = append(j.Listeners, b)
		case *v1alpha1.BFDProfile:
			j.Profiles = append(j.Profiles, b)
		case *v1alpha1.Community:
			j.Communities = append(j.Communities, b)
		case *v1alpha1.IPAddressPool:
			j.Pools = append(j.Pools, b)
		case *v1alpha1.L2Advertisement:
			j.L2Advertisements = append(j.L2Advertisements, b)
		case *v1alpha1.BGPAdvertisement:
			j.BGPAdvertisements = append(j.BGPAdvertisements, b)
		}
	}
	j.Run()
	if node != nil {
		c.notified()
	}
	return node
}

// notified refuses names in notify that no object has.
func (c *cross) notified() {
	have := make(map[string]bool)
	for _, kind := range []string{v1alpha1.KindVirtualIP, v1alpha1.KindLoadBalancer} {
		for _, o := range c.kinds[kind] {
			have[o.meta.Name] = true
		}
	}
	for i, n := range c.node.node.Notify {
		for k, name := range n.VirtualIPs {
			at := fmt.Sprintf("notify[%d].virtualIPs[%d]", i, k)
			if c.names.complete && !have[name] && !c.node.isBroken(at) {
				c.unknown(c.node, at, name, "VirtualIP or LoadBalancer", maps.Keys(have))
			}
		}
	}
}

// place says where another object is.
func (o *object) place() string { return fmt.Sprintf("%s:%d", o.file, o.at.line) }

// oneNode returns the first NodeConfiguration and refuses the others.
func oneNode(objects []*object) *object {
	var node *object
	for _, o := range objects {
		switch {
		case o.node == nil:
		case node == nil:
			node = o
		default:
			o.breaks("kind", o.kind, "is allowed once for each node; the first is in %s", node.place())
		}
	}
	return node
}

// uniqueNames refuses a second object of the same kind and name.
func uniqueNames(objects []*object) {
	first := make(map[string]*object)
	for _, o := range objects {
		if o.meta == nil || o.meta.Name == "" {
			continue
		}
		key := o.kind + " " + o.meta.Name
		if other, again := first[key]; again {
			o.breaks("metadata.name", o.meta.Name, "is the name of another %s (%s)", o.kind, other.place())
			continue
		}
		first[key] = o
	}
}

// cross puts into words what objects do not agree about.
type cross struct {
	node  *object
	names *named
	kinds map[string][]*object
}

// words are what each rule says. @other is the other object and where it is, @field the
// field of it and where that is, @value what the field says.
var words = map[agree.Rule]string{
	agree.AddressTwice:     "is also an address of @other",
	agree.BackendIsVirtual: "is an address of @other; give the server's own address",
	agree.AddressOfNode:    "is the address of a node: @field",
	agree.QuorumAlone:      "needs gossip.peers in @other",
	agree.BalancedAlone:    "needs connections: keep in @other",
	agree.CommunityTwice:   "is also defined by @other",
	agree.PeerIsNode:       "is the address of this node: @field",
	agree.PeerIsVirtual:    "is an address of @other; give the router's own address",
	agree.SourceIsVirtual:  "is an address of @other, which is not always on this node",
	agree.PeerIsSource:     "is spec.sourceAddress of @other, and a node could match both; a node has no session with itself",
	agree.PeerTwice: "is also the address of @other, and a node could match both; " +
		"give them nodeSelectors of which no node can match two",
	agree.RouterIDOfNode:   "is not that of the node: @field is @value",
	agree.RouterIDTwice:    "is not that of @other, @value, and a node could match both; a node has one",
	agree.FamilyUntold:     "cannot be advertised: none of its BGP peers has the family @value in spec.families",
	agree.PoolBesideNode:   "is for Services, which `lbd run` does not serve from files; keep it apart from @other",
	agree.NodesOfNoCluster: "selects Nodes of a cluster, which `lbd run` does not know from files; list spec.backends, or create the object in the cluster",
	agree.PoolsOverlap:     "overlaps @field",
	agree.AddressInPool:    "is in @field; a Service could be given it",
	agree.PeerInPool:       "is in @field; a Service could be given it",
	agree.PrefixTooWide:    `makes prefixes larger than @field, "@value"`,

	agree.ListenerInCluster: "is for a machine outside every cluster; this one has @field",
	agree.PeersOverlap:      "overlaps @field; a master belongs to one BGPListener",
	agree.AcceptOverlaps:    "overlaps @field; a prefix belongs to one BGPListener",
	agree.AcceptIsTaken:     "holds @value, which is @field: packets for it would go to masters",
	agree.PeerIsMaster:      "is in @field, whose masters have no objects of their own; leave it out there, or remove this object",
	agree.SeedTwice:         "is not @value, that of @other: the kernel has one seed",
	agree.NoUpstream:        "needs a BGPPeer, the router that is told of the prefixes; none is for this node",
}

func (c *cross) object(at agree.Field) *object {
	if at.Kind == v1alpha1.KindNodeConfiguration {
		return c.node
	}
	return c.kinds[at.Kind][at.Index]
}

// report adds an error to the object at fault.
func (c *cross) report(f agree.Finding) {
	o, name := c.object(f.At), fmt.Sprint(f.At.Value)
	switch f.Rule {
	case agree.UnknownProfile:
		c.unknown(o, f.At.Path, name, v1alpha1.KindBFDProfile, maps.Keys(c.names.profiles))
		return
	case agree.UnknownPeer:
		c.unknown(o, f.At.Path, name, v1alpha1.KindBGPPeer, maps.Keys(c.names.peers))
		return
	case agree.UnknownPool:
		c.unknown(o, f.At.Path, name, v1alpha1.KindIPAddressPool, maps.Keys(c.names.pools))
		return
	case agree.UnknownCommunity:
		c.unknown(o, f.At.Path, name, "community", slices.Values(slices.AppendSeq(v1alpha1.WellKnownCommunities(), maps.Keys(c.names.communities))))
		return
	}
	there := []string{"@value", fmt.Sprint(f.Other.Value)}
	if f.Other.Kind != "" {
		other := c.object(f.Other)
		there = append(there, "@other", fmt.Sprintf("%s (%s)", other.title(), other.place()),
			"@field", fmt.Sprintf("%s of %s (%s:%d)", f.Other.Path, other.title(), other.file, other.lineOf(f.Other.Path)))
	}
	o.breaks(f.At.Path, f.At.Value, "%s", strings.NewReplacer(there...).Replace(words[f.Rule]))
}

// unknown adds an error about a name that no object of the kind has.
func (c *cross) unknown(o *object, path, name, kind string, have iter.Seq[string]) {
	const many = 100 // comparing with more takes long, and may be asked for often
	var candidates []string
	for h := range have {
		if candidates = append(candidates, h); len(candidates) > many {
			candidates = nil
			break
		}
	}
	article := "a"
	if strings.HasPrefix(kind, "I") {
		article = "an"
	}
	if near := nearest(name, candidates); near != "" {
		o.breaks(path, name, "is not the name of %s %s; did you mean %q?", article, kind, near)
		return
	}
	o.breaks(path, name, "is not the name of %s %s", article, kind)
}

// named are the objects that others refer to by name.
type named struct {
	peers       map[string]*object
	profiles    map[string]*v1alpha1.BFDProfile
	pools       map[string]*v1alpha1.IPAddressPool
	communities map[string]v1alpha1.CommunityValue
	// complete: no object is missing because it could not be read, so that a name
	// that is not there is a mistake of whoever refers to it.
	complete bool
}

// newNamed collects names; the first of several counts.
func newNamed(objects []*object, complete bool) *named {
	n := &named{
		peers:       make(map[string]*object),
		profiles:    make(map[string]*v1alpha1.BFDProfile),
		pools:       make(map[string]*v1alpha1.IPAddressPool),
		communities: make(map[string]v1alpha1.CommunityValue),
		complete:    complete,
	}
	for _, o := range objects {
		switch b := o.body.(type) {
		case nil:
			n.complete = false
		case *v1alpha1.BGPPeer:
			setFirst(n.peers, o.meta.Name, o)
		case *v1alpha1.BFDProfile:
			setFirst(n.profiles, o.meta.Name, b)
		case *v1alpha1.IPAddressPool:
			setFirst(n.pools, o.meta.Name, b)
		case *v1alpha1.Community:
			for _, entry := range b.Spec.Communities {
				value, _ := v1alpha1.ParseCommunity(entry.Value) // zero if it is wrong, which is an error by itself
				setFirst(n.communities, entry.Name, value)
			}
		}
	}
	return n
}

// setFirst sets m[key] unless it is set.
func setFirst[V any](m map[string]V, key string, v V) {
	if _, again := m[key]; !again {
		m[key] = v
	}
}
