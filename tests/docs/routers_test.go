package docs

import (
	"strings"
	"testing"
)

// TestRouters: what docs/routers.md calls tried is, to the letter, what docs/bgp.md has, which
// TestDocumented of tests/interop runs.
func TestRouters(t *testing.T) {
	_, bgp, _ := strings.Cut(readPage(t, "docs/bgp.md").text, "\n## One top-of-rack router\n")
	_, routers, _ := strings.Cut(readPage(t, "docs/routers.md").text, "\n## What every router needs\n")
	for from, to := range map[string]string{"FRR:\n": "## FRR\n", "BIRD 2:\n": "## BIRD 2\n"} {
		want, got := firstBlock(bgp, from), firstBlock(routers, to)
		if want == "" || got != want {
			t.Errorf("the first block below %q of docs/routers.md is\n%s\nthat below %q of docs/bgp.md\n%s", to, got, from, want)
		}
	}
}

// firstBlock is the text of the first fenced block after some words; "" if there is none.
func firstBlock(text, after string) string {
	_, text, _ = strings.Cut(text, after)
	_, text, _ = strings.Cut(text, "```\n")
	text, _, _ = strings.Cut(text, "```\n")
	return text
}
