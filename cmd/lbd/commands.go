package main

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"net/netip"
	"os"
	"slices"
	"strings"
	"time"

	"github.com/spf13/cobra"
	"sigs.k8s.io/yaml"

	"lbd.dev/lbd/api/v1alpha1"
	"lbd.dev/lbd/internal/address"
	"lbd.dev/lbd/internal/config"
	"lbd.dev/lbd/internal/control"
	"lbd.dev/lbd/internal/forward"
	"lbd.dev/lbd/internal/layer2"
	"lbd.dev/lbd/internal/preflight"
	"lbd.dev/lbd/internal/relay"
	"lbd.dev/lbd/internal/route"
	"lbd.dev/lbd/internal/top"
	"lbd.dev/lbd/internal/wake"
)

// socketFlags choose the daemon that a command talks to.
type socketFlags struct{ socket, config string }

func (f *socketFlags) add(cmd *cobra.Command) {
	cmd.Flags().StringVar(&f.socket, "socket", "", "control socket (default: the one in the configuration)")
	cmd.Flags().StringVar(&f.config, "config", defaultConfig, "configuration in which to look for the socket")
}

// completionTimeout bounds how long a shell waits for a daemon that is frozen.
const completionTimeout = time.Second

// completeVIP completes the names and addresses of the VIPs that the daemon knows.
func (f *socketFlags) completeVIP(cmd *cobra.Command, args []string, _ string) ([]cobra.Completion, cobra.ShellCompDirective) {
	if len(args) > 0 {
		return nil, cobra.ShellCompDirectiveNoFileComp
	}
	ctx, cancel := context.WithTimeout(cmd.Context(), completionTimeout)
	defer cancel()
	s, err := f.client().Status(ctx)
	if err != nil {
		return nil, cobra.ShellCompDirectiveNoFileComp
	}
	var out []cobra.Completion
	for _, v := range s.VIPs {
		out = append(out, cobra.CompletionWithDesc(v.Name, v.Kind), cobra.CompletionWithDesc(v.Address, v.Name))
	}
	slices.Sort(out)
	return slices.Compact(out), cobra.ShellCompDirectiveNoFileComp
}

// addOutput adds the flag -o: readable, by default, json or yaml. Another value is a fault of
// usage.
func addOutput(cmd *cobra.Command, output *string, readable string) {
	formats := []string{readable, "json", "yaml"}
	cmd.Flags().StringVarP(output, "output", "o", readable, readable+", json or yaml")
	complete(cmd, "output", formats...)
	cmd.PreRunE = func(*cobra.Command, []string) error {
		if !slices.Contains(formats, *output) {
			return usageError{fmt.Errorf("-o %q: it is %s, json or yaml", *output, readable)}
		}
		return nil
	}
}

func complete(cmd *cobra.Command, flag string, values ...string) {
	if err := cmd.RegisterFlagCompletionFunc(flag, cobra.FixedCompletions(values, cobra.ShellCompDirectiveNoFileComp)); err != nil {
		panic(err) // the flag does not exist
	}
}

// freeFlags are the flags whose value is neither a file nor one of a few.
var freeFlags = []string{"client", "context", "duration", "hook-timeout", "http", "image", "lease-name", "load-balancer-class", "namespace", "quarantine", "secret", "tenant", "timeout"}

// completeNothing keeps the shell from completing names of files where a command takes none.
func completeNothing(cmd *cobra.Command) {
	if cmd.ValidArgsFunction == nil && cmd.Name() != "completion" && cmd.Name() != "help" {
		cmd.ValidArgsFunction = cobra.NoFileCompletions
	}
	for _, name := range freeFlags {
		if cmd.Flags().Lookup(name) != nil {
			complete(cmd, name)
		}
	}
	for _, c := range cmd.Commands() {
		completeNothing(c)
	}
}

// completeConfig completes names of configuration files.
func completeConfig(*cobra.Command, []string, string) ([]cobra.Completion, cobra.ShellCompDirective) {
	return []cobra.Completion{"yaml", "yml", "json"}, cobra.ShellCompDirectiveFilterFileExt
}

// client finds the socket: the flag, else the configuration, else the default. A
// configuration that is being edited must not keep anybody from looking; but if
// nobody answers at the default, the error says that it was a guess.
func (f *socketFlags) client() *control.Client {
	if f.socket != "" {
		return control.NewClient(f.socket)
	}
	cfg, err := config.Load(f.config)
	if err == nil {
		return control.NewClient(cfg.Node.Socket)
	}
	first, more, _ := strings.Cut(err.Error(), "\n")
	if more != "" {
		first += "; `lbd validate " + f.config + "` shows more"
	}
	return control.NewClient(v1alpha1.DefaultSocket).Guessed("no configuration names the socket: " + first)
}

func newStatus() *cobra.Command {
	var f socketFlags
	var output, tenant string
	var watch, all bool
	cmd := &cobra.Command{
		Use:   "status",
		Short: "Show what this node sees: members, VIPs with owner and reason, BGP and BFD sessions, health",
		Args:  noArgs,
		RunE: func(cmd *cobra.Command, _ []string) error {
			v := view{client: f.client(), out: cmd.OutOrStdout(), format: output,
				table: func(out io.Writer, s v1alpha1.NodeStatus) error { return control.RenderStatus(out, s, all) },
				part:  func(s v1alpha1.NodeStatus) any { return s }}
			if tenant != "" {
				v.narrow = func(s v1alpha1.NodeStatus) (v1alpha1.NodeStatus, error) { return control.OfTenant(s, tenant) }
			}
			return v.run(cmd.Context(), watch)
		},
	}
	f.add(cmd)
	addOutput(cmd, &output, "table")
	addWatch(cmd, &watch)
	cmd.Flags().BoolVarP(&all, "all", "a", false, "show each row of long tables, not only how many are well")
	cmd.Flags().StringVar(&tenant, "tenant", "", "of VIPs, checks and backends show those of this tenant alone")
	cmd.AddCommand(newStatusBGP())
	return cmd
}

// newAsk is a command without arguments that asks the daemon for one thing.
func newAsk(use, short, long string, ask func(ctx context.Context, c *control.Client, out io.Writer) error) *cobra.Command {
	var f socketFlags
	cmd := &cobra.Command{
		Use: use, Short: short, Long: long, Args: noArgs,
		RunE: func(cmd *cobra.Command, _ []string) error {
			return ask(cmd.Context(), f.client(), cmd.OutOrStdout())
		},
	}
	f.add(cmd)
	return cmd
}

func newStatusBGP() *cobra.Command {
	var f socketFlags
	var output string
	var watch bool
	cmd := &cobra.Command{
		Use: "bgp", Short: "Show every BGP session with its timers, its last error and what the peer is told", Args: noArgs,
		RunE: func(cmd *cobra.Command, _ []string) error {
			v := view{client: f.client(), out: cmd.OutOrStdout(), format: output, table: control.RenderBGP,
				part: func(s v1alpha1.NodeStatus) any { return append([]v1alpha1.BGPStatus{}, s.BGP...) }} // [] and never null
			return v.run(cmd.Context(), watch)
		},
	}
	f.add(cmd)
	addOutput(cmd, &output, "table")
	addWatch(cmd, &watch)
	return cmd
}

func addWatch(cmd *cobra.Command, watch *bool) {
	cmd.Flags().BoolVarP(watch, "watch", "w", false, "show it again every second until interrupted")
}

// view shows a part of the status, as a table for people or as a document for programs.
type view struct {
	client *control.Client
	out    io.Writer
	format string
	table  func(io.Writer, v1alpha1.NodeStatus) error
	part   func(v1alpha1.NodeStatus) any
	// narrow leaves out what is not asked for; nil: nothing.
	narrow func(v1alpha1.NodeStatus) (v1alpha1.NodeStatus, error)
}

func (v *view) show(ctx context.Context) error {
	s, err := v.client.Status(ctx)
	if err == nil && v.narrow != nil {
		s, err = v.narrow(s)
	}
	switch {
	case err != nil:
		return err
	case v.format == "table":
		return v.table(v.out, s)
	}
	return encode(v.out, v.format, v.part(s))
}

// run shows it once, or again and again: the table in place, for programs one document after
// another.
func (v *view) run(ctx context.Context, watch bool) error {
	if !watch {
		return v.show(ctx)
	}
	for {
		if v.format == "table" {
			fmt.Fprint(v.out, "\x1b[H\x1b[2J")
		}
		if v.format == "yaml" {
			fmt.Fprintln(v.out, "---")
		}
		if err := v.show(ctx); err != nil {
			if ctx.Err() != nil {
				return nil
			}
			if v.format != "table" {
				return err
			}
			fmt.Fprintf(v.out, "%s: %s\n", levelError, visible(err.Error()))
		}
		if !wake.Sleep(ctx, time.Second) {
			return nil
		}
	}
}

func encode(out io.Writer, format string, v any) error {
	if format == "json" {
		e := json.NewEncoder(out)
		e.SetIndent("", "  ")
		return e.Encode(v)
	}
	b, err := yaml.Marshal(v)
	if err != nil {
		return err
	}
	_, err = out.Write(b)
	return err
}

func newExplain() *cobra.Command {
	var f socketFlags
	var output, client string
	cmd := &cobra.Command{
		Use:   "explain VIP[:PORT]",
		Short: "Show the candidates of a VIP and why each is, or is not, the owner",
		Long: "Show the candidates of a VIP, named by object or address, their rank, and why each is, or is not, the owner. " +
			"For a LoadBalancer also its backends, what each of them gets, and with --client which of them a new connection of that client goes to.",
		Example: "  lbd explain control-plane\n  lbd explain 10.0.0.200:443 --client 10.0.9.7:51234",
		Args:    exactArgs(1, "the name or the address of one VIP"),
		RunE: func(cmd *cobra.Command, args []string) error {
			if !isClient(client) {
				return usageError{fmt.Errorf("--client %q: it is ADDRESS or ADDRESS:PORT", client)}
			}
			list, err := f.client().Explain(cmd.Context(), args[0], client)
			if err != nil {
				return err
			}
			if output == "table" {
				return control.RenderExplain(cmd.OutOrStdout(), list)
			}
			return encode(cmd.OutOrStdout(), output, list)
		},
		ValidArgsFunction: f.completeVIP,
	}
	f.add(cmd)
	addOutput(cmd, &output, "table")
	cmd.Flags().StringVar(&client, "client", "", "address and port of a client of a LoadBalancer")
	return cmd
}

// isClient tells whether a text is an address, with or without a port, or empty.
func isClient(text string) bool {
	_, bare := netip.ParseAddr(text)
	_, port := netip.ParseAddrPort(text)
	return text == "" || bare == nil || port == nil
}

func newDrain() *cobra.Command {
	var f socketFlags
	var timeout time.Duration
	cmd := &cobra.Command{
		Use:   "drain",
		Short: "Hand every VIP of this node over and return when it is done",
		Long: `Hand every VIP of this node over and return when each is owned elsewhere. Without
a successor a VIP stays where it is, and the command ends with 1 and says why.
The node goes on draining until 'lbd undrain' or a restart of the daemon.`,
		Args: noArgs,
		RunE: func(cmd *cobra.Command, _ []string) error {
			if timeout <= 0 {
				return usageError{errors.New("--timeout must be above 0")}
			}
			say := func(line string) { fmt.Fprintf(cmd.ErrOrStderr(), "%s: lbd drain: %s\n", levelNote, visible(line)) }
			if err := f.client().Drain(cmd.Context(), timeout, say); err != nil {
				return err
			}
			fmt.Fprintln(cmd.OutOrStdout(), "drained: no VIP is owned by this node")
			return nil
		},
	}
	f.add(cmd)
	cmd.Flags().DurationVar(&timeout, "timeout", 30*time.Second, "how long to wait")
	return cmd
}

func newUndrain() *cobra.Command {
	return newAsk("undrain", "Let this node own VIPs again", "",
		func(ctx context.Context, c *control.Client, out io.Writer) error {
			if err := c.Undrain(ctx); err != nil {
				return err
			}
			fmt.Fprintln(out, "this node may own VIPs again")
			return nil
		})
}

func newCleanup() *cobra.Command {
	var f socketFlags
	var force bool
	cmd := &cobra.Command{
		Use:   "cleanup",
		Short: "Remove what a crashed daemon left: addresses, rules and routes with lbd's mark",
		Long: `Remove the addresses, routes and next hops that carry lbd's mark and the nftables
tables called lbd, lbd-relay, lbd-forward and lbd-route.
Nothing else is touched. It is seldom needed: addresses of a dead daemon leave the
kernel by themselves within seconds, and a daemon that starts cleans up first.`,
		Args: noArgs,
		RunE: func(cmd *cobra.Command, _ []string) error {
			if _, err := f.client().Status(cmd.Context()); err == nil && !force {
				return errors.New("a daemon runs and would put everything back; stop it first, or give --force")
			}
			prefixes, err := address.Cleanup(cmd.Context(), slog.New(slog.DiscardHandler))
			silent, errL2 := layer2.Cleanup(cmd.Context())
			rings, errRelay := relay.Cleanup(cmd.Context())
			for _, p := range prefixes {
				fmt.Fprintf(cmd.OutOrStdout(), "removed %s\n", p)
			}
			forwarded, errForward := forward.Cleanup(cmd.Context())
			routed, errRoute := route.Cleanup(cmd.Context())
			removed := slices.Concat(silent, rings, forwarded, routed)
			for _, r := range removed {
				fmt.Fprintf(cmd.OutOrStdout(), "removed %s\n", r)
			}
			if err := errors.Join(err, errL2, errRelay, errForward, errRoute); err != nil {
				return err
			}
			if len(prefixes)+len(removed) == 0 {
				fmt.Fprintln(cmd.OutOrStdout(), "nothing to remove")
			}
			return nil
		},
	}
	f.add(cmd)
	cmd.Flags().BoolVar(&force, "force", false, "even while a daemon runs")
	return cmd
}

func newPreflight() *cobra.Command {
	var f socketFlags
	cmd := &cobra.Command{
		Use:   "preflight",
		Short: "Check that this node can do what its configuration asks for",
		Long: `Check that this node can do what its configuration asks for: capabilities, ports,
sysctls, interfaces, whether somebody uses a VIP already, and whether the peers can
be reached with the same key. It changes nothing and may run beside the daemon.`,
		Args: noArgs,
		RunE: func(cmd *cobra.Command, _ []string) error {
			cfg, err := config.Load(f.config)
			if err != nil {
				return err
			}
			return runPreflight(cmd.Context(), cmd.OutOrStdout(), cfg, &f)
		},
	}
	f.add(cmd)
	cmd.Flags().Lookup("config").Usage = "configuration to check, a file or a directory, which also names the socket"
	return cmd
}

// runPreflight prints all checks; an error says that some failed.
func runPreflight(ctx context.Context, out io.Writer, cfg *config.Config, f *socketFlags) error {
	status, err := f.client().Status(ctx)
	if err != nil {
		return preflight.Run(ctx, out, cfg, f.config, nil)
	}
	return preflight.Run(ctx, out, cfg, f.config, &status)
}

func newTop() *cobra.Command {
	var f socketFlags
	cmd := &cobra.Command{
		Use:   "top",
		Short: "Watch what this node sees on a terminal, with keys to move, filter and explain",
		Long: `Watch what this node sees on a terminal: VIPs, members, health checks, BGP sessions,
backends and the newest events, again every second. Enter explains a VIP, / filters,
? shows the keys, q ends it. NO_COLOR in the environment turns colours off.`,
		Args: noArgs,
		RunE: func(cmd *cobra.Command, _ []string) error {
			out, ok := cmd.OutOrStdout().(*os.File)
			if !ok || !top.IsTerminal(out) || !top.IsTerminal(os.Stdin) || os.Getenv("TERM") == "dumb" {
				return usageError{errors.New("it wants a terminal for its input and output; use `lbd status -w`")}
			}
			return top.Run(cmd.Context(), os.Stdin, out, f.client(), os.Getenv("NO_COLOR") == "")
		},
	}
	f.add(cmd)
	return cmd
}
