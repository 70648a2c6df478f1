package main

import (
	"errors"
	"fmt"
	"log/slog"
	"slices"

	"github.com/spf13/cobra"

	"lbd.dev/lbd/internal/address"
	"lbd.dev/lbd/internal/layer2"
	"lbd.dev/lbd/internal/relay"
)

func newCleanup() *cobra.Command {
	var f socketFlags
	var force bool
	cmd := &cobra.Command{
		Use:   "cleanup",
		Short: "Remove what a crashed daemon left: addresses and rules with lbd's mark",
		Long: `Remove the addresses that carry lbd's mark and the nftables tables called lbd and
lbd-relay.
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
			for _, t := range slices.Concat(silent, rings) {
				fmt.Fprintf(cmd.OutOrStdout(), "removed %s\n", t)
			}
			if err := errors.Join(err, errL2, errRelay); err != nil {
				return err
			}
			if len(prefixes)+len(silent)+len(rings) == 0 {
				fmt.Fprintln(cmd.OutOrStdout(), "nothing to remove")
			}
			return nil
		},
	}
	f.add(cmd)
	cmd.Flags().BoolVar(&force, "force", false, "even while a daemon runs")
	return cmd
}
