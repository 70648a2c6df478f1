package main

import (
	"errors"
	"fmt"
	"io"
	"os"

	"github.com/spf13/cobra"

	"lbd.dev/lbd/internal/convert"
)

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
