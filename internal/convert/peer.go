package convert

import (
	"cmp"
	"maps"
	"net/netip"

	"lbd.dev/lbd/api/v1alpha1"
)

func bgpPeer(o *object, meta v1alpha1.ObjectMeta, f *fields) {
	p := &v1alpha1.BGPPeer{TypeMeta: typeMeta(v1alpha1.KindBGPPeer), Metadata: meta}
	o.body = p
	s := &p.Spec
	*s = v1alpha1.BGPPeerSpec{
		MyASN:                 orZero(number[uint32](f, "myASN")),
		PeerASN:               orZero(number[uint32](f, "peerASN")),
		DynamicASN:            v1alpha1.DynamicASN(f.text("dynamicASN")),
		PeerAddress:           f.text("peerAddress"),
		PeerPort:              orZero(number[int32](f, "peerPort")),
		Interface:             f.text("interface"),
		SourceAddress:         f.text("sourceAddress"),
		RouterID:              f.text("routerID"),
		HoldTime:              f.duration("holdTime"),
		KeepaliveTime:         f.duration("keepaliveTime"),
		ConnectTime:           orZero(f.duration("connectTime")),
		Password:              f.text("password"),
		BFDProfile:            f.text("bfdProfile"),
		EnableGracefulRestart: f.isSet("enableGracefulRestart"),
		EBGPMultiHop:          f.isSet("ebgpMultiHop"),
	}
	o.timers(s)
	o.asns(s, f)
	o.families(s, f)
	o.secret(s, f)
	if s.PeerAddress == "" && s.Interface != "" {
		o.note("spec.peerAddress", nil, "is required: lbd has no sessions by the interface alone; give the link-local address of the router")
		// The rule about link-local addresses follows from that.
		o.noted = append(o.noted, "spec.interface")
	}
	stays := o.nodeSelectors(s, f.selectors("nodeSelectors"))
	if vrf := f.text("vrf"); vrf != "" {
		o.note("spec.vrf", vrf, "has no equal: lbd opens sessions by the main routing table only; have that table reach the router and remove vrf, or keep MetalLB for it; the BGPPeer is left out")
		stays = false
	}
	if !stays {
		o.c.gone[o.name] = true
		o.leaveOut()
	}
}

// timers converts what MetalLB makes of timers that are missing.
func (o *object) timers(s *v1alpha1.BGPPeerSpec) {
	if o.version == "v1beta1" { // which writes 0s for what is absent
		s.HoldTime, s.KeepaliveTime = absentIfZero(s.HoldTime), absentIfZero(s.KeepaliveTime)
	}
	if s.HoldTime != nil && s.HoldTime.Duration != 0 && s.KeepaliveTime != nil && s.KeepaliveTime.Duration == 0 {
		o.keep("spec.keepaliveTime", *s.KeepaliveTime, "is left out: a session with a holdTime needs KEEPALIVEs, which lbd sends every third of it")
		s.KeepaliveTime = nil
	}
	if s.HoldTime == nil && s.KeepaliveTime != nil {
		s.HoldTime = &v1alpha1.Duration{Duration: 3 * s.KeepaliveTime.Duration}
		o.keep("spec.keepaliveTime", *s.KeepaliveTime, "is without holdTime: %v is written, which MetalLB takes", s.HoldTime)
	}
}

func absentIfZero(d *v1alpha1.Duration) *v1alpha1.Duration {
	if d != nil && d.Duration == 0 {
		return nil
	}
	return d
}

// asns converts what changes the AS numbers.
func (o *object) asns(s *v1alpha1.BGPPeerSpec, f *fields) {
	if local := number[uint32](f, "localASN"); orZero(local) != 0 {
		o.keep("spec.localASN", *local, "is written as myASN: the router sees this number alone, and never %d", s.MyASN)
		s.MyASN = *local
	}
}

// families converts what chooses address families. By itself a session of lbd has
// both, and the router takes what it is configured for.
func (o *object) families(s *v1alpha1.BGPPeerSpec, f *fields) {
	f.flag("dualStackAddressFamily")
	if !f.isSet("disableMP") {
		return
	}
	addr, err := netip.ParseAddr(s.PeerAddress)
	if err != nil {
		o.note("spec.disableMP", true, "is written as families, but there is no peerAddress to choose one by; give families")
		return
	}
	s.Families = []v1alpha1.AddressFamily{v1alpha1.FamilyIPv6}
	if addr.Is4() {
		s.Families = []v1alpha1.AddressFamily{v1alpha1.FamilyIPv4}
	}
	o.keep("spec.disableMP", true, "is written as families: [%s]", s.Families[0])
}

// secret converts a reference to a Secret. lbd reads it in its own namespace, which may
// be another than that of MetalLB.
func (o *object) secret(s *v1alpha1.BGPPeerSpec, f *fields) {
	n := f.take("passwordSecret")
	if n == nil {
		return
	}
	ref := o.mapping(n, "spec.passwordSecret")
	name := ref.text("name")
	namespace := cmp.Or(ref.text("namespace"), o.namespace)
	ref.done()
	if name == "" { // the API server writes passwordSecret: {}
		return
	}
	s.PasswordSecret = &v1alpha1.SecretReference{Name: name}
	from := "the namespace of MetalLB"
	if namespace != "" {
		from = "namespace " + namespace
	}
	o.keep("spec.passwordSecret", name, "is carried over: lbd reads that Secret in its own namespace, so copy it there from %s, "+
		"and name it in bgp.passwordSecrets of the chart or in the Role lbd-passwords", from)
}

// maxSelectors bounds what one selector is written as.
const maxSelectors = 64

// nodeSelectors converts selectors of nodes to matchLabels, and tells whether each
// could be. One that could not must not be dropped: without it the session would
// be on other nodes than before.
func (o *object) nodeSelectors(s *v1alpha1.BGPPeerSpec, list []v1alpha1.Selector) bool {
	for i, sel := range list {
		path := entry("spec.nodeSelectors", i)
		sets := []map[string]string{maps.Clone(sel.MatchLabels)}
		for j, r := range sel.MatchExpressions {
			if r.Operator != v1alpha1.SelectorIn {
				o.note(entry(path+".matchExpressions", j), string(r.Operator), "has no equal in a BGPPeer of lbd, which knows matchLabels: "+
					"give the nodes that are meant a label of their own; the BGPPeer is left out")
				return false
			}
			if sets = multiply(sets, r); len(sets) > maxSelectors {
				o.note(path, nil, "would be more than %d lists of matchLabels; give the nodes that are meant a label of their own; the BGPPeer is left out", maxSelectors)
				return false
			}
		}
		for _, set := range sets {
			s.NodeSelectors = append(s.NodeSelectors, v1alpha1.LabelSelector{MatchLabels: set})
		}
	}
	if len(list) > 0 && len(s.NodeSelectors) == 0 {
		o.note("spec.nodeSelectors", nil, "matches no node; the BGPPeer is left out")
		return false
	}
	return true
}

// multiply writes a condition with several values out: one set of labels for each
// of them.
func multiply(sets []map[string]string, r v1alpha1.SelectorRequirement) []map[string]string {
	var out []map[string]string
	seen := make(map[string]bool)
	for _, value := range r.Values {
		if seen[value] {
			continue
		}
		seen[value] = true
		for _, set := range sets {
			if have, ok := set[r.Key]; ok && have != value {
				continue // no node has both
			}
			next := maps.Clone(set)
			if next == nil {
				next = make(map[string]string)
			}
			next[r.Key] = value
			out = append(out, next)
		}
		if len(out) > maxSelectors {
			break
		}
	}
	return out
}

func bfdProfile(o *object, meta v1alpha1.ObjectMeta, f *fields) {
	p := &v1alpha1.BFDProfile{TypeMeta: typeMeta(v1alpha1.KindBFDProfile), Metadata: meta}
	p.Spec = v1alpha1.BFDProfileSpec{
		ReceiveInterval:  o.bfdInterval(f, "receiveInterval"),
		TransmitInterval: o.bfdInterval(f, "transmitInterval"),
		DetectMultiplier: orZero(number[int32](f, "detectMultiplier")),
		PassiveMode:      f.isSet("passiveMode"),
		MinimumTTL:       orZero(number[int32](f, "minimumTtl")),
	}
	echo := f.isSet("echoMode")
	if echo {
		o.note("spec.echoMode", true, "has no equal: lbd sends no echo packets; lower transmitInterval and receiveInterval instead, to %d ms at the least", v1alpha1.MinBFDInterval)
	}
	if interval := number[int32](f, "echoInterval"); interval != nil && echo {
		o.note("spec.echoInterval", *interval, "is left out with echoMode")
	}
	o.body = p
}

// bfdInterval converts an interval, 0 if it is unset. MetalLB takes 10 ms and more.
func (o *object) bfdInterval(f *fields, name string) int32 {
	n := orZero(number[int32](f, name))
	if 0 < n && n < v1alpha1.MinBFDInterval {
		o.note("spec."+name, n, "is written as %d, the least that lbd takes: shorter intervals end sessions on a node that is busy", v1alpha1.MinBFDInterval)
		return v1alpha1.MinBFDInterval
	}
	return n
}
