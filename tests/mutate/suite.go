package main

import (
	"errors"
	"fmt"
	"os"
	"strings"
	"time"
)

// suite is what the tests of a folder are like without a mutant.
type suite struct {
	tests []test // the quickest first
}

type test struct {
	name   string
	took   time.Duration
	blocks map[string][]block // by file; those that it runs through
}

// block is a stretch of code without a branch, from a place up to another: line, then column.
type block struct{ from, to [2]int }

// module is what the names of files in a profile begin with.
const module = "lbd.dev/lbd/"

// alone ends the name of the profile of a test that runs in a process of its own.
const alone = ".alone"

// add runs a test and takes it with its profiles. One that fails may try once more.
func (s *suite) add(name string, run func(profile string) error, profile string) error {
	if err := errors.Join(os.WriteFile(profile, nil, 0o600), os.WriteFile(profile+alone, nil, 0o600)); err != nil {
		return err
	}
	from := time.Now()
	if run(profile) != nil {
		from = time.Now()
		if err := run(profile); err != nil {
			return err
		}
	}
	took := time.Since(from)
	in, err := os.ReadFile(profile)
	if err != nil {
		return err
	}
	out, err := os.ReadFile(profile + alone)
	if err != nil {
		return err
	}
	blocks, err := parseProfile(string(in) + string(out))
	if err != nil {
		return err
	}
	s.tests = append(s.tests, test{name, took, blocks})
	return nil
}

// parseProfile reads which blocks were run through. A line is
// `file:line.column,line.column statements times`.
func parseProfile(text string) (map[string][]block, error) {
	out := map[string][]block{}
	for line := range strings.Lines(text) {
		if strings.HasPrefix(line, "mode:") {
			continue
		}
		file, rest, _ := strings.Cut(strings.TrimPrefix(line, module), ":")
		var b block
		var statements, times int
		if _, err := fmt.Sscanf(rest, "%d.%d,%d.%d %d %d", &b.from[0], &b.from[1], &b.to[0], &b.to[1], &statements, &times); err != nil {
			return nil, fmt.Errorf("a profile of coverage has the line %q: %w", line, err)
		}
		if times > 0 {
			out[file] = append(out[file], b)
		}
	}
	return out, nil
}

// reaching are the tests that run through the function of a mutant. Of those that do not come
// by its line none can notice it, but the expression of a case belongs to no block.
func (s *suite) reaching(m *mutant) []test {
	var line, function []test
	for _, t := range s.tests {
		in, by := false, false
		for _, b := range t.blocks[m.file] {
			in = in || b.from[0] <= m.bottom && b.to[0] >= m.top
			by = by || b.from[0] <= m.line && b.to[0] >= m.line
		}
		if in {
			function = append(function, t)
		}
		if by {
			line = append(line, t)
		}
	}
	if m.inCase {
		return function
	}
	return line
}
