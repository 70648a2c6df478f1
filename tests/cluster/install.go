package cluster

import (
	"context"
	"errors"
	"fmt"
	"os"
	"strings"
)

// The pages that are followed.
const (
	readme           = "README.md"
	ControlPlanePage = "docs/control-plane.md"
	kubernetesPage   = "docs/kubernetes.md"
)

const configFile = "/etc/lbd/lbd.yaml"

// image is lbd's in the pages.
const image = "registry.example.net/lbd:v0.1.0"

// InstallUnit installs lbd as a unit on some machines, by the commands of the README.
func (c *Cluster) InstallUnit(ctx context.Context, machines ...*Machine) error {
	block, err := oneBlock(ctx, readme, "Install", "sh", "lbd preflight")
	if err != nil {
		return err
	}
	return c.follow(ctx, block, machines)
}

// InstallStaticPod installs it as a static pod, by those of docs/control-plane.md. The
// image is in containerd already, as if there were a registry.
func (c *Cluster) InstallStaticPod(ctx context.Context, machines ...*Machine) error {
	block, err := oneBlock(ctx, ControlPlanePage, "As a static pod", "sh", "lbd manifest static-pod")
	if err != nil {
		return err
	}
	if !strings.Contains(block, image) {
		return fmt.Errorf("%s: the static pod has another image than %s", ControlPlanePage, image)
	}
	for _, m := range machines {
		if err := c.LoadImage(ctx, m); err != nil {
			return err
		}
	}
	return c.follow(ctx, block, machines)
}

// follow carries out the lines of a page on each machine. What a page leaves to its
// reader is done here: the program is built already, the configuration is that of
// docs/control-plane.md, and the first machine makes the key of all.
func (c *Cluster) follow(ctx context.Context, block string, machines []*Machine) error {
	text, err := Page(ctx, ControlPlanePage)
	if err != nil {
		return err
	}
	config, err := c.configuration(text)
	if err != nil {
		return err
	}
	for _, m := range machines {
		if err := m.upload(c.Parts.LBD, workFolder+"/bin/lbd"); err != nil {
			return err
		}
		if err := c.Follow(ctx, m, block, config); err != nil {
			return err
		}
	}
	return nil
}

// Follow carries out the lines of a page on one machine. Where the page says that the
// configuration is to be edited it becomes config.
func (c *Cluster) Follow(ctx context.Context, m *Machine, block, config string) error {
	for _, l := range lines(block) {
		var err error
		switch {
		case l.command == "make build":
		case l.remark == "once; copy the file to the other nodes":
			err = c.shareKey(ctx, m, l.command)
		case l.remark == "edit: peers, addresses":
			if _, err = m.Shell(ctx, l.command); err == nil {
				err = m.WriteFile(configFile, []byte(config), 0o644)
			}
		default:
			_, err = m.Shell(ctx, l.command)
		}
		if err != nil {
			return err
		}
	}
	return nil
}

// Configure gives machines, whose daemons run, the configuration of docs/control-plane.md,
// whose text may be that of another version.
func (c *Cluster) Configure(ctx context.Context, controlPlane string, machines ...*Machine) error {
	config, err := c.configuration(controlPlane)
	if err != nil {
		return err
	}
	for _, m := range machines {
		if err := m.WriteFile(configFile, []byte(config), 0o644); err != nil {
			return err
		}
		if _, err := m.Run(ctx, "lbd", "reload"); err != nil {
			return err
		}
	}
	return nil
}

// configuration is that of the page, with the addresses of all machines where the page has
// those of three.
func (c *Cluster) configuration(controlPlane string) (string, error) {
	const three = "peers: [10.0.0.11, 10.0.0.12, 10.0.0.13]"
	blocks := blocksOf(controlPlane, "1. On every node, before kubeadm", "yaml")
	if len(blocks) != 1 {
		return "", fmt.Errorf("%s has %d configurations, want one", ControlPlanePage, len(blocks))
	}
	config := blocks[0]
	if !strings.Contains(config, three) || !strings.Contains(config, "["+VIP().String()+"]") {
		return "", fmt.Errorf("%s: the configuration has other addresses: %s", ControlPlanePage, config)
	}
	var peers []string
	for _, m := range c.Machines {
		peers = append(peers, m.Address.String())
	}
	return strings.Replace(config, three, "peers: ["+strings.Join(peers, ", ")+"]", 1), nil
}

// shareKey has the first machine make the gossip key, and copies its file to the others.
func (c *Cluster) shareKey(ctx context.Context, m *Machine, keygen string) error {
	const file = workFolder + "/gossip.key"
	if c.key == nil {
		if _, err := m.Shell(ctx, keygen); err != nil {
			return err
		}
		key, err := m.ReadFile(file)
		c.key = key
		return err
	}
	return m.WriteFile(file, c.key, 0o600)
}

// LoadImage imports the image of lbd, under the name of the pages.
func (c *Cluster) LoadImage(ctx context.Context, m *Machine) error {
	i := c.Parts.lbdImage(image)
	archive := m.dir + "/lbd.tar"
	if err := i.write(archive); err != nil {
		return err
	}
	f, err := os.Open(archive)
	if err != nil {
		return fmt.Errorf("image: %w", err)
	}
	defer f.Close()
	_, err = m.run(ctx, f, "ctr", "-n", "k8s.io", "images", "import", "-")
	return errors.Join(err, os.Remove(archive))
}

// upload copies a program of this computer into the machine.
func (m *Machine) upload(from, to string) error {
	if err := m.WriteFile(to, nil, 0o755); err != nil {
		return err
	}
	return copyFile(from, m.path(to), 0o755)
}
