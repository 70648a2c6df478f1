package main

import (
	"context"
	"encoding/binary"
	"errors"
	"flag"
	"fmt"
	"net/netip"
	"time"

	"golang.org/x/sys/unix"

	"lbd.dev/lbd/tests/lab/measure"
)

// strays sends segments that belong to no connection (IPv4), each with a source port
// of its own until they are used up, at a rate.
func strays(ctx context.Context, args []string, out *events) error {
	fs := flag.NewFlagSet("strays", flag.ContinueOnError)
	from := fs.String("from", "", "source address")
	target := fs.String("target", "", "address:port")
	n := fs.Int("n", 1000, "number of segments")
	rate := fs.Int("rate", 10000, "segments a second")
	if err := fs.Parse(args); err != nil {
		return err
	}
	src, err := netip.ParseAddr(*from)
	if err != nil {
		return err
	}
	dst, err := netip.ParseAddrPort(*target)
	if err != nil {
		return err
	}
	if !src.Is4() || !dst.Addr().Is4() || *rate < 1 {
		return errors.New("IPv4 and a rate above 0 only")
	}
	fd, err := unix.Socket(unix.AF_INET, unix.SOCK_RAW|unix.SOCK_CLOEXEC, unix.IPPROTO_TCP)
	if err != nil {
		return fmt.Errorf("raw socket: %w", err)
	}
	defer unix.Close(fd)
	begin := measure.Now()
	for i := 0; i < *n && ctx.Err() == nil; i++ {
		due := begin.Add(time.Duration(i) * time.Second / time.Duration(*rate))
		if early := due.Sub(measure.Now()); early > 0 {
			sleep(ctx, max(early, time.Millisecond)) // a burst now and then, not a timer for each
		}
		b := stray(src, dst, uint16(1024+i%60000), uint32(i))
		if err := unix.Sendto(fd, b, 0, &unix.SockaddrInet4{Addr: dst.Addr().As4()}); err != nil {
			return fmt.Errorf("send: %w", err)
		}
	}
	out.put(measure.Sent{From: begin, To: measure.Now(), Bytes: int64(*n)})
	return nil
}

// stray is a TCP header with ACK set (RFC 9293, 3.1).
func stray(src netip.Addr, dst netip.AddrPort, port uint16, seq uint32) []byte {
	const header, ack, window = 20, 0x10, 1000
	b := make([]byte, header)
	binary.BigEndian.PutUint16(b, port)
	binary.BigEndian.PutUint16(b[2:], dst.Port())
	binary.BigEndian.PutUint32(b[4:], seq)
	binary.BigEndian.PutUint32(b[8:], 1)
	b[12], b[13] = header/4<<4, ack
	binary.BigEndian.PutUint16(b[14:], window)
	pseudo := append(src.AsSlice(), dst.Addr().AsSlice()...)
	pseudo = append(pseudo, 0, unix.IPPROTO_TCP, 0, header)
	var sum uint32
	for _, part := range [][]byte{pseudo, b} {
		for i := 0; i < len(part); i += 2 {
			sum += uint32(binary.BigEndian.Uint16(part[i:]))
		}
	}
	for sum > 0xffff {
		sum = sum>>16 + sum&0xffff
	}
	binary.BigEndian.PutUint16(b[16:], ^uint16(sum))
	return b
}
