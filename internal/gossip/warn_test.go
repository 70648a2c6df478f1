package gossip

import (
	"bytes"
	"fmt"
	"log/slog"
	"strings"
	"sync"
	"testing"
	"time"

	"lbd.dev/lbd/internal/model"
)

// journal is a log that several goroutines write.
type journal struct {
	mu  sync.Mutex
	out bytes.Buffer
}

func (j *journal) Write(p []byte) (int, error) {
	j.mu.Lock()
	defer j.mu.Unlock()
	return j.out.Write(p)
}

// warnings returns the lines of level WARN and above.
func (j *journal) warnings() []string {
	j.mu.Lock()
	defer j.mu.Unlock()
	var found []string
	for line := range strings.Lines(j.out.String()) {
		if strings.Contains(line, "level=WARN") || strings.Contains(line, "level=ERROR") {
			found = append(found, line)
		}
	}
	return found
}

func (j *journal) logTo(o *Options) { o.Logger = slog.New(slog.NewTextHandler(j, nil)) }

// TestWrongKeyIsWarnedOfOnce: a node with another key is heard every few seconds.
func TestWrongKeyIsWarnedOfOnce(t *testing.T) {
	bubble(t, func(l *lab) {
		var log, wrongLog journal
		l.start(1, log.logTo)
		wrong := l.start(2, wrongLog.logTo, func(o *Options) { o.Keys = [][]byte{key2} })
		time.Sleep(20 * time.Minute)
		got := log.warnings()
		if len(got) != 1 || !strings.Contains(got[0], "compare the key files") || !strings.Contains(got[0], "peer=10.0.0.12:") {
			t.Fatalf("warnings: %q", got)
		}
		// On the other side it is the answer that is not understood.
		if got := wrongLog.warnings(); len(got) != 1 || !strings.Contains(got[0], "peer=10.0.0.11:") {
			t.Fatalf("warnings of the node with the wrong key: %q", got)
		}
		wrong.kill()
		time.Sleep(strangerFor + time.Minute)
		delete(l.nodes, "m2")
		l.start(2, func(o *Options) { o.Keys = [][]byte{key2} })
		time.Sleep(time.Minute)
		if got := log.warnings(); len(got) != 2 {
			t.Errorf("warnings after it came back: %q", got)
		}
	})
}

// TestForgedSendersDoNotFillTheLog: whoever sends rubbish chooses the address.
func TestForgedSendersDoNotFillTheLog(t *testing.T) {
	bubble(t, func(*lab) {
		var log journal
		w := &logWriter{log: slog.New(slog.NewTextHandler(&log, nil))}
		for i := range 10000 {
			fmt.Fprintf(w, "[ERR] memberlist: Decrypt packet failed: no installed keys could decrypt the message from=10.%d.%d.9:7947\n", i>>8, i&0xff)
		}
		if n := len(log.warnings()); n != maxStrangers || len(w.strangers) != maxStrangers {
			t.Errorf("%d warnings, %d remembered; want %d", n, len(w.strangers), maxStrangers)
		}
		time.Sleep(strangerFor)
		fmt.Fprint(w, "[ERR] memberlist: Decrypt packet failed: no installed keys could decrypt the message from=10.99.0.9:7947\n")
		if n := len(log.warnings()); n != maxStrangers+1 || len(w.strangers) != 1 {
			t.Errorf("%d warnings, %d remembered, after the others fell silent", n, len(w.strangers))
		}
	})
}

// TestMembersAreLoggedElsewhere: the daemon logs who comes and goes.
func TestMembersAreLoggedElsewhere(t *testing.T) {
	bubble(t, func(l *lab) {
		var log journal
		l.start(1, log.logTo)
		l.start(2)
		l.joined(5 * time.Second)
		l.nodes["m2"].kill()
		delete(l.nodes, "m2")
		time.Sleep(30 * time.Second)
		log.mu.Lock()
		defer log.mu.Unlock()
		if text := log.out.String(); strings.Contains(text, "member") {
			t.Error(text)
		}
	})
}

// TestHostWithAnotherKeyIsFoundInTheLine: in a packet, in a stream from any port,
// and in the answer to a join.
func TestHostWithAnotherKeyIsFoundInTheLine(t *testing.T) {
	var log journal
	w := &logWriter{log: slog.New(slog.NewTextHandler(&log, nil))}
	for _, line := range []string{
		"[ERR] memberlist: Decrypt packet failed: no installed keys could decrypt the message from=10.0.0.9:7947",
		"[ERR] memberlist: failed to receive: no installed keys could decrypt the message from=10.0.0.9:40123",
		"[DEBUG] memberlist: failed to join 10.0.0.8:7947: no installed keys could decrypt the message",
		"[DEBUG] memberlist: failed to join [fd00::8]:7947: no installed keys could decrypt the message",
		"[ERR] memberlist: Push/Pull with m7 failed: no installed keys could decrypt the message",
	} {
		fmt.Fprintln(w, line)
	}
	got := log.warnings()
	if len(got) != 3 || !strings.Contains(got[0], "peer=10.0.0.9:7947") || !strings.Contains(got[1], "peer=10.0.0.8:7947") || !strings.Contains(got[2], "peer=[fd00::8]:7947") {
		t.Errorf("%q", got)
	}
	if keys, _, _ := w.counts(); keys.Count != 5 || keys.Peer != "[fd00::8]:7947" {
		t.Errorf("%+v", keys)
	}
}

// TestHeartbeatsResumeOnlyAfterAStop: an owner that hands over and takes again has
// not been stopped in between.
func TestHeartbeatsResumeOnlyAfterAStop(t *testing.T) {
	bubble(t, func(l *lab) {
		var log journal
		a := l.start(1, log.logTo)
		l.start(2)
		l.joined(5 * time.Second)
		count := func(words string) int {
			log.mu.Lock()
			defer log.mu.Unlock()
			return strings.Count(log.out.String(), words)
		}
		for range 3 {
			a.claim(vip1, 1, "m2")
			time.Sleep(time.Second)
			a.standby(vip1)
			time.Sleep(50 * time.Millisecond) // the last words are still told
		}
		if n := count("heartbeats resumed") + count("heartbeats stopped"); n != 0 {
			t.Errorf("%d lines, although nothing stood still", n)
		}
		a.claim(vip1, 2, "m2")
		a.gen++
		soon := &model.Desired{Gen: a.gen, ValidUntil: time.Now().Add(time.Second), Group: a.want}
		if _, err := a.driver.Apply(t.Context(), soon); err != nil {
			t.Fatal(err)
		}
		time.Sleep(2 * time.Second)
		if n := count("heartbeats stopped"); n != 1 {
			t.Errorf("stopped %d times", n)
		}
		a.claim(vip1, 3, "m2")
		time.Sleep(time.Second)
		if n := count("heartbeats resumed"); n != 1 {
			t.Errorf("resumed %d times", n)
		}
	})
}
