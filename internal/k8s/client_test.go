package k8s_test

import (
	"os"
	"path/filepath"
	"strings"
	"testing"

	"lbd.dev/lbd/internal/k8s"
	"lbd.dev/lbd/internal/testnet"
)

// TestKubeconfigOfAnotherUser: a daemon in a pod is told why it cannot read what the
// unit could.
func TestKubeconfigOfAnotherUser(t *testing.T) {
	file := filepath.Join(t.TempDir(), "kubeconfig")
	if err := os.WriteFile(file, nil, 0o600); err != nil {
		t.Fatal(err)
	}
	if os.Geteuid() == 0 {
		if err := os.Chown(file, 4242, 4242); err != nil {
			t.Fatal(err)
		}
	}
	testnet.AsInPod(t, func() {
		_, err := k8s.New(k8s.Options{Kubeconfig: file})
		if err == nil || !strings.Contains(err.Error(), "it belongs to 4242 (mode 0600); `chown root: "+file+"`") {
			t.Errorf("got %v", err)
		}
	})
}
