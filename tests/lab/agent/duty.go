package main

import (
	"context"
	"errors"
	"flag"
	"net"
	"net/netip"
	"time"

	"lbd.dev/lbd/tests/lab/measure"
)

// dutyPort is the discard port of RFC 863; serve reads it.
const dutyPort = 9

// share is the event of duty: processor time in cores.
type share struct {
	CPU float64 `json:"cpu"`
}

// duty is the least that an owner has to do: a datagram to each of its successors
// every 50 ms, without encryption, content or anything else. It tells what that
// takes of a core.
func duty(_ context.Context, args []string, out *events) error {
	fs := flag.NewFlagSet("duty", flag.ContinueOnError)
	during := fs.Duration("for", 5*time.Second, "how long to measure")
	if err := fs.Parse(args); err != nil {
		return err
	}
	if fs.NArg() == 0 {
		return errors.New("the addresses of the successors are missing")
	}
	socket, err := net.ListenUDP("udp", nil)
	if err != nil {
		return err
	}
	defer socket.Close()
	var to []netip.AddrPort
	for _, a := range fs.Args() {
		addr, err := netip.ParseAddr(a)
		if err != nil {
			return err
		}
		to = append(to, netip.AddrPortFrom(addr, dutyPort))
	}
	msg := make([]byte, 200)
	cpu, err := measure.WakeCost(20, *during, func() error {
		for _, addr := range to {
			if _, err := socket.WriteToUDPAddrPort(msg, addr); err != nil {
				return err
			}
		}
		return nil
	})
	if err != nil {
		return err
	}
	out.put(share{cpu})
	return nil
}
