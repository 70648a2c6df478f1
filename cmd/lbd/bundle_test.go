package main

import (
	"archive/tar"
	"bytes"
	"compress/gzip"
	"context"
	"encoding/json"
	"errors"
	"io"
	"net"
	"net/http"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"lbd.dev/lbd/api/v1alpha1"
	"lbd.dev/lbd/internal/config"
)

// unpacked are the files of a bundle.
func unpacked(t *testing.T, archive []byte) map[string]string {
	t.Helper()
	zip, err := gzip.NewReader(bytes.NewReader(archive))
	if err != nil {
		t.Fatal(err)
	}
	files := make(map[string]string)
	for in := tar.NewReader(zip); ; {
		h, err := in.Next()
		if errors.Is(err, io.EOF) {
			return files
		}
		data, bad := io.ReadAll(in)
		if err := errors.Join(err, bad); err != nil {
			t.Fatal(err)
		}
		if !filepath.IsLocal(h.Name) || !strings.HasPrefix(h.Name, "lbd-bundle/") {
			t.Errorf("%q leaves the folder", h.Name)
		}
		files[strings.TrimPrefix(h.Name, "lbd-bundle/")] = string(data)
	}
}

// planted writes a configuration with secrets wherever there can be one, and returns them.
func planted(t *testing.T, socket string) (dir string, secrets []string) {
	t.Helper()
	dir = t.TempDir()
	at := func(name, text string) string { return put(t, filepath.Join(dir, name), text) }
	key, old := config.NewKey(), config.NewKey()
	keyring := at("gossip.key", key+"\n")
	password := at("tor2.password", "pa55-of-tor2\n")
	at("lbd.yaml", "# the key was "+old+" and the password 1nAComment\napiVersion: lbd.dev/v1alpha1\nkind: NodeConfiguration\nnodeName: ../../m1\nsocket: "+socket+
		"\nhttp: {address: 'off'}\ngossip: {bindAddress: 127.0.0.1, port: 17948, keyFile: "+keyring+"}\nnotify: [{command: [/bin/curl, -H, 'X-Auth: 1nAnArgument', 'https://u:1nAUrl@h/']}]\n")
	at("peers.yaml", "apiVersion: lbd.dev/v1alpha1\nkind: BGPPeer\nmetadata: {name: tor1, annotations: {last: 1nAnAnnotation}}\nspec: {myASN: 64512, peerASN: 64513, peerAddress: 10.0.0.1, password: 1nThePeer}\n---\n"+
		"apiVersion: lbd.dev/v1alpha1\nkind: BGPPeer\nmetadata: {name: tor2}\nspec: {myASN: 64512, peerASN: 64513, peerAddress: 10.0.0.2, passwrd: 1nAMisspelling, passwordFile: "+password+"}\n")
	at("secret.yaml", "apiVersion: v1\nkind: Secret\nstringData: {a: 1nASecret}\n")
	at("broken.yaml", "password: \"1nABrokenFile\n-----BEGIN PRIVATE KEY-----\nMIGHAgEAMBM\n")
	return dir, []string{key, old, "pa55-of-tor2", "1nAComment", "1nAnArgument", "1nAUrl", "1nAnAnnotation", "1nThePeer", "1nAMisspelling", "1nASecret", "1nABrokenFile", "MIGHAgEAMBM"}
}

// TestBundleOfADaemonThatHangs: the command goes on without it, and no secret is in the archive.
func TestBundleOfADaemonThatHangs(t *testing.T) {
	socket := filepath.Join(t.TempDir(), "s")
	ln, err := net.Listen("unix", socket) // accepts, as the kernel does for a frozen daemon, and says nothing
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { ln.Close() })
	dir, secrets := planted(t, socket)
	t.Chdir(t.TempDir())
	began := time.Now()
	out, err := execute(t, newBundle(), "--config", dir, "--socket", socket)
	if err != nil {
		t.Fatalf("%v, %s", err, out)
	}
	t.Logf("it took %s", time.Since(began))
	made, err := filepath.Glob("*")
	if hidden, _ := filepath.Glob(".*"); err != nil || len(made) != 1 || len(hidden) > 0 || !strings.HasPrefix(made[0], "lbd-bundle-_") || !strings.Contains(out, made[0]+"\n") {
		t.Fatalf("%q, %q, %v, %s", made, hidden, err, out)
	}
	archive, err := os.ReadFile(made[0])
	if info, bad := os.Stat(made[0]); err != nil || bad != nil || info.Mode() != 0o600 {
		t.Errorf("%v, %v, %v", err, bad, info)
	}
	files := unpacked(t, archive)
	for name, text := range files {
		for _, s := range secrets {
			if strings.Contains(text, s) {
				t.Errorf("%s has %s", name, s)
			}
		}
	}
	if !strings.Contains(files["status.json.missing.txt"], "daemon does not answer within") || !strings.Contains(out, "warning: lbd bundle: status.json: ") {
		t.Errorf("%q\n%s", files["status.json.missing.txt"], out)
	}
	if peers := files["config/03-peers.yaml"]; !strings.Contains(peers, "name: tor1") || !strings.Contains(peers, "password: "+config.Blank) || !strings.Contains(files["README.txt"], "peers.yaml: lines [3 4 9].") {
		t.Errorf("%q\n%s", peers, files["README.txt"])
	}
	if !strings.Contains(files["config/files.txt"], "gossip.key: -rw-------, owner ") || !strings.Contains(files["version.txt"], "version: ") || !strings.Contains(files["kernel/host.txt"], "Linux ") {
		t.Errorf("%q, %q", files["config/files.txt"], files["version.txt"])
	}
}

// TestBundleOfADaemon: what it tells is in the archive, with names and texts that mean harm and
// without secrets.
func TestBundleOfADaemon(t *testing.T) {
	socket := filepath.Join(t.TempDir(), "s")
	ln, err := net.Listen("unix", socket)
	if err != nil {
		t.Fatal(err)
	}
	dir, secrets := planted(t, socket)
	mux := http.NewServeMux()
	answer := func(v any) http.HandlerFunc {
		return func(w http.ResponseWriter, _ *http.Request) { _ = json.NewEncoder(w).Encode(v) }
	}
	mux.HandleFunc("/v1alpha1/status", answer(v1alpha1.NodeStatus{Node: "m1", VIPs: []v1alpha1.VIPStatus{
		{Name: "../../../etc/passwd", Address: "10.0.0.200", Mode: "l2", Owner: "m1", Reason: "Owner", Detail: strings.Join(secrets, " ")}}}))
	mux.HandleFunc("/v1alpha1/explain", func(w http.ResponseWriter, r *http.Request) {
		answer(map[string]any{"explanations": []v1alpha1.Explanation{{Name: "..", Address: r.URL.Query().Get("vip"), Node: "m1", Owner: "m1", Reason: "Owner", Story: []string{"explained " + secrets[0]}}}})(w, r)
	})
	mux.HandleFunc("/v1alpha1/events", answer(v1alpha1.NodeEvents{Node: "m1", Events: []v1alpha1.Event{{Kind: "config", Detail: "told " + secrets[2]}}}))
	mux.HandleFunc("/v1alpha1/metrics", func(w http.ResponseWriter, _ *http.Request) { _, _ = io.WriteString(w, "lbd_stall 7\n") })
	server := &http.Server{Handler: mux}
	go func() { _ = server.Serve(ln) }()
	t.Cleanup(func() { _ = server.Close() })
	file := filepath.Join(t.TempDir(), "b.tar.gz")
	if out, err := execute(t, newBundle(), "--config", dir, "--socket", socket, "-o", file); err != nil {
		t.Fatalf("%v, %s", err, out)
	}
	archive, err := os.ReadFile(file)
	if err != nil {
		t.Fatal(err)
	}
	files := unpacked(t, archive)
	for _, s := range []string{secrets[0], secrets[1], "pa55-of-tor2", "1nThePeer"} { // the others nobody could know in prose
		if all := strings.Join([]string{files["status.json"], files["status.txt"], files["explain.txt"], files["events.json"], files["events.txt"]}, "\n"); strings.Contains(all, s) {
			t.Errorf("%s is in\n%s", s, all)
		}
	}
	for name, want := range map[string]string{"status.json": `"node": "m1"`, "status.txt": "Node m1", "bgp.txt": "no BGP peer", "explain.txt": "explained ", "events.json": `"told `, "events.txt": "told ", "metrics.txt": "lbd_stall 7"} {
		if !strings.Contains(files[name], want) {
			t.Errorf("%s: %q", name, files[name])
		}
	}
}

// TestBundleIsAllOrNothing: nothing is left of one that was interrupted, or cannot be written.
func TestBundleIsAllOrNothing(t *testing.T) {
	dir, socket := t.TempDir(), filepath.Join(t.TempDir(), "missing")
	t.Chdir(dir)
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	cmd := newBundle()
	cmd.SetArgs([]string{"--config", filepath.Join(dir, "none"), "--socket", socket})
	cmd.SetOut(io.Discard)
	cmd.SetErr(io.Discard)
	if err := cmd.ExecuteContext(ctx); err == nil || err.Error() != "interrupted; nothing was written" {
		t.Errorf("%v", err)
	}
	if _, err := execute(t, newBundle(), "--socket", socket, "-o", filepath.Join(dir, "none", "b")); err == nil {
		t.Error("written to a folder that is not there")
	}
	if left, err := os.ReadDir(dir); err != nil || len(left) > 0 {
		t.Errorf("%v, %v", left, err)
	}
	var out bytes.Buffer
	cmd = newBundle()
	cmd.SetArgs([]string{"--config", filepath.Join(dir, "none"), "--socket", socket, "-o", "-"})
	cmd.SetOut(&out)
	cmd.SetErr(io.Discard)
	if err := cmd.ExecuteContext(t.Context()); err != nil {
		t.Fatal(err)
	}
	if files := unpacked(t, out.Bytes()); !strings.Contains(files["config/files.txt"], "no such file") || files["README.txt"] == "" {
		t.Errorf("%q", files)
	}
}
