package controlplane

import (
	"context"
	"fmt"
	"os"
	"path/filepath"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"lbd.dev/lbd/tests/lab"
)

// What `lbd manifest daemonset` installs is called.
const (
	LoadBalancerClass = "lbd.dev/lbd" // of the Services that lbd serves
	InstallNamespace  = "lbd-system"
	gossipSecret      = "lbd-gossip"
	gossipKey         = "gossip.key" // in that Secret
)

// Speaker and Controller are the accounts of lbd, with no more rights than its
// manifests give them.
var (
	Speaker    = serviceAccount("lbd")
	Controller = serviceAccount("lbd-controller")
	// Hosts is that of the hosts which read a management cluster from outside.
	Hosts = serviceAccount("lbd-machines")
)

func serviceAccount(name string) User {
	return User{
		Name:   "system:serviceaccount:" + InstallNamespace + ":" + name,
		Groups: []string{"system:serviceaccounts", "system:serviceaccounts:" + InstallNamespace},
	}
}

// LBD is lbd in a cluster: its controllers on the host of the control plane and a
// daemon on each node, which find each other by the Nodes of the API.
type LBD struct {
	lab.LBD
	Controllers []*Server
	// Classless has what starts from now on serve Services without a class, too.
	Classless bool

	cp      *ControlPlane
	keyFile string
}

// Install applies what `lbd manifest daemonset` prints, and does what the init
// step of the controller's Pod does: makes the gossip key. Nothing runs yet.
func (c *ControlPlane) Install(ctx context.Context) (*LBD, error) {
	all, err := c.Lab.Exec(ctx, c.Host, c.Lab.Bin.LBD, "manifest", "daemonset")
	if err != nil {
		return nil, err
	}
	if err := c.Apply(ctx, all); err != nil {
		return nil, err
	}
	return c.installed(ctx)
}

// installed is Install without the manifest, which has been applied.
func (c *ControlPlane) installed(ctx context.Context) (*LBD, error) {
	if err := c.established(ctx); err != nil {
		return nil, err
	}
	s := &LBD{cp: c, keyFile: filepath.Join(c.Lab.Dir, gossipKey)}
	key, err := s.Keygen(ctx)
	if err != nil {
		return nil, err
	}
	return s, os.WriteFile(s.keyFile, key, 0o600)
}

// Keygen runs `lbd keygen --secret` with the rights of the controller, and returns
// what is in the Secret then.
func (s *LBD) Keygen(ctx context.Context) ([]byte, error) {
	kubeconfig, err := s.cp.Kubeconfig(s.cp.address(s.cp.APIServers[0].Host), Controller)
	if err != nil {
		return nil, err
	}
	_, err = s.cp.Lab.Exec(ctx, s.cp.Host, s.cp.Lab.Bin.LBD, "keygen", "--secret="+gossipSecret, "--namespace="+InstallNamespace, "--kubeconfig="+kubeconfig)
	if err != nil {
		return nil, err
	}
	client, err := s.cp.Client()
	if err != nil {
		return nil, err
	}
	secret, err := client.CoreV1().Secrets(InstallNamespace).Get(ctx, gossipSecret, metav1.GetOptions{})
	if err != nil {
		return nil, fmt.Errorf("gossip key: %w", err)
	}
	return secret.Data[gossipKey], nil
}
