package docs

import (
	"fmt"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"sigs.k8s.io/yaml"
)

// boot is what a machine gets before it boots: the user data of cloud-init, or what
// Cluster API makes such data of.
type boot struct {
	Files    []bootFile `json:"write_files"`
	Commands []string   `json:"runcmd"`
	Spec     struct {
		Kubeadm struct {
			Files    []bootFile
			Commands []string `json:"preKubeadmCommands"`
		} `json:"kubeadmConfigSpec"`
	}
}

type bootFile struct{ Path, Content string }

// TestBootData: lbd takes the configuration that the pages put into machines before they boot, a shell
// can read their commands, and all that the commands and files name is brought.
func TestBootData(t *testing.T) {
	bin := program(t)
	for name, key := range map[string]string{"docs/cluster-api.md": "kubeadmConfigSpec:", "docs/control-plane.md": "#cloud-config"} {
		found := 0
		for _, b := range readPage(t, name).blocks() {
			if b.lang != "yaml" || !strings.Contains(b.text, key) {
				continue
			}
			found++
			var data boot
			if err := yaml.Unmarshal([]byte(b.text), &data); err != nil {
				t.Fatalf("%s:%d: %v", b.page, b.line, err)
			}
			for _, w := range wrongBoot(t, bin, append(data.Files, data.Spec.Kubeadm.Files...), append(data.Commands, data.Spec.Kubeadm.Commands...)) {
				t.Errorf("%s:%d: %s", b.page, b.line, w)
			}
		}
		if found != 1 {
			t.Errorf("%s has %d of what machines get before they boot", name, found)
		}
	}
}

// wrongBoot is what is wrong with files and commands.
func wrongBoot(t *testing.T, bin string, files []bootFile, commands []string) (wrong []string) {
	t.Helper()
	has := func(path string) bool {
		return slices.ContainsFunc(files, func(f bootFile) bool { return f.Path == path })
	}
	for _, path := range []string{"/etc/lbd/lbd.yaml", "/etc/lbd/gossip.key"} {
		if !has(path) {
			wrong = append(wrong, path+" is not brought")
		}
	}
	scripts := slices.Clone(commands)
	for _, f := range files {
		switch {
		case f.Path == "/etc/lbd/lbd.yaml":
			dir := t.TempDir()
			put(t, filepath.Join(dir, "lbd.yaml"), f.Content)
			if _, said, code := call(t, bin, dir, "", "validate", "lbd.yaml"); code != 0 {
				wrong = append(wrong, "lbd refuses "+f.Path+": "+said)
			}
		case strings.HasPrefix(f.Content, "#!/bin/sh\n"):
			scripts = append(scripts, f.Content)
		}
		for line := range strings.Lines(f.Content) {
			if program, ok := strings.CutPrefix(line, "ExecStart="); ok && !has(strings.TrimSpace(program)) {
				wrong = append(wrong, f.Path+" starts a program that is not brought: "+program)
			}
		}
	}
	for _, s := range scripts {
		if out, err := exec.CommandContext(t.Context(), "sh", "-n", "-c", s).CombinedOutput(); err != nil {
			wrong = append(wrong, fmt.Sprintf("sh cannot read %q: %s", s, out))
		}
		for _, word := range strings.Fields(s) {
			if strings.HasPrefix(word, "/etc/lbd/") && !has(word) {
				wrong = append(wrong, word+" is not brought")
			}
		}
	}
	if !strings.Contains(strings.Join(commands, "\n"), "systemctl enable --now lbd") {
		wrong = append(wrong, "nobody starts lbd")
	}
	return wrong
}
