package cluster_test

import (
	"context"
	"fmt"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"lbd.dev/lbd/tests/cluster"
)

// TestDiskOfEtcdFull: the disk of the owner's etcd is full. etcd ends as soon as it needs
// more than it has allocated.
func TestDiskOfEtcdFull(t *testing.T) {
	c := unitCluster(t)
	unlessBusy(t, c, func() []string {
		first, err := c.WaitOwner(t.Context(), time.Minute, c.Machines...)
		must(t, err)
		m := c.Others(first)[0]
		moveEtcd(t, m, "mv /var/lib/etcd /srv/etcd\nmkdir -m 0700 /var/lib/etcd\nmount -t tmpfs -o size=300M,mode=0700 tmpfs /var/lib/etcd\ncp -a /srv/etcd/. /var/lib/etcd")
		must(t, c.WaitWhole(t.Context()))
		for _, o := range c.Others(m) {
			mustRun(t, o, "lbd", "drain")
		}
		for _, o := range c.Others(m) {
			mustRun(t, o, "lbd", "undrain")
		}
		full := writing(t, c, "disk of etcd full", func(owner *cluster.Machine) {
			if owner != m {
				t.Fatalf("%s owns the VIP, not %s", owner.Name, m.Name)
			}
			was, err := m.Run(t.Context(), "pidof", "etcd")
			must(t, err)
			mustRun(t, m, "sh", "-c", "dd if=/dev/zero of=/var/lib/etcd/filler bs=1M 2>/dev/null || true")
			writeMuch(t, c, func() bool { pid, err := m.Run(t.Context(), "pidof", "etcd"); return err != nil || pid != was })
			pause(t, 10*time.Second)
			_, err = c.WaitOwner(t.Context(), 10*time.Second, c.Others(m)...)
			must(t, err)
		})
		mustRun(t, m, "rm", "/var/lib/etcd/filler")
		must(t, c.WaitWhole(t.Context()))
		moveEtcd(t, m, "rm -r /srv/etcd\ncp -a /var/lib/etcd /srv/etcd\numount /var/lib/etcd\nrmdir /var/lib/etcd\nmv /srv/etcd /var/lib/etcd")
		must(t, c.WaitWhole(t.Context()))
		return full.within(slack * (whole + election))
	})
}

// writeMuch writes until something has happened, but not more than what two segments of
// etcd's log have room for: it has allocated the first one when the disk was not full.
func writeMuch(t *testing.T, c *cluster.Cluster, happened func() bool) {
	t.Helper()
	client, err := c.Clientset()
	must(t, err)
	const size, segment = 900_000, 64 << 20
	for n := range 2 * segment / size {
		m := &corev1.ConfigMap{ObjectMeta: metav1.ObjectMeta{Name: "much"}, Data: map[string]string{"a": fmt.Sprintf("%0*d", size, n)}}
		if n == 0 {
			_, err = client.CoreV1().ConfigMaps("default").Create(t.Context(), m, metav1.CreateOptions{})
		} else {
			_, err = client.CoreV1().ConfigMaps("default").Update(t.Context(), m, metav1.UpdateOptions{})
		}
		if happened() {
			t.Logf("etcd has ended after %d MB, and the write said: %v", n*size>>20, err)
			return
		}
	}
	t.Fatalf("etcd bears a full disk: %v", err)
}

// moveEtcd runs commands that move the data of a machine's etcd while that is stopped.
func moveEtcd(t *testing.T, m *cluster.Machine, commands string) {
	t.Helper()
	must(t, m.StopPod(t.Context(), "etcd"))
	_, err := m.Shell(t.Context(), commands)
	must(t, err)
	must(t, m.StartPod(t.Context(), "etcd"))
}

// followed is how long an owner serves without its etcd when its address has changed: its
// daemon waits 5 s whether the old one comes back, starts anew, and hands the VIP over when
// it has had it for 5 s.
const followed = 12 * time.Second

// TestAddressOfOwnerChanges: the owner gets another address, and after a while its own
// back, as from a DHCP server that has forgotten it.
func TestAddressOfOwnerChanges(t *testing.T) {
	c := unitCluster(t)
	unlessBusy(t, c, func() []string {
		var was *cluster.Machine
		const change = "sysctl -qw net.ipv4.conf.eth0.promote_secondaries=1\nip addr add %s/24 dev eth0\nip addr del %s/24 dev eth0"
		own, other := "", "10.0.0.31"
		back := func(ctx context.Context) {
			if was != nil {
				_, _ = was.Shell(ctx, fmt.Sprintf(change, own, other)) // it may be done
			}
		}
		t.Cleanup(func() { back(context.WithoutCancel(t.Context())) })
		changed := writing(t, c, "address of the owner changed", func(owner *cluster.Machine) {
			was, own = owner, owner.Address.String()
			_, err := owner.Shell(t.Context(), fmt.Sprintf(change, other, own))
			must(t, err)
			_, err = c.WaitOwner(t.Context(), time.Minute, c.Others(owner)...)
			must(t, err)
			pause(t, 5*time.Second)
		})
		restored := writing(t, c, "its own again", func(*cluster.Machine) {
			back(t.Context())
			must(t, c.WaitWhole(t.Context()))
		})
		_, err := c.WaitOwner(t.Context(), time.Minute, c.Machines...)
		must(t, err)
		return append(changed.within(slack*followed), restored.within(slack*(whole+election))...)
	})
}
