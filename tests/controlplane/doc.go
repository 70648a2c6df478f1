// Package controlplane runs a real Kubernetes control plane for tests: etcd,
// kube-apiserver, kube-controller-manager and one kube-proxy for each node, all
// in the namespaces of a lab (tests/lab) and removed with it. There is no
// kubelet: Nodes and EndpointSlices are made by hand, and the endpoints are
// servers in namespaces behind the nodes.
//
// The programs are built from their sources, once for each version, into a cache
// outside the tree (see Build).
package controlplane
