package v1alpha1

import (
	"errors"
	"fmt"
	"net/netip"
	"strings"
	"time"
)

// The bounds of what a MachineLoadBalancer lists, as in the definition.
const (
	maxScope         = 64
	maxFailureDomain = 256
	maxPath          = 256
)

// Validate returns every rule that the defaulted object breaks, in the order of
// its fields.
func (m *MachineLoadBalancer) Validate() []FieldError {
	var k checker
	k.typeMeta(m.TypeMeta, KindMachineLoadBalancer)
	k.objectMeta(m.Metadata)
	s := &m.Spec
	k.machineScope(s)
	if t := s.TargetKind; t != nil {
		k.targetKind("spec.targetKind", t)
	}
	vips := k.machineAddresses(s)
	k.port("spec.port.port", s.Port.Port)
	k.port("spec.port.machinePort", s.Port.MachinePort)
	oneOf(&k, "spec.port.protocol", s.Port.Protocol, MachineTCP, MachineUDP)
	if h := s.HealthCheck; h != nil {
		k.healthCheck("spec.healthCheck", h, vips)
		k.noProgram("spec.healthCheck", h)
	}
	k.advertise("spec.advertise", s.Advertise)
	k.noNames("spec.advertise.bgp.communities", s.Advertise)
	if s.Drain.Timeout != (Duration{}) {
		k.duration("spec.drain.timeout", s.Drain.Timeout, time.Second, time.Hour)
	}
	if p := s.Drain.PreDrainHook; p != "" {
		k.want(p == PreDrainHookRegister, "spec.drain.preDrainHook", string(p), "must be register")
		k.want(*s.Drain.Hook, "spec.drain.preDrainHook", nil, "needs hook: true")
	}
	if p := s.ProviderRef; p != nil {
		k.want(p.APIGroup == "" || isSubdomain(p.APIGroup), "spec.providerRef.apiGroup", p.APIGroup, ruleSubdomain)
		k.kindName("spec.providerRef.kind", p.Kind)
		if p.Name == "" {
			k.bad("spec.providerRef.name", nil, ruleRequired)
		} else {
			k.want(isSubdomain(p.Name), "spec.providerRef.name", p.Name, ruleSubdomain)
		}
	}
	return k.errs
}

// machineAddresses checks which addresses there are to be, and returns the good ones of
// those that are named.
func (k *checker) machineAddresses(s *MachineLoadBalancerSpec) (named []netip.Addr) {
	if s.Address != "" {
		addr, rule := parseVIP(s.Address)
		k.want(rule == "", "spec.address", s.Address, rule)
		named = append(named, addr)
	}
	if s.Addresses != nil {
		k.want(s.Address == "" && s.AddressPool == "", "spec.addresses", nil, "must be left out with spec.address or spec.addressPool")
		k.atMost("spec.addresses", len(s.Addresses), 2)
		good := k.addresses("spec.addresses", s.Addresses)
		k.want(len(good) != 2 || good[0].Is4() != good[1].Is4(), "spec.addresses", nil, "must be of two families")
		named = append(named, good...)
	}
	if s.Families != nil {
		k.want(s.Address == "" && s.Addresses == nil, "spec.families", nil, "are of addresses from a pool; spec.address and spec.addresses have their own")
		k.families("spec.families", s.Families)
	}
	if s.AddressPool != "" {
		k.want(isSubdomain(s.AddressPool), "spec.addressPool", s.AddressPool, ruleSubdomain)
		k.want(s.Address == "", "spec.addressPool", s.AddressPool, "and spec.address exclude each other")
	}
	return named
}

// noNames refuses names of communities: the Community objects that define them are
// those of a cluster, which hosts that serve a management cluster do not read.
func (k *checker) noNames(path string, a *Advertise) {
	if a == nil || a.BGP == nil {
		return
	}
	for i, text := range a.BGP.Communities {
		if _, err := ParseCommunity(text); errors.Is(err, ErrCommunityName) {
			k.bad(fmt.Sprintf("%s[%d]", path, i), text, ruleNoNames)
		}
	}
}

// ruleNoNames is the rule that noNames holds.
const ruleNoNames = "is the name of a Community object, which hosts do not read for Machines; write a:b, large:a:b:c or a well-known name"

// machineScope checks which Machines are members.
func (k *checker) machineScope(s *MachineLoadBalancerSpec) {
	name := func(path, v string) { k.want(isQualified(v), path, v, ruleLabelValue) }
	switch {
	case s.ClusterRef != nil && s.ClusterRef.Name == "":
		k.bad("spec.clusterRef.name", nil, ruleRequired)
	case s.ClusterRef != nil:
		name("spec.clusterRef.name", s.ClusterRef.Name)
		k.want(s.ClusterName == s.ClusterRef.Name, "spec.clusterName", s.ClusterName, "must be the name of spec.clusterRef, if both are given")
	case s.ClusterName == "" && s.MachineSelector == nil:
		k.bad("spec", nil, "must have clusterName, clusterRef or machineSelector, or it would select the Machines of every cluster")
	}
	if s.ClusterName != "" && s.ClusterRef == nil {
		name("spec.clusterName", s.ClusterName)
	}
	k.namespaces("spec.namespaces", s.Namespaces)
	if s.MachineSelector != nil {
		k.selector("spec.machineSelector", *s.MachineSelector)
	}
	k.atMost("spec.failureDomains", len(s.FailureDomains), maxScope)
	k.eachOnce("spec.failureDomains", s.FailureDomains, func(at, v string) {
		k.want(v != "" && len([]rune(v)) <= maxFailureDomain, at, v, "must have 1 to 256 characters")
	})
}

// namespaces checks a list of names of namespaces.
func (k *checker) namespaces(path string, names []string) {
	k.atMost(path, len(names), maxScope)
	k.eachOnce(path, names, func(at, name string) { k.want(isDNSLabel(name), at, name, ruleDNSLabel) })
}

// targetKind checks where objects that stand for Machines are.
func (k *checker) targetKind(path string, t *TargetKind) {
	k.want(t.Group == "" || isSubdomain(t.Group), path+".group", t.Group, ruleSubdomain)
	k.want(isDNSLabel(t.Version), path+".version", t.Version, ruleDNSLabel)
	k.kindName(path+".kind", t.Kind)
	k.want(t.Resource == "" || isDNSLabel(t.Resource), path+".resource", t.Resource, ruleDNSLabel)
	for _, f := range []struct{ name, value string }{
		{".addressesPath", t.AddressesPath}, {".nodeNamePath", t.NodeNamePath},
	} {
		k.want(isFieldPath(f.value), path+f.name, f.value, "must be names of fields joined by dots, such as status.addresses")
	}
}

// kindName checks the name of a kind.
func (k *checker) kindName(path, kind string) {
	if kind == "" {
		k.bad(path, nil, ruleRequired)
		return
	}
	k.want(isQualified(kind) && !strings.ContainsAny(kind, "_."), path, kind, "must be letters, digits and -, at most 63")
}

// isFieldPath tells whether s is names of fields joined by dots.
func isFieldPath(s string) bool {
	for name := range strings.SplitSeq(s, ".") {
		if name == "" || strings.ContainsFunc(name, func(r rune) bool {
			return r > 127 || !isLower(byte(r)) && !isUpper(byte(r)) && !isDigit(byte(r)) && r != '-' && r != '_'
		}) {
			return false
		}
	}
	return len(s) <= maxPath
}
