package bench

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

// part returns the named part of a text, with its markers; "" if there is none.
func part(text, name string) string {
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

// put replaces the named part of a text, or adds it at the end.
func put(text, name, body string) string {
	begin, end := markers(name)
	now := begin + strings.TrimRight(body, "\n") + "\n" + end
	if old := part(text, name); old != "" {
		return strings.Replace(text, old, now, 1)
	}
	if text != "" {
		text = strings.TrimRight(text, "\n") + "\n\n"
	}
	return text + now
}

// head replaces what stands before the first part of a text.
func head(old, text string) string {
	if i := strings.Index(old, "<!-- begin "); i >= 0 {
		return strings.TrimRight(text, "\n") + "\n\n" + old[i:]
	}
	return text
}

// write puts a part into a file, which need not exist; "" is the standard output.
func write(file, name, body string) error {
	if file == "" {
		fmt.Print(body)
		return nil
	}
	old, err := os.ReadFile(file)
	if err != nil && !errors.Is(err, fs.ErrNotExist) {
		return err
	}
	text := head(string(old), body)
	if name != "" {
		text = put(string(old), name, body)
	}
	return os.WriteFile(file, []byte(text), 0o644)
}
