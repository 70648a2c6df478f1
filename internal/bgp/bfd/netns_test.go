package bfd

import (
	"context"
	"fmt"
	"log/slog"
	"net/netip"
	"os"
	"path/filepath"
	"sync"
	"testing"
	"time"

	"lbd.dev/lbd/internal/testnet"
)

// TestMain runs the tests in namespaces of their own.
func TestMain(m *testing.M) {
	if os.Getenv(peerEnv) != "" {
		os.Exit(peerProcess(os.Getenv(peerEnv)))
	}
	testnet.Main(m)
}

// lab is hosts a and b on one wire, eth0 each, 10.0.0.1 and .2, fd00::1 and ::2,
// fe80::1 and ::2. All sit in namespaces of their own.
type lab struct {
	*testing.T
	*testnet.Net
}

func newLab(t *testing.T) *lab {
	t.Helper()
	l := bare(t, "a", "b")
	l.wire("a", "eth0", "b", "eth0")
	for ns, last := range map[string]string{"a": "1", "b": "2"} {
		l.IP(ns, "addr add 10.0.0."+last+"/24 dev eth0")
		l.IP(ns, "addr add fd00::"+last+"/64 dev eth0 nodad")
		l.IP(ns, "addr add fe80::"+last+"/64 dev eth0 nodad")
	}
	return l
}

// bare makes hosts without a wire.
func bare(t *testing.T, hosts ...string) *lab {
	t.Helper()
	l := &lab{t, testnet.New(t)}
	for _, h := range hosts {
		l.Add(h)
		l.In(h, func() {
			for _, name := range []string{"ipv4/ip_forward", "ipv6/conf/all/forwarding"} {
				if err := os.WriteFile(filepath.Join("/proc/sys/net", name), []byte("1"), 0); err != nil {
					t.Fatal(err)
				}
			}
		})
	}
	return l
}

// wire joins two hosts.
func (l *lab) wire(a, ifa, b, ifb string) {
	l.Helper()
	l.IP(a, fmt.Sprintf("link add %s type veth peer name %s netns %s", ifa, ifb, l.NS(b)))
	l.IP(a, "link set "+ifa+" up")
	l.IP(b, "link set "+ifb+" up")
}

// node is a Manager on a host, and when it told of changes.
type node struct {
	*lab
	host string
	m    *Manager

	mu      sync.Mutex
	changes []time.Time
}

func (l *lab) node(host string) *node {
	n := &node{lab: l, host: host}
	n.m = New(slog.New(slog.NewTextHandler(l.Output(), nil)), func() {
		n.mu.Lock()
		n.changes = append(n.changes, time.Now())
		n.mu.Unlock()
	})
	l.Cleanup(func() {
		ctx, cancel := context.WithTimeout(context.Background(), 0)
		cancel()
		_ = n.m.Close(ctx)
	})
	return n
}

// apply gives the sessions to the Manager, on its host.
func (n *node) apply(s ...Session) {
	n.Helper()
	var err error
	n.In(n.host, func() { err = n.m.Apply(s) })
	if err != nil {
		n.Fatalf("%s: %v", n.host, err)
	}
}

// one is the status of the only session.
func (n *node) one() Status {
	n.Helper()
	all := n.m.Status()
	if len(all) != 1 {
		n.Fatalf("%s: %d sessions", n.host, len(all))
	}
	return all[0]
}

// lastChange is when the Manager told of a change, the last time.
func (n *node) lastChange() (t time.Time) {
	n.mu.Lock()
	defer n.mu.Unlock()
	if len(n.changes) > 0 {
		t = n.changes[len(n.changes)-1]
	}
	return t
}

// within waits for what should come soon, for as long as a machine may take that does
// much else.
func (l *lab) within(what string, ok func() bool) {
	l.Helper()
	for end := time.Now().Add(30 * time.Second); !ok(); time.Sleep(ms) {
		if time.Now().After(end) {
			l.Fatalf("%s: not within 30 s", what)
		}
	}
}

// upWith waits until a session is up with what it was configured with.
func (n *node) upWith(s Session) {
	n.Helper()
	n.within(n.host+" up at full speed", func() bool {
		st := n.one()
		return st.State == Up && st.RemoteState == Up && st.Transmit == s.Transmit && st.Receive == s.Receive
	})
}

func addr(s string) netip.Addr { return netip.MustParseAddr(s) }

// session is one whose Detection Time of 500 ms a busy machine keeps.
func session(local, peer string) Session {
	return Session{Peer: addr(peer), Local: addr(local), Transmit: 50 * ms, Receive: 50 * ms, Multiplier: 10}
}
