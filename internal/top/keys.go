package top

import (
	"bytes"
	"unicode"
	"unicode/utf8"
)

// sequences are what keys send that are more than a letter (ECMA-48, xterm).
var sequences = []struct {
	bytes string
	key   Key
}{
	{"\x1b[A", "up"}, {"\x1b[B", "down"}, {"\x1b[C", "right"}, {"\x1b[D", "left"}, {"\x1bOA", "up"}, {"\x1bOB", "down"},
	{"\x1bOC", "right"}, {"\x1bOD", "left"}, {"\x1b[5~", "pgup"}, {"\x1b[6~", "pgdown"}, {"\x1b[H", "home"}, {"\x1b[F", "end"},
	{"\x1bOH", "home"}, {"\x1bOF", "end"}, {"\x1b[1~", "home"}, {"\x1b[4~", "end"},
}

// parseKeys reads keys. What may be the begin of one is left in rest, unless final: nothing
// follows it.
func parseKeys(in []byte, final bool) (keys []Key, rest []byte) {
	for len(in) > 0 {
		k, size := parseKey(in, final)
		if size == 0 {
			return keys, in
		}
		if k != "" {
			keys = append(keys, k)
		}
		in = in[size:]
	}
	return keys, nil
}

// parseKey reads one key, "" for one without a meaning; size is 0 if there must be more of it.
func parseKey(in []byte, final bool) (k Key, size int) {
	switch c := in[0]; {
	case c == '\x1b':
		return parseEscape(in, final)
	case c == '\r', c == '\n':
		return "enter", 1
	case c == 0x7f, c == '\b':
		return "backspace", 1
	case c == 3:
		return "ctrl+c", 1
	case c < ' ':
		return "", 1
	case !utf8.FullRune(in) && !final:
		return "", 0
	}
	r, size := utf8.DecodeRune(in)
	if r == utf8.RuneError || !unicode.IsPrint(r) {
		return "", size
	}
	return Key(r), size
}

// parseEscape reads a key that begins with ESC, or is it.
func parseEscape(in []byte, final bool) (k Key, size int) {
	for _, s := range sequences {
		if bytes.HasPrefix(in, []byte(s.bytes)) {
			return s.key, len(s.bytes)
		}
	}
	if len(in) == 1 {
		if final {
			return "esc", 1
		}
		return "", 0
	}
	if in[1] != '[' && in[1] != 'O' {
		return "esc", 1
	}
	if in[1] == 'O' && len(in) > 2 {
		return "", 3
	}
	for i, c := range in[2:] { // the end of a control sequence that has no meaning here
		if c >= 0x40 && c <= 0x7e {
			return "", i + 3
		}
	}
	if final {
		return "", len(in)
	}
	return "", 0
}
