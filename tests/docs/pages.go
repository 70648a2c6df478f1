// Package docs checks that README, CHANGELOG and docs say what the program does:
// configurations parse, and commands, fields, reasons, metrics, constants and
// links are those of the code.
package docs

import (
	"fmt"
	"os"
	"path/filepath"
	"regexp"
	"strings"
)

// root is the top of the repository as seen from this folder.
var root = filepath.Join("..", "..")

// page is one document.
type page struct {
	path string // from the root, with slashes
	text string
}

// block is a fenced block of a page.
type block struct {
	page, lang, text string
	line             int // of its first line
}

// pages reads every document.
func pages() ([]page, error) {
	files, err := filepath.Glob(filepath.Join(root, "docs", "*.md"))
	if err != nil {
		return nil, err
	}
	files = append(files, filepath.Join(root, "README.md"), filepath.Join(root, "CHANGELOG.md"), filepath.Join(root, "CONTRIBUTING.md"), filepath.Join(root, "SECURITY.md"))
	var all []page
	for _, f := range files {
		b, err := os.ReadFile(f)
		if err != nil {
			return nil, err
		}
		rel, err := filepath.Rel(root, f)
		if err != nil {
			return nil, err
		}
		all = append(all, page{filepath.ToSlash(rel), string(b)})
	}
	return all, nil
}

// blocks returns the fenced blocks of a page.
func (p page) blocks() []block {
	var all []block
	var open *block
	for i, line := range strings.Split(p.text, "\n") {
		lang, fence := strings.CutPrefix(line, "```")
		switch {
		case fence && open == nil:
			open = &block{page: p.path, lang: strings.TrimSpace(lang), line: i + 2}
		case fence:
			all = append(all, *open)
			open = nil
		case open != nil:
			open.text += line + "\n"
		}
	}
	return all
}

// prose is the page without its fenced blocks.
func (p page) prose() string {
	var out strings.Builder
	inside := false
	for line := range strings.Lines(p.text) {
		if strings.HasPrefix(line, "```") {
			inside = !inside
		} else if !inside {
			out.WriteString(line)
		}
	}
	return out.String()
}

// rows returns the cells of the table rows below the given heading, or of all
// tables if the heading is empty. Header and rule are left out.
func (p page) rows(heading string) [][]string {
	var out [][]string
	here := heading == ""
	header := true
	for line := range strings.Lines(p.prose()) {
		line = strings.TrimSpace(line)
		if title, ok := strings.CutPrefix(line, "## "); ok && heading != "" {
			here = title == heading
		}
		if !strings.HasPrefix(line, "|") {
			header = true
			continue
		}
		if rule.MatchString(line) {
			header = false
			continue
		}
		if here && !header {
			out = append(out, cells(line))
		}
	}
	return out
}

var rule = regexp.MustCompile(`^\|[-| :]+\|$`)

// cells splits a table row; "\|" does not separate.
func cells(line string) []string {
	line = strings.ReplaceAll(strings.Trim(line, "|"), `\|`, "\x00")
	var out []string
	for c := range strings.SplitSeq(line, "|") {
		out = append(out, strings.TrimSpace(strings.ReplaceAll(c, "\x00", "|")))
	}
	return out
}

var code = regexp.MustCompile("`([^`]+)`")

// codes returns what is written in backquotes.
func codes(text string) []string {
	var out []string
	for _, m := range code.FindAllStringSubmatch(text, -1) {
		out = append(out, m[1])
	}
	return out
}

// anchors returns the fragments of the headings of a page, as forges make them.
func (p page) anchors() map[string]bool {
	out := map[string]bool{}
	for line := range strings.Lines(p.prose()) {
		title := strings.TrimLeft(line, "#")
		if title == line || !strings.HasPrefix(title, " ") {
			continue
		}
		slug := strings.ToLower(strings.TrimSpace(title))
		slug = notSlug.ReplaceAllString(slug, "")
		slug = strings.ReplaceAll(slug, " ", "-")
		for i, base := 1, slug; out[slug]; i++ {
			slug = fmt.Sprintf("%s-%d", base, i)
		}
		out[slug] = true
	}
	return out
}

var notSlug = regexp.MustCompile(`[^\p{L}\p{N} _-]`)
