package interop

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"regexp"
	"strconv"
	"strings"
)

// Expectation is a file of commands and what they must answer:
//
//	# a comment
//	> show bgp ipv4 unicast 10.99.0.200/32 json
//	{"paths": [{"valid": true}]}
//	$ ip -j -4 route show 10.99.0.200
//	[{"gateway": "10.77.0.11"}]
//	> show route all
//	10.99.0.200/32
//	!10.99.0.201/32
//
// ">" is a command of the daemon's own command line, "$" one of the host. JSON
// must hold what is written, see Subset. Otherwise each line must be part of a
// line of the answer, or, after "!", must not, or, after "~", match one as a
// regular expression; runs of blanks count as one.
type Expectation struct {
	checks []expected
}

type expected struct {
	line int
	host bool // a command of the host
	cmd  string
	json any      // if the answer is JSON
	text []string // else
}

// ReadExpectation reads a file; os.ErrNotExist if there is none.
func ReadExpectation(file string) (*Expectation, error) {
	b, err := os.ReadFile(file)
	if err != nil {
		return nil, err
	}
	e, err := ParseExpectation(string(b))
	if err != nil {
		return nil, fmt.Errorf("%s: %w", file, err)
	}
	return e, nil
}

// ParseExpectation reads a text.
func ParseExpectation(text string) (*Expectation, error) {
	e := &Expectation{}
	var body strings.Builder
	flush := func() error {
		defer body.Reset()
		if len(e.checks) == 0 {
			if strings.TrimSpace(body.String()) != "" {
				return errors.New("text before the first command")
			}
			return nil
		}
		return e.checks[len(e.checks)-1].want(body.String())
	}
	num := 0
	for line := range strings.Lines(text) {
		num++
		switch {
		case strings.HasPrefix(line, "#"):
		case strings.HasPrefix(line, "> "), strings.HasPrefix(line, "$ "):
			if err := flush(); err != nil {
				return nil, err
			}
			e.checks = append(e.checks, expected{line: num, host: line[0] == '$', cmd: strings.TrimSpace(line[2:])})
		default:
			body.WriteString(line)
		}
	}
	if err := flush(); err != nil {
		return nil, err
	}
	if len(e.checks) == 0 {
		return nil, errors.New("no command")
	}
	return e, nil
}

func (c *expected) want(body string) error {
	body = strings.TrimSpace(body)
	if strings.HasPrefix(body, "{") || strings.HasPrefix(body, "[") {
		if err := json.Unmarshal([]byte(body), &c.json); err != nil {
			return fmt.Errorf("line %d: %w", c.line, err)
		}
		return nil
	}
	for line := range strings.Lines(body) {
		if w := words(line); w != "" {
			c.text = append(c.text, w)
		}
	}
	if len(c.text) == 0 {
		return fmt.Errorf("line %d: nothing is expected of %q", c.line, c.cmd)
	}
	return nil
}

func words(line string) string { return strings.Join(strings.Fields(line), " ") }

// Check runs the commands and says what is not as expected. show runs a command
// of the daemon, exec one of the host.
func (e *Expectation) Check(ctx context.Context, show, exec func(ctx context.Context, cmd string) (string, error)) error {
	var errs []error
	for _, c := range e.checks {
		f := show
		if c.host {
			f = exec
		}
		out, err := f(ctx, c.cmd)
		if err == nil {
			err = c.check(out)
		}
		if err != nil {
			errs = append(errs, fmt.Errorf("%s: %w", c.cmd, err))
		}
	}
	return errors.Join(errs...)
}

func (c *expected) check(out string) error {
	if c.json != nil {
		var got any
		if strings.TrimSpace(out) == "" {
			out = "null"
		}
		if err := json.Unmarshal([]byte(out), &got); err != nil {
			return fmt.Errorf("%w in %q", err, out)
		}
		return Subset(c.json, got)
	}
	var lines []string
	for line := range strings.Lines(out) {
		lines = append(lines, words(line))
	}
	all := strings.Join(lines, "\n")
	for _, want := range c.text {
		bad, not := strings.CutPrefix(want, "!")
		found := strings.Contains(all, bad)
		if expr, is := strings.CutPrefix(want, "~"); is {
			re, err := regexp.Compile(expr)
			if err != nil {
				return err
			}
			found = re.MatchString(all)
		}
		if found == not {
			return fmt.Errorf("want %q in\n%s", want, all)
		}
	}
	return nil
}

// Subset tells where got lacks what want holds. Objects may have more keys; null
// means that there is no such key. Of a list, each wanted element must match
// another element, in any order; an empty list matches only an empty one, and
// one that begins with "=" only one without further elements. The key "#" is the
// length. A string that begins with "~" is a regular expression,
// and ">=N" and "<=N" compare numbers.
func Subset(want, got any) error { return subset("", want, got) }

func subset(path string, want, got any) error {
	switch w := want.(type) {
	case nil:
		if got != nil {
			return fmt.Errorf("%s: want nothing, got %s", path, show(got))
		}
		return nil
	case map[string]any:
		return subsetObject(path, w, got)
	case []any:
		g, ok := got.([]any)
		if !ok {
			return fmt.Errorf("%s: want a list, got %s", path, show(got))
		}
		if len(w) == 0 && len(g) > 0 {
			return fmt.Errorf("%s: want an empty list, got %s", path, show(got))
		}
		return subsetList(path, w, g)
	case string:
		return matches(path, w, got)
	}
	if want != got {
		return fmt.Errorf("%s: want %s, got %s", path, show(want), show(got))
	}
	return nil
}

func subsetObject(path string, want map[string]any, got any) error {
	if n, ok := want["#"]; ok {
		length := -1.0
		switch g := got.(type) {
		case []any:
			length = float64(len(g))
		case map[string]any:
			length = float64(len(g))
		case nil:
			length = 0
		}
		if n != length {
			return fmt.Errorf("%s: want %v elements, got %s", path, n, show(got))
		}
		if len(want) == 1 {
			return nil
		}
	}
	g, ok := got.(map[string]any)
	if !ok {
		return fmt.Errorf("%s: want an object, got %s", path, show(got))
	}
	var errs []error
	for k, w := range want {
		if k != "#" {
			errs = append(errs, subset(path+"."+k, w, g[k]))
		}
	}
	return errors.Join(errs...)
}

func subsetList(path string, want, got []any) error {
	if len(want) > 0 && want[0] == "=" {
		if want = want[1:]; len(want) != len(got) {
			return fmt.Errorf("%s: want exactly %s, got %s", path, show(want), show(got))
		}
	}
	used := make([]bool, len(got))
	for i, w := range want {
		var last error
		found := false
		for j, g := range got {
			if used[j] {
				continue
			}
			if last = subset(fmt.Sprintf("%s[%d]", path, i), w, g); last == nil {
				used[j], found = true, true
				break
			}
		}
		switch {
		case found:
		case last != nil && len(got) == 1:
			return last
		default:
			return fmt.Errorf("%s[%d]: want %s, got %s", path, i, show(w), show(got))
		}
	}
	return nil
}

// matches compares a wanted string, which may be a pattern, with a value.
func matches(path, want string, got any) error {
	ok := false
	switch {
	case strings.HasPrefix(want, "~"):
		re, err := regexp.Compile(want[1:])
		if err != nil {
			return fmt.Errorf("%s: %w", path, err)
		}
		s, isString := got.(string)
		if !isString {
			s = show(got)
		}
		ok = got != nil && re.MatchString(s)
	case strings.HasPrefix(want, ">="), strings.HasPrefix(want, "<="):
		limit, err := strconv.ParseFloat(want[2:], 64)
		if err != nil {
			return fmt.Errorf("%s: %w", path, err)
		}
		n, isNumber := got.(float64)
		ok = isNumber && (want[0] == '>' && n >= limit || want[0] == '<' && n <= limit)
	default:
		ok = want == got
	}
	if !ok {
		return fmt.Errorf("%s: want %q, got %s", path, want, show(got))
	}
	return nil
}

func show(v any) string {
	b, err := json.Marshal(v)
	if err != nil {
		return err.Error()
	}
	return string(b)
}
