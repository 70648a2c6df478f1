package bundle

import (
	"bytes"
	"context"
	"fmt"
	"os/exec"
	"strconv"
	"time"
)

// mostLogged is how many lines of the log are kept, the last ones.
const mostLogged = 5000

// withoutJournal says how else to get the log.
const withoutJournal = `The log is not in this bundle: %v.
Of a DaemonSet:  kubectl -n lbd-system logs POD --tail=5000   (and --previous, if it was restarted)
Of a static pod: crictl logs --tail=5000 $(crictl ps -a --name lbd -q | head -n 1)
Look through the lines before you add them.
`

// Log is the part with the last lines of the unit lbd. On a host without a journal, and in a
// container, its file says how to get them.
func Log(limit time.Duration) Part {
	const name = "log.txt"
	return Part{Names: []string{name}, Limit: limit, Collect: func(ctx context.Context, to *Sink) error {
		program, err := exec.LookPath("journalctl")
		if err != nil {
			to.Add(name, fmt.Appendf(nil, withoutJournal, "there is no journalctl here"))
			return nil
		}
		var out, errs bytes.Buffer
		kept := &last{max: mostBytes}
		cmd := exec.CommandContext(ctx, program, "--unit", "lbd", "--lines", strconv.Itoa(mostLogged), "--no-pager", "--output", "short-iso-precise")
		cmd.Stdout, cmd.Stderr, cmd.WaitDelay = kept, &errs, time.Second
		err = cmd.Run()
		out.Write(kept.end())
		if err != nil {
			fmt.Fprintf(&out, withoutJournal, fmt.Errorf("journalctl: %w: %.500s", err, errs.Bytes()))
		}
		if bytes.HasPrefix(out.Bytes(), []byte("-- No entries --")) {
			fmt.Fprintf(&out, withoutJournal, "the journal has nothing of the unit lbd")
		}
		to.Add(name, out.Bytes())
		return nil
	}}
}

// last keeps the end of what is written.
type last struct {
	max  int
	data []byte
}

func (l *last) Write(p []byte) (int, error) {
	l.data = append(l.data, p...)
	if extra := len(l.data) - 2*l.max; extra > 0 { // seldom, so that it costs little
		l.data = append(l.data[:0], l.data[len(l.data)-l.max:]...)
	}
	return len(p), nil
}

// end is what is kept, from the begin of a line: half a secret would not be known as one.
func (l *last) end() []byte {
	if len(l.data) <= l.max {
		return l.data
	}
	_, whole, _ := bytes.Cut(l.data[len(l.data)-l.max:], []byte("\n"))
	return whole
}
