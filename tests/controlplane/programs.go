package controlplane

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"time"
)

// Modules of which the versions are read from programs/go.mod.
const (
	kubernetesModule = "k8s.io/kubernetes"
	etcdModule       = "go.etcd.io/etcd/server/v3"
)

// Programs are the files of a control plane's programs, and of a node's.
type Programs struct {
	Etcd, APIServer, ControllerManager, Scheduler, Proxy, Kubectl string
	Kubelet, Kubeadm                                              string

	Dir string // where they are
	// Kubernetes and EtcdVersion are as in the tags of their repositories: v1.35.0.
	Kubernetes, EtcdVersion string
	// Built tells that they were not in the cache.
	Built bool
}

// Conformance are Kubernetes' own end-to-end tests, and what a cluster needs for them.
type Conformance struct {
	Tests   string // e2e.test
	Agnhost string // what their Pods run
	Image   string // the name of its image
	CoreDNS string
	Built   bool // they were not in the cache
}

// BuildConformance is Build for the end-to-end tests.
func BuildConformance(ctx context.Context) (*Conformance, error) {
	ctx, cancel := context.WithTimeout(ctx, 40*time.Minute)
	defer cancel()
	f, kubernetes, _, err := kubernetesFoundry(ctx)
	if err != nil {
		return nil, err
	}
	f.name = "tests-" + kubernetes
	f.parts = []part{
		{"agnhost", kubernetesModule + "/test/images/agnhost", []string{"--version"}, "app version"},
		{"e2e.test", kubernetesModule + "/test/e2e", []string{"--version"}, kubernetes + "\n"},
	}
	dir, built, err := f.get(ctx)
	if err != nil {
		return nil, fmt.Errorf("control plane: %w", err)
	}
	dns := foundry{
		module: filepath.Join(f.module, "coredns"), cache: f.cache, name: "coredns", ldflags: "-s -w",
		parts: []part{{"coredns", "github.com/coredns/coredns", []string{"--version"}, "CoreDNS-"}},
	}
	dnsDir, dnsBuilt, err := dns.get(ctx)
	if err != nil {
		return nil, fmt.Errorf("control plane: %w", err)
	}
	c := &Conformance{CoreDNS: filepath.Join(dnsDir, "coredns"), Tests: filepath.Join(dir, "e2e.test"), Agnhost: filepath.Join(dir, "agnhost"), Built: built || dnsBuilt}
	images, err := command(ctx, "", c.Tests, "--list-images")
	if err != nil {
		return nil, fmt.Errorf("control plane: %w", err)
	}
	for image := range strings.FieldsSeq(images) {
		// An older one is there too, by which upgrades are tested.
		if strings.Contains(image, "/e2e-test-images/agnhost:") {
			c.Image = max(c.Image, image)
		}
	}
	if c.Image == "" {
		return nil, fmt.Errorf("control plane: the tests name no image of agnhost: %s", images)
	}
	return c, nil
}

// Build returns the programs from the cache and, if they are not there, builds
// them into it, which takes minutes. The cache is the folder lbd/controlplane in
// LBD_CACHE, or else in the user's cache (XDG_CACHE_HOME); nothing is written
// elsewhere but into the caches of go. The working folder must be in a module that
// knows this package's.
func Build(ctx context.Context) (*Programs, error) {
	ctx, cancel := context.WithTimeout(ctx, 40*time.Minute)
	defer cancel()
	f, kubernetes, etcd, err := kubernetesFoundry(ctx)
	if err != nil {
		return nil, err
	}
	f.name = "kubernetes-" + kubernetes + "-etcd-" + etcd
	f.parts = []part{
		{"etcd", etcdModule, []string{"--version"}, "etcd Version: " + strings.TrimPrefix(etcd, "v") + "\n"},
		{"kube-apiserver", kubernetesModule + "/cmd/kube-apiserver", []string{"--version"}, "Kubernetes " + kubernetes + "\n"},
		{"kube-controller-manager", kubernetesModule + "/cmd/kube-controller-manager", []string{"--version"}, "Kubernetes " + kubernetes + "\n"},
		{"kube-scheduler", kubernetesModule + "/cmd/kube-scheduler", []string{"--version"}, "Kubernetes " + kubernetes + "\n"},
		{"kube-proxy", kubernetesModule + "/cmd/kube-proxy", []string{"--version"}, "Kubernetes " + kubernetes + "\n"},
		{"kubectl", kubernetesModule + "/cmd/kubectl", []string{"version", "--client"}, "Client Version: " + kubernetes + "\n"},
		{"kubelet", kubernetesModule + "/cmd/kubelet", []string{"--version"}, "Kubernetes " + kubernetes + "\n"},
		{"kubeadm", kubernetesModule + "/cmd/kubeadm", []string{"version", "-o", "short"}, kubernetes + "\n"},
	}
	dir, built, err := f.get(ctx)
	if err != nil {
		return nil, fmt.Errorf("control plane: %w", err)
	}
	at := func(name string) string { return filepath.Join(dir, name) }
	return &Programs{
		Etcd: at("etcd"), APIServer: at("kube-apiserver"), ControllerManager: at("kube-controller-manager"),
		Scheduler: at("kube-scheduler"), Proxy: at("kube-proxy"), Kubectl: at("kubectl"), Kubelet: at("kubelet"), Kubeadm: at("kubeadm"),
		Dir: dir, Kubernetes: kubernetes, EtcdVersion: etcd, Built: built,
	}, nil
}

// kubernetesFoundry builds programs of the versions that programs/go.mod names.
func kubernetesFoundry(ctx context.Context) (f *foundry, kubernetes, etcd string, err error) {
	module, err := programsModule(ctx)
	if err != nil {
		return nil, "", "", err
	}
	if kubernetes, etcd, err = versions(ctx, module); err != nil {
		return nil, "", "", err
	}
	root, err := CacheRoot()
	if err != nil {
		return nil, "", "", err
	}
	v := "k8s.io/component-base/version."
	parts := strings.SplitN(strings.TrimPrefix(kubernetes, "v"), ".", 3)
	return &foundry{
		module: module, cache: filepath.Join(root, "lbd", "controlplane"),
		// Without a version kube-apiserver says v0.0.0-master, to clients too.
		ldflags: fmt.Sprintf("-s -w -X %[1]sgitVersion=%[2]s -X %[1]sgitMajor=%[3]s -X %[1]sgitMinor=%[4]s -X %[1]sgitTreeState=clean",
			v, kubernetes, parts[0], parts[1]),
	}, kubernetes, etcd, nil
}

// programsModule is the folder of the module that names the programs' versions.
func programsModule(ctx context.Context) (string, error) {
	out, err := exec.CommandContext(ctx, "go", "list", "-m", "-f", "{{.Dir}}", "lbd.dev/lbd/tests/controlplane").Output()
	dir := filepath.Join(strings.TrimSpace(string(out)), "programs")
	if err == nil {
		_, err = os.Stat(filepath.Join(dir, "go.mod"))
	}
	if err != nil {
		return "", fmt.Errorf("control plane: run this inside the module of tests/controlplane, or one that knows it: %w", err)
	}
	return dir, nil
}

// versions reads them from the module's file, without asking the network.
func versions(ctx context.Context, module string) (kubernetes, etcd string, err error) {
	cmd := exec.CommandContext(ctx, "go", "mod", "edit", "-json")
	cmd.Dir = module
	out, err := cmd.Output()
	if err != nil {
		return "", "", fmt.Errorf("control plane: %s: go.mod: %w", module, err)
	}
	var mod struct {
		Require []struct{ Path, Version string }
	}
	if err := json.Unmarshal(out, &mod); err != nil {
		return "", "", fmt.Errorf("control plane: go.mod: %w", err)
	}
	for _, r := range mod.Require {
		switch r.Path {
		case kubernetesModule:
			kubernetes = r.Version
		case etcdModule:
			etcd = r.Version
		}
	}
	if strings.Count(kubernetes, ".") < 2 || etcd == "" {
		return "", "", fmt.Errorf("control plane: %s: go.mod requires %s %q and %s %q", module, kubernetesModule, kubernetes, etcdModule, etcd)
	}
	return kubernetes, etcd, nil
}

// CacheRoot is the folder below which the caches are: LBD_CACHE, or else the user's.
func CacheRoot() (string, error) {
	if dir := os.Getenv("LBD_CACHE"); dir != "" {
		if !filepath.IsAbs(dir) {
			return "", fmt.Errorf("control plane: LBD_CACHE=%q: want an absolute path", dir)
		}
		return dir, nil
	}
	dir, err := os.UserCacheDir()
	if err != nil {
		return "", errors.Join(errors.New("control plane: no folder for the cache: set LBD_CACHE"), err)
	}
	return dir, nil
}
