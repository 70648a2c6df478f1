package document

import (
	"strings"
	"testing"
)

func TestPut(t *testing.T) {
	const head = "# Title\n\ntext\n"
	first := Put(head, "a", "one\n")
	if !strings.HasPrefix(first, head) || Part(first, "a") != "<!-- begin a -->\none\n<!-- end a -->\n" {
		t.Errorf("added: %q", first)
	}
	both := Put(first, "b", "two")
	again := Put(both, "a", "three")
	if want := strings.Replace(both, "one", "three", 1); again != want {
		t.Errorf("replaced: %q, want %q", again, want)
	}
	if Part(again, "c") != "" || Part(head, "a") != "" || Part("<!-- begin a -->\nno end", "a") != "" {
		t.Error("a part that is not there was found")
	}
	// A program that writes the whole file keeps the part of the other.
	if kept := Keep("# New\n", again, "b"); kept != "# New\n\n<!-- begin b -->\ntwo\n<!-- end b -->\n" {
		t.Errorf("kept: %q", kept)
	}
	if kept := Keep("# New\n", head, "b"); kept != "# New\n" {
		t.Errorf("kept: %q", kept)
	}
}
