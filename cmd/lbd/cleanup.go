package main

import (
	"errors"
	"fmt"
	"log/slog"

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
			removed, err := address.Cleanup(cmd.Context(), slog.New(slog.DiscardHandler))
			for _, p := range removed {
				fmt.Fprintf(cmd.OutOrStdout(), "removed %s\n", p)
			}
			if err := errors.Join(err, layer2.Cleanup(cmd.Context()), relay.Cleanup(cmd.Context())); err != nil {
				return err
			}
			if len(removed) == 0 {
				fmt.Fprintln(cmd.OutOrStdout(), "nothing to remove")
			}
			return nil
		},
	}
	f.add(cmd)
	cmd.Flags().BoolVar(&force, "force", false, "even while a daemon runs")
	return cmd
}
