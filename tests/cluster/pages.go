package cluster

import (
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"regexp"
	"strings"
)

// Page is the text of a document, its path as seen from the top of the repository.
func Page(ctx context.Context, name string) (string, error) {
	root, err := command(ctx, nil, os.Environ(), "go", "list", "-m", "-f", "{{.Dir}}", "lbd.dev/lbd")
	if err != nil {
		return "", err
	}
	b, err := os.ReadFile(filepath.Join(strings.TrimSpace(root), name))
	return string(b), err
}

// Blocks returns the fenced blocks of one language in a chapter of a document: the
// text below the heading of that title, up to the next heading of its level or above.
func Blocks(ctx context.Context, document, title, language string) ([]string, error) {
	text, err := Page(ctx, document)
	if err != nil {
		return nil, err
	}
	all := blocksOf(text, title, language)
	if len(all) == 0 {
		return nil, fmt.Errorf("%s: the chapter %q has no block of %q", document, title, language)
	}
	return all, nil
}

// Marked returns the blocks of commands of which a document says that a test of this folder
// runs them, in their order.
func Marked(ctx context.Context, document, test string) ([]string, error) {
	text, err := Page(ctx, document)
	if err != nil {
		return nil, err
	}
	all := markedIn(text, test)
	if len(all) == 0 {
		return nil, fmt.Errorf("%s: no block is marked with %s", document, test)
	}
	return all, nil
}

// markedIn is Marked of a text.
func markedIn(text, test string) []string {
	parts := strings.Split(text, "<!-- run by tests/cluster: "+test+" -->\n```sh\n")
	var all []string
	for _, part := range parts[1:] {
		block, _, _ := strings.Cut(part, "```\n")
		all = append(all, block)
	}
	return all
}

// blocksOf is Blocks of a text.
func blocksOf(text, title, language string) []string {
	var all []string
	level, inside, fenced := 0, false, false
	for line := range strings.Lines(text) {
		fence, isFence := strings.CutPrefix(strings.TrimSpace(line), "```")
		switch {
		case isFence && fenced:
			fenced, inside = false, false
		case isFence:
			fenced = true
			if inside = level > 0 && fence == language; inside {
				all = append(all, "")
			}
		case fenced && inside:
			all[len(all)-1] += line
		case fenced || !strings.HasPrefix(line, "#"):
		default:
			n := len(line) - len(strings.TrimLeft(line, "#"))
			if strings.TrimSpace(line[n:]) == title {
				level = n
			} else if n <= level {
				level = 0
			}
		}
	}
	return all
}

// oneBlock is Blocks where the page must have exactly one that contains a text.
func oneBlock(ctx context.Context, document, title, language, has string) (string, error) {
	blocks, err := Blocks(ctx, document, title, language)
	if err != nil {
		return "", err
	}
	var found []string
	for _, b := range blocks {
		if strings.Contains(b, has) {
			found = append(found, b)
		}
	}
	if len(found) != 1 {
		return "", fmt.Errorf("%s: the chapter %q has %d blocks of %q with %q, want one", document, title, len(found), language, has)
	}
	return found[0], nil
}

var comment = regexp.MustCompile(`\s+#\s.*$`)

// line is one command of a page, and what the page remarks about it.
type line struct{ command, remark string }

// lines splits a block of commands.
func lines(block string) []line {
	var all []line
	for l := range strings.Lines(strings.ReplaceAll(block, "\\\n", " ")) {
		l = strings.TrimRight(l, "\n")
		remark := comment.FindString(l)
		if c := strings.TrimSpace(strings.TrimSuffix(l, remark)); c != "" && !strings.HasPrefix(c, "#") {
			all = append(all, line{c, strings.TrimLeft(strings.TrimSpace(remark), "# ")})
		}
	}
	return all
}

// fill puts values where a page has dots: "--token ..." with {"--token": "x"}.
func fill(text string, values map[string]string) (string, error) {
	for flag, value := range values {
		if !strings.Contains(text, flag+" ...") {
			return "", fmt.Errorf("the page has no %q in %q", flag+" ...", text)
		}
		text = strings.Replace(text, flag+" ...", flag+" "+value, 1)
	}
	if strings.Contains(text, "...") {
		return "", errors.New("dots are left in: " + text)
	}
	return text, nil
}
