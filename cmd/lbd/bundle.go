package main

import (
	"bytes"
	"cmp"
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"strings"
	"time"

	"github.com/spf13/cobra"

	"lbd.dev/lbd/internal/bundle"
	"lbd.dev/lbd/internal/config"
	"lbd.dev/lbd/internal/top"
)

// How long the parts of a bundle may take.
const (
	bundleQuick = 10 * time.Second // files and the kernel
	bundleAsked = 30 * time.Second // the daemon and the network
)

func newBundle() *cobra.Command {
	var f socketFlags
	var output string
	cmd := &cobra.Command{
		Use:   "bundle",
		Short: "Write one archive for a bug report, without secrets",
		Long: `Write one archive for a bug report: what the daemon tells, the configuration, what
preflight finds, facts of the kernel and the last lines of the log. Passwords and keys
are taken out; its README.txt says what is inside. It works without the daemon, too.
It takes up to half a minute.`,
		Example: "  lbd bundle\n  lbd bundle -o - | ssh desk 'cat > m1.tar.gz'",
		Args:    noArgs,
		RunE: func(cmd *cobra.Command, _ []string) error {
			return writeBundle(cmd, &f, output, time.Now().UTC())
		},
	}
	f.add(cmd)
	cmd.Flags().Lookup("config").Usage = "configuration to put in, a file or a directory, which also names the socket"
	cmd.Flags().StringVarP(&output, "output", "o", "", "file to write, - for standard output (default: lbd-bundle-NODE-TIME.tar.gz here)")
	return cmd
}

func writeBundle(cmd *cobra.Command, f *socketFlags, output string, now time.Time) error {
	if output == "-" && isTerminal(cmd.OutOrStdout()) {
		return usageError{errors.New("the archive is no text for a terminal; give a file by -o")}
	}
	shown := config.Show(f.config)
	host, _ := os.Hostname()
	node := cmp.Or(shown.Node, host)
	file := cmp.Or(output, fmt.Sprintf("lbd-bundle-%s-%s.tar.gz", cmp.Or(bundle.Word(node), "node"), now.Format("20060102T150405Z")))
	parts := append([]bundle.Part{
		{Names: []string{"version.txt"}, Limit: bundleQuick, Collect: bundleVersion},
		bundle.Daemon(f.client(), bundleAsked),
		bundle.Configuration(f.config, &shown, bundleQuick),
		{Names: []string{"preflight.txt"}, Limit: bundleAsked, Collect: bundlePreflight(f)},
		bundle.Log(bundleQuick),
	}, bundle.Kernel(bundleQuick)...)
	var missing []bundle.Missing
	write := func(w io.Writer) (err error) {
		missing, err = bundle.Write(cmd.Context(), w, parts, bundle.Options{
			About:   fmt.Sprintf("A bundle of node %s, made by lbd %s at %s.\n", node, programVersion(), now.Format(time.RFC3339)),
			Secrets: shown.Secrets, Notes: blankedLines(shown.Files), Time: now,
		})
		return err
	}
	var err error
	if output == "-" {
		err = write(cmd.OutOrStdout())
	} else if err = bundle.Savable(file); err == nil {
		// Collected before there is a file, so that nothing is left of a process that is killed.
		var archive bytes.Buffer
		if err = write(&archive); err == nil {
			err = bundle.Save(file, func(w io.Writer) error { _, err := archive.WriteTo(w); return err })
		}
	}
	if errors.Is(err, context.Canceled) {
		return errors.New("interrupted; nothing was written")
	}
	if err != nil {
		return err
	}
	for _, m := range missing {
		fmt.Fprintf(cmd.ErrOrStderr(), "%s: lbd bundle: %s: %v\n", levelWarning, m.Name, visible(strings.ReplaceAll(m.Why.Error(), "\n", "; ")))
	}
	if output != "-" {
		fmt.Fprintln(cmd.OutOrStdout(), file)
	}
	fmt.Fprintf(cmd.ErrOrStderr(), "%s: lbd bundle: look through the files before you give them away; README.txt lists them\n", levelNote)
	return nil
}

func bundleVersion(_ context.Context, to *bundle.Sink) error {
	return encode(to.Writer("version.txt"), "yaml", thisVersion())
}

// bundlePreflight writes what preflight prints, as far as it gets.
func bundlePreflight(f *socketFlags) func(context.Context, *bundle.Sink) error {
	return func(ctx context.Context, to *bundle.Sink) error {
		cfg, err := config.Load(f.config)
		if err != nil {
			return err
		}
		out := to.Writer("preflight.txt")
		if err := runPreflight(ctx, out, cfg, f); err != nil {
			fmt.Fprintln(out, err)
		}
		return ctx.Err()
	}
}

// blankedLines say where secrets stand in the files.
func blankedLines(files []config.ShownFile) (notes []string) {
	for _, f := range files {
		if len(f.Blanked) > 0 {
			notes = append(notes, fmt.Sprintf("Blanked of %s: lines %v.", f.Path, f.Blanked))
		}
	}
	return notes
}

// isTerminal tells whether what is written is looked at by somebody.
func isTerminal(w io.Writer) bool {
	f, ok := w.(*os.File)
	return ok && top.IsTerminal(f)
}
