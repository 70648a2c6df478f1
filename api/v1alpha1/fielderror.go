package v1alpha1

import (
	"fmt"
	"strconv"
	"strings"
	"unicode"
	"unicode/utf8"
)

// FieldError is one rule that an object breaks.
type FieldError struct {
	// Path leads from the root of the object to the field: "spec.addresses[0]",
	// "nodeLabels[zone]".
	Path string
	// Value is what the field has; nil if it is absent or does not help.
	Value any
	// Rule completes the sentence that Value begins: "must be from 1 to 65535".
	Rule string
}

// maxShown is how many bytes of a value an error shows.
const maxShown = 100

// Error returns "path: value rule", with strings quoted and cut to a length
// that can be read.
func (e FieldError) Error() string {
	text := e.Rule
	switch v := e.Value.(type) {
	case nil:
	case string:
		text = strconv.Quote(v[:min(len(v), maxShown)]) + " " + text
		if len(v) > maxShown {
			text = fmt.Sprintf("(%d bytes) %s", len(v), text)
		}
	default:
		text = fmt.Sprintf("%v %s", v, text)
	}
	if e.Path == "" {
		return text
	}
	return printable(e.Path) + ": " + text
}

// printable makes a path with keys that a user wrote fit for one line.
func printable(path string) string {
	if len(path) > 2*maxShown {
		path = path[:maxShown] + "..." + path[len(path)-maxShown/2:]
	}
	return strings.Map(func(r rune) rune {
		if !unicode.IsGraphic(r) || r == utf8.RuneError {
			return '?'
		}
		return r
	}, path)
}
