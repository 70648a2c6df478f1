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

// Alerts is the PrometheusRule with the alerts.
//
//go:embed kustomize/monitoring/rules.yaml
var Alerts string

// Dashboard is the dashboard for Grafana.
//
//go:embed kustomize/monitoring/dashboard.json
var Dashboard string
