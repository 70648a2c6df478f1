package controlplane

import (
	"context"
	"encoding/json"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"time"
)

// StartProxy starts kube-proxy on the node, in the mode "nftables" or "iptables".
// It waits for pause between two writes of its rules; 0 is its default, a second.
func (n *Node) StartProxy(ctx context.Context, mode string, pause time.Duration) error {
	kubeconfig, err := n.cp.Kubeconfig(n.cp.address(n.cp.APIServers[0].Host), User{Name: "system:kube-proxy"})
	if err != nil {
		return err
	}
	file := filepath.Join(n.Dir, "kube-proxy.json")
	// What is not here is at kube-proxy's defaults. Limits of conntrack belong to
	// the machine, not to a namespace.
	b, err := json.Marshal(map[string]any{
		"apiVersion": "kubeproxy.config.k8s.io/v1alpha1", "kind": "KubeProxyConfiguration",
		"mode": mode, "hostnameOverride": n.Name, "clientConnection": map[string]any{"kubeconfig": kubeconfig},
		"clusterCIDR": n.cp.join(podRange),
		"conntrack":   map[string]any{"maxPerCore": 0, "min": 0, "tcpEstablishedTimeout": "0s", "tcpCloseWaitTimeout": "0s"},
		"iptables":    map[string]any{"localhostNodePorts": false, "minSyncPeriod": pause.String()},
		"nftables":    map[string]any{"minSyncPeriod": pause.String()}, "oomScoreAdj": 0,
	})
	if err != nil {
		return fmt.Errorf("kube-proxy: %w", err)
	}
	if err := os.WriteFile(file, b, 0o600); err != nil {
		return fmt.Errorf("kube-proxy: %w", err)
	}
	n.Proxy = &Server{
		Name: "kube-proxy", Host: &n.Host, lab: n.cp.Lab, argv: []string{n.cp.Programs.Proxy, "--config=" + file},
		ready: n.synced,
	}
	return n.Proxy.Start(ctx)
}

// synced wants kube-proxy to have written its rules once, for every family: its
// /healthz is content before.
func (n *Node) synced(ctx context.Context) error {
	const metric = "kubeproxy_sync_proxy_rules_last_timestamp_seconds{"
	page, err := get(ctx, n.cp.Lab, &n.Host, "http://127.0.0.1:10249/metrics", nil)
	if err != nil {
		return err
	}
	families := 0
	for line := range strings.Lines(page) {
		if strings.HasPrefix(line, metric) && !strings.HasSuffix(strings.TrimSpace(line), " 0") {
			families++
		}
	}
	if families < len(n.cp.families) {
		return fmt.Errorf("kube-proxy: it has written the rules of %d families, want %d", families, len(n.cp.families))
	}
	return nil
}
