package cluster_test

import (
	"bytes"
	"testing"
	"time"

	"lbd.dev/lbd/tests/cluster"
)

// TestCertificatesRenewed has kubeadm renew all certificates of the owner, and restarts
// its API server as kubeadm asks for: the manifest is taken away for a moment. The daemon
// checks with the CA as before.
func TestCertificatesRenewed(t *testing.T) {
	c := unitCluster(t)
	unlessBusy(t, c, func() []string {
		return writing(t, c, "certificates renewed", func(owner *cluster.Machine) { renew(t, c, owner) }).within(slack * apiServerDeath)
	})
}

// apiServerDeath is the promise for an API server of the owner that ends.
const apiServerDeath = 800 * time.Millisecond

func renew(t *testing.T, c *cluster.Cluster, m *cluster.Machine) {
	t.Helper()
	const certificate = "/etc/kubernetes/pki/apiserver.crt"
	was, err := m.ReadFile(certificate)
	must(t, err)
	_, err = m.Run(t.Context(), "kubeadm", "certs", "renew", "all")
	must(t, err)
	is, err := m.ReadFile(certificate)
	must(t, err)
	if bytes.Equal(was, is) {
		t.Errorf("%s: kubeadm has renewed nothing", m.Name)
	}
	must(t, m.StopPod(t.Context(), "kube-apiserver"))
	must(t, m.StartPod(t.Context(), "kube-apiserver"))
	must(t, c.WaitWhole(t.Context()))
}
