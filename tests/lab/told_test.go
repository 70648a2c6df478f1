package lab_test

import (
	"archive/tar"
	"bytes"
	"compress/gzip"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"
	"time"

	"lbd.dev/lbd/api/v1alpha1"
	"lbd.dev/lbd/tests/lab"
)

// secretPeer is a BGPPeer with a password in the configuration itself. No router is there.
const secretPeer = `---
apiVersion: lbd.dev/v1alpha1
kind: BGPPeer
metadata: {name: nobody}
spec: {myASN: 64512, peerASN: 64513, peerAddress: 10.77.0.250, password: pa55-of-nobody}
`

// asked runs lbd on a node.
func asked(t *testing.T, c *lab.Cluster, s *lab.LBD, n *lab.Node, args ...string) string {
	t.Helper()
	out, err := c.Exec(t.Context(), &n.Host, append([]string{c.Bin.LBD}, append(args, "--socket", s.Socket(n))...)...)
	if err != nil {
		t.Fatal(err)
	}
	return out
}

// tellsOwner waits until a node has the event that a VIP went from one node to another.
func tellsOwner(t *testing.T, c *lab.Cluster, s *lab.LBD, n, from, to *lab.Node, reasons ...string) {
	t.Helper()
	err := lab.Wait(t.Context(), 10*time.Second, 200*time.Millisecond, "the event", func() error {
		var told v1alpha1.NodeEvents
		if err := json.Unmarshal([]byte(asked(t, c, s, n, "events", "-o", "json")), &told); err != nil {
			return err
		}
		for _, e := range told.Events {
			if e.Kind == v1alpha1.EventOwner && e.Address == lab.VIP4().String() && e.From == from.Name && e.To == to.Name {
				if !slices.Contains(reasons, e.Reason) {
					return fmt.Errorf("it is told with the reason %q, want one of %q", e.Reason, reasons)
				}
				return nil
			}
		}
		return fmt.Errorf("%s does not tell that %s went from %s to %s: %+v", n.Name, lab.VIP4(), from.Name, to.Name, told.Events)
	})
	if err != nil {
		t.Error(err)
	}
}

// TestWhatAGroupTells: after a crash and a drain the events name both with their causes, the bundle has
// what its page says and no secret, and `lbd top` and the page show who has the address.
func TestWhatAGroupTells(t *testing.T) {
	t.Parallel()
	s := &lab.LBD{}
	c := wired(t, s, func(c *lab.Cluster) error {
		for _, n := range c.Nodes {
			if err := s.WriteConfig(c.Lab, n); err != nil {
				return err
			}
			text, err := os.ReadFile(s.Config(n))
			if err := errors.Join(err, os.WriteFile(s.Config(n), append(text, secretPeer...), 0o600)); err != nil {
				return err
			}
		}
		return nil
	})
	first := ownerOf(t, c, lab.VIP4())
	if err := first.Kill(); err != nil {
		t.Fatal(err)
	}
	if _, err := first.Gone(t.Context(), lab.VIP4(), 20*time.Second); err != nil {
		t.Fatal(err)
	}
	if err := c.Stable(t.Context()); err != nil {
		t.Fatal(err)
	}
	second := ownerOf(t, c, lab.VIP4())
	third := slices.DeleteFunc(c.Others(first), func(n *lab.Node) bool { return n == second })[0]
	for _, n := range []*lab.Node{second, third} {
		tellsOwner(t, c, s, n, first, second, "Dead", "Late")
	}
	asked(t, c, s, second, "drain")
	for _, n := range []*lab.Node{second, third} {
		tellsOwner(t, c, s, n, second, third, "Draining")
	}
	t.Run("bundle", func(t *testing.T) { checkBundle(t, c, s, third, second) })
	t.Run("top", func(t *testing.T) { checkTop(t, c, s, third) })
	t.Run("page", func(t *testing.T) { checkPage(t, c, third) })
}

// bundleFiles are the files of a bundle by their names.
func bundleFiles(t *testing.T, archive []byte) map[string]string {
	t.Helper()
	zip, err := gzip.NewReader(bytes.NewReader(archive))
	if err != nil {
		t.Fatal(err)
	}
	files := map[string]string{}
	for in := tar.NewReader(zip); ; {
		h, err := in.Next()
		if errors.Is(err, io.EOF) {
			return files
		}
		data, bad := io.ReadAll(in)
		if err := errors.Join(err, bad); err != nil {
			t.Fatal(err)
		}
		files[strings.TrimPrefix(h.Name, "lbd-bundle/")] = string(data)
	}
}

// checkBundle: the archive of the owner has each file of the table in docs/operations.md, the takeover
// from another node, and no secret.
func checkBundle(t *testing.T, c *lab.Cluster, s *lab.LBD, owner, before *lab.Node) {
	to := filepath.Join(owner.Dir, "bundle.tar.gz")
	asked(t, c, s, owner, "bundle", "--config", s.Config(owner), "-o", to)
	archive, err := os.ReadFile(to)
	if err != nil {
		t.Fatal(err)
	}
	files := bundleFiles(t, archive)
	page, err := os.ReadFile("../../docs/operations.md")
	if err != nil {
		t.Fatal(err)
	}
	_, table, _ := strings.Cut(string(page), "\n| file | what |\n")
	table, _, _ = strings.Cut(table, "\n\n")
	named := 0
	for row := range strings.Lines(table) {
		for _, m := range regexp.MustCompile("`([a-zA-Z.]+/?)`").FindAllStringSubmatch(strings.Split(row, "|")[1], -1) {
			named++
			has := func(name string) bool {
				return name == m[1] || strings.HasSuffix(m[1], "/") && strings.HasPrefix(name, m[1])
			}
			found := false
			for name, text := range files {
				found = found || has(name) && text != ""
			}
			if m[1] == "log.txt" { // the daemons of a lab have no journal
				found = found || files["log.txt.missing.txt"] != ""
			}
			if !found {
				t.Errorf("the bundle has no %s", m[1])
			}
		}
	}
	if named < 12 {
		t.Errorf("the page names %d files", named)
	}
	for name := range files {
		if strings.HasSuffix(name, ".missing.txt") && name != "log.txt.missing.txt" {
			t.Errorf("%s: %s", name, files[name])
		}
	}
	key, err := os.ReadFile(filepath.Join(c.Dir, "gossip.key"))
	if err != nil {
		t.Fatal(err)
	}
	for name, text := range files {
		for _, secret := range []string{strings.TrimSpace(string(key)), "pa55-of-nobody", "PRIVATE KEY"} {
			if strings.Contains(text, secret) {
				t.Errorf("%s has %q", name, secret)
			}
		}
	}
	if text := files["events.txt"]; !strings.Contains(text, before.Name) || !strings.Contains(text, "Draining") {
		t.Errorf("events.txt tells nothing of the drain:\n%s", text)
	}
	if text := files["explain.txt"]; !strings.Contains(text, lab.VIP4().String()) {
		t.Errorf("explain.txt does not explain the VIP:\n%s", text)
	}
	if text := files["kernel/addresses.txt"]; !strings.Contains(text, lab.VIP4().String()) {
		t.Errorf("kernel/addresses.txt has not the VIP:\n%s", text)
	}
	var names []string
	for name := range files {
		names = append(names, name)
	}
	slices.Sort(names)
	t.Logf("%d bytes: %s", len(archive), strings.Join(names, " "))
}

// checkTop: on a terminal the live view shows who has the address, and q ends it.
func checkTop(t *testing.T, c *lab.Cluster, s *lab.LBD, owner *lab.Node) {
	out, err := c.Exec(t.Context(), &owner.Host, "sh", "-c",
		"(sleep 4; printf q) | timeout 20 script -qec 'stty rows 40 cols 120; "+c.Bin.LBD+" top --socket "+s.Socket(owner)+"' /dev/null")
	if err != nil {
		t.Errorf("%v\n%s", err, out)
	}
	for _, want := range []string{"control-plane", lab.VIP4().String(), owner.Name} {
		if !strings.Contains(out, want) {
			t.Errorf("%q is not shown in\n%q", want, out)
		}
	}
}

// checkPage: so does the page, which has no secret either.
func checkPage(t *testing.T, c *lab.Cluster, owner *lab.Node) {
	page, err := c.Exec(t.Context(), &owner.Host, "curl", "-s", "-f", "http://127.0.0.1:7477/")
	if err != nil {
		t.Fatal(err)
	}
	for _, want := range []string{"control-plane", lab.VIP4().String(), owner.Name, "Draining"} {
		if !strings.Contains(page, want) {
			t.Errorf("%q is not on\n%s", want, page)
		}
	}
	if strings.Contains(page, "pa55-of-nobody") {
		t.Error("the page has the password")
	}
}
