package bench

import (
	"fmt"
	"strings"
	"time"

	"lbd.dev/lbd/tests/lab/measure"
)

// Report is a report in Markdown.
type Report struct{ strings.Builder }

// Printf adds a text.
func (r *Report) Printf(format string, args ...any) { fmt.Fprintf(r, format, args...) }

// Head begins a table.
func (r *Report) Head(columns ...string) {
	r.Row(columns...)
	r.WriteString("|" + strings.Repeat("---|", len(columns)) + "\n")
}

// Row adds a row to a table. An empty cell takes one blank.
func (r *Report) Row(cells ...string) {
	r.WriteString("|")
	for _, c := range cells {
		if c != "" {
			c += " "
		}
		r.WriteString(" " + c + "|")
	}
	r.WriteString("\n")
}

// Broken lists the promises that were.
func (r *Report) Broken(list []string) {
	if len(list) > 0 {
		r.Printf("\nBroken:\n\n- %s\n", strings.Join(list, "\n- "))
	}
}

// NotMeasured tells errors.
func (r *Report) NotMeasured(errors []string) {
	for _, e := range errors {
		r.Printf("\nNot measured: %s\n", OneLine(e))
	}
}

// OneLine makes one line of a text.
func OneLine(text string) string { return strings.ReplaceAll(text, "\n", " ") }

// Machine says on what and when the figures were taken, without a full stop.
func Machine() string {
	return fmt.Sprintf("Machine: %s. Written on %s", measure.Machine(), time.Now().Format(time.DateOnly))
}

// Kept is the word for a promise that is, or is not.
func Kept(ok bool) string {
	if ok {
		return "yes"
	}
	return "**no**"
}

// Some is a spread of what did not happen in every run.
func Some(d []time.Duration, runs int) string {
	switch {
	case len(d) == 0:
		return "never"
	case len(d) < runs:
		return fmt.Sprintf("%s (never in %d)", measure.SpreadOf(d), runs-len(d))
	}
	return measure.SpreadOf(d).String()
}
