package cluster

import (
	"context"
	"errors"
	"io"
	"os"
	"path/filepath"
	"strings"
)

// imagesVersion changes when the images of a node are made in another way.
const imagesVersion = "3"

// images are those that kubeadm asks for, made of the programs, and kube-proxy's with
// the tools of Debian. The tags are those of `kubeadm config images list`.
func (p *Parts) images(ctx context.Context, dir string) ([]Image, error) {
	names, err := command(ctx, nil, os.Environ(), p.Programs.Kubeadm, "config", "images", "list", "--kubernetes-version="+p.Programs.Kubernetes)
	if err != nil {
		return nil, err
	}
	pause := filepath.Join(dir, "pause")
	if _, err := command(ctx, nil, append(os.Environ(), "CGO_ENABLED=0", "GOWORK=off"), "go", "build", "-trimpath", "-ldflags=-s -w", "-o", pause, "lbd.dev/lbd/tests/cluster/cmd/pause"); err != nil {
		return nil, err
	}
	proxy, err := p.proxyFiles(ctx)
	if err != nil {
		return nil, err
	}
	program := func(path string) []ImageFile {
		return []ImageFile{{Path: "/usr/local/bin/" + filepath.Base(path), From: path}}
	}
	files := map[string][]ImageFile{
		"kube-apiserver": program(p.Programs.APIServer), "kube-controller-manager": program(p.Programs.ControllerManager),
		"kube-scheduler": program(p.Programs.Scheduler), "etcd": program(p.Programs.Etcd),
		"kube-proxy": append(program(p.Programs.Proxy), proxy...), "pause": {{Path: "/pause", From: pause}},
	}
	var all []Image
	for name := range strings.FieldsSeq(names) {
		base, _, _ := strings.Cut(filepath.Base(name), ":")
		if f, ok := files[base]; ok { // CoreDNS is not among them
			i := Image{Name: name, Files: f}
			if base == "pause" {
				i.Entrypoint = []string{"/pause"}
			}
			all = append(all, i)
			delete(files, base)
		}
	}
	if len(files) > 0 {
		return nil, errors.New("kubeadm asks for other images: " + names)
	}
	return all, nil
}

// proxyFiles are what kube-proxy calls: nft and iptables, with their libraries. Without the
// names of protocols nft lists 6 for tcp, and a kube-proxy that starts again removes what it
// does not know again: all its Services.
func (p *Parts) proxyFiles(ctx context.Context) ([]ImageFile, error) {
	all, err := p.withLibraries(ctx, "/usr/sbin/nft", "/usr/sbin/xtables-nft-multi")
	if err != nil {
		return nil, err
	}
	all = append(all, ImageFile{Path: "/etc/protocols", From: filepath.Join(p.debian, "etc/protocols")})
	extensions, err := filepath.Glob(filepath.Join(p.debian, "usr/lib/*-linux-gnu/xtables/*.so"))
	if err != nil {
		return nil, err
	}
	for _, f := range extensions {
		all = append(all, ImageFile{Path: strings.TrimPrefix(f, p.debian), From: f})
	}
	for _, name := range []string{"iptables", "iptables-save", "iptables-restore", "ip6tables", "ip6tables-save", "ip6tables-restore"} {
		all = append(all, ImageFile{Path: "/usr/sbin/" + name, Link: "xtables-nft-multi"})
	}
	return all, nil
}

// withLibraries are programs of Debian and the libraries that they need.
func (p *Parts) withLibraries(ctx context.Context, programs ...string) ([]ImageFile, error) {
	out, err := command(ctx, nil, os.Environ(), append([]string{"chroot", p.debian, "ldd"}, programs...)...)
	if err != nil {
		return nil, err
	}
	paths := map[string]bool{}
	for f := range strings.FieldsSeq(out) {
		if strings.HasPrefix(f, "/lib") {
			paths[strings.TrimSuffix(f, ":")] = true
		}
	}
	for _, program := range programs {
		paths[program] = true
	}
	var all []ImageFile
	for f := range paths {
		all = append(all, ImageFile{Path: f, From: filepath.Join(p.debian, f)})
	}
	return all, nil
}

// lbdImage is lbd as `make image` builds it, in what matters here: the program.
func (p *Parts) lbdImage(name string) Image {
	return Image{Name: name, Entrypoint: []string{"/usr/bin/lbd"}, Files: []ImageFile{{Path: "/usr/bin/lbd", From: p.LBD}}}
}

func copyFile(from, to string, mode os.FileMode) error {
	in, err := os.Open(from)
	if err != nil {
		return err
	}
	defer in.Close()
	out, err := os.OpenFile(to, os.O_CREATE|os.O_TRUNC|os.O_WRONLY, mode)
	if err != nil {
		return err
	}
	_, err = io.Copy(out, in)
	return errors.Join(err, out.Close())
}
