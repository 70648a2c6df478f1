// Mutate changes the code in small ways, one at a time and chosen at random by a fixed
// seed, and runs the tests that come by what it has changed: a change that no test notices is
// one that a person could make by mistake. The tree itself is not touched. Tools that do the
// same run only the tests of the package that they change; much of election is tested by the
// scripts of decide.
package main

import (
	"context"
	_ "embed"
	"errors"
	"flag"
	"fmt"
	"math/rand/v2"
	"os"
	"os/signal"
	"path/filepath"
	"slices"
	"strings"
	"syscall"
	"time"
)

// folders are what is mutated, and the tests besides their own that must notice.
var folders = map[string][]string{
	"internal/election":   {"internal/decide"},
	"internal/model":      {"internal/decide"},
	"internal/machines":   {"internal/decide", "internal/k8s/machines"},
	"internal/decide":     {"internal/daemon"},
	"internal/agree":      {"internal/config", "internal/services"},
	"internal/resolve":    {"internal/config"},
	"internal/wire":       {"internal/decide"},
	"internal/place":      {"internal/decide"},
	"internal/audience":   {"internal/decide"},
	"internal/membership": {"internal/decide"},
	"internal/ring":       {"internal/decide"},
	"internal/loopback":   {"internal/decide"},
	"internal/sockdiag":   {"internal/address", "internal/relay"},
	"internal/services":   nil, "internal/ipam": nil, "internal/allocator": nil, "internal/convert": nil,
	"internal/address": nil, "internal/layer2": nil, "internal/layer2/arp": nil, "internal/layer2/nd": nil, "internal/layer2/silence": {"internal/layer2"},
	"internal/bgp": nil, "internal/bgp/bfd": nil, "internal/bgp/gobgp": nil, "internal/gossip": nil,
	"internal/gossip/record": {"internal/gossip"}, "internal/gossip/beat": {"internal/gossip"},
	"internal/health": nil, "internal/link": nil, "internal/nft": nil, "internal/relay": nil,
}

// Survivors that change nothing, each with the reason. A line is `name # reason`.
//
//go:embed equivalent.txt
var equivalentFile string

func main() {
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM)
	err := run(ctx)
	stop()
	if err != nil {
		fmt.Fprintln(os.Stderr, "mutate:", err)
		os.Exit(1)
	}
}

func run(ctx context.Context) error {
	count := flag.Int("n", 200, "how many mutants")
	seed := flag.Uint64("seed", 1, "of the choice")
	only := flag.String("only", "", "only folders that contain this")
	goal := flag.Int("goal", 90, "how many of a hundred must be noticed")
	sim := flag.Bool("sim", false, "let the simulation look at survivors of decide and election: minutes for each")
	flag.Parse()
	root, err := filepath.Abs(".")
	if err != nil {
		return err
	}
	known, err := equivalents(equivalentFile)
	if err != nil {
		return err
	}
	all, err := choose(root, *only, *seed)
	if err != nil {
		return err
	}
	b := &bench{root: root, sim: *sim, suites: map[string]*suite{}}
	if b.dir, err = os.MkdirTemp("", "lbd-mutate-"); err != nil {
		return err
	}
	defer func() { _ = os.RemoveAll(b.dir) }()
	noticed, alive, equal := 0, 0, 0
	for i := range all {
		if noticed+alive+equal >= *count {
			break
		}
		m := &all[i]
		from := time.Now()
		how, by, err := b.try(ctx, m)
		switch {
		case err != nil:
			return err
		case how == invalid:
			continue
		case how == found:
			noticed++
		case known[m.name()] != "":
			how, equal = "equivalent: "+known[m.name()], equal+1
		default:
			alive++
		}
		fmt.Printf("%-8s %s:%d: %s (%s, %.0f s)\n", how, m.file, m.line, strings.TrimPrefix(m.name(), m.file+": "), by, time.Since(from).Seconds())
	}
	if noticed+alive == 0 {
		return errors.New("nothing to mutate")
	}
	share := 100 * noticed / (noticed + alive)
	fmt.Printf("%d noticed, %d survived, %d equivalent: %d %%\n", noticed, alive, equal, share)
	if share < *goal {
		return fmt.Errorf("%d %% noticed, the goal is %d %%", share, *goal)
	}
	return nil
}

// equivalents reads the list of survivors that have a reason.
func equivalents(text string) (map[string]string, error) {
	known := map[string]string{}
	for line := range strings.Lines(text) {
		line = strings.TrimSpace(line)
		if line == "" || strings.HasPrefix(line, "#") {
			continue
		}
		name, why, ok := strings.Cut(line, " # ")
		if !ok {
			return nil, fmt.Errorf("equivalent.txt: no reason: %s", line)
		}
		known[name] = why
	}
	return known, nil
}

// choose is every mutant in the order of the seed.
func choose(root, only string, seed uint64) ([]mutant, error) {
	var all []mutant
	var names []string
	for f := range folders {
		if strings.Contains(f, only) {
			names = append(names, f)
		}
	}
	slices.Sort(names)
	for _, f := range names {
		of, err := mutants(root, f)
		if err != nil {
			return nil, err
		}
		all = append(all, of...)
	}
	r := rand.New(rand.NewPCG(seed, 0))
	r.Shuffle(len(all), func(i, j int) { all[i], all[j] = all[j], all[i] })
	return all, nil
}
