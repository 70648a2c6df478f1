package main

import (
	"errors"
	"os"

	"github.com/spf13/cobra"

	"lbd.dev/lbd/internal/top"
)

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
