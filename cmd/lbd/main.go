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
	"runtime/debug"
	"strings"
	"syscall"
	"time"

	"github.com/spf13/cobra"
)

// version is set by the linker in releases.
var version = ""

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
	err := root.ExecuteContext(ctx)
	switch {
	case err == nil:
		return exitDone
	case errors.As(err, new(usageError)):
		lastWord(fmt.Sprintf("lbd: %v\nRun 'lbd --help' for how to call it.\n", err))
		return exitUsage
	case err == errSilent:
		return exitRefused
	}
	lastWord(fmt.Sprintf("lbd: %s\n", strings.TrimSpace(err.Error())))
	return exitRefused
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
	case <-time.After(logFlush):
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
		RunE:          func(cmd *cobra.Command, _ []string) error { return cmd.Help() },
	}
	root.SetFlagErrorFunc(func(_ *cobra.Command, err error) error { return usageError{err} })
	root.AddCommand(
		newRun(), newController(), newValidate(), newStatus(), newExplain(), newDrain(), newUndrain(), newReload(), newRestart(),
		newPreflight(), newManifest(), newConvert(), newKeygen(), newCleanup(), newVersion(),
	)
	root.InitDefaultCompletionCmd()
	return root
}

// noArgs refuses arguments as a fault of usage.
func noArgs(cmd *cobra.Command, args []string) error {
	if len(args) > 0 {
		return usageError{fmt.Errorf("%q: %s has no such command or argument", args[0], cmd.CommandPath())}
	}
	return nil
}

// exactArgs wants n arguments, called what in the message.
func exactArgs(n int, what string) cobra.PositionalArgs {
	return func(cmd *cobra.Command, args []string) error {
		if len(args) != n {
			return usageError{fmt.Errorf("%s wants %s", cmd.CommandPath(), what)}
		}
		return nil
	}
}

func newVersion() *cobra.Command {
	return &cobra.Command{
		Use: "version", Short: "Print the version", Args: noArgs,
		Run: func(cmd *cobra.Command, _ []string) { fmt.Fprintln(cmd.OutOrStdout(), programVersion()) },
	}
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
