// Package lab builds a small network of namespaces on one machine (nodes, a
// switch, a client, an observer of the wire), runs a failover daemon on its
// nodes, breaks things and measures what a client and the wire saw of it. It
// measures lbd and its incumbents by the same means.
//
// It needs root, iproute2 and nftables. Nothing outside the namespaces that it
// makes is touched. The wall clock is not namespaced in Linux, so clock jumps
// are left to simulation.
package lab
