package config

import (
	"regexp"
	"slices"

	"lbd.dev/lbd/api/v1alpha1"
)

// notSupported is said of what the design has and this version lacks.
const notSupported = "is not supported by this version"

// clusterKinds are kinds of the group that only clusters have.
func clusterKinds() []string {
	return []string{v1alpha1.KindMachineLoadBalancer, v1alpha1.KindTenant, v1alpha1.KindTenantNodes, v1alpha1.KindTenantService, v1alpha1.KindTenantRoute}
}

// refused says of fields that this version lacks why they are refused and what to
// use instead. Those of BGP are what users of metallb.io may bring along.
var refused = map[string]string{
	"VirtualIP.spec.nodeSelector.matchExpressions":     notSupported + "; use matchLabels",
	"VirtualIP.spec.advertise.bgp.aggregationLength":   "is not for a VirtualIP, which is advertised as /32; remove it",
	"VirtualIP.spec.advertise.bgp.aggregationLengthV6": "is not for a VirtualIP, which is advertised as /128; remove it",
	"VirtualIP.spec.advertise.bgp.nodeSelectors":       "is not a field of advertise.bgp; use spec.nodeSelector",
	"BGPPeer.spec.nodeSelectors[].matchExpressions":    notSupported + "; use matchLabels",
	"BGPPeer.spec.localASN":                            notSupported + "; myASN is that of this session, and another BGPPeer may have another",
	"BGPPeer.spec.vrf":                                 notSupported + ": sessions are opened by the main routing table; remove it, and have that table reach peerAddress",
	"BGPPeer.spec.disableMP":                           "is not supported: sessions always carry both families, unless spec.families names one",
	"BGPPeer.spec.dualStackAddressFamily":              "is not needed: sessions always carry both families, unless spec.families names one",
	"BGPListener.spec.password":                        "is not a field; put the key in a file and name it in passwordFile",
	"BGPListener.spec.passwordSecret":                  "is not a field: a BGPListener is for a machine outside every cluster; use passwordFile",
	"BGPListener.spec.nodeSelectors":                   "is not a field: a machine listens if its files have the object",
	"BFDProfile.spec.echoMode":                         "is not supported by this version: BFD works without the echo function; remove it",
	"BFDProfile.spec.echoInterval":                     "is not supported by this version: BFD works without the echo function; use transmitInterval and receiveInterval",
	"BFDProfile.spec.authKey":                          "is not a field; put the key in a file and name it in authKeyFile",
}

// index matches the part of a path that counts.
var index = regexp.MustCompile(`\[[0-9]+\]`)

// notYet returns a function that says of fields which this version lacks why
// they are refused.
func notYet(kind string) func(path string) string {
	return func(path string) string {
		return refused[kind+"."+index.ReplaceAllString(path, "[]")]
	}
}

// ofServer are the fields that an API server adds to an object, as `kubectl get -o yaml`
// prints them.
var ofServer = []string{
	"status", "metadata.creationTimestamp", "metadata.deletionGracePeriodSeconds", "metadata.deletionTimestamp", "metadata.finalizers",
	"metadata.generation", "metadata.managedFields", "metadata.ownerReferences", "metadata.resourceVersion", "metadata.selfLink", "metadata.uid",
}

// passed returns a function that tells of which fields of a kind nothing is read.
func passed(kind string) func(path string) bool {
	return func(path string) bool {
		return kind != v1alpha1.KindNodeConfiguration && slices.Contains(ofServer, path)
	}
}

// secretOf returns the path of the field of a kind that no error may show, or "".
func secretOf(kind string) string {
	if kind == v1alpha1.KindBGPPeer {
		return "spec.password"
	}
	return ""
}
