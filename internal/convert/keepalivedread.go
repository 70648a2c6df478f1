package convert

import (
	"strings"
)

// directive is one line of a configuration of keepalived, with the block that follows.
type directive struct {
	file  string
	order int // of the file
	line  int
	words []string // at least one
	block []directive
}

// word is the word at i, "" if there are fewer.
func (d *directive) word(i int) string {
	if i < len(d.words) {
		return d.words[i]
	}
	return ""
}

// get is the first directive of a block with this name, nil if there is none.
func (d *directive) get(name string) *directive {
	for i := range d.block {
		if d.block[i].words[0] == name {
			return &d.block[i]
		}
	}
	return nil
}

// value is the first word after a name in a block, "" without.
func (d *directive) value(name string) string {
	if x := d.get(name); x != nil {
		return x.word(1)
	}
	return ""
}

// maxDepth bounds how deep blocks are nested; keepalived knows four levels.
const maxDepth = 16

// kaReader takes a text apart.
type kaReader struct {
	file  string
	order int
	text  string
	line  int
	err   func(line int, rule string)
}

// The tokens besides words.
const (
	tokenEnd   = ""
	tokenLine  = "\n"
	tokenOpen  = "{"
	tokenClose = "}"
)

// token returns the next one; quoted tells a word in quotes, which may be empty or a brace.
func (r *kaReader) token() (token string, quoted bool) {
	for r.text != "" {
		c := r.text[0]
		switch {
		case c == '\n':
			r.text, r.line = r.text[1:], r.line+1
			return tokenLine, false
		case c == ' ', c == '\t', c == '\r':
			r.text = r.text[1:]
		case c == '#', c == '!':
			if i := strings.IndexByte(r.text, '\n'); i >= 0 {
				r.text = r.text[i:]
			} else {
				r.text = ""
			}
		case c == '{', c == '}':
			r.text = r.text[1:]
			return string(c), false
		case c == '"', c == '\'':
			i := strings.IndexByte(r.text[1:], c)
			if i < 0 {
				r.err(r.line, "a quote without its end")
				r.text = ""
				return tokenEnd, false
			}
			token, r.text = r.text[1:1+i], r.text[2+i:]
			r.line += strings.Count(token, "\n")
			return token, true
		default:
			i := strings.IndexAny(r.text, " \t\r\n{}\"")
			if i < 0 {
				i = len(r.text)
			}
			token, r.text = r.text[:i], r.text[i:]
			return token, false
		}
	}
	return tokenEnd, false
}

// read reads directives up to the end of their block.
func (r *kaReader) read(depth int) (out []directive) {
	if depth > maxDepth {
		r.err(r.line, "blocks are nested too deep")
		r.text = ""
		return nil
	}
	var d *directive // that of this line
	for {
		token, quoted := r.token()
		switch {
		case quoted:
		case token == tokenEnd:
			if depth > 0 {
				r.err(r.line, "a block without its end")
			}
			return out
		case token == tokenLine:
			d = nil
			continue
		case token == tokenOpen:
			if len(out) == 0 {
				r.err(r.line, "a block without a name")
				r.read(depth + 1)
				continue
			}
			out[len(out)-1].block = append(out[len(out)-1].block, r.read(depth+1)...)
			d = nil
			continue
		case token == tokenClose:
			if depth == 0 {
				r.err(r.line, "the end of a block that has not begun")
				continue
			}
			return out
		}
		if d == nil {
			out = append(out, directive{file: r.file, order: r.order, line: r.line})
			d = &out[len(out)-1]
		}
		d.words = append(d.words, token)
	}
}
