package bgp

import (
	"context"
	"errors"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"lbd.dev/lbd/internal/bgp/bfd"
	"lbd.dev/lbd/internal/model"
)

// refusingBFD takes no sessions.
type refusingBFD struct{ *fakeBFD }

func (refusingBFD) Apply([]bfd.Session) error { return errRefused }

// TestBFDIsRefused: a fault of BFD is reported, and paths and sessions go on; so too when it comes
// only with the BGP session.
func TestBFDIsRefused(t *testing.T) {
	for name, strict := range map[string]bool{"before BGP": true, "with BGP": false} {
		t.Run(name, func(t *testing.T) {
			b := newBed(t, "", peer("a", "10.0.0.1", profile(strict)))
			b.want.BGP.Paths = []model.BGPPath{path("203.0.113.1", "a")}
			if !strict {
				b.apply("start, set 203.0.113.1, add a")
				b.speaker.session("a", established)
			}
			b.Driver.bfd = refusingBFD{b.bfd}
			got, err := b.Apply(t.Context(), &b.want)
			if !errors.Is(err, errRefused) || !strings.HasPrefix(got.Err, "refused") {
				t.Errorf("%q, %v", got.Err, err)
			}
			if len(b.speaker.paths) != 1 || len(b.speaker.peers) != 1 {
				t.Errorf("paths %v, peers %v", b.speaker.paths, b.speaker.peers)
			}
		})
	}
}

// TestRecordIsNotWritten: a record that cannot be written is a fault, and leaves no file behind.
func TestRecordIsNotWritten(t *testing.T) {
	dir := t.TempDir()
	taken := filepath.Join(dir, "taken")
	if err := os.MkdirAll(filepath.Join(taken, "by a folder"), 0o700); err != nil {
		t.Fatal(err)
	}
	for name, file := range map[string]string{"no folder": filepath.Join(dir, "none", "bgp.json"), "a folder of that name": taken} {
		b := newBed(t, "", peer("a", "10.0.0.1", graceful))
		b.memory.file = file
		b.want.BGP.Paths = []model.BGPPath{path("203.0.113.1", "a")}
		b.apply("start, set 203.0.113.1, add a")
		b.speaker.session("a", established)
		got, err := b.Apply(t.Context(), &b.want)
		if err == nil || !strings.HasPrefix(got.Err, "write down what BGP advertises: ") {
			t.Errorf("%s: %q, %v", name, got.Err, err)
		}
	}
	left, err := os.ReadDir(dir)
	if err != nil || len(left) != 1 {
		t.Errorf("%v, %v", left, err)
	}
}

// TestTimeRunsOut: of an Apply that has no time left nothing is advertised and nothing withdrawn,
// and the next one makes up for it.
func TestTimeRunsOut(t *testing.T) {
	b := newBed(t, "", peer("a", "10.0.0.1"))
	b.want.BGP.Paths = []model.BGPPath{path("203.0.113.1", "a")}
	b.apply("start, set 203.0.113.1, add a")
	b.want.BGP.Paths = []model.BGPPath{path("203.0.113.2", "a")}
	ctx, stop := context.WithCancel(t.Context())
	stop()
	got, err := b.Apply(ctx, &b.want)
	if !errors.Is(err, context.Canceled) || got.Err != "path 203.0.113.2/32: context canceled" {
		t.Errorf("%q, %v", got.Err, err)
	}
	b.took("")
	b.apply("set 203.0.113.2, delete 203.0.113.1")
}

// hangingSpeaker does not come to the end of Close before it is let go.
type hangingSpeaker struct {
	Speaker
	let chan struct{}
}

func (s hangingSpeaker) Close(string) { <-s.let }

// TestCloseIsBounded: who closes a speaker that hangs waits as long as it has said, and BFD ends.
func TestCloseIsBounded(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		b := newBed(t, "", peer("a", "10.0.0.1"))
		b.apply("start, add a")
		let := make(chan struct{})
		b.Driver.speaker = hangingSpeaker{b.speaker, let}
		ctx, stop := context.WithTimeout(t.Context(), time.Second)
		defer stop()
		from := time.Now()
		if err := b.Close(ctx); !errors.Is(err, context.DeadlineExceeded) {
			t.Error(err)
		}
		if took := time.Since(from); took != time.Second {
			t.Errorf("it took %v", took)
		}
		if !b.bfd.closed {
			t.Error("BFD goes on")
		}
		close(let)
	})
}
