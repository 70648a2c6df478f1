package cluster

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"time"

	"lbd.dev/lbd/tests/lab"
)

// manifests is where kubelet finds static pods; aside is where StopPod keeps theirs.
const (
	manifests = "/etc/kubernetes/manifests/"
	aside     = workFolder + "/stopped-"
)

// podLimit is how long kubelet may take to notice a manifest and to stop its pod.
const podLimit = 2 * time.Minute

// StopPod takes the manifest of a static pod away and waits until its program, which has
// the same name, has ended.
func (m *Machine) StopPod(ctx context.Context, name string) error {
	if _, err := m.Run(ctx, "mv", manifests+name+".yaml", aside+name+".yaml"); err != nil {
		return err
	}
	return lab.Wait(ctx, podLimit, 50*time.Millisecond, m.Name+": "+name+" ends", func() error {
		pids, err := m.Run(ctx, "pidof", name)
		if err != nil && strings.TrimSpace(pids) == "" {
			return nil // pidof says 1 if there is none
		}
		return fmt.Errorf("it is process %s", strings.TrimSpace(pids))
	})
}

// StartPod brings the manifest back; it does not wait for the pod. With etcd the API server
// starts anew. One without etcd takes requests and answers none, and kubelet, which wants
// to delete the mirror pod of etcd, waits 34 s at a time before it looks for manifests.
func (m *Machine) StartPod(ctx context.Context, name string) error {
	if _, err := m.Run(ctx, "mv", aside+name+".yaml", manifests+name+".yaml"); err != nil {
		return err
	}
	if name == "etcd" {
		return m.Signal(ctx, "KILL", "kube-apiserver")
	}
	return nil
}

// Signal sends a signal, such as STOP, to every process of a program.
func (m *Machine) Signal(ctx context.Context, signal, program string) error {
	_, err := m.Shell(ctx, fmt.Sprintf("kill -%s $(pidof %s)", signal, program))
	return err
}

// withoutAddons is for clusters without CoreDNS. The last phase of an upgrade rewrites the
// flags of kubelet, and fails where there are none. The preflight gives a Job 15 s, which a busy
// computer may not keep.
const withoutAddons = " --ignore-preflight-errors=CoreDNSUnsupportedPlugins,CoreDNSMigration,CreateJob --skip-phases=addon/coredns,post-upgrade"

// Upgrade runs `kubeadm upgrade apply` on a machine, to the version that is there already,
// and waits until its control plane is whole. A changed annotation has kubeadm write the
// manifests of the pods anew, so that they are started again as in an upgrade to a newer
// version. kubeadm leaves etcd alone unless its version is newer.
func (c *Cluster) Upgrade(ctx context.Context, m *Machine, pods ...string) error {
	if err := m.changeManifests(pods); err != nil {
		return err
	}
	_, err := m.Shell(ctx, "kubeadm upgrade apply "+c.Parts.Programs.Kubernetes+" --yes --force"+here+withoutAddons)
	return errors.Join(err, c.WaitWhole(ctx))
}

// UpgradeNode runs `kubeadm upgrade node` on one of the other machines.
func (c *Cluster) UpgradeNode(ctx context.Context, m *Machine, pods ...string) error {
	if err := m.changeManifests(pods); err != nil {
		return err
	}
	_, err := m.Shell(ctx, "kubeadm upgrade node"+here+withoutAddons)
	return errors.Join(err, c.WaitWhole(ctx))
}

// Upgraded are the pods that an upgrade to a newer version starts again, if etcd stays.
var Upgraded = []string{"kube-apiserver", "kube-controller-manager", "kube-scheduler"}

// changeManifests has kubeadm give static pods of the machine another annotation.
func (m *Machine) changeManifests(pods []string) error {
	var errs []error
	for _, pod := range pods {
		patch := fmt.Sprintf("metadata: {annotations: {written: %q}}\n", time.Now().Format(time.RFC3339Nano))
		errs = append(errs, m.WriteFile("/etc/kubeadm/patches/"+pod+".yaml", []byte(patch), 0o644))
	}
	return errors.Join(errs...)
}
