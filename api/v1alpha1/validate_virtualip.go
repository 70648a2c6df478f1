package v1alpha1

import (
	"fmt"
	"net/netip"
)

// broadcast is the limited broadcast address, RFC 919 section 7.
var broadcast = netip.AddrFrom4([4]byte{255, 255, 255, 255})

// Validate returns every rule that the defaulted object breaks, in the order of
// its fields.
func (v *VirtualIP) Validate() []FieldError {
	var k checker
	k.typeMeta(v.TypeMeta, KindVirtualIP)
	k.objectMeta(v.Metadata)
	k.atMost("spec.addresses", len(v.Spec.Addresses), maxVIPAddresses)
	addrs := k.addresses("spec.addresses", v.Spec.Addresses)
	if v.Spec.HealthCheck != nil {
		k.healthCheck("spec.healthCheck", v.Spec.HealthCheck, addrs)
	}
	k.advertise("spec.advertise", v.Spec.Advertise)
	if s := v.Spec.NodeSelector; s != nil {
		k.labels("spec.nodeSelector.matchLabels", s.MatchLabels)
	}
	oneOf(&k, "spec.partition", v.Spec.Partition, PartitionAvailable, PartitionQuorum)
	return k.errs
}

// ValidateInCluster returns what Validate does, and the rules for an object of a
// cluster, whose writer need not be an administrator of the hosts.
func (v *VirtualIP) ValidateInCluster() []FieldError {
	k := checker{errs: v.Validate()}
	k.noProgram("spec.healthCheck", v.Spec.HealthCheck)
	return k.errs
}

// noProgram refuses a check of an object of a cluster that runs a program.
func (k *checker) noProgram(path string, h *HealthCheck) {
	k.want(h == nil || h.Exec == nil, path+".exec", nil, "is for files only: an object of a cluster cannot run programs on hosts")
}

// advertise checks how the addresses of one object are announced.
func (k *checker) advertise(path string, a *Advertise) {
	if a == nil {
		return
	}
	if a.L2 == nil && a.BGP == nil {
		k.bad(path, nil, "must have l2, bgp or both; leave advertise out for the default")
	}
	if a.L2 != nil {
		k.interfaces(path+".l2.interfaces", a.L2.Interfaces)
		oneOf(k, path+".l2.mode", a.L2.Mode, L2ActiveBackup, L2Balanced)
	}
	if a.BGP != nil {
		k.bgpAdvertise(path+".bgp", a.BGP)
	}
}

// addresses checks the addresses of one object and returns the good ones.
func (k *checker) addresses(path string, texts []string) []netip.Addr {
	if len(texts) == 0 {
		k.bad(path, nil, "must have at least one address")
	}
	var good []netip.Addr
	seen := make(map[netip.Addr]bool, len(texts))
	for i, text := range texts {
		at := fmt.Sprintf("%s[%d]", path, i)
		addr, rule := parseVIP(text)
		if rule == "" && seen[addr] {
			rule = "is listed twice"
		}
		if rule != "" {
			k.bad(at, text, "%s", rule)
			continue
		}
		seen[addr] = true
		good = append(good, addr)
	}
	return good
}

// parseVIP returns the address, or the rule that it breaks.
func parseVIP(text string) (addr netip.Addr, rule string) {
	addr, err := netip.ParseAddr(text)
	if err != nil {
		if prefix, err := netip.ParsePrefix(text); err == nil {
			return addr, "has a prefix length; write " + prefix.Addr().String()
		}
		return addr, "is not an IP address"
	}
	switch {
	case addr.Is4In6():
		return addr, "is an IPv4 address in IPv6 form; write " + addr.Unmap().WithZone("").String()
	case addr.Zone() != "":
		return addr, "has a zone, which a VIP cannot have"
	case addr.IsUnspecified():
		return addr, "is the unspecified address"
	case addr.IsLoopback():
		return addr, "is a loopback address"
	case addr.IsMulticast():
		return addr, "is a multicast address"
	case addr == broadcast:
		return addr, "is the broadcast address"
	case addr.Is6() && addr.IsLinkLocalUnicast():
		return addr, "is an IPv6 link-local address"
	}
	return addr, ""
}

// interfaces checks names of network interfaces.
func (k *checker) interfaces(path string, names []string) {
	k.eachOnce(path, names, k.interfaceName)
}

// interfaceName checks the name of a network interface.
func (k *checker) interfaceName(path, name string) {
	k.want(isInterfaceName(name), path, name,
		fmt.Sprintf("is not the name of an interface: 1 to %d bytes without /, : and blanks", maxInterfaceName))
}
