package main

import (
	"context"
	"errors"
	"fmt"
	"net"
	"net/netip"
	"os"
	"os/signal"
	"sync"
	"syscall"
	"time"

	"lbd.dev/lbd/tests/lab/measure"
)

// The ports of what speaks unasked, and of what answers datagrams.
const (
	pushPort     = 7101
	datagramPort = 7102
	// pushEvery is the time between two lines that are sent unasked.
	pushEvery = 50 * time.Millisecond
)

// servePushes says the name of the node and the client as it sees it, again and again, to who
// connects, and answers each datagram with that.
func servePushes(name string) error {
	l, err := net.Listen("tcp", fmt.Sprintf("[::]:%d", pushPort))
	if err != nil {
		return fmt.Errorf("push: %w", err)
	}
	p, err := net.ListenPacket("udp", fmt.Sprintf("[::]:%d", datagramPort))
	if err != nil {
		return errors.Join(fmt.Errorf("datagrams: %w", err), l.Close())
	}
	go func() { // ends with the process
		for {
			c, err := l.Accept()
			if err != nil {
				time.Sleep(10 * time.Millisecond)
				continue
			}
			go push(c, name)
		}
	}()
	go func() {
		buf := make([]byte, 100)
		for {
			if _, from, err := p.ReadFrom(buf); err == nil {
				_, _ = p.WriteTo([]byte(greeting(name, from)), from)
			}
		}
	}()
	return nil
}

func greeting(name string, client net.Addr) string {
	at, _ := netip.ParseAddrPort(client.String())
	return name + " " + at.Addr().Unmap().String() + "\n"
}

func push(c net.Conn, name string) {
	defer c.Close()
	for {
		if _, err := c.Write([]byte(greeting(name, c.RemoteAddr()))); err != nil {
			return
		}
		time.Sleep(pushEvery)
	}
}

// mixedConns keeps connections open of which one third echo, one third only listen, and one third
// are of UDP. Those that listen say a word after SIGUSR1.
func mixedConns(ctx context.Context, to netip.Addr, n int, every time.Duration, out *events) error {
	speak := make(chan os.Signal, 1)
	signal.Notify(speak, syscall.SIGUSR1)
	said := make(chan struct{})
	go func() {
		select {
		case <-speak:
			close(said)
		case <-ctx.Done():
		}
	}()
	var wg sync.WaitGroup
	for i := range n {
		wg.Go(func() {
			switch i % 3 {
			case 0:
				longLived(ctx, i, netip.AddrPortFrom(to, 7000).String(), every, out)
			case 1:
				listens(ctx, i, netip.AddrPortFrom(to, pushPort).String(), said, out)
			case 2:
				datagrams(ctx, i, netip.AddrPortFrom(to, datagramPort).String(), every, out)
			}
		})
	}
	wg.Wait()
	return nil
}

// listens hears what a server says, and says something itself once it may.
func listens(ctx context.Context, id int, target string, may <-chan struct{}, out *events) {
	c, err := net.DialTimeout("tcp", target, 2*time.Second)
	if err != nil {
		out.put(measure.ConnEvent{At: measure.Now(), Conn: id, Kind: measure.ConnLost, Err: measure.Cause(err)})
		return
	}
	// Probes of the kernel would be a word of the client.
	_ = c.(*net.TCPConn).SetKeepAlive(false)
	stop := context.AfterFunc(ctx, func() { _ = c.Close() })
	defer stop()
	defer c.Close()
	go func() {
		select {
		case <-may:
			_, _ = c.Write([]byte("x\n"))
		case <-ctx.Done():
		}
	}()
	readEchoes(c, id, out, true, func() bool { return ctx.Err() != nil })
}

// datagrams sends some that are answered.
func datagrams(ctx context.Context, id int, target string, every time.Duration, out *events) {
	c, err := net.Dial("udp", target)
	if err != nil {
		out.put(measure.ConnEvent{At: measure.Now(), Conn: id, Kind: measure.ConnLost, Err: measure.Cause(err)})
		return
	}
	stop := context.AfterFunc(ctx, func() { _ = c.Close() })
	defer stop()
	defer c.Close()
	go func() {
		for ctx.Err() == nil {
			_, _ = c.Write([]byte("x\n")) // one is lost now and then
			sleep(ctx, every)
		}
	}()
	readEchoes(c, id, out, true, func() bool { return ctx.Err() != nil })
}
