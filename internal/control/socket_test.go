package control

import (
	"errors"
	"fmt"
	"net"
	"os"
	"path/filepath"
	"runtime"
	"strings"
	"testing"

	"golang.org/x/sys/unix"

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

// leftover is the socket that a dead daemon has left.
func leftover(t *testing.T) string {
	t.Helper()
	dir, err := os.MkdirTemp("", "lbd") // short, as names of sockets are
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = os.RemoveAll(dir) })
	path := filepath.Join(dir, "lbd.sock")
	l := listens(t, path)
	if !Listens(path) {
		t.Error("who made the file does not listen")
	}
	l.(*net.UnixListener).SetUnlinkOnClose(false)
	_ = l.Close()
	if Listens(path) {
		t.Error("nobody listens any more")
	}
	return path
}

// listens opens a socket until the test ends.
func listens(t *testing.T, name string) net.Listener {
	t.Helper()
	l, err := net.Listen("unix", name)
	if err != nil {
		t.Error(err)
		return nil
	}
	t.Cleanup(func() { _ = l.Close() })
	return l
}

// forged expects that the name of a socket is in the table of the kernel, and counts for nothing.
func forged(t *testing.T, path string) {
	t.Helper()
	if !listensByName(path) {
		t.Error("the kernel does not show the name any more, so this tests nothing")
	}
	if Listens(path) {
		t.Error("a stranger's socket counts as that of a daemon")
	}
}

// TestForgedName: a name in the abstract namespace, which anybody may choose, looks like a line of
// the kernel's table.
func TestForgedName(t *testing.T) {
	path := leftover(t)
	listens(t, "@x\n0000000000000000: 00000002 00000000 00010000 0001 01 4242 "+path)
	forged(t, path)
}

// TestForgedMount: who has mounts of their own, as any user may in a user namespace, has a socket of
// the same path there.
func TestForgedMount(t *testing.T) {
	testnet.NeedRoot(t)
	path := leftover(t)
	done := make(chan error)
	go func() {
		runtime.LockOSThread() // for good: the thread ends with its mounts
		done <- errors.Join(unix.Unshare(unix.CLONE_NEWNS|unix.CLONE_FS),
			unix.Mount("", "/", "", unix.MS_REC|unix.MS_PRIVATE, ""),
			unix.Mount("none", filepath.Dir(path), "tmpfs", 0, ""))
		listens(t, path)
		done <- nil
	}()
	if err := <-done; err != nil {
		t.Fatal(err)
	}
	<-done
	forged(t, path)
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
