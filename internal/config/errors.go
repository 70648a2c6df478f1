package config

import (
	"cmp"
	"errors"
	"fmt"
	"slices"
	"strings"

	"lbd.dev/lbd/api/v1alpha1"
)

// Error is one thing that is wrong with a file. Load joins all of them.
type Error struct {
	File string
	Line int // 0 if it is about the whole file
	// Column counts characters from 1; 0 if it is not known.
	Column int
	// Excerpt is the line as far as it may be shown: up to what could be a secret, which an
	// ellipsis stands for. Empty if the place itself may not be shown. Only Validate gives it.
	Excerpt string
	// Object is the kind and name, such as `VirtualIP "control-plane"`, or the
	// document, or empty.
	Object string
	Field  v1alpha1.FieldError
}

// Error returns "file:line: object: path: value rule".
func (e *Error) Error() string {
	var b strings.Builder
	b.WriteString(e.File)
	if e.Line > 0 {
		fmt.Fprintf(&b, ":%d", e.Line)
	}
	b.WriteString(": ")
	if e.Object != "" {
		b.WriteString(e.Object + ": ")
	}
	b.WriteString(e.Field.Error())
	return b.String()
}

// fileError is an error about a file as a whole or one of its lines.
func fileError(file string, line int, format string, args ...any) *Error {
	return &Error{File: file, Line: line, Field: v1alpha1.FieldError{Rule: fmt.Sprintf(format, args...)}}
}

// join sorts errors by file and line and joins them; nil if there are none.
func join(errs []*Error) error {
	slices.SortStableFunc(errs, func(a, b *Error) int {
		return cmp.Or(strings.Compare(a.File, b.File), cmp.Compare(a.Line, b.Line))
	})
	all := make([]error, len(errs))
	for i, err := range errs {
		all[i] = err
	}
	return errors.Join(all...)
}

// nearest returns the candidate that word is a misspelling of, or "".
func nearest(word string, candidates []string) string {
	const longest = 64 // a longer word is no misspelling and costs time
	if len(word) > longest {
		return ""
	}
	best, bestDistance := "", 3
	for _, c := range slices.Sorted(slices.Values(candidates)) {
		if strings.EqualFold(word, c) {
			return c
		}
		limit := min(bestDistance, 1+len(c)/3)
		if d := distance(strings.ToLower(word), strings.ToLower(c)); d < limit {
			best, bestDistance = c, d
		}
	}
	return best
}

// distance counts the bytes to insert, delete, replace or swap with their
// neighbour to get from a to b (optimal string alignment).
func distance(a, b string) int {
	var before []int
	last := make([]int, len(b)+1)
	for j := range last {
		last[j] = j
	}
	for i := range len(a) {
		row := make([]int, len(b)+1)
		row[0] = i + 1
		for j := range len(b) {
			cost := 1
			if a[i] == b[j] {
				cost = 0
			}
			row[j+1] = min(last[j+1]+1, row[j]+1, last[j]+cost)
			if i > 0 && j > 0 && a[i] == b[j-1] && a[i-1] == b[j] {
				row[j+1] = min(row[j+1], before[j-1]+1)
			}
		}
		before, last = last, row
	}
	return last[len(b)]
}
