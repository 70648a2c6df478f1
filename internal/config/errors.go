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
