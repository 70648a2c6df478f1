// Package bench is what the programs that measure have in common: subcommands with their
// flags, how busy the machine was, and reports in Markdown that each keep to their own part
// of one file.
package bench

import (
	"context"
	"errors"
	"flag"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"time"

	"lbd.dev/lbd/tests/lab"
	"lbd.dev/lbd/tests/lab/measure"
)

// Command is one bench.
type Command struct {
	Name  string
	About string // what it measures, in half a sentence
	// Part is the name of the report in the file; "" is what stands before the first part.
	Part  string
	Flags func(*flag.FlagSet)
	// Measure returns the report, of what was measured before an error too; "" if there is
	// nothing to report.
	Measure func(context.Context) (string, error)
}

// Main runs the command that the arguments name; a program with only one needs no name.
func Main(commands ...Command) {
	program, args := filepath.Base(os.Args[0]), os.Args[1:]
	i := 0
	if len(commands) > 1 {
		i = -1
		if len(args) > 0 {
			i = slices.IndexFunc(commands, func(c Command) bool { return c.Name == args[0] })
		}
		if i < 0 {
			fmt.Fprintf(os.Stderr, "usage: %s COMMAND [flags]; %[1]s COMMAND -h lists them\n\n", program)
			for _, c := range commands {
				fmt.Fprintf(os.Stderr, "  %-10s %s\n", c.Name, c.About)
			}
			os.Exit(2)
		}
		program, args = program+" "+commands[i].Name, args[1:]
	}
	c := commands[i]
	fs := flag.NewFlagSet(program, flag.ExitOnError)
	out := fs.String("out", "", "file whose part is replaced (default: standard output)")
	c.Flags(fs)
	_ = fs.Parse(args) // it exits
	if fs.NArg() > 0 {
		fmt.Fprintf(os.Stderr, "%s: %q is no flag\n", program, fs.Arg(0))
		os.Exit(2)
	}
	lab.Program(program, func(ctx context.Context) error {
		text, err := c.Measure(ctx)
		if text != "" {
			err = errors.Join(write(*out, c.Part, text), err)
		}
		return errors.Join(err, ctx.Err())
	})
}

// List adds a flag of names that are separated by commas.
func List(fs *flag.FlagSet, to *[]string, name, usage string) {
	fs.Func(name, usage+", separated by commas (default: all)", func(text string) error {
		*to = nil
		if text != "" {
			*to = strings.Split(text, ",")
		}
		return nil
	})
}

// In tells whether a list names something; an empty one names all.
func In(list []string, name string) bool { return len(list) == 0 || slices.Contains(list, name) }

// MaxLoad adds the flag of how busy the machine may be during a run that counts.
func MaxLoad(fs *flag.FlagSet, to *float64) {
	fs.Float64Var(to, "max-load", lab.MaxLoad, "busy share of the machine above which a run is dropped")
}

// Dropped says what became of runs on a busy machine; column is where the report tells how
// busy it was.
func Dropped(maxLoad float64, column string) string {
	if maxLoad >= 1 {
		return "No run was dropped because the machine was busy: it was shared with other work, as the column " + column + " shows.\n"
	}
	return fmt.Sprintf("Runs in which the machine was more than %.0f %% busy were dropped and repeated; they are counted in brackets.\n", 100*maxLoad)
}

// Loaded measures how busy the machine was while f ran, 0 to 1.
func Loaded(f func() error) (float64, error) {
	from, err := measure.ReadCPU()
	if err != nil {
		return 0, err
	}
	err = f()
	to, cpuErr := measure.ReadCPU()
	return measure.Load(from, to), errors.Join(err, cpuErr)
}

// Idle is what the daemon of one node uses when nothing happens.
type Idle struct {
	Node      string
	Processes int
	RSS       int64
	CPU       float64 // share of a core
	Load      float64 // of the machine meanwhile
}

// IdleFor is how long the idle figures are taken.
const IdleFor = 10 * time.Second

// IdleFigures measures what the daemons of nodes use when nothing happens.
func IdleFigures(ctx context.Context, nodes []*lab.Node) ([]Idle, error) {
	var before, after []measure.Usage
	load, err := Loaded(func() (err error) {
		if before, err = usages(nodes); err != nil {
			return err
		}
		select {
		case <-ctx.Done():
			return ctx.Err()
		case <-time.After(IdleFor):
		}
		after, err = usages(nodes)
		return err
	})
	if err != nil {
		return nil, err
	}
	all := make([]Idle, len(nodes))
	for i, n := range nodes {
		all[i] = Idle{n.Name, after[i].Processes, after[i].RSS, float64(after[i].CPU-before[i].CPU) / float64(IdleFor), load}
	}
	return all, nil
}

// usages is what the daemon of each node has used so far.
func usages(nodes []*lab.Node) ([]measure.Usage, error) {
	all := make([]measure.Usage, len(nodes))
	for i, n := range nodes {
		var err error
		if all[i], err = measure.GroupUsage(n.Daemon.PID()); err != nil {
			return nil, err
		}
	}
	return all, nil
}
