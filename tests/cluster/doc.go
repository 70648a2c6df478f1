// Package cluster runs real Kubernetes nodes for tests: machines of systemd-nspawn
// with systemd as PID 1, containerd, kubelet and kubeadm, in network namespaces, and
// a client outside of the cluster. Machines are started, rebooted, frozen and lose
// their power or their link as the test wants, and lbd is installed on them by the
// commands of the README and of docs/control-plane.md, read from these pages.
//
// The programs are those of tests/controlplane; Debian and the images of containers
// come from a cache (see Build). All that a cluster makes carries its prefix, and a
// supervisor removes it when the process that made it is gone.
package cluster
