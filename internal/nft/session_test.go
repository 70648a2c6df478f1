package nft

import (
	"errors"
	"fmt"
	"os"
	"runtime"
	"strings"
	"testing"
	"time"

	"github.com/google/nftables"
	"golang.org/x/sys/unix"

	"lbd.dev/lbd/internal/testnet"
)

func TestMain(m *testing.M) { testnet.Main(m) }

var (
	one   = &nftables.Table{Name: "lbd-one", Family: nftables.TableFamilyIPv4}
	six   = &nftables.Table{Name: "lbd-one", Family: nftables.TableFamilyIPv6}
	other = &nftables.Table{Name: "lbd-other", Family: nftables.TableFamilyIPv4}
)

// open returns a session whose tables are gone at the end of the test.
func open(t *testing.T, timeout time.Duration) *Session {
	t.Helper()
	testnet.Need(t)
	s := New(timeout)
	t.Cleanup(func() {
		for _, table := range []*nftables.Table{one, six, other} {
			if err := s.Remove(table); err != nil {
				t.Error(err)
			}
		}
		if err := s.Close(); err != nil {
			t.Error(err)
		}
	})
	return s
}

func add(t *testing.T, s *Session, table *nftables.Table) {
	t.Helper()
	if err := s.Transact(func(c *nftables.Conn) error { c.AddTable(table); return nil }); err != nil {
		t.Fatal(err)
	}
}

func exists(t *testing.T, s *Session, table *nftables.Table, want bool) {
	t.Helper()
	if got, err := s.Exists(table); err != nil || got != want {
		t.Errorf("%s of family %d: %v, %v; want %v", table.Name, table.Family, got, err, want)
	}
}

// sockets counts the sockets of this process.
func sockets(t *testing.T) (n int) {
	t.Helper()
	files, err := os.ReadDir("/proc/self/fd")
	if err != nil {
		t.Fatal(err)
	}
	for _, f := range files {
		if to, _ := os.Readlink("/proc/self/fd/" + f.Name()); strings.HasPrefix(to, "socket:") {
			n++
		}
	}
	return n
}

func TestTablesComeAndGo(t *testing.T) {
	s := open(t, time.Second)
	if err := s.Remove(one); err != nil {
		t.Errorf("remove what is not there: %v", err)
	}
	exists(t, s, one, false)
	add(t, s, one)
	exists(t, s, one, true)
	exists(t, s, six, false)
	exists(t, s, other, false)
	add(t, s, other)
	if err := s.Remove(one); err != nil {
		t.Error(err)
	}
	exists(t, s, one, false)
	exists(t, s, other, true)
}

func TestSocketStaysOpenUntilClose(t *testing.T) {
	before := sockets(t)
	s := open(t, time.Second)
	if got := sockets(t); got != before {
		t.Errorf("New opened %d sockets", got-before)
	}
	var socket any
	for range 3 {
		add(t, s, one)
		exists(t, s, one, true)
		if got := sockets(t); got != before+1 {
			t.Errorf("%d sockets, want 1", got-before)
		}
		if socket != nil && socket != any(s.socket) {
			t.Error("another socket")
		}
		socket = s.socket
	}
	for range 2 {
		if err := s.Close(); err != nil {
			t.Error(err)
		}
		if got := sockets(t); got != before {
			t.Errorf("%d sockets after Close", got-before)
		}
	}
	exists(t, s, one, true) // with another socket
}

// What a transaction had added when it failed must not be sent with the next.
func TestFailureEndsTheSession(t *testing.T) {
	s := open(t, time.Second)
	exists(t, s, one, false)
	failure := errors.New("full")
	err := s.Transact(func(c *nftables.Conn) error { c.AddTable(one); return failure })
	if !errors.Is(err, failure) {
		t.Errorf("error %v", err)
	}
	if s.conn != nil || s.socket != nil {
		t.Error("the session goes on")
	}
	add(t, s, other)
	exists(t, s, one, false)
	exists(t, s, other, true)
	// The kernel refuses all of a transaction or nothing.
	err = s.Transact(func(c *nftables.Conn) error {
		c.AddTable(one)
		c.DelTable(six)
		return nil
	})
	if !errors.Is(err, unix.ENOENT) {
		t.Errorf("error %v, want ENOENT", err)
	}
	exists(t, s, one, false)
}

// An answer that does not come holds nobody up, and each exchange has the whole
// time.
func TestAnswerThatDoesNotCome(t *testing.T) {
	const timeout = time.Second
	s := open(t, timeout)
	for range 2 {
		start := time.Now()
		err := s.Do(func(*nftables.Conn) error {
			_, err := s.socket.Receive() // nothing was asked
			return err
		})
		took := time.Since(start)
		if !errors.Is(err, os.ErrDeadlineExceeded) || took < timeout || took > 30*timeout {
			t.Errorf("%v after %v", err, took)
		}
		exists(t, s, one, false)
		time.Sleep(timeout) // longer than what was left
		exists(t, s, one, false)
	}
}

// TestErrorsAreFew: of a thousand messages that fail in the same way one is told of.
func TestErrorsAreFew(t *testing.T) {
	s := open(t, time.Minute)
	add(t, s, one)
	err := s.Transact(func(c *nftables.Conn) error {
		for range 1000 {
			c.AddRule(&nftables.Rule{Table: one, Chain: &nftables.Chain{Name: "none", Table: one}})
		}
		return nil
	})
	if !errors.Is(err, unix.ENOENT) || strings.Count(err.Error(), "\n") > most {
		t.Errorf("%.2000v", err)
	}
	exists(t, s, one, true)
}

func TestWithoutTheRight(t *testing.T) {
	s := open(t, time.Second)
	done := make(chan struct{})
	go func() {
		defer close(done)
		runtime.LockOSThread() // never unlocked: the thread ends with its lack
		none := [2]unix.CapUserData{}
		if err := unix.Capset(&unix.CapUserHeader{Version: unix.LINUX_CAPABILITY_VERSION_3}, &none[0]); err != nil {
			t.Error(err)
			return
		}
		if _, err := s.Exists(one); !Impossible(err) {
			t.Errorf("ask without the right: %v", err)
		}
		if err := s.Remove(one); !Impossible(err) {
			t.Errorf("remove without the right: %v", err)
		}
	}()
	<-done
	exists(t, s, one, false)
}

func TestImpossible(t *testing.T) {
	for err, want := range map[error]bool{
		unix.EPERM: true, unix.EACCES: true, unix.EOPNOTSUPP: true, unix.EAFNOSUPPORT: true, unix.EPROTONOSUPPORT: true,
		unix.ENOENT: false, unix.EBUSY: false, unix.ENOBUFS: false, os.ErrDeadlineExceeded: false,
	} {
		if got := Impossible(fmt.Errorf("delete table: %w", err)); got != want {
			t.Errorf("%v: %v", err, got)
		}
	}
	if Impossible(nil) {
		t.Error("nil")
	}
}
