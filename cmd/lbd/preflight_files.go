package main

import (
	"os"
	"path/filepath"

	"sigs.k8s.io/yaml"

	"lbd.dev/lbd/internal/fileaccess"
)

// reader is a way to run the daemon, and as whom it then reads files.
type reader struct {
	what string
	user fileaccess.User
	here bool // it is installed on this host
}

// readers are the static pod and the unit. Preflight itself runs as root and reads
// everything, so it judges by owner and mode for those who will read.
func readers(root string) []reader {
	all := []reader{{what: "the static pod", user: fileaccess.Root, here: staticPodIn(filepath.Join(root, "etc/kubernetes/manifests"))}}
	if u, ok := fileaccess.Lookup("lbd"); ok {
		all = append(all, reader{what: "the unit", user: u, here: unitIn(root)})
	}
	return all
}

// unitIn tells whether a unit is where `lbd manifest systemd` or a package puts it.
func unitIn(root string) bool {
	for _, dir := range []string{"etc/systemd/system", "usr/lib/systemd/system", "lib/systemd/system"} {
		if _, err := os.Stat(filepath.Join(root, dir, "lbd.service")); err == nil {
			return true
		}
	}
	return false
}

// staticPodIn tells whether kubelet finds a pod of lbd in the directory.
func staticPodIn(dir string) bool {
	files, _ := filepath.Glob(filepath.Join(dir, "*.yaml"))
	for _, file := range files {
		var pod struct {
			Metadata struct{ Labels map[string]string }
		}
		data, err := os.ReadFile(file)
		if err == nil && yaml.Unmarshal(data, &pod) == nil && pod.Metadata.Labels["app.kubernetes.io/name"] == "lbd" {
			return true
		}
	}
	return false
}

// files tells whether the daemon can read the keyring, the kubeconfigs and the files
// with passwords. What is installed must be able to. If nothing is yet, who could not
// is worth a line.
func (p *preflight) files(all []reader) {
	installed := false
	for _, r := range all {
		installed = installed || r.here
	}
	for _, file := range p.cfg.SecretFiles() {
		if _, err := os.Stat(file); err != nil {
			p.say(warn, "file", "%v", err) // of a kubeconfig, which may come later
			continue
		}
		for _, r := range all {
			switch err := r.user.Read(file); {
			case installed && !r.here:
			case err == nil && installed:
				p.say(ok, "file", "%s can read %s", r.what, file)
			case err != nil && installed:
				p.say(fail, "file", "%s cannot read %s: %v", r.what, file, err)
			case err != nil:
				p.say(warn, "file", "%s could not read %s: %v", r.what, file, err)
			}
		}
	}
}
