package lab

import (
	"context"
	"errors"
	"net/netip"
	"time"

	"lbd.dev/lbd/tests/lab/measure"
)

// httpsPort is where the service stands in for an API server.
const httpsPort = 6443

// Stream is a response over HTTPS to the client that goes on for ever, like a
// watch of Kubernetes. It ends with the instruments.
type Stream struct{ lines *record[measure.Line] }

// OpenStream asks a VIP for a long response and waits for its first line.
func (e *Eyes) OpenStream(ctx context.Context, vip netip.Addr) (*Stream, error) {
	return e.stream(ctx, e.lab.Client, vip)
}

// OpenWatch is OpenStream from any host, such as a node. When the response ends it asks
// anew, as clients of an API server do, and waits for the answer for as long as it takes.
func (e *Eyes) OpenWatch(ctx context.Context, h *Host, vip netip.Addr) (*Stream, error) {
	return e.stream(ctx, h, vip, "-again")
}

func (e *Eyes) stream(ctx context.Context, h *Host, vip netip.Addr, more ...string) (*Stream, error) {
	s := &Stream{lines: &record[measure.Line]{}}
	args := append([]string{"-target", netip.AddrPortFrom(vip, httpsPort).String(), "-ca", e.lab.pki.CA}, more...)
	if _, err := startAgent(e, h, "watch", s.lines, args...); err != nil {
		return nil, err
	}
	return s, Wait(ctx, 10*time.Second, 10*time.Millisecond, "long response", func() error {
		switch now := s.Read(); {
		case now.Broken != "":
			return errors.New(now.Broken)
		case now.Lines == 0:
			return errors.New("no line yet")
		}
		return nil
	})
}

// Read sums up what was read so far.
func (s *Stream) Read() measure.Stream { return measure.StreamOf(s.lines.all(), measure.Now()) }

// Silence is the longest time since then without a line, see measure.Silence.
func (s *Stream) Silence(since measure.Time) time.Duration {
	return measure.Silence(s.lines.all(), since, measure.Now())
}

// More waits for some more lines, and tells what was read by then. It is an error
// if the response broke.
func (s *Stream) More(ctx context.Context, lines int) (measure.Stream, error) {
	want := s.Read().Lines + lines
	var now measure.Stream
	err := Wait(ctx, 30*time.Second, 20*time.Millisecond, "more lines", func() error {
		if now = s.Read(); now.Broken == "" && now.Lines < want {
			return errors.New("silent")
		}
		return nil
	})
	if err == nil && now.Broken != "" {
		err = errors.New(now.Broken)
	}
	return now, err
}
