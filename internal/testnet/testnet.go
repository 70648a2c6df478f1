// Package testnet gives tests network namespaces of their own, so that they touch
// no interface of the host and leave nothing. Only tests import it. Where there
// are no rights to make namespaces a test is skipped, but with CI=true it fails.
package testnet

import (
	"errors"
	"fmt"
	"math/rand/v2"
	"net/netip"
	"os"
	"os/exec"
	"path/filepath"
	"runtime"
	"slices"
	"strings"
	"syscall"
	"testing"

	"golang.org/x/sys/unix"
)

// atOnce is how many parallel tests run, unless somebody says another number: they wait for the
// kernel rather than for a processor.
const atOnce = "-test.parallel=6"

const (
	// insideEnv tells a test binary that it runs in the namespaces of Main.
	insideEnv = "LBD_TESTNET_INSIDE"
	// aloneEnv names the test that Alone runs in this process.
	aloneEnv = "LBD_TESTNET_ALONE"
)

// self is what `ip netns` calls the namespace of the test process. The mounts of
// the process are private: no other run sees the name.
const self = "testnet-self"

// Main runs the tests of a package once more, in a process with network and mount
// namespaces of its own, and ends the process with their result. /run is empty
// there, and addresses can be used at once. Without the rights the tests run where
// they are: each that needs the namespaces says so by Need. Fuzzing needs none, and
// talks to its workers by files that another process would not have.
func Main(m *testing.M) {
	if os.Geteuid() != 0 || fuzzing() {
		os.Exit(m.Run())
	}
	if inside() {
		if err := furnish(); err != nil {
			fmt.Fprintln(os.Stderr, "namespace:", err)
			os.Exit(1)
		}
		os.Exit(m.Run())
	}
	runtime.LockOSThread() // Pdeathsig watches the thread
	cmd := exec.Command("/proc/self/exe", append([]string{atOnce}, os.Args[1:]...)...)
	cmd.Stdin, cmd.Stdout, cmd.Stderr = os.Stdin, os.Stdout, os.Stderr
	cmd.Env = append(os.Environ(), insideEnv+"=1")
	cmd.SysProcAttr = &syscall.SysProcAttr{
		Cloneflags: syscall.CLONE_NEWNET | syscall.CLONE_NEWNS, Pdeathsig: syscall.SIGKILL,
	}
	err := cmd.Run()
	if exit := (*exec.ExitError)(nil); err != nil && !errors.As(err, &exit) {
		fmt.Fprintln(os.Stderr, "cannot make namespaces:", err)
		os.Exit(m.Run()) // what needs them says so
	}
	os.Exit(cmd.ProcessState.ExitCode())
}

// fuzzing tells whether this process fuzzes, or lets others do so.
func fuzzing() bool {
	return slices.ContainsFunc(os.Args, func(arg string) bool {
		return strings.HasPrefix(arg, "-test.fuzz=") || strings.HasPrefix(arg, "-test.fuzzworker")
	})
}

func inside() bool { return os.Getenv(insideEnv) != "" }

// furnish prepares the namespaces of Main: a private /run for `ip netns`, and
// addresses that can be used at once.
func furnish() error {
	if err := unix.Mount("", "/", "", unix.MS_PRIVATE|unix.MS_REC, ""); err != nil {
		return fmt.Errorf("make mounts private: %w", err)
	}
	if err := unix.Mount("tmpfs", "/run", "tmpfs", 0, ""); err != nil {
		return fmt.Errorf("mount /run: %w", err)
	}
	// A name for the own namespace: the main thread, whose namespace /proc/PID
	// shows, may end up in another one, see Net.In.
	if out, err := exec.Command("ip", "netns", "attach", self, fmt.Sprint(os.Getpid())).CombinedOutput(); err != nil {
		return fmt.Errorf("name the namespace: %w: %s", err, out)
	}
	return noDAD()
}

// noDAD switches off duplicate address detection in the present namespace.
func noDAD() error {
	for _, name := range []string{"default/accept_dad", "default/dad_transmits", "all/accept_dad"} {
		if err := os.WriteFile(filepath.Join("/proc/sys/net/ipv6/conf", name), []byte("0"), 0); err != nil {
			return err
		}
	}
	return nil
}

// Need is for a test that needs the namespaces of Main. Without them it skips the
// test, or fails it with CI=true.
func Need(t testing.TB) {
	t.Helper()
	if !inside() {
		Require(t, errRoot)
	}
}

var errRoot = errors.New("needs root")

// NeedRoot is for a test that needs root, but not the namespaces of Main.
func NeedRoot(t testing.TB) {
	t.Helper()
	if os.Geteuid() != 0 {
		Require(t, errRoot)
	}
}

// Require ends a test for which something is missing, unless that is nil: the test is
// skipped, or fails with CI=true. No other code skips tests.
func Require(t testing.TB, missing error) {
	t.Helper()
	switch {
	case missing == nil:
	case os.Getenv("CI") == "true":
		t.Fatal(missing)
	default:
		t.Skip(missing)
	}
}

// Profile is an environment variable: the file that is told what a test covers in a process
// of its own.
const Profile = "LBD_TEST_PROFILE"

// Covered are the flags by which such a process tells it.
func Covered() []string {
	if file := os.Getenv(Profile); file != "" {
		return []string{"-test.coverprofile=" + file}
	}
	return nil
}

// Loopback is an address of this host for a test that closes a port and opens it again later. On
// 127.0.0.1 somebody else may have been given the port meanwhile.
func Loopback() netip.Addr {
	return netip.AddrFrom4([4]byte{127, byte(100 + rand.N(100)), byte(rand.N(256)), byte(1 + rand.N(254))})
}

// Alone runs the calling test, which is no subtest, once more, beside other tests,
// in a process with a network namespace of its own, where it returns true. The
// namespace ends with the process. It needs root, or the right to make a user
// namespace.
func Alone(t *testing.T) bool {
	t.Helper()
	if os.Getenv(aloneEnv) == t.Name() {
		return true
	}
	t.Parallel()
	cmd := exec.Command("/proc/self/exe", append(Covered(), "-test.run=^"+t.Name()+"$", "-test.timeout=5m", "-test.v")...)
	cmd.Env = append(os.Environ(), aloneEnv+"="+t.Name())
	// Its mounts are its own, too: Main hides /run there.
	cmd.SysProcAttr = &syscall.SysProcAttr{Cloneflags: syscall.CLONE_NEWNET | syscall.CLONE_NEWNS, Pdeathsig: syscall.SIGKILL}
	if uid, gid := os.Getuid(), os.Getgid(); uid != 0 {
		cmd.SysProcAttr.Cloneflags |= syscall.CLONE_NEWUSER
		cmd.SysProcAttr.UidMappings = []syscall.SysProcIDMap{{HostID: uid, Size: 1}}
		cmd.SysProcAttr.GidMappings = []syscall.SysProcIDMap{{HostID: gid, Size: 1}}
	}
	// The thread that forks is the parent that the child must not outlive.
	runtime.LockOSThread()
	defer runtime.UnlockOSThread()
	var out strings.Builder
	cmd.Stdout, cmd.Stderr = &out, &out
	if err := cmd.Start(); err != nil {
		Require(t, fmt.Errorf("needs a network namespace of its own: %w", err))
	}
	if err := cmd.Wait(); err != nil {
		t.Errorf("%v\n%s", err, out.String())
	} else if !strings.Contains(out.String(), "--- PASS: "+t.Name()+" ") {
		t.Errorf("it did not run:\n%s", out.String())
	} else if testing.Verbose() {
		t.Log(out.String())
	}
	return false
}
