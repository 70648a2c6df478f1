package main

import (
	"strings"
	"testing"

	"lbd.dev/lbd/systemd"
)

// TestUnits: what the units run exists, and a reload is one that can fail.
func TestUnits(t *testing.T) {
	found := map[string]bool{}
	for line := range strings.Lines(systemd.Unit + systemd.DrainUnit) {
		key, call, _ := strings.Cut(strings.TrimSpace(line), "=")
		call, ours := strings.CutPrefix(strings.TrimPrefix(call, "-"), "/usr/bin/lbd ")
		if !strings.HasPrefix(key, "Exec") || !ours {
			continue
		}
		found[key+" "+call] = true
		cmd, args, err := newRoot().Find(strings.Fields(call))
		if err == nil {
			err = cmd.ParseFlags(args)
		}
		if err != nil || !cmd.HasParent() {
			t.Errorf("%s: %v", line, err)
		}
	}
	for _, want := range []string{"ExecStart run --config /etc/lbd", "ExecReload reload", "ExecStop drain --timeout 20s"} {
		if !found[want] {
			t.Errorf("no %s among %v", want, found)
		}
	}
}
