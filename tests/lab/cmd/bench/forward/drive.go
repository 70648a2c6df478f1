package forward

import (
	"bufio"
	"context"
	"encoding/binary"
	"errors"
	"io"
	"net"
	"slices"
	"sync"
	"time"

	"lbd.dev/lbd/tests/lab"
	"lbd.dev/lbd/tests/lab/measure"
)

const (
	streamFor  = 400 * time.Millisecond
	connectFor = 600 * time.Millisecond
	workers    = 8
	chunk      = 256 << 10
)

// What a client asks a server for, in its first byte.
const (
	askDown = 'd' // as much as it takes
	askUp   = 'u' // how much came, once the client has sent it all
	askLine = 'l' // one line
)

// figures are those of one variant in one round.
type figures struct {
	down, up float64 // bit/s
	connects float64 // a second
	p50, p99 time.Duration
}

// server answers clients on a host.
type server struct {
	listener net.Listener
	wait     sync.WaitGroup
}

func serve(h *lab.Host) (*server, error) {
	s := &server{}
	err := h.Inside(func() (err error) {
		s.listener, err = net.Listen("tcp", net.JoinHostPort("::", "7104"))
		return err
	})
	if err != nil {
		return nil, err
	}
	s.wait.Go(func() {
		for {
			c, err := s.listener.Accept()
			if err != nil {
				return
			}
			s.wait.Go(func() { answer(c) })
		}
	})
	return s, nil
}

// Close also waits for the connections.
func (s *server) Close() error {
	err := s.listener.Close()
	s.wait.Wait()
	return err
}

// answer serves one client, which ends the connection.
func answer(c net.Conn) {
	defer func() { _ = c.Close() }()
	_ = c.SetDeadline(time.Now().Add(time.Minute))
	in := bufio.NewReaderSize(c, 16)
	what, err := in.ReadByte()
	if err != nil {
		return
	}
	switch what {
	case askDown:
		for data := make([]byte, chunk); err == nil; {
			_, err = c.Write(data)
		}
	case askUp:
		n, _ := drain(in)
		_, _ = c.Write(binary.BigEndian.AppendUint64(nil, uint64(n)))
	case askLine:
		_, _ = io.WriteString(c, "served\n")
		_, _ = drain(in)
	}
}

// drain reads all there is, with a large buffer.
func drain(r io.Reader) (n int64, err error) {
	return io.CopyBuffer(struct{ io.Writer }{io.Discard}, struct{ io.Reader }{r}, make([]byte, chunk))
}

// drive measures one variant.
func drive(ctx context.Context, from *lab.Host, to string) (f figures, err error) {
	if f.down, err = down(ctx, from, to); err != nil {
		return f, err
	}
	if f.up, err = up(ctx, from, to); err != nil {
		return f, err
	}
	var took []time.Duration
	if took, err = connect(ctx, from, to); err != nil {
		return f, err
	}
	f.connects = float64(len(took)) / connectFor.Seconds()
	f.p50, f.p99 = measure.Quantile(took, 0.5), measure.Quantile(took, 0.99)
	return f, ctx.Err()
}

// ask opens a connection and says what it is for.
func ask(ctx context.Context, from *lab.Host, to string, what byte) (net.Conn, error) {
	c, err := lab.DialFrom(ctx, from.NS, "tcp", to)
	if err != nil {
		return nil, err
	}
	_ = c.SetDeadline(time.Now().Add(time.Minute))
	if _, err := c.Write([]byte{what}); err != nil {
		return nil, errors.Join(err, c.Close())
	}
	return c, nil
}

// down is how much one connection brings.
func down(ctx context.Context, from *lab.Host, to string) (float64, error) {
	c, err := ask(ctx, from, to, askDown)
	if err != nil {
		return 0, err
	}
	defer func() { _ = c.Close() }()
	begin, n := time.Now(), 0
	for data := make([]byte, chunk); time.Since(begin) < streamFor; {
		got, err := c.Read(data)
		if err != nil {
			return 0, err
		}
		n += got
	}
	return float64(8*n) / time.Since(begin).Seconds(), nil
}

// up is how much one connection takes.
func up(ctx context.Context, from *lab.Host, to string) (float64, error) {
	c, err := ask(ctx, from, to, askUp)
	if err != nil {
		return 0, err
	}
	defer func() { _ = c.Close() }()
	begin := time.Now()
	for data := make([]byte, chunk); time.Since(begin) < streamFor; {
		if _, err := c.Write(data); err != nil {
			return 0, err
		}
	}
	if err := c.(*net.TCPConn).CloseWrite(); err != nil {
		return 0, err
	}
	var came [8]byte
	if _, err := io.ReadFull(c, came[:]); err != nil {
		return 0, err
	}
	return float64(8*binary.BigEndian.Uint64(came[:])) / time.Since(begin).Seconds(), nil
}

// connect opens connections for a while, asks for a line and resets them. The result is how long
// each took until the line was there, sorted.
func connect(ctx context.Context, from *lab.Host, to string) ([]time.Duration, error) {
	var all [workers][]time.Duration
	var errs [workers]error
	var wait sync.WaitGroup
	end := time.Now().Add(connectFor)
	for i := range workers {
		wait.Go(func() {
			errs[i] = from.Inside(func() error {
				for time.Now().Before(end) {
					took, err := line(ctx, to)
					if err != nil {
						return err
					}
					all[i] = append(all[i], took)
				}
				return nil
			})
		})
	}
	wait.Wait()
	took := slices.Concat(all[:]...)
	slices.Sort(took)
	return took, errors.Join(errs[:]...)
}

// line asks for one from the network namespace of this thread.
func line(ctx context.Context, to string) (time.Duration, error) {
	begin := time.Now()
	d := net.Dialer{FallbackDelay: -1, Timeout: 10 * time.Second} // so that it stays on this thread
	c, err := d.DialContext(ctx, "tcp", to)
	if err != nil {
		return 0, err
	}
	defer func() { _ = c.Close() }()
	_ = c.SetDeadline(begin.Add(10 * time.Second))
	if _, err := c.Write([]byte{askLine}); err != nil {
		return 0, err
	}
	var answer [7]byte
	if _, err := io.ReadFull(c, answer[:]); err != nil {
		return 0, err
	}
	took := time.Since(begin)
	return took, c.(*net.TCPConn).SetLinger(0)
}
