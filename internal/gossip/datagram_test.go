package gossip

import (
	"bytes"
	"errors"
	"net"
	"net/netip"
	"strings"
	"testing"
	"time"
)

func openDatagrams(t *testing.T, network, addr string) *datagrams {
	t.Helper()
	local, err := net.ResolveUDPAddr(network, addr)
	if err != nil {
		t.Fatal(err)
	}
	udp, err := net.ListenUDP(network, local)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { udp.Close() })
	d, err := newDatagrams(udp)
	if err != nil {
		t.Fatal(err)
	}
	return d
}

func (d *datagrams) local() netip.AddrPort { return d.udp.LocalAddr().(*net.UDPAddr).AddrPort() }

// receiveOne reads one datagram within half a minute.
func receiveOne(t *testing.T, d *datagrams) (string, netip.AddrPort) {
	t.Helper()
	if err := d.udp.SetReadDeadline(time.Now().Add(30 * time.Second)); err != nil {
		t.Fatal(err)
	}
	buf := make([]byte, 64<<10)
	n, from, err := d.read(buf)
	if err != nil {
		t.Fatal(err)
	}
	return string(buf[:n]), from
}

func TestDatagrams(t *testing.T) {
	for _, c := range []struct{ name, network, from, to string }{
		{"IPv4", "udp", "127.0.0.1:0", "127.0.0.2:0"},
		{"IPv6", "udp", "[::1]:0", "[::1]:0"},
		{"IPv4 on a socket of both", "udp", "[::]:0", "127.0.0.1:0"},
	} {
		t.Run(c.name, func(t *testing.T) {
			a, b := openDatagrams(t, c.network, c.from), openDatagrams(t, c.network, c.to)
			if err := a.write([]byte("there"), b.local()); err != nil {
				t.Fatal(err)
			}
			said, from := receiveOne(t, b)
			if said != "there" || from.Port() != a.local().Port() || from.Addr().Is4In6() {
				t.Errorf("%q from %v, want %v", said, from, a.local())
			}
			// Back to where it came from, which is how answers find their way.
			if err := b.write([]byte("back"), from); err != nil {
				t.Fatal(err)
			}
			if said, from = receiveOne(t, a); said != "back" || from != b.local() {
				t.Errorf("%q from %v, want %v", said, from, b.local())
			}
		})
	}
}

// TestDatagramsMany fills the receiver's buffer: sizes and order stay.
func TestDatagramsMany(t *testing.T) {
	a, b := openDatagrams(t, "udp", "127.0.0.1:0"), openDatagrams(t, "udp", "127.0.0.1:0")
	for i := range 50 {
		if err := a.write(bytes.Repeat([]byte{byte(i)}, 10*i), b.local()); err != nil {
			t.Fatal(err)
		}
	}
	for i := range 50 {
		if said, _ := receiveOne(t, b); said != strings.Repeat(string([]byte{byte(i)}), 10*i) {
			t.Fatalf("datagram %d: %d bytes", i, len(said))
		}
	}
}

func TestDatagramsRefused(t *testing.T) {
	a := openDatagrams(t, "udp", "127.0.0.1:0")
	err := a.write(make([]byte, 70_000), a.local())
	if err == nil || !strings.Contains(err.Error(), "127.0.0.1") || !strings.Contains(err.Error(), "message too long") {
		t.Errorf("too long: %v", err)
	}
	if err := a.write([]byte("x"), netip.MustParseAddrPort("[fd00::1]:9")); err == nil {
		t.Error("an IPv4 socket sent to an IPv6 address")
	}
}

// TestDatagramsClose: a reader that waits is told.
func TestDatagramsClose(t *testing.T) {
	a := openDatagrams(t, "udp", "127.0.0.1:0")
	told := make(chan error, 1)
	go func() {
		_, _, err := a.read(make([]byte, 1500))
		told <- err
	}()
	time.Sleep(10 * time.Millisecond)
	a.udp.Close()
	select {
	case err := <-told:
		if !errors.Is(err, net.ErrClosed) {
			t.Errorf("read: %v", err)
		}
	case <-time.After(30 * time.Second):
		t.Fatal("the reader still waits")
	}
	if err := a.write([]byte("x"), netip.MustParseAddrPort("127.0.0.1:9")); !errors.Is(err, net.ErrClosed) {
		t.Errorf("write: %v", err)
	}
}
