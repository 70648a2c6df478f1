// Package document keeps several programs from overwriting each other's part of
// one Markdown file.
package document

import (
	"errors"
	"fmt"
	"io/fs"
	"os"
	"strings"
)

// markers are comments that Markdown does not show.
func markers(name string) (begin, end string) {
	return fmt.Sprintf("<!-- begin %s -->\n", name), fmt.Sprintf("<!-- end %s -->\n", name)
}

// Part returns the named part of a text, with its markers; "" if there is none.
func Part(text, name string) string {
	begin, end := markers(name)
	_, rest, ok := strings.Cut(text, begin)
	if !ok {
		return ""
	}
	body, _, ok := strings.Cut(rest, end)
	if !ok {
		return ""
	}
	return begin + body + end
}

// Put replaces the named part of a text, or adds it at the end.
func Put(text, name, body string) string {
	begin, end := markers(name)
	part := begin + strings.TrimRight(body, "\n") + "\n" + end
	if old := Part(text, name); old != "" {
		return strings.Replace(text, old, part, 1)
	}
	if text != "" {
		text = strings.TrimRight(text, "\n") + "\n\n"
	}
	return text + part
}

// Keep puts the named part of an old text, if it has one, at the end of a new
// one.
func Keep(text, old, name string) string {
	if part := Part(old, name); part != "" {
		return strings.TrimRight(text, "\n") + "\n\n" + part
	}
	return text
}

// Write does Put with a file, which need not exist; "" is the standard output.
func Write(file, name, body string) error {
	if file == "" {
		fmt.Print(body)
		return nil
	}
	old, err := os.ReadFile(file)
	if err != nil && !errors.Is(err, fs.ErrNotExist) {
		return err
	}
	return os.WriteFile(file, []byte(Put(string(old), name, body)), 0o644)
}
