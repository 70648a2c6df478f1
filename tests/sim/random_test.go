package sim

import (
	"flag"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"testing"
	"time"

	"pgregory.net/rapid"

	"lbd.dev/lbd/internal/lbdtest"
)

var save = flag.String("save", "", "name under which the shrunken failure of TestRandom is kept in testdata/scenarios")

// gaps between two things that happen: from at once to settled.
var gaps = []time.Duration{
	0, time.Millisecond, 10 * time.Millisecond, 50 * time.Millisecond, 120 * time.Millisecond, 200 * time.Millisecond,
	300 * time.Millisecond, 500 * time.Millisecond, time.Second, 3 * time.Second, 3400 * time.Millisecond, 5 * time.Second,
}

// draw makes a scenario: faults in any order, at times a rest, in the end all
// well again.
func draw(t *rapid.T) *Scenario {
	s := &Scenario{Options: Options{
		Nodes: 5, VIPs: VIPs(20), Seed: rapid.Uint64Range(1, 1000).Draw(t, "seed"),
	}}
	for i := range s.Options.VIPs {
		switch {
		case i == 3 || i == 4:
			properties[0].set(&s.Options.VIPs[i])
		case i == 5:
			properties[1].set(&s.Options.VIPs[i])
		case i > 15:
			properties[2].set(&s.Options.VIPs[i])
		}
	}
	s.Options.Drain = rapid.SampledFrom([]time.Duration{0, 2 * time.Second}).Draw(t, "drain")
	s.Options.Loss = rapid.SampledFrom([]float64{0, 0, 0.01, 0.05}).Draw(t, "loss")
	all := []string{"m1", "m2", "m3", "m4", "m5"}
	s.add(0, "start", all...)
	s.add(0, "quiet", "10s")
	s.steps(t, all, []string{
		"start", "crash", "kill", "stop", "freeze", "thaw", "drain", "undrain", "sick", "well", "unplug", "plug",
		"cut-wire", "cut-gossip", "cut", "heal", "remove", "unconfigure", "configure", "quiet", "start", "heal", "thaw", "plug",
	})
	return s
}

// drawBGP makes one in which BGP advertises nearly every VIP and layer 2 some of them,
// some of those Balanced.
func drawBGP(t *rapid.T) *Scenario {
	s := &Scenario{Options: Options{Nodes: 3, VIPs: mixed(2), Seed: rapid.Uint64Range(1, 1000).Draw(t, "seed")}}
	properties[2].set(&s.Options.VIPs[rapid.IntRange(0, 3).Draw(t, "unchecked")])
	properties[1].set(&s.Options.VIPs[1])
	for i := range s.Options.VIPs[:2] {
		v := &s.Options.VIPs[i]
		if v.Balanced = rapid.Bool().Draw(t, "balanced"); v.Balanced && rapid.Bool().Draw(t, "alone") {
			v.BGP = nil
		}
	}
	s.Options.Routers = rapid.SampledFrom([][]lbdtest.RouterKind{
		nil, {lbdtest.RouterGraceful}, {lbdtest.RouterBFD}, {lbdtest.RouterPlain},
	}).Draw(t, "routers")
	all := []string{"m1", "m2", "m3"}
	s.add(0, "start", all...)
	s.add(0, "quiet", "10s")
	s.steps(t, all, []string{
		"start", "crash", "kill", "stop", "freeze", "thaw", "drain", "undrain", "sick", "well", "unplug", "plug",
		"cut", "heal", "remove", "remove-lo", "remove-lo", "unconfigure", "configure", "quiet", "start", "start", "kill", "thaw",
	})
	return s
}

// steps adds faults, and in the end all is well.
func (s *Scenario) steps(t *rapid.T, all, verbs []string) {
	node := rapid.SampledFrom(all)
	for i := range rapid.IntRange(1, 12).Draw(t, "steps") {
		after := rapid.SampledFrom(gaps).Draw(t, "after")
		switch verb := rapid.SampledFrom(verbs).Draw(t, "verb"); verb {
		case "heal":
			s.add(after, verb)
		case "quiet":
			s.add(after, verb, "30s")
		case "remove", "remove-lo", "unconfigure", "configure":
			s.add(after, verb, "v"+strconv.Itoa(rapid.IntRange(1, len(s.Options.VIPs)).Draw(t, "vip")))
		case "cut-wire", "cut-gossip", "cut":
			s.add(after, verb, slices.Compact(slices.Sorted(slices.Values(rapid.SliceOfN(node, 1, 2).Draw(t, fmt.Sprint("side", i)))))...)
		default:
			s.add(after, verb, node.Draw(t, "node"))
		}
	}
	s.add(0, "quiet", "30s")
	s.add(0, "heal")
	for _, verb := range []string{"thaw", "plug", "undrain", "well", "start"} {
		s.add(0, verb, all...)
	}
	s.add(0, "quiet", "30s")
}

func (s *Scenario) add(after time.Duration, verb string, args ...string) {
	s.Steps = append(s.Steps, Step{after, verb, args})
}

// TestRandom looks for a scenario that breaks an invariant. LBD_SIM_CHECKS asks
// for more than the usual number; -save keeps what was found.
func TestRandom(t *testing.T) { search(t, draw, 25) }

// TestRandomBGP is the same with BGP, alone and beside layer 2.
func TestRandomBGP(t *testing.T) { search(t, drawBGP, 18) }

// search does not run in parallel: the settings of rapid are global.
func search(t *testing.T, draw func(*rapid.T) *Scenario, usual int) {
	checks, seed := strconv.Itoa(usual), "1" // the same every time; a search takes others
	if testing.Short() {
		checks = "5"
	}
	if s := os.Getenv("LBD_SIM_CHECKS"); s != "" {
		checks, seed = s, "0"
	}
	if err := flag.Set("rapid.seed", seed); err != nil {
		t.Fatal(err)
	}
	if err := flag.Set("rapid.checks", checks); err != nil {
		t.Fatal(err)
	}
	if err := flag.Set("rapid.nofailfile", "true"); err != nil {
		t.Fatal(err)
	}
	rapid.Check(t, func(rt *rapid.T) {
		s := draw(rt)
		failures, trace := s.Play(t)
		if len(failures) == 0 {
			return
		}
		s.Comment = failures
		if *save != "" {
			keep(t, s, trace)
		}
		rt.Fatalf("%s", s)
	})
}

// keep writes a failure, and its logs beside the test's other temporary files.
func keep(t *testing.T, s *Scenario, trace string) {
	name := filepath.Join("testdata", "scenarios", *save+".scenario")
	if err := os.WriteFile(name, []byte(s.String()), 0o644); err != nil {
		t.Fatal(err)
	}
	if err := os.WriteFile(filepath.Join(os.TempDir(), *save+".log"), []byte(trace), 0o644); err != nil {
		t.Fatal(err)
	}
}

// load reads a scenario.
func load(t *testing.T, file string) *Scenario {
	t.Helper()
	text, err := os.ReadFile(file)
	if err != nil {
		t.Fatal(err)
	}
	s, err := Parse(string(text))
	if err != nil {
		t.Fatalf("%s: %v", file, err)
	}
	if again, err := Parse(s.String()); err != nil || again.String() != s.String() {
		t.Errorf("%s: does not survive printing: %v", file, err)
	}
	return s
}

// TestScenarios replays everything that was ever found, and what people thought
// of.
func TestScenarios(t *testing.T) {
	t.Parallel()
	files, err := filepath.Glob("testdata/scenarios/*.scenario")
	if err != nil || len(files) == 0 {
		t.Fatal("no scenarios", err)
	}
	for _, f := range files {
		t.Run(strings.TrimSuffix(filepath.Base(f), ".scenario"), func(t *testing.T) {
			failures, trace := load(t, f).Play(t)
			for _, f := range failures {
				t.Error(f)
			}
			if len(failures) > 0 {
				t.Logf("%s", trace)
			}
		})
	}
}
