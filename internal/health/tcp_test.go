package health

import (
	"fmt"
	"net"
	"syscall"
	"testing"

	"lbd.dev/lbd/api/v1alpha1"
)

func TestTCP(t *testing.T) {
	open := listenRaw(t, func(c net.Conn) { c.Close() })
	silent := listenRaw(t, hold(t))
	closed, full := closedPort(t), fullBacklog(t)
	tests := []struct {
		name string
		host string
		port int32
		want string
	}{
		{name: "open", host: "127.0.0.1", port: open, want: "pass"},
		{name: "the kernel answers for a server that says nothing", host: "127.0.0.1", port: silent, want: "pass"},
		{name: "refused", host: "127.0.0.1", port: closed, want: "connection refused"},
		{name: "refused IPv6", host: "::1", port: closed, want: "connection refused"},
		{name: "full backlog", host: "127.0.0.1", port: full, want: "no answer in time (connecting)"},
		{name: "unknown host", host: "lbd-test.invalid", port: 1, want: `host "lbd-test.invalid"`},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			timeout := long
			if tt.port == full {
				timeout = short
			}
			got := probeTwice(t, newTCPProber(v1alpha1.TCPCheck{Host: tt.host, Port: tt.port}), timeout)
			want := tt.want
			if want != "pass" {
				want = "tcp " + net.JoinHostPort(tt.host, fmt.Sprint(tt.port)) + ": " + want
			}
			if tt.name == "unknown host" { // what is said further depends on the resolver
				got = got[:min(len(got), len(want))]
			}
			if got != want {
				t.Errorf("\n got %s\nwant %s", got, want)
			}
		})
	}
}

// fullBacklog returns a port whose listener never accepts and has no room for
// another connection: the SYN is dropped.
func fullBacklog(t *testing.T) int32 {
	t.Helper()
	fd, err := syscall.Socket(syscall.AF_INET, syscall.SOCK_STREAM|syscall.SOCK_CLOEXEC, 0)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { syscall.Close(fd) })
	if err := syscall.Bind(fd, &syscall.SockaddrInet4{Addr: [4]byte{127, 0, 0, 1}}); err != nil {
		t.Fatal(err)
	}
	if err := syscall.Listen(fd, 0); err != nil { // Linux adds one
		t.Fatal(err)
	}
	name, err := syscall.Getsockname(fd)
	if err != nil {
		t.Fatal(err)
	}
	port := int32(name.(*syscall.SockaddrInet4).Port)
	conn, err := net.Dial("tcp", hostPort("127.0.0.1", port))
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { conn.Close() })
	return port
}
