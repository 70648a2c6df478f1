package health

import (
	"context"
	"errors"
	"log/slog"
	"net"
	"os/exec"
	"runtime"
	"strings"
	"sync"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"lbd.dev/lbd/api/v1alpha1"
	"lbd.dev/lbd/internal/testnet"
)

// apart runs f on a thread with a network namespace of its own, which has these rules and addresses.
func apart(t *testing.T, commands []string, f func() error) {
	t.Helper()
	testnet.NeedRoot(t)
	var err error
	var wg sync.WaitGroup
	wg.Go(func() {
		runtime.LockOSThread() // never unlocked: the thread ends with the goroutine
		if err = unix.Unshare(unix.CLONE_NEWNET); err != nil {
			return
		}
		for _, line := range commands {
			if out, e := exec.Command("sh", "-c", line).CombinedOutput(); e != nil {
				err = errors.New(line + ": " + string(out))
				return
			}
		}
		err = f()
	})
	if wg.Wait(); err != nil {
		t.Fatal(err)
	}
}

// TestServerOnThisHost: a check of this host passes by the translation of its own connections, as to a
// NodePort. What is forwarded is not translated twice, so the server fails, unless a program listens.
func TestServerOnThisHost(t *testing.T) {
	lines := []string{
		"ip link set lo up", "ip addr add 10.9.0.1/32 dev lo", "ip addr add fd09::1/128 dev lo nodad",
		"nft 'table inet t { chain o { type nat hook output priority -100; tcp dport 30443 redirect to :30444; }; }'",
	}
	apart(t, lines, func() error {
		for _, x := range []struct {
			host, listen string
			port         int32
			want         string // "" passes
		}{
			{"10.9.0.1", "0.0.0.0:30444", 30443, "10.9.0.1:30443: no program of this node listens there"},
			{"fd09::1", "[::]:30444", 30443, "[fd09::1]:30443: no program of this node listens there"},
			{"10.9.0.1", "[::]:30444", 30444, ""},
			{"10.9.0.1", "10.9.0.1:30445", 30445, ""},
			{"fd09::1", "[fd09::1]:30445", 30445, ""},
			{"10.9.0.1", "0.0.0.0:30446", 30446, ""},
			{"10.9.0.1", "0.0.0.0:30446", 30447, "tcp 10.9.0.1:30447: connection refused"},
		} {
			l, err := net.Listen("tcp", x.listen)
			if err != nil {
				return err
			}
			config := v1alpha1.HealthCheck{TCP: &v1alpha1.TCPCheck{Host: x.host, Port: x.port}}
			c := &check{timeout: long, prober: newProber(config, nil), server: newForwarded(config), interval: time.Second, log: func() *slog.Logger { return slog.New(slog.DiscardHandler) }}
			got := ""
			c.report = func(r result) {
				if r.err != nil {
					got = r.err.Error()
				}
			}
			c.once(context.Background())
			if !strings.HasPrefix(got, x.want) || (got == "") != (x.want == "") {
				t.Errorf("%s:%d, listening at %s:\n got %q\nwant %q", x.host, x.port, x.listen, got, x.want)
			}
			if err := l.Close(); err != nil {
				return err
			}
		}
		return nil
	})
}

// TestForwardedOfWhat: only a check that asks an address can be one of a server to which connections are
// forwarded.
func TestForwardedOfWhat(t *testing.T) {
	for _, x := range []struct {
		check v1alpha1.HealthCheck
		want  string
	}{
		{v1alpha1.HealthCheck{HTTPS: &v1alpha1.HTTPSCheck{Host: "10.9.0.1", Port: 1}}, "10.9.0.1:1"},
		{v1alpha1.HealthCheck{HTTP: &v1alpha1.HTTPCheck{Host: "fd09::1", Port: 2}}, "[fd09::1]:2"},
		{v1alpha1.HealthCheck{TCP: &v1alpha1.TCPCheck{Host: "name", Port: 3}}, ""},
		{v1alpha1.HealthCheck{}, ""},
	} {
		got := ""
		if f := newForwarded(x.check); f != nil {
			got = f.to.String()
		}
		if got != x.want {
			t.Errorf("%+v: %q, want %q", x.check, got, x.want)
		}
	}
}
