package main

import (
	"errors"
	"fmt"
	"io"
	"os"
	"strings"
	"unicode"

	"github.com/spf13/cobra"
	"golang.org/x/text/width"

	"lbd.dev/lbd/api/v1alpha1"
	"lbd.dev/lbd/internal/config"
	"lbd.dev/lbd/internal/convert"
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
		fmt.Fprintf(v.out, "%s: nothing to check; skipped: %d\n", visible(path), sum.Skipped)
	case sum.Skipped > 0:
		fmt.Fprintf(v.out, "%s: valid; skipped: %d\n", visible(path), sum.Skipped)
	default:
		fmt.Fprintf(v.out, "%s: valid\n", visible(path))
	}
}

// say tells of a finding, or keeps it for the list.
func (v *validation) say(level string, e *config.Error) {
	if v.output == "text" {
		fmt.Fprintf(v.err, "%s: %s\n%s", level, visible(e.Error()), excerpt(e))
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
	text := []rune(visible(e.Excerpt))
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

// visible keeps what others wrote from confusing a terminal. A tab becomes a blank, so that
// the caret is below its character.
func visible(text string) string {
	return strings.Map(func(r rune) rune {
		switch {
		case r == '\t':
			return ' '
		case !unicode.IsGraphic(r):
			return '?'
		}
		return r
	}, text)
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

// maxConvert bounds a file to convert, in bytes.
const maxConvert = 16 << 20

func newConvert() *cobra.Command {
	cmd := &cobra.Command{
		Use:   "convert",
		Short: "Turn the objects and configurations of others into those of lbd: metallb, keepalived, kube-vip",
		Args:  noArgs,
		RunE:  func(cmd *cobra.Command, _ []string) error { return cmd.Help() },
	}
	const how = `in the files, or in the standard input for -, as
objects of lbd.dev on stdout. What is not carried over is a warning on stderr, what
looks otherwise a note, a line each: file, object, field, value, and what it means for
you. Ends with 0 even so, but for --strict; with 1, and without objects, if a part
could not be read. Nothing is contacted.`
	metallb := convertFrom("metallb", "Print the objects of metallb.io in FILE as objects of lbd.dev", "Print the objects of metallb.io "+how, convert.MetalLB)
	metallb.ValidArgsFunction = completeConfig
	keepalived := convertFrom("keepalived", "Print the configuration of keepalived in FILE as objects of lbd.dev",
		"Print what keepalived is configured to do "+how+`
A vrrp_instance becomes a VirtualIP, the virtual_servers of an address become a
LoadBalancer, unicast_peer becomes gossip.peers.`, convert.Keepalived)
	keepalived.ValidArgsFunction = func(*cobra.Command, []string, string) ([]cobra.Completion, cobra.ShellCompDirective) {
		return []cobra.Completion{"conf"}, cobra.ShellCompDirectiveFilterFileExt
	}
	kubeVIP := convertFrom("kube-vip", "Print the manifest of kube-vip in FILE, a static pod or DaemonSet, as objects of lbd.dev",
		"Print what kube-vip is told by its manifests, a static pod or a DaemonSet, "+how+`
The address of the control plane becomes a VirtualIP, BGP peers become BGPPeers.`, convert.KubeVIP)
	kubeVIP.ValidArgsFunction = completeConfig
	cmd.AddCommand(metallb, keepalived, kubeVIP)
	return cmd
}

// convertFrom is the command that converts what another program reads.
func convertFrom(name, short, long string, from func([]convert.File) convert.Result) *cobra.Command {
	var strict bool
	cmd := &cobra.Command{
		Use: name + " FILE...", Short: short, Long: long,
		Args: func(_ *cobra.Command, args []string) error {
			if len(args) == 0 {
				return usageError{errors.New("it wants a file, or - for the standard input")}
			}
			return nil
		},
		RunE: func(cmd *cobra.Command, args []string) error { return convertFiles(cmd, args, from, strict) },
	}
	cmd.Flags().BoolVar(&strict, "strict", false, "end with 1 if anything is not carried over; the objects are printed all the same")
	return cmd
}

func convertFiles(cmd *cobra.Command, args []string, from func([]convert.File) convert.Result, strict bool) error {
	say := func(level string, what any) { fmt.Fprintf(cmd.ErrOrStderr(), "%s: %v\n", level, what) }
	var files []convert.File
	bad, lost := false, false
	for _, name := range args {
		data, err := readInput(cmd.InOrStdin(), name)
		if err != nil {
			say(levelError, err)
			bad = true
			continue
		}
		files = append(files, convert.File{Name: name, Data: data})
	}
	r := from(files)
	for _, n := range r.Notes {
		if n.Kept {
			say(levelNote, n)
			continue
		}
		say(levelWarning, n)
		lost = true
	}
	for _, e := range r.Errors {
		say(levelError, e)
		bad = true
	}
	if bad {
		return errSilent
	}
	out, err := r.YAML()
	if err != nil {
		return err
	}
	if _, err := cmd.OutOrStdout().Write(out); err != nil {
		return err
	}
	if strict && lost {
		return errors.New("--strict: not everything was carried over")
	}
	return nil
}

// readInput reads a file, or the standard input for "-".
func readInput(stdin io.Reader, name string) ([]byte, error) {
	in := stdin
	if name != "-" {
		f, err := os.Open(name)
		if err != nil {
			return nil, err
		}
		defer func() { _ = f.Close() }()
		in = f
	}
	data, err := io.ReadAll(io.LimitReader(in, maxConvert+1))
	if err != nil {
		return nil, err
	}
	if len(data) > maxConvert {
		return nil, fmt.Errorf("%s: is larger than %d MiB", name, maxConvert>>20)
	}
	return data, nil
}
