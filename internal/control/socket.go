package control

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"net"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"syscall"
	"time"

	"golang.org/x/sys/unix"

	"lbd.dev/lbd/internal/fileaccess"
	"lbd.dev/lbd/internal/sockdiag"
)

// maxSocketPath is the longest path of a unix socket on Linux, in bytes; see
// unix(7).
const maxSocketPath = 107

// ErrRunning says that another daemon has the socket.
var ErrRunning = errors.New("another lbd is running")

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
	lock, err := lockFile(path)
	if err != nil {
		return nil, fmt.Errorf("socket: %q: %w", path, err)
	}
	listener, err := replaceSocket(path)
	if err != nil {
		return nil, errors.Join(fmt.Errorf("socket: %q: %w", path, err), lock.Close())
	}
	return &socket{listener: listener, lock: lock}, nil
}

// lockFile takes the lock beside the socket.
func lockFile(socket string) (*os.File, error) {
	path := socket + ".lock"
	file, err := os.OpenFile(path, os.O_RDWR|os.O_CREATE, 0o600)
	switch {
	case errors.Is(err, fs.ErrPermission) && Listens(socket):
		// The daemon of a pod meets that of the unit so: root without capabilities, and
		// a file of user lbd.
		return nil, fmt.Errorf("%w%s", ErrRunning, holder(path))
	case errors.Is(err, fs.ErrPermission):
		return nil, fmt.Errorf("lock: %w: it belongs to %s; if no lbd runs on this node any more, `chown -R %s: %s`",
			err, fileaccess.Owner(path), fileaccess.Current().Name(), filepath.Dir(path))
	case err != nil:
		return nil, fmt.Errorf("lock: %w", err)
	}
	err = syscall.Flock(int(file.Fd()), syscall.LOCK_EX|syscall.LOCK_NB)
	switch {
	case errors.Is(err, syscall.EWOULDBLOCK):
		return nil, errors.Join(fmt.Errorf("%w%s", ErrRunning, holder(path)), file.Close())
	case err != nil:
		return nil, errors.Join(fmt.Errorf("lock %q: %w", path, err), file.Close())
	}
	return file, nil
}

// Listens tells whether a process has the socket open and listens on it, also one that
// this process may not connect to. The file must belong to root or to whom its directory belongs
// to, and the kernel must say that the socket which listens is this file: any user can have one of
// the same name where nobody else sees it.
func Listens(socket string) bool {
	file, ok := ownSocket(socket)
	if !ok {
		return false
	}
	listens, err := sockdiag.ListensOn(file)
	if err != nil { // a kernel without CONFIG_UNIX_DIAG
		return listensByName(socket)
	}
	return listens
}

// listensByName tells whether a socket of that name is listened on, by the table of unix(7) and proc(5): a
// line ends with inode and path, and its fourth field has __SO_ACCEPTCON set.
func listensByName(socket string) bool {
	table, err := os.ReadFile("/proc/thread-self/net/unix")
	if err != nil {
		return false
	}
	const acceptCon = 1 << 16
	for line := range strings.Lines(string(table)) {
		f := strings.Fields(line)
		if len(f) < 8 || f[7] != socket {
			continue
		}
		if flags, err := strconv.ParseUint(f[3], 16, 32); err == nil && flags&acceptCon != 0 {
			return true
		}
	}
	return false
}

// ownSocket is the file of a socket that no other user than those of lbd can have made.
func ownSocket(path string) (file sockdiag.File, ok bool) {
	var at, dir unix.Statx_t
	const want = unix.STATX_BASIC_STATS | unix.STATX_MNT_ID
	if unix.Statx(unix.AT_FDCWD, path, unix.AT_SYMLINK_NOFOLLOW, want, &at) != nil || at.Mode&unix.S_IFMT != unix.S_IFSOCK {
		return sockdiag.File{}, false
	}
	if unix.Statx(unix.AT_FDCWD, filepath.Dir(path), 0, want, &dir) != nil || at.Uid != 0 && at.Uid != dir.Uid {
		return sockdiag.File{}, false
	}
	file = sockdiag.File{Inode: uint32(at.Ino), Major: at.Dev_major, Minor: at.Dev_minor}
	if major, minor, ok := device(at.Mnt_id); ok {
		file.Major, file.Minor = major, minor
	}
	return file, true
}

// device is that of the file system of a mount. Some, such as btrfs, tell another one of each file.
// A line of mountinfo, see proc(5), begins "36 35 98:0 ".
func device(mount uint64) (major, minor uint32, ok bool) {
	table, err := os.ReadFile("/proc/thread-self/mountinfo")
	if err != nil {
		return 0, 0, false
	}
	for line := range strings.Lines(string(table)) {
		var id, parent uint64
		if n, _ := fmt.Sscanf(line, "%d %d %d:%d ", &id, &parent, &major, &minor); n == 4 && id == mount {
			return major, minor, true
		}
	}
	return 0, 0, false
}

// holder says in brackets who has the lock, as far as this process can tell: a pod does
// not see the processes of its host.
func holder(path string) string {
	var who []string
	if owner := fileaccess.Owner(path); owner != "" {
		who = append(who, "user "+owner)
	}
	if pid := lockedBy(path); pid > 0 {
		who = append(who, fmt.Sprintf("pid %d", pid))
	}
	if len(who) == 0 {
		return ""
	}
	return " (" + strings.Join(who, ", ") + ")"
}

// lockedBy is the process that has a lock on the file; 0 if none is known. A line of
// proc_locks(5) is "1: FLOCK ADVISORY WRITE 812 00:19:1234 0 EOF".
func lockedBy(path string) int {
	info, err := os.Stat(path)
	if err != nil {
		return 0
	}
	st, ok := info.Sys().(*syscall.Stat_t)
	if !ok {
		return 0
	}
	table, err := os.ReadFile("/proc/locks")
	if err != nil {
		return 0
	}
	at := fmt.Sprintf("%02x:%02x:%d", unix.Major(st.Dev), unix.Minor(st.Dev), st.Ino)
	for line := range strings.Lines(string(table)) {
		if f := strings.Fields(line); len(f) >= 6 && f[1] == "FLOCK" && f[5] == at {
			pid, _ := strconv.Atoi(f[4])
			return pid
		}
	}
	return 0
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
		return errors.Join(ErrRunning, conn.Close())
	}
	if !errors.Is(err, syscall.ECONNREFUSED) {
		return fmt.Errorf("is in use: %w", err)
	}
	return os.Remove(path)
}
