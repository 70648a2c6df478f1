package control

import (
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"lbd.dev/lbd/internal/testnet"
)

// foreign gives socket, lock and directory of a daemon to another user, as those of the
// unit belong to user lbd.
func foreign(t *testing.T, socket string) {
	t.Helper()
	testnet.NeedRoot(t) // files of other users
	for _, path := range []string{socket, socket + ".lock", filepath.Dir(socket)} {
		if err := os.Chown(path, 4242, 4242); err != nil && !errors.Is(err, os.ErrNotExist) {
			t.Fatal(err)
		}
	}
}

// TestSocketOfAnotherUser: a daemon in a pod may not open the lock of the unit's, and
// says all the same that another one runs.
func TestSocketOfAnotherUser(t *testing.T) {
	opts := testOptions(t, &fakeBackend{})
	start(t, opts)
	foreign(t, opts.Socket)
	testnet.AsInPod(t, func() {
		err := New(opts).Listen()
		want := fmt.Sprintf("another lbd is running (user 4242, pid %d)", os.Getpid())
		if !errors.Is(err, ErrRunning) || !strings.HasSuffix(err.Error(), want) {
			t.Errorf("got %v, want %s", err, want)
		}
	})
}

// TestLockOfADeadDaemonOfAnotherUser: nobody listens, so the error says what to do about
// what is left.
func TestLockOfADeadDaemonOfAnotherUser(t *testing.T) {
	opts := testOptions(t, &fakeBackend{})
	if err := os.MkdirAll(filepath.Dir(opts.Socket), 0o755); err != nil {
		t.Fatal(err)
	}
	lock, err := lockFile(opts.Socket)
	if err != nil {
		t.Fatal(err)
	}
	if err := lock.Close(); err != nil {
		t.Fatal(err)
	}
	foreign(t, opts.Socket)
	testnet.AsInPod(t, func() {
		err := New(opts).Listen()
		want := "permission denied: it belongs to 4242; if no lbd runs on this node any more, `chown -R root: " + filepath.Dir(opts.Socket) + "`"
		if errors.Is(err, ErrRunning) || err == nil || !strings.HasSuffix(err.Error(), want) {
			t.Errorf("got %v, want %s", err, want)
		}
	})
}

// TestListens: a name in the table of the kernel is no daemon without a file that belongs to lbd.
func TestListens(t *testing.T) {
	opts := testOptions(t, &fakeBackend{})
	start(t, opts)
	if !Listens(opts.Socket) {
		t.Fatal("a daemon does not listen")
	}
	foreign(t, opts.Socket)
	if !Listens(opts.Socket) {
		t.Error("the daemon of another user does not listen")
	}
	if err := os.Chown(opts.Socket, 4343, 4343); err != nil {
		t.Fatal(err)
	}
	if Listens(opts.Socket) {
		t.Error("the socket of a stranger counts")
	}
	if err := os.Remove(opts.Socket); err != nil {
		t.Fatal(err)
	}
	if Listens(opts.Socket) {
		t.Error("a socket that only its process sees counts")
	}
}

// TestRunningSaysWho: who starts a second daemon learns which one runs.
func TestRunningSaysWho(t *testing.T) {
	opts := testOptions(t, &fakeBackend{})
	start(t, opts)
	err := New(opts).Listen()
	want := fmt.Sprintf("another lbd is running (user root, pid %d)", os.Getpid())
	if os.Geteuid() == 0 && (err == nil || !strings.HasSuffix(err.Error(), want)) {
		t.Errorf("got %v, want %s", err, want)
	}
}
