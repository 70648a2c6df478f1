// Package packaging carries the manifests that `lbd manifest` prints.
package packaging

import "embed"

// StaticPod is the manifest for /etc/kubernetes/manifests; the word IMAGE stands
// for the image.
//
//go:embed static-pod.yaml
var StaticPod string

// CRDs has the CustomResourceDefinitions, one in each file of the folder crds.
//
//go:embed crds/*.yaml
var CRDs embed.FS

// Kustomize has the kustomize base but for the CustomResourceDefinitions, in the
// folder kustomize.
//
//go:embed kustomize/*.yaml
var Kustomize embed.FS

// Machines has the accounts and the rights that a management cluster of Cluster API
// needs besides.
//
//go:embed kustomize/machines/rbac.yaml
var Machines string

// TenantHub and TenantAgent are what a hub has for a cluster of a tenant, and what that cluster has; words
// in capitals stand for what `lbd tenant` fills in.
var (
	//go:embed tenant/hub.yaml
	TenantHub string
	//go:embed tenant/agent.yaml
	TenantAgent string
	// These are for Ingresses, besides.
	//go:embed tenant/hub-ingress.yaml
	TenantHubIngress string
	//go:embed tenant/agent-ingress.yaml
	TenantAgentIngress string
	// These are for HTTPRoutes and GRPCRoutes; a hub has those for Ingresses, besides.
	//go:embed tenant/hub-gateway.yaml
	TenantHubGateway string
	//go:embed tenant/agent-gateway.yaml
	TenantAgentGateway string
	// These are for their certificates; the second is for one namespace.
	//go:embed tenant/hub-tls.yaml
	TenantHubTLS string
	//go:embed tenant/agent-tls.yaml
	TenantAgentTLS string
)

// Alerts is the PrometheusRule with the alerts.
//
//go:embed kustomize/monitoring/rules.yaml
var Alerts string

// Dashboard is the dashboard for Grafana.
//
//go:embed kustomize/monitoring/dashboard.json
var Dashboard string
