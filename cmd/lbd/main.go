// TCP MD5 (RFC 2385) does not work on a multipath TCP socket, which is what Go
// listens on unless told otherwise: the kernel refuses the key, and a BGP peer
// with a password could never connect.
//go:debug multipathtcp=0

// Command lbd keeps addresses of on-premises Kubernetes reachable: one daemon a
// node, and the commands to look into it.
package main

import (
	"context"
	"errors"
	"fmt"
	"os"
	"os/signal"
	"runtime"
	"runtime/debug"
	"strings"
	"syscall"
	"time"

	"github.com/spf13/cobra"

	"lbd.dev/lbd/internal/logqueue"
)

// version and commit are set by the linker in releases.
var version, commit string

// The exit codes.
const (
	exitDone    = 0
	exitRefused = 1 // refused or failed, with one line that says what to do
	exitUsage   = 2
)

func main() {
	os.Exit(run(os.Args[1:]))
}

// usageError marks errors in how a command was called.
type usageError struct{ error }

// errSilent ends a command with 1 without a word: it has said all already.
var errSilent = errors.New("")

func run(args []string) int {
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM)
	defer stop()
	context.AfterFunc(ctx, stop) // a second signal ends the process at once
	root := newRoot()
	root.SetArgs(args)
	cmd, err := root.ExecuteContextC(ctx)
	switch {
	case err == nil:
		return exitDone
	case errors.As(err, new(usageError)):
		lastWord(complaint(cmd, err) + fmt.Sprintf("Run '%s --help' for how to call it.\n", cmd.CommandPath()))
		return exitUsage
	case err == errSilent:
		return exitRefused
	}
	lastWord(complaint(cmd, err))
	return exitRefused
}

// What lines on stderr begin with. The first two are levels of findings, too.
const (
	levelError   = "error"
	levelWarning = "warning"
	levelNote    = "note" // nothing need be done
)

// complaint is an error as a command tells it: every line has the prefix and the command.
func complaint(cmd *cobra.Command, err error) string {
	var b strings.Builder
	for line := range strings.Lines(strings.TrimSpace(err.Error())) {
		fmt.Fprintf(&b, "%s: %s: %s\n", levelError, cmd.CommandPath(), visible(strings.TrimSuffix(line, "\n")))
	}
	return b.String()
}

// lastWord writes to stderr, but does not keep the process from ending if nobody reads it.
func lastWord(text string) {
	written := make(chan struct{})
	go func() {
		fmt.Fprint(os.Stderr, text)
		close(written)
	}()
	select {
	case <-written:
	case <-time.After(logqueue.Flush):
	}
}

func newRoot() *cobra.Command {
	root := &cobra.Command{
		Use:   "lbd",
		Short: "Keeps addresses of on-premises Kubernetes reachable",
		Long: `lbd keeps addresses of on-premises Kubernetes reachable: the control-plane VIP,
before kubeadm init and ever after, without Kubernetes, etcd or VRRP.

One daemon runs on each node (lbd run). The daemons elect an owner for each VIP,
the owner binds and announces it, and another takes over when it must.`,
		SilenceErrors: true,
		SilenceUsage:  true,
		Args:          noArgs,
	}
	printVersion := root.Flags().Bool("version", false, "print the version")
	// Not cobra's own flag: its template would bring the engine of templates, see TAGS in the Makefile.
	root.RunE = func(cmd *cobra.Command, _ []string) error {
		if *printVersion {
			return text(cmd, programVersion()+"\n")
		}
		return cmd.Help()
	}
	root.SetFlagErrorFunc(func(_ *cobra.Command, err error) error { return usageError{err} })
	root.AddCommand(
		newRun(), newController(), newAgent(), newTenant(), newValidate(), newStatus(), newTop(), newExplain(), newEvents(), newDrain(), newUndrain(), newReload(), newRestart(),
		newPreflight(), newManifest(), newConvert(), newKeygen(), newCleanup(), newBundle(), newVersion(),
	)
	root.InitDefaultCompletionCmd()
	root.InitDefaultHelpCmd()
	refuseUnknown(root)
	completeNothing(root)
	return root
}

// refuseUnknown has cobra's own commands treat names that do not exist as ours do.
func refuseUnknown(root *cobra.Command) {
	for _, cmd := range root.Commands() {
		switch cmd.Name() {
		case "completion":
			cmd.Args, cmd.RunE = noArgs, func(cmd *cobra.Command, _ []string) error { return cmd.Help() }
		case "help":
			cmd.Args = func(_ *cobra.Command, args []string) error {
				asked, rest, err := root.Find(args)
				if err != nil {
					return usageError{err}
				}
				return noArgs(asked, rest)
			}
		}
	}
}

// noArgs refuses arguments as a fault of usage.
func noArgs(cmd *cobra.Command, args []string) error {
	if len(args) > 0 {
		words := fmt.Sprintf("%q is no command or argument of it", args[0])
		cmd.SuggestionsMinimumDistance = 2
		if like := cmd.SuggestionsFor(args[0]); len(like) > 0 {
			words += "; did you mean " + strings.Join(like, " or ") + "?"
		}
		return usageError{errors.New(words)}
	}
	return nil
}

// exactArgs wants n arguments, called what in the message.
func exactArgs(n int, what string) cobra.PositionalArgs {
	return func(cmd *cobra.Command, args []string) error {
		if len(args) != n {
			return usageError{errors.New("it wants " + what)}
		}
		return nil
	}
}

// versions is what `lbd version -o json` prints.
type versions struct {
	Version string `json:"version"`
	// Commit is that of the sources; empty if it is not known.
	Commit   string `json:"commit,omitempty"`
	Go       string `json:"go"`
	Platform string `json:"platform"`
}

func newVersion() *cobra.Command {
	var output string
	cmd := &cobra.Command{
		Use: "version", Short: "Print the version", Args: noArgs,
		RunE: func(cmd *cobra.Command, _ []string) error {
			if output == "text" {
				return text(cmd, programVersion()+"\n")
			}
			return encode(cmd.OutOrStdout(), output, thisVersion())
		},
	}
	addOutput(cmd, &output, "text")
	return cmd
}

func thisVersion() versions {
	return versions{programVersion(), programCommit(), runtime.Version(), runtime.GOOS + "/" + runtime.GOARCH}
}

// programVersion is that of the release, or what the module says of itself.
func programVersion() string {
	if version != "" {
		return version
	}
	if b, ok := debug.ReadBuildInfo(); ok && b.Main.Version != "" {
		return b.Main.Version
	}
	return "(devel)"
}

// programCommit is that of the release, or of the repository that the program was built in;
// empty if it is not known.
func programCommit() string {
	if b, ok := debug.ReadBuildInfo(); ok && commit == "" {
		for _, s := range b.Settings {
			if s.Key == "vcs.revision" {
				return s.Value
			}
		}
	}
	return commit
}
