package tenants

import (
	"crypto/sha256"
	"encoding/hex"
	"strings"
	"time"
)

// How long the parts of a name are, which has 63 characters at most.
const (
	namePart = 40
	hashPart = 20 // 80 bits
)

// The signs of life of an agent.
const (
	// PulseName is the Lease in the namespace in the hub by which an agent says that it is there.
	PulseName = "agent"
	// PulseEvery is how often it does.
	PulseEvery = time.Minute
	// AnnotationCluster of that Lease is the cluster that the namespace is of, by the UID of its namespace kube-system, and
	// AnnotationRefused another one whose agent has the same credentials, and when it said so.
	AnnotationCluster = "lbd.dev/cluster-uid"
	AnnotationRefused = "lbd.dev/refused-cluster"
	// AwayAfter is how long an agent that gives signs of life may have given none, until it counts as away.
	AwayAfter = 3 * PulseEvery
)

// HubName is that of an object of the hub that stands for one of a tenant: the beginning of its own name, for
// people, and a hash of whose it is. cluster is its namespace in the hub.
func HubName(cluster, kind, namespace, name string) string {
	short := strings.TrimRight(name[:min(len(name), namePart)], "-.")
	return short + "-" + hash(cluster, kind, namespace, name)
}

// CopyName is that of the Service of type NodePort that the agent has beside a Service of the tenant.
func CopyName(namespace, name string) string { return "lbd-" + hash("", "Service", namespace, name) }

// IngressName is the name of the TenantRoute of an Ingress. No namespace has a dot in its name.
func IngressName(namespace, name string) string { return "ingress." + namespace + "." + name }

// RouteName is that of a route of the Gateway API, of a kind such as HTTPRoute.
func RouteName(kind, namespace, name string) string {
	return strings.ToLower(kind) + "." + namespace + "." + name
}

func hash(parts ...string) string {
	sum := sha256.Sum256([]byte(strings.Join(parts, "\x00")))
	return hex.EncodeToString(sum[:])[:hashPart]
}
