// Package packaging carries the manifests that `lbd manifest` prints.
package packaging

import _ "embed"

// StaticPod is the manifest for /etc/kubernetes/manifests; the word IMAGE stands
// for the image.
//
//go:embed static-pod.yaml
var StaticPod string
