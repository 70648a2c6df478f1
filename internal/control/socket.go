package control

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"net"
	"os"
	"path/filepath"
	"syscall"
	"time"
)

// maxSocketPath is the longest path of a unix socket on Linux, in bytes; see
// unix(7).
const maxSocketPath = 107

// errRunning says that another daemon has the socket.
var errRunning = errors.New("another lbd is running")

// socket is the listening control socket together with the lock that makes this
// process its only owner.
type socket struct {
	listener net.Listener
	lock     *os.File
}

// listenSocket opens the socket at path with mode 0600. What a dead daemon left
// there is replaced; a living daemon, a frozen one included, is an error.
//
// A lock file beside the socket decides, since the kernel frees it whatever way
// the process ends. Asking the socket alone would let two daemons that start at
// the same time both find a stale one. The lock file itself is never removed:
// removing it would bring that race back.
func listenSocket(path string) (*socket, error) {
	if len(path) > maxSocketPath {
		return nil, fmt.Errorf("socket: %q: the path has %d bytes, the kernel allows %d", path, len(path), maxSocketPath)
	}
	if err := os.MkdirAll(filepath.Dir(path), 0o755); err != nil {
		return nil, fmt.Errorf("socket: create directory: %w", err)
	}
	lock, err := lockFile(path + ".lock")
	if err != nil {
		return nil, fmt.Errorf("socket: %q: %w", path, err)
	}
	listener, err := replaceSocket(path)
	if err != nil {
		return nil, errors.Join(fmt.Errorf("socket: %q: %w", path, err), lock.Close())
	}
	return &socket{listener: listener, lock: lock}, nil
}

func lockFile(path string) (*os.File, error) {
	file, err := os.OpenFile(path, os.O_RDWR|os.O_CREATE, 0o600)
	if err != nil {
		return nil, fmt.Errorf("lock: %w", err)
	}
	err = syscall.Flock(int(file.Fd()), syscall.LOCK_EX|syscall.LOCK_NB)
	switch {
	case errors.Is(err, syscall.EWOULDBLOCK):
		return nil, errors.Join(errRunning, file.Close())
	case err != nil:
		return nil, errors.Join(fmt.Errorf("lock %q: %w", path, err), file.Close())
	}
	return file, nil
}

// replaceSocket listens at path; the caller holds the lock.
func replaceSocket(path string) (net.Listener, error) {
	info, err := os.Lstat(path)
	switch {
	case errors.Is(err, fs.ErrNotExist):
	case err != nil:
		return nil, err
	case info.Mode().Type() != fs.ModeSocket:
		return nil, errors.New("is not a socket; remove it or choose another path")
	default:
		if err := removeStale(path); err != nil {
			return nil, err
		}
	}
	config := net.ListenConfig{Control: func(_, _ string, conn syscall.RawConn) error {
		// The mode of the unbound socket becomes that of the file (Linux takes it in
		// bind), so there is no moment at which others could connect.
		var err error
		return errors.Join(conn.Control(func(fd uintptr) { err = syscall.Fchmod(int(fd), 0o600) }), err)
	}}
	return config.Listen(context.Background(), "unix", path)
}

// removeStale removes a socket on which nobody listens. A program without the
// lock that listens all the same is left alone.
func removeStale(path string) error {
	conn, err := net.DialTimeout("unix", path, time.Second)
	if err == nil {
		return errors.Join(errRunning, conn.Close())
	}
	if !errors.Is(err, syscall.ECONNREFUSED) {
		return fmt.Errorf("is in use: %w", err)
	}
	return os.Remove(path)
}
