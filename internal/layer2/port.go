package layer2

import (
	"errors"
	"fmt"
	"net"
	"net/netip"
	"sync"
	"syscall"
	"time"

	"github.com/mdlayher/packet"
	"golang.org/x/sys/unix"

	"lbd.dev/lbd/internal/announce"
	"lbd.dev/lbd/internal/layer2/arp"
	"lbd.dev/lbd/internal/layer2/nd"
	"lbd.dev/lbd/internal/layer2/silence"
)

// linux is the kernel that lbd runs on.
type linux struct {
	wg     sync.WaitGroup // readers of ports
	joined memberships
}

const (
	// receiveLen holds every ARP and ND frame that makes sense.
	receiveLen = 2048
	// receiveBuffer is room for a burst of answers while this process cannot run,
	// sendBuffer for the first announcements of thousands of VIPs.
	receiveBuffer = 1 << 20
	sendBuffer    = 8 << 20
	// receiveAtOnce bounds one turn of a reader, so that a flood cannot hold up
	// who waits for a drained socket.
	receiveAtOnce = 4096
)

// packetPort is a packet(7) socket. Such a socket sees frames before the
// firewall and before the kernel drops what is not for it, but none that this
// host sends.
type packetPort struct {
	k      *linux
	conn   *packet.Conn
	raw    syscall.RawConn
	index  int // of the interface
	family Family
	ev     Events

	rx  sync.Mutex // a frame that was read is handled before it is free again
	buf [receiveLen]byte
}

func (k *linux) Open(l Link, f Family, addrs []netip.Addr, ev Events) (Port, error) {
	proto := arp.EtherType
	if f == silence.ND {
		proto = nd.EtherType
	}
	program, err := program(l.Index, f, addrs)
	if err != nil {
		return nil, err
	}
	conn, err := packet.Listen(&net.Interface{Index: l.Index, Name: l.Name, HardwareAddr: l.MAC[:]},
		packet.Raw, proto, &packet.Config{Filter: program})
	if err != nil {
		return nil, fmt.Errorf("interface %q: open packet socket: %w", l.Name, err)
	}
	raw, err := conn.SyscallConn()
	if err != nil {
		_ = conn.Close()
		return nil, fmt.Errorf("interface %q: open packet socket: %w", l.Name, err)
	}
	_ = raw.Control(func(fd uintptr) {
		_ = unix.SetsockoptInt(int(fd), unix.SOL_SOCKET, unix.SO_RCVBUFFORCE, receiveBuffer)
		_ = unix.SetsockoptInt(int(fd), unix.SOL_SOCKET, unix.SO_SNDBUFFORCE, sendBuffer)
	})
	p := &packetPort{k: k, conn: conn, raw: raw, index: l.Index, family: f, ev: ev}
	k.wg.Go(p.read)
	return p, nil
}

func (*linux) Rules(f Family, lifetime time.Duration) silence.Rules {
	return silence.Netfilter(f, lifetime)
}

func (*linux) Mutex() announce.Mutex { return new(sync.Mutex) }

func (k *linux) Close() {
	_ = k.Listen(nil)
	k.wg.Wait()
}

// read is the goroutine of the port; it ends when the port is closed.
func (p *packetPort) read() {
	for {
		var failed error
		err := p.raw.Read(func(fd uintptr) bool {
			more, err := p.receive(int(fd))
			failed = err
			return more || err != nil
		})
		if err != nil {
			return // closed
		}
		if failed != nil {
			p.ev.Broken(failed)
			if !errors.Is(failed, unix.ENETDOWN) {
				return
			}
		}
	}
}

// receive handles the frames that are there; more says that it stopped early.
func (p *packetPort) receive(fd int) (more bool, err error) {
	p.rx.Lock()
	defer p.rx.Unlock()
	for range receiveAtOnce {
		n, err := unix.Read(fd, p.buf[:])
		switch {
		case err == nil:
			p.ev.Frame(p.buf[:n])
		case errors.Is(err, unix.EAGAIN):
			return false, nil
		case !errors.Is(err, unix.EINTR):
			return false, err
		}
	}
	return true, nil
}

func (p *packetPort) Drain() {
	_ = p.raw.Control(func(fd uintptr) { _, _ = p.receive(int(fd)) })
}

func (p *packetPort) Send(frame []byte) error {
	var failed error
	err := p.raw.Write(func(fd uintptr) bool {
		_, failed = unix.Write(int(fd), frame)
		return true // never wait: the caller has a schedule to keep
	})
	return errors.Join(err, failed)
}

func (p *packetPort) Filter(addrs []netip.Addr) error {
	program, err := program(p.index, p.family, addrs)
	if err != nil {
		return err
	}
	return p.conn.SetBPF(program)
}

// Close lets go in the background: the kernel takes some 10 ms until no
// processor uses the socket any more.
func (p *packetPort) Close() {
	p.k.wg.Go(func() { _ = p.conn.Close() })
}
