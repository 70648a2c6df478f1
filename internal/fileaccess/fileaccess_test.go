package fileaccess_test

import (
	"errors"
	"io/fs"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"lbd.dev/lbd/internal/fileaccess"
	"lbd.dev/lbd/internal/testnet"
)

// stranger has no name on any host.
const stranger = 4242

// owned writes a file of the stranger; its directories are open to all.
func owned(t *testing.T, mode fs.FileMode) string {
	t.Helper()
	testnet.NeedRoot(t)                        // files of other users
	dir, err := os.MkdirTemp("", "fileaccess") // that of the test is closed to others
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { os.RemoveAll(dir) })
	file := filepath.Join(dir, "gossip.key")
	if err := errors.Join(os.Chmod(dir, 0o755), os.WriteFile(file, []byte("key"), mode), os.Chmod(file, mode), os.Chown(file, stranger, stranger)); err != nil {
		t.Fatal(err)
	}
	return file
}

// TestExplain: root in a pod is told why it cannot read the file of another user, and
// what to do about it; when that is done it can.
func TestExplain(t *testing.T) {
	file := owned(t, 0o600)
	testnet.AsInPod(t, func() {
		_, err := os.ReadFile(file)
		if !errors.Is(err, fs.ErrPermission) {
			t.Errorf("reading the file of another user: %v", err)
			return
		}
		err = fileaccess.Explain(err)
		want := "open " + file + ": permission denied for root without CAP_DAC_OVERRIDE (as in a pod), since it belongs to 4242 (mode 0600); `chown root: " + file + "`"
		if err.Error() != want || !errors.Is(err, fs.ErrPermission) {
			t.Errorf("got  %v\nwant %s", err, want)
		}
	})
	if err := os.Chown(file, 0, 0); err != nil {
		t.Fatal(err)
	}
	testnet.AsInPod(t, func() {
		if _, err := os.ReadFile(file); err != nil {
			t.Errorf("after chown: %v", err)
		}
	})
}

// TestExplainOthers: what is not about permissions is left alone.
func TestExplainOthers(t *testing.T) {
	_, err := os.Open(filepath.Join(t.TempDir(), "nothing"))
	if got := fileaccess.Explain(err); got != err {
		t.Errorf("%v became %v", err, got)
	}
	if fileaccess.Explain(nil) != nil {
		t.Error("nil became an error")
	}
}

// TestRead: the bits of the owner, the group and the others, and those of directories.
func TestRead(t *testing.T) {
	owner := fileaccess.User{UID: stranger, Groups: []uint32{stranger}}
	member := fileaccess.User{UID: 99, Groups: []uint32{98, stranger}}
	other := fileaccess.User{UID: 99, Groups: []uint32{99}}
	for _, c := range []struct {
		mode fs.FileMode
		who  fileaccess.User
		want string // part of the error; "": it may
	}{
		{0o600, owner, ""},
		{0o600, member, "it belongs to 4242 (mode 0600); `chown 99: "},
		{0o600, fileaccess.Root, "`chown root: "},
		{0o640, member, ""},
		{0o640, other, "mode 0640"},
		{0o044, owner, "`chmod u+rw "},
		{0o604, other, ""},
	} {
		file := owned(t, c.mode)
		err := c.who.Read(file)
		if c.want == "" && err != nil || c.want != "" && (err == nil || !strings.Contains(err.Error(), c.want)) {
			t.Errorf("%04o, %v: %v, want %q", c.mode, c.who, err, c.want)
		}
	}
	file := owned(t, 0o644)
	if err := os.Chmod(filepath.Dir(file), 0o700); err != nil {
		t.Fatal(err)
	}
	if err := other.Read(file); err == nil || !strings.Contains(err.Error(), "its directory "+filepath.Dir(file)+" belongs to root (mode 0700)") {
		t.Errorf("closed directory: %v", err)
	}
	if err := owner.Read(filepath.Join(filepath.Dir(owned(t, 0o600)), "nothing")); !errors.Is(err, fs.ErrNotExist) {
		t.Errorf("no file: %v", err)
	}
}

// TestWrite: what is not there yet belongs to who may write its directory.
func TestWrite(t *testing.T) {
	dir := filepath.Dir(owned(t, 0o600))
	if err := fileaccess.Root.Write(filepath.Join(dir, "new")); err != nil {
		t.Errorf("in its own directory: %v", err)
	}
	other := fileaccess.User{UID: 99}
	if err := other.Write(filepath.Join(dir, "new")); err == nil || !strings.Contains(err.Error(), "its directory "+dir+" belongs to root") {
		t.Errorf("in that of another: %v", err)
	}
}
