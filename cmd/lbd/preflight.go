package main

import "github.com/spf13/cobra"

func newPreflight() *cobra.Command { return &cobra.Command{Use: "preflight"} }
