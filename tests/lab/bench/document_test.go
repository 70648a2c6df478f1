package bench

import (
	"strings"
	"testing"
)

func TestPut(t *testing.T) {
	const title = "# Title\n\ntext\n"
	first := put(title, "a", "one\n")
	if !strings.HasPrefix(first, title) || part(first, "a") != "<!-- begin a -->\none\n<!-- end a -->\n" {
		t.Errorf("added: %q", first)
	}
	both := put(first, "b", "two")
	again := put(both, "a", "three")
	if want := strings.Replace(both, "one", "three", 1); again != want {
		t.Errorf("replaced: %q, want %q", again, want)
	}
	if part(again, "c") != "" || part(title, "a") != "" || part("<!-- begin a -->\nno end", "a") != "" {
		t.Error("a part that is not there was found")
	}
}

// TestHead: a program whose report is in no part replaces what stands before the first
// one, and nothing that people have written behind it.
func TestHead(t *testing.T) {
	const rest = "<!-- begin a -->\none\n<!-- end a -->\n\n## By hand\n"
	if got := head("# Old\n\n"+rest, "# New\n"); got != "# New\n\n"+rest {
		t.Errorf("%q", got)
	}
	if got := head("# Old\n", "# New\n"); got != "# New\n" {
		t.Errorf("%q", got)
	}
}

// TestReport: an empty cell stays one, so that a part that is written again with the same
// figures is the same.
func TestReport(t *testing.T) {
	var r Report
	r.Head("A", "B")
	r.Row("1", "")
	r.Broken([]string{"x", "y"})
	if want := "| A | B |\n|---|---|\n| 1 | |\n\nBroken:\n\n- x\n- y\n"; r.String() != want {
		t.Errorf("%q", r.String())
	}
}
