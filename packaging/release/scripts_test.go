package main

import (
	"errors"
	"fmt"
	"maps"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
)

// host is a computer for the scripts of a package: folders in the place of those that the
// scripts name, the tools that they use, and programs that note how they were called.
type host struct {
	t        *testing.T
	dir      string
	programs []string
	// does is shell code for calls: "lbd validate *". A call that is not here ends well.
	does map[string]string
}

// newHost has systemd and the user lbd.
func newHost(t *testing.T) *host {
	t.Helper()
	h := &host{t, t.TempDir(), []string{"systemctl", "lbd", "systemd-sysusers", "id"}, map[string]string{"systemctl is-active *": "exit 3"}}
	for _, d := range []string{"bin", "run/systemd/system", "etc/systemd/system", "etc/lbd", "var/lib/lbd"} {
		if err := os.MkdirAll(filepath.Join(h.dir, d), 0o755); err != nil {
			t.Fatal(err)
		}
	}
	for _, tool := range []string{"tr", "sed", "tail", "rm", "rmdir"} {
		path, err := exec.LookPath(tool)
		if err == nil {
			err = os.Symlink(path, filepath.Join(h.dir, "bin", tool))
		}
		if err != nil {
			t.Fatal(err)
		}
	}
	return h
}

// write makes a file that may be run.
func (h *host) write(name, text string) {
	h.t.Helper()
	if err := os.WriteFile(filepath.Join(h.dir, name), []byte(text), 0o700); err != nil {
		h.t.Fatal(err)
	}
}

// daemon runs until the test ends, with arguments as those of the unit.
func (h *host) daemon(args ...string) {
	h.t.Helper()
	c := exec.CommandContext(h.t.Context(), "sh", append([]string{"-c", "read x", "lbd", "run"}, args...)...)
	if _, err := c.StdinPipe(); err != nil {
		h.t.Fatal(err)
	}
	if err := c.Start(); err != nil {
		h.t.Fatal(err)
	}
	h.t.Cleanup(func() { _ = c.Wait() })
	h.does["systemctl is-active *"] = "exit 0"
	h.does["systemctl show --property=MainPID *"] = fmt.Sprint("echo ", c.Process.Pid)
}

// run runs a script. It returns the calls, what was said, and how the script ended.
func (h *host) run(script string, args ...string) (calls, said string, err error) {
	h.t.Helper()
	var cases strings.Builder
	for call, code := range h.does {
		fmt.Fprintf(&cases, "%s) %s ;;\n", strings.ReplaceAll(call, " ", `\ `), code)
	}
	for _, name := range h.programs {
		h.write("bin/"+name, fmt.Sprintf("#!/bin/sh\ncall=\"%s $*\"\necho \"$call\" >>%s/calls\ncase $call in\n%sesac\n", name, h.dir, &cases))
	}
	text, err := os.ReadFile(filepath.Join("scripts", script))
	if err != nil {
		h.t.Fatal(err)
	}
	changes := []string{"/usr/bin/lbd", h.dir + "/bin/lbd"}
	for _, dir := range []string{"/run/systemd/system", "/etc/systemd/system", "/var/lib/lbd", "/etc/lbd"} {
		changes = append(changes, dir, h.dir+dir)
	}
	h.write("script", strings.NewReplacer(changes...).Replace(string(text)))
	h.write("calls", "")
	c := exec.CommandContext(h.t.Context(), "/bin/sh", append([]string{filepath.Join(h.dir, "script")}, args...)...)
	c.Env = []string{"PATH=" + filepath.Join(h.dir, "bin")}
	out, err := c.CombinedOutput()
	list, err2 := os.ReadFile(filepath.Join(h.dir, "calls"))
	if err2 != nil {
		h.t.Fatal(err2)
	}
	return strings.ReplaceAll(string(list), h.dir, ""), strings.ReplaceAll(string(out), h.dir, ""), err
}

// TestUpgrade: a package puts its program in the place of a daemon that runs only if the
// program takes the configuration of that daemon, and never stops a daemon that answers.
func TestUpgrade(t *testing.T) {
	const replaced, stopped = "lbd restart", "systemctl restart lbd.service"
	for _, c := range []struct {
		name       string
		unit       []string // arguments of the daemon
		does       map[string]string
		calls, not []string
		says       string
	}{
		{"taken", nil, nil, []string{"lbd validate /etc/lbd\n", replaced + " --config /etc/lbd\n"}, []string{stopped}, ""},
		{"a drop-in names the configuration", []string{"--config=/srv/lbd.yaml"}, nil, []string{"lbd validate /srv/lbd.yaml\n", replaced + " --config /srv/lbd.yaml\n"}, []string{stopped}, ""},
		{"the last flag counts", []string{"--config=/a", "--config", "/srv/b"}, nil, []string{"lbd validate /srv/b\n"}, nil, ""},
		{"the new program refuses", nil, map[string]string{"lbd validate *": "echo lbd.yaml:3: gone: is not a known field >&2; exit 1"},
			[]string{"lbd validate /etc/lbd\n"}, []string{replaced, stopped}, "lbd.yaml:3: gone: is not a known field"},
		{"the daemon refuses", nil, map[string]string{"lbd restart *": "echo the key cannot be read >&2; exit 1"},
			[]string{replaced, "lbd status"}, []string{stopped}, "the key cannot be read"},
		{"the daemon does not answer", nil, map[string]string{"lbd restart *": "exit 1", "lbd status *": "exit 1"},
			[]string{replaced, stopped}, nil, ""},
		{"and does not start", nil, map[string]string{"lbd restart *": "exit 1", "lbd status *": "exit 1", "systemctl restart *": "exit 1"},
			[]string{stopped}, nil, "journalctl -u lbd"},
	} {
		t.Run(c.name, func(t *testing.T) {
			h := newHost(t)
			h.daemon(c.unit...)
			maps.Copy(h.does, c.does)
			calls, said, err := h.run("postinstall.sh", "configure", "0.1.0-1")
			if err != nil || !strings.Contains(said, c.says) || (said == "") != (c.says == "") {
				t.Errorf("%v, said %q, want %q", err, said, c.says)
			}
			for _, want := range c.calls {
				if !strings.Contains(calls, want) {
					t.Errorf("no %q in:\n%s", want, calls)
				}
			}
			for _, bad := range c.not {
				if strings.Contains(calls, bad) {
					t.Errorf("%q in:\n%s", bad, calls)
				}
			}
		})
	}
}

// TestNoDaemon: nothing is started that did not run.
func TestNoDaemon(t *testing.T) {
	calls, said, err := newHost(t).run("postinstall.sh", "2")
	if err != nil || said != "" || calls != "systemd-sysusers lbd.conf\nsystemctl daemon-reload\nsystemctl is-active --quiet lbd.service\n" {
		t.Errorf("%v, %q, %s", err, said, calls)
	}
}

// TestUser: the unit has its user, or the installation fails and says why.
func TestUser(t *testing.T) {
	h := newHost(t)
	h.programs = []string{"systemctl", "id", "useradd"}
	if calls, _, err := h.run("postinstall.sh", "1"); err != nil || strings.Contains(calls, "useradd") {
		t.Errorf("there is a user: %v, %s", err, calls)
	}
	h.does["id *"] = "exit 1"
	if calls, _, err := h.run("postinstall.sh", "1"); err != nil || !strings.Contains(calls, "useradd --system --user-group") || !strings.HasSuffix(strings.SplitN(calls, "\n", 3)[1], " lbd") {
		t.Errorf("%v, %s", err, calls)
	}
	if err := os.Remove(filepath.Join(h.dir, "bin", "useradd")); err != nil {
		t.Fatal(err)
	}
	h.programs = []string{"systemctl", "id"}
	if _, said, err := h.run("postinstall.sh", "1"); err == nil || !strings.Contains(said, "create the user lbd") {
		t.Errorf("%v, %q", err, said)
	}
}

// TestHiddenUnit: the first installation names a unit that hides the one of the package.
func TestHiddenUnit(t *testing.T) {
	h := newHost(t)
	h.write("etc/systemd/system/lbd.service", "[Service]\n")
	if err := os.Symlink("/dev/null", filepath.Join(h.dir, "etc/systemd/system/lbd-drain.service")); err != nil { // masked
		t.Fatal(err)
	}
	for _, c := range []struct {
		args []string
		want int
	}{{[]string{"configure", ""}, 1}, {[]string{"1"}, 1}, {[]string{"configure", "0.1.0-1"}, 0}, {[]string{"2"}, 0}} {
		_, said, err := h.run("postinstall.sh", c.args...)
		if err != nil || strings.Count(said, "\n") != c.want || strings.Count(said, "/etc/systemd/system/lbd.service hides the unit") != c.want {
			t.Errorf("%q: %v, %q", c.args, err, said)
		}
	}
}

// TestRemove: a unit that cannot be disabled is stopped all the same, and nothing is done in
// an upgrade.
func TestRemove(t *testing.T) {
	h := newHost(t)
	h.does["systemctl --no-reload disable *"] = "exit 1"
	for _, how := range []string{"remove", "0"} {
		if calls, _, err := h.run("preremove.sh", how); err != nil || !strings.Contains(calls, "systemctl stop lbd-drain.service lbd.service\nlbd cleanup\n") {
			t.Errorf("%s: %v, %s", how, err, calls)
		}
	}
	for _, how := range []string{"upgrade", "1"} {
		if calls, _, err := h.run("preremove.sh", how); err != nil || calls != "" {
			t.Errorf("%s: %v, %s", how, err, calls)
		}
	}
}

// TestPurge: dpkg purges the state, and not the files of the user.
func TestPurge(t *testing.T) {
	h := newHost(t)
	exists := func(name string) bool {
		_, err := os.Stat(filepath.Join(h.dir, name))
		return !errors.Is(err, os.ErrNotExist)
	}
	h.write("var/lib/lbd/x", "")
	h.write("etc/lbd/lbd.yaml", "")
	run := func(how string) {
		t.Helper()
		if _, said, err := h.run("postremove.sh", how); err != nil || said != "" {
			t.Errorf("%s: %v, %q", how, err, said)
		}
	}
	run("remove")
	if run("0"); !exists("var/lib/lbd/x") {
		t.Error("the state is gone without a purge")
	}
	if run("purge"); exists("var/lib/lbd") || !exists("etc/lbd/lbd.yaml") {
		t.Error("a purge left the state, or took the configuration")
	}
	if err := os.Remove(filepath.Join(h.dir, "etc/lbd/lbd.yaml")); err != nil {
		t.Fatal(err)
	}
	if run("purge"); exists("etc/lbd") {
		t.Error("a purge left an empty folder")
	}
}
