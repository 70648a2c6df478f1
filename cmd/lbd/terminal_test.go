package main

import (
	"encoding/json"
	"errors"
	"net"
	"net/http"
	"path/filepath"
	"strings"
	"testing"

	"github.com/spf13/cobra"

	"lbd.dev/lbd/api/v1alpha1"
)

// TestForeignTextMovesNoCursor: a member of the group may have any name, an error of a daemon may
// quote anything, and so may the name of a file.
func TestForeignTextMovesNoCursor(t *testing.T) {
	const evil = "\x1b[2J\u009b31m\u202e"
	dir := t.TempDir()
	harmless := func(what, text, want string) {
		t.Helper()
		if strings.ContainsAny(text, "\x1b\u009b\u202e") || !strings.Contains(text, want) {
			t.Errorf("%s: %q, want %q", what, text, want)
		}
	}
	socket := filepath.Join(dir, "s")
	ln, err := net.Listen("unix", socket)
	if err != nil {
		t.Fatal(err)
	}
	status := v1alpha1.NodeStatus{Node: "m1", Draining: true, VIPs: []v1alpha1.VIPStatus{{
		Name: "cp", Address: "10.0.0.200", Owner: "m2" + evil, Bound: true, Reason: "Releasing",
	}}}
	server := &http.Server{Handler: http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) { _ = json.NewEncoder(w).Encode(status) })}
	go func() { _ = server.Serve(ln) }()
	defer server.Close()
	said, err := execute(t, newDrain(), "--socket", socket, "--timeout", "10ms")
	if err != nil {
		t.Error(err)
	}
	harmless("drain", said, "handed over to m2?[2J?31m?, waiting")

	harmless("an error", complaint(&cobra.Command{Use: "lbd"}, errors.New("one"+evil+"\ntwo"+evil)), "error: lbd: one?[2J?31m?\nerror: lbd: two?[2J?31m?\n")

	file := put(t, filepath.Join(dir, "a"+evil+"\n.yaml"), "kind: x\n")
	said, err = execute(t, newValidate(), file)
	if err == nil {
		t.Error("an unknown kind is valid")
	}
	harmless("validate", said, "a?[2J?31m??.yaml:1: ")
	put(t, file, "apiVersion: lbd.dev/v1alpha1\nkind: VirtualIP\nmetadata: {name: a}\nspec: {addresses: [10.0.0.1], healthCheck: {tcp: {port: 1}}}\n")
	if said, err = execute(t, newValidate(), file); err != nil {
		t.Error(err)
	}
	harmless("validate", said, "a?[2J?31m??.yaml: valid\n")
}
