// Package k8s speaks with the API server of a cluster: the client, with bounded
// and counted requests, and watches that keep what is needed of each object.
// Package objects reads the objects of lbd.dev through it.
//
// The package and those below it are the only ones that import k8s.io/*. They keep
// clear of k8s.io/client-go/kubernetes: its scheme registers every type of every
// group when the program starts, and a daemon without a cluster would pay for it.
package k8s
