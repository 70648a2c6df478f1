package cluster

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"strconv"
	"strings"

	"sigs.k8s.io/yaml"
)

// BoxPage is how machines become a box, and masters behind it.
const BoxPage = "docs/box.md"

// Box is the machine in front of the others, of a cluster that NewBehindBox made.
func (c *Cluster) Box() *Machine { return c.Machines[len(c.Machines)-1] }

// Masters are the others.
func (c *Cluster) Masters() []*Machine { return c.Machines[:len(c.Machines)-1] }

// secrets are what the user data of docs/box.md leaves to its reader.
type secrets struct{ key, password, token, certificateKey string }

// newSecret runs a program of this computer that prints one.
func (c *Cluster) newSecret(ctx context.Context, argv ...string) (string, error) {
	out, err := command(ctx, nil, os.Environ(), argv...)
	return strings.TrimSpace(out), err
}

// SetUpBox makes a box of the machine, as docs/box.md says, with a package of lbd.
func (c *Cluster) SetUpBox(ctx context.Context, deb []byte) error {
	config, err := oneBlock(ctx, BoxPage, "The boxes", "yaml", "kind: VirtualIP")
	if err != nil {
		return err
	}
	sysctls, err := oneBlock(ctx, BoxPage, "The kernel of the boxes", "", "fib_multipath_hash_policy")
	if err != nil {
		return err
	}
	s := &c.secrets
	s.password = "a long random text"
	key, err := c.newSecret(ctx, c.Parts.LBD, "keygen")
	if err != nil {
		return err
	}
	if s.key, err = c.newSecret(ctx, c.Parts.LBD, "keygen"); err != nil {
		return err
	}
	if s.token, err = c.newSecret(ctx, c.Parts.Programs.Kubeadm, "token", "generate"); err != nil {
		return err
	}
	if s.certificateKey, err = c.newSecret(ctx, c.Parts.Programs.Kubeadm, "certs", "certificate-key"); err != nil {
		return err
	}
	m := c.Box()
	err = errors.Join(
		m.WriteFile(configFile, []byte(config), 0o644), m.WriteFile("/etc/lbd/gossip.key", []byte(key+"\n"), 0o600),
		m.WriteFile("/etc/lbd/masters.password", []byte(s.password+"\n"), 0o600),
		m.WriteFile("/etc/sysctl.d/lbd.conf", []byte(sysctls), 0o644), m.WriteFile("/run/lbd.deb", deb, 0o644),
	)
	if err != nil {
		return err
	}
	// The seed is newer than the kernels of some computers.
	_, err = m.Shell(ctx, "sysctl --ignore --load /etc/sysctl.d/lbd.conf\ndpkg -i /run/lbd.deb\nchown lbd:lbd /etc/lbd/*\nsystemctl enable --now lbd")
	return err
}

// userData is what the test does of cloud-init's work.
type userData struct {
	Files []struct {
		Path, Content, Permissions string
	} `json:"write_files"`
	Commands []string `json:"runcmd"`
}

// BootMaster does with a machine what cloud-init does with the user data of docs/box.md. The package is
// there already, as if it had been downloaded.
func (c *Cluster) BootMaster(ctx context.Context, m *Machine, deb []byte, first bool) error {
	data, err := c.userData(ctx, first)
	if err != nil {
		return err
	}
	for _, f := range data.Files {
		mode := uint64(0o644)
		if f.Permissions != "" {
			if mode, err = strconv.ParseUint(f.Permissions, 8, 32); err != nil {
				return fmt.Errorf("%s: permissions of %s: %w", BoxPage, f.Path, err)
			}
		}
		if err := m.WriteFile(f.Path, []byte(f.Content), os.FileMode(mode)); err != nil {
			return err
		}
	}
	if err := m.WriteFile("/run/lbd.deb", deb, 0o644); err != nil {
		return err
	}
	for _, line := range data.Commands {
		if strings.HasPrefix(line, "curl ") {
			continue
		}
		if _, err := m.Shell(ctx, line); err != nil {
			return err
		}
	}
	if first {
		return c.keepAdmin(m)
	}
	return nil
}

// userData is that of the page, with what it leaves to its reader.
func (c *Cluster) userData(ctx context.Context, first bool) (*userData, error) {
	const chapter = "Masters by cloud-init"
	text, err := oneBlock(ctx, BoxPage, chapter, "yaml", "#cloud-config")
	if err != nil {
		return nil, err
	}
	join, err := oneBlock(ctx, BoxPage, chapter, "", "kubeadm join")
	if err != nil {
		return nil, err
	}
	config, err := oneBlock(ctx, BoxPage, "Masters with lbd", "yaml", "kind: VirtualIP")
	if err != nil {
		return nil, err
	}
	if !first {
		lines := strings.SplitAfter(strings.TrimSuffix(text, "\n"), "\n")
		text = strings.Join(lines[:len(lines)-1], "") + join
	}
	s := &c.secrets
	text = strings.NewReplacer(
		"CONFIGURATION", strings.ReplaceAll(strings.TrimSpace(config), "\n", "\n    "), "PASSWORD", s.password, "CERTIFICATE_KEY", s.certificateKey,
		"KEY", s.key, "TOKEN", s.token, "kubeadm init ", "kubeadm init"+hereInit+c.Parts.Programs.Kubernetes+" ", "kubeadm join ", "kubeadm join"+here+" ",
	).Replace(text)
	var data userData
	if err := yaml.UnmarshalStrict([]byte(text), &data); err != nil {
		return nil, fmt.Errorf("%s: user data: %w", BoxPage, err)
	}
	if len(data.Files) == 0 || len(data.Commands) == 0 {
		return nil, fmt.Errorf("%s: the user data has no files or no commands: %s", BoxPage, text)
	}
	return &data, nil
}

// NextHops are the masters to which the box sends what comes for the VIP.
func (c *Cluster) NextHops(ctx context.Context) ([]string, error) {
	out, err := c.Box().Run(ctx, "lbd", "status", "-o", "json")
	if err != nil {
		return nil, err
	}
	var s struct {
		Listeners []struct {
			Routes []struct {
				Prefix   string
				NextHops []string
			}
		}
	}
	if err := json.Unmarshal([]byte(out), &s); err != nil {
		return nil, fmt.Errorf("box: status: %w", err)
	}
	if len(s.Listeners) != 1 || len(s.Listeners[0].Routes) != 1 || s.Listeners[0].Routes[0].Prefix != VIP().String()+"/32" {
		return nil, fmt.Errorf("box: its routes are %+v", s.Listeners)
	}
	return s.Listeners[0].Routes[0].NextHops, nil
}
