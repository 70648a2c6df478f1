package main

import (
	"errors"
	"fmt"
	"io"
	"strings"
	"unicode"

	"github.com/spf13/cobra"
	"golang.org/x/text/width"

	"lbd.dev/lbd/api/v1alpha1"
	"lbd.dev/lbd/internal/config"
)

// validation is one run of `lbd validate`.
type validation struct {
	strict, skipForeign bool
	output              string
	out, err            io.Writer

	bad, warned bool
	findings    []finding // for programs
}

// finding is an element of the list that `lbd validate -o json` prints.
type finding struct {
	File string `json:"file"`
	// Line and Column count from 1, Column in characters; 0: about the whole file, or not known.
	Line   int `json:"line"`
	Column int `json:"column"`
	// Field is the path of the field in its object; empty: about the whole object or file.
	Field string `json:"field"`
	// Level is error or warning.
	Level string `json:"level"`
	// Message names the object and the field, too.
	Message string `json:"message"`
}

func newValidate() *cobra.Command {
	var v validation
	cmd := &cobra.Command{
		Use:   "validate FILE|DIR|-...",
		Short: "Check configuration files and print every error",
		Long: `Check configuration files and print every error, each with file, line, object,
path and rule, and the line itself unless it may hold a secret. Nothing is contacted
and no daemon need run. A - stands for standard input, as in
kubectl get virtualips -o yaml | lbd validate -`,
		Args: func(_ *cobra.Command, args []string) error {
			if len(args) == 0 {
				return usageError{errors.New("it wants a file or a directory")}
			}
			return nil
		},
		ValidArgsFunction: completeConfig,
		RunE: func(cmd *cobra.Command, args []string) error {
			v.out, v.err = cmd.OutOrStdout(), cmd.ErrOrStderr()
			for _, a := range args {
				v.check(a)
			}
			if v.output != "text" {
				if err := encode(v.out, v.output, append([]finding{}, v.findings...)); err != nil { // [] and never null
					return err
				}
			}
			switch {
			case v.bad:
				return errSilent
			case v.strict && v.warned:
				return errors.New("--strict refuses what is warned about")
			}
			return nil
		},
	}
	addOutput(cmd, &v.output, "text")
	cmd.Flags().BoolVar(&v.strict, "strict", false, "refuse what is warned about, too")
	cmd.Flags().BoolVar(&v.skipForeign, "skip-foreign", false, "pass over objects of other API groups, and those of lbd that are for clusters only")
	return cmd
}

// check looks at one argument.
func (v *validation) check(path string) {
	var options []config.Option
	if v.skipForeign {
		options = append(options, config.SkipForeign)
	}
	sum, err := config.Validate(path, options...)
	for _, w := range sum.Warnings {
		v.warned = true
		v.say(levelWarning, w)
	}
	for _, e := range sum.Errors {
		v.say(levelError, e)
	}
	switch {
	case err != nil:
		v.bad = true
	case sum.Objects == 0 && sum.Skipped == 0:
		v.bad = true
		v.say(levelError, &config.Error{File: path, Field: v1alpha1.FieldError{
			Rule: "has no document, so there is nothing to check; `lbd manifest config` prints a configuration to start from"}})
	case v.output != "text", v.strict && len(sum.Warnings) > 0:
	case sum.Objects == 0:
		fmt.Fprintf(v.out, "%s: nothing to check; skipped: %d\n", path, sum.Skipped)
	case sum.Skipped > 0:
		fmt.Fprintf(v.out, "%s: valid; skipped: %d\n", path, sum.Skipped)
	default:
		fmt.Fprintf(v.out, "%s: valid\n", path)
	}
}

// say tells of a finding, or keeps it for the list.
func (v *validation) say(level string, e *config.Error) {
	if v.output == "text" {
		fmt.Fprintf(v.err, "%s: %v\n%s", level, e, excerpt(e))
		return
	}
	message := e.Field.Error()
	if e.Object != "" {
		message = e.Object + ": " + message
	}
	v.findings = append(v.findings, finding{File: e.File, Line: e.Line, Column: e.Column, Field: e.Field.Path, Level: level, Message: message})
}

const (
	// maxExcerpt is how much of a line is shown, in characters.
	maxExcerpt = 100
	// beforeCaret is how much of a longer line is shown before the fault.
	beforeCaret = 60
)

// excerpt shows the line of an error with a caret under its column; "" if the line may not be
// shown.
func excerpt(e *config.Error) string {
	if e.Excerpt == "" {
		return ""
	}
	text := []rune(strings.Map(printable, e.Excerpt))
	caret := max(e.Column-1, 0) // the index of the character above the caret
	if len(text) > maxExcerpt && caret > beforeCaret {
		text = append([]rune("…"), text[min(caret-beforeCaret, len(text)):]...)
		caret = beforeCaret + 1
	}
	if len(text) > maxExcerpt {
		text = append(text[:maxExcerpt:maxExcerpt], '…')
	}
	number := fmt.Sprintf("%5d", e.Line)
	out := strings.TrimRight(number+" | "+string(text), " ") + "\n"
	if e.Column > 0 && caret <= len(text) {
		out += strings.Repeat(" ", len(number)) + " | " + strings.Repeat(" ", columns(text[:caret])) + "^\n"
	}
	return out
}

// printable keeps what others wrote from confusing a terminal. A tab becomes a blank, so that
// the caret is below its character.
func printable(r rune) rune {
	switch {
	case r == '\t':
		return ' '
	case !unicode.IsGraphic(r):
		return '?'
	}
	return r
}

// columns is how wide a text is on a terminal.
func columns(text []rune) (n int) {
	for _, r := range text {
		switch kind := width.LookupRune(r).Kind(); {
		case unicode.In(r, unicode.Mn, unicode.Me): // they are drawn over the one before
		case kind == width.EastAsianWide, kind == width.EastAsianFullwidth:
			n += 2
		default:
			n++
		}
	}
	return n
}
