package main

import (
	"context"
	"errors"
	"flag"
	"fmt"
	"net"
	"net/netip"
	"slices"
	"strings"
	"sync"
	"time"

	"golang.org/x/sys/unix"

	"lbd.dev/lbd/tests/lab/measure"
)

// observe asks for each VIP by ARP or neighbour solicitation every interval and
// reports every frame that claims one of them.
func observe(ctx context.Context, args []string, out *events) error {
	w, vips, every, err := wireFor("observe", args, measure.AskEvery)
	if err != nil {
		return err
	}
	asks, err := w.questions(vips)
	if err != nil {
		return errors.Join(err, w.close())
	}
	var wg sync.WaitGroup
	wg.Go(func() { w.listen(ctx, vips, out) })
	tick := time.NewTicker(every)
	defer tick.Stop()
	for ctx.Err() == nil {
		select {
		case <-ctx.Done():
		case <-tick.C:
			for i, ask := range asks {
				out.put(measure.Frame{At: measure.Now(), Kind: measure.Ask, VIP: vips[i].String()})
				_ = w.send(ask) // a link that is down shows as no answer
			}
		}
	}
	wg.Wait()
	return w.close()
}

// announce claims addresses as a foreign host does: gratuitous ARP requests and
// unsolicited advertisements.
func announce(ctx context.Context, args []string, _ *events) error {
	w, vips, every, err := wireFor("announce", args, time.Second)
	if err != nil {
		return err
	}
	for ctx.Err() == nil {
		for _, v := range vips {
			frame := advertisement(w.mac, v)
			if v.Is4() {
				frame = arpFrame(arpRequest, w.mac, broadcast(), v, v)
			}
			_ = w.send(frame)
		}
		sleep(ctx, every)
	}
	return w.close()
}

// wireFor opens the wire for a command that says something about each VIP, again
// and again.
func wireFor(command string, args []string, usual time.Duration) (w *wire, vips []netip.Addr, every time.Duration, err error) {
	fs := flag.NewFlagSet(command, flag.ContinueOnError)
	ifname := fs.String("if", "eth0", "interface")
	list := fs.String("vip", "", "addresses, separated by commas")
	fs.DurationVar(&every, "every", usual, "time between two rounds")
	if err = fs.Parse(args); err == nil {
		vips, err = addrs(*list)
	}
	if err == nil {
		w, err = openWire(*ifname)
	}
	return w, vips, every, err
}

func addrs(list string) ([]netip.Addr, error) {
	var out []netip.Addr
	for s := range strings.SplitSeq(list, ",") {
		a, err := netip.ParseAddr(s)
		if err != nil {
			return nil, fmt.Errorf("address: %w", err)
		}
		out = append(out, a)
	}
	return out, nil
}

// wire is a packet socket on one interface.
type wire struct {
	fd    int
	index int
	mac   net.HardwareAddr
	own   []netip.Addr
}

func openWire(ifname string) (*wire, error) {
	ifi, err := net.InterfaceByName(ifname)
	if err != nil {
		return nil, fmt.Errorf("interface %q: %w", ifname, err)
	}
	nets, err := ifi.Addrs()
	if err != nil {
		return nil, fmt.Errorf("interface %q: addresses: %w", ifname, err)
	}
	w := &wire{index: ifi.Index, mac: ifi.HardwareAddr}
	for _, n := range nets {
		if p, err := netip.ParsePrefix(n.String()); err == nil {
			w.own = append(w.own, p.Addr())
		}
	}
	all := int(htons(unix.ETH_P_ALL))
	if w.fd, err = unix.Socket(unix.AF_PACKET, unix.SOCK_RAW|unix.SOCK_CLOEXEC, all); err != nil {
		return nil, fmt.Errorf("packet socket: %w", err)
	}
	// Reads return now and then, so that the listener sees the end of its context.
	err = errors.Join(
		unix.Bind(w.fd, &unix.SockaddrLinklayer{Protocol: htons(unix.ETH_P_ALL), Ifindex: w.index}),
		unix.SetsockoptTimeval(w.fd, unix.SOL_SOCKET, unix.SO_RCVTIMEO, &unix.Timeval{Usec: 100_000}),
	)
	if err != nil {
		return nil, errors.Join(fmt.Errorf("packet socket: bind: %w", err), w.close())
	}
	return w, nil
}

// questions makes one frame per VIP.
func (w *wire) questions(vips []netip.Addr) ([][]byte, error) {
	var out [][]byte
	for _, v := range vips {
		i := slices.IndexFunc(w.own, func(a netip.Addr) bool { return a.Is4() == v.Is4() && !a.IsLinkLocalUnicast() })
		if i < 0 {
			return nil, fmt.Errorf("no address of its own to ask for %s", v)
		}
		if v.Is4() {
			out = append(out, arpFrame(arpRequest, w.mac, broadcast(), w.own[i], v))
		} else {
			out = append(out, solicitation(w.mac, w.own[i], v))
		}
	}
	return out, nil
}

func (w *wire) send(frame []byte) error {
	return unix.Sendto(w.fd, frame, 0, &unix.SockaddrLinklayer{Ifindex: w.index, Halen: 6})
}

func (w *wire) close() error { return unix.Close(w.fd) }

func (w *wire) listen(ctx context.Context, vips []netip.Addr, out *events) {
	b := make([]byte, 2048)
	for ctx.Err() == nil {
		n, from, err := unix.Recvfrom(w.fd, b, 0)
		if err != nil {
			continue // timeout, or the link is down
		}
		at := measure.Now()
		if ll, ok := from.(*unix.SockaddrLinklayer); ok && ll.Pkttype == unix.PACKET_OUTGOING {
			continue
		}
		if addr, mac, kind, ok := claim(b[:n]); ok && slices.Contains(vips, addr) {
			out.put(measure.Frame{At: at, Kind: kind, VIP: addr.String(), MAC: mac.String()})
		}
	}
}

// htons is the network byte order that the packet socket API wants.
func htons(v uint16) uint16 { return v<<8 | v>>8 }
