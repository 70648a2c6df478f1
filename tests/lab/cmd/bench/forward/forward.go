// Package forward measures what it costs to send connections to other machines: throughput,
// connections a second and how long they take, through lbd, through HAProxy on the same node,
// and without anything between.
package forward

import (
	"context"
	"errors"
	"flag"
	"fmt"
	"net/netip"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"time"

	"lbd.dev/lbd/tests/lab"
	"lbd.dev/lbd/tests/lab/bench"
)

// The ways from the client to a server. Each round measures all of them, in another order
// than the one before.
const (
	direct  = "direct"
	byLBD   = "lbd"
	byProxy = "HAProxy"
)

var variants = []string{direct, byLBD, byProxy}

// The ports of HAProxy on its node, and of the servers.
const proxyPort, serverPort = 7105, 7104

type options struct{ runs int }

// Command is the bench of forwarded connections.
func Command() bench.Command {
	o := &options{}
	return bench.Command{
		Name: "forward", About: "what it costs to send connections to other machines", Part: "forward",
		Flags:   func(fs *flag.FlagSet) { fs.IntVar(&o.runs, "runs", 13, "rounds for each family") },
		Measure: func(ctx context.Context) (string, error) { return measureAll(ctx, o) },
	}
}

// results are all figures: rounds by the family of addresses.
type results struct {
	options *options
	version string // of HAProxy
	rounds  map[string][]*round
	errors  []string
}

// families are the keys of results.rounds.
var families = []string{"IPv4", "IPv6"}

// round has the figures of each variant.
type round struct {
	figures map[string]figures
	busy    float64 // of the machine, 0 to 1
}

func measureAll(ctx context.Context, o *options) (string, error) {
	if err := lab.Usable(); err != nil {
		return "", err
	}
	r := &results{options: o, rounds: map[string][]*round{}}
	var err error
	if r.version, err = proxyVersion(ctx); err != nil {
		return "", err
	}
	bin, err := lab.Build(ctx, true)
	if err != nil {
		return "", err
	}
	defer bin.Close()
	s, err := newStage(ctx, bin)
	if err != nil {
		return "", err
	}
	defer func() { err = errors.Join(err, s.close()) }()
	for i := range o.runs {
		for f, family := range families {
			one, err := s.round(ctx, f, i)
			if err != nil {
				// What was measured before is still worth a report.
				r.errors = append(r.errors, fmt.Sprintf("%s, round %d: %v", family, i+1, err))
				return report(r), nil
			}
			r.rounds[family] = append(r.rounds[family], one)
			fmt.Fprintf(os.Stderr, "%d/%d %s: busy %.0f %%, %v\n", i+1, o.runs, family, 100*one.busy, one.figures)
		}
	}
	return report(r), nil
}

// proxyVersion also finds out whether there is one.
func proxyVersion(ctx context.Context) (string, error) {
	out, err := exec.CommandContext(ctx, "haproxy", "-v").Output()
	if err != nil {
		return "", fmt.Errorf("haproxy: %w: apt-get install haproxy", err)
	}
	var version string
	_, err = fmt.Sscanf(string(out), "HAProxy version %s", &version)
	return version, err
}

// stage is a cluster with servers behind it and HAProxy on its first node.
type stage struct {
	*lab.Cluster
	servers []*server
	proxy   *lab.Proc
}

func newStage(ctx context.Context, bin *lab.Bin) (s *stage, err error) {
	l := &lab.LBD{Forwarded: true}
	c, err := lab.NewIdle(ctx, bin, l, 1)
	if err != nil {
		return nil, err
	}
	s = &stage{Cluster: c}
	defer func() {
		if err != nil {
			err = errors.Join(err, s.close())
		}
	}()
	if err = c.AddBackends(ctx, 3); err != nil {
		return s, err
	}
	for _, b := range c.Backends {
		v, err := serve(&b.Host)
		if err != nil {
			return s, err
		}
		s.servers = append(s.servers, v)
	}
	if err = l.Start(ctx, c.Lab, c.Nodes[0]); err != nil {
		return s, err
	}
	if err = c.Stable(ctx); err != nil {
		return s, err
	}
	return s, s.startProxy(ctx)
}

func (s *stage) startProxy(ctx context.Context) (err error) {
	n := s.Nodes[0]
	conf := filepath.Join(n.Dir, "haproxy.cfg")
	text := "global\n  nbthread 2\n  maxconn 8000\ndefaults\n  mode tcp\n  timeout connect 5s\n  timeout client 60s\n  timeout server 60s\n"
	for i := range families {
		at := s.nodeAddr(i)
		text += fmt.Sprintf("listen family%d\n  bind %s\n", i, netip.AddrPortFrom(at, proxyPort))
		for _, b := range s.Backends {
			to := []netip.Addr{b.IP4, b.IP6}[i]
			text += fmt.Sprintf("  server %s %s\n", b.Name, netip.AddrPortFrom(to, serverPort))
		}
	}
	if err := os.WriteFile(conf, []byte(text), 0o600); err != nil {
		return err
	}
	if s.proxy, err = s.Start(&n.Host, "haproxy", nil, "haproxy", "-db", "-f", conf); err != nil {
		return err
	}
	err = lab.Wait(ctx, 20*time.Second, 100*time.Millisecond, "HAProxy", func() error {
		c, err := s.Dial(ctx, s.Client, "tcp", s.target(byProxy, 1))
		if err != nil {
			return err
		}
		return c.Close()
	})
	if err != nil {
		err = fmt.Errorf("%w: %s", err, s.proxy.Tail(5))
	}
	return err
}

func (s *stage) nodeAddr(family int) netip.Addr {
	return []netip.Addr{s.Nodes[0].IP4, s.Nodes[0].IP6}[family]
}

func (s *stage) close() error {
	var errs []error
	if s.proxy != nil {
		errs = append(errs, s.proxy.Kill())
	}
	for _, v := range s.servers {
		errs = append(errs, v.Close())
	}
	return errors.Join(append(errs, s.Cluster.Close())...)
}

// target is where a client connects to.
func (s *stage) target(variant string, family int) string {
	at, port := []netip.Addr{s.Backends[0].IP4, s.Backends[0].IP6}[family], serverPort
	switch variant {
	case byLBD:
		at = []netip.Addr{lab.VIP4(), lab.VIP6()}[family]
	case byProxy:
		at, port = s.nodeAddr(family), proxyPort
	}
	return netip.AddrPortFrom(at, uint16(port)).String()
}

// round measures all variants, each a turn later than in the round before.
func (s *stage) round(ctx context.Context, family, number int) (*round, error) {
	r := &round{figures: map[string]figures{}}
	var err error
	r.busy, err = bench.Loaded(func() error {
		for i := range variants {
			v := variants[(i+number)%len(variants)]
			f, err := drive(ctx, s.Client, s.target(v, family))
			if err != nil {
				return fmt.Errorf("%s: %w", v, err)
			}
			r.figures[v] = f
		}
		return nil
	})
	return r, err
}

// String is for whoever watches the bench.
func (f figures) String() string {
	return fmt.Sprintf("down %s up %s Gbit/s, %s/s, p99 %v", gigabits(f.down), gigabits(f.up), strconv.Itoa(int(f.connects)), f.p99.Round(10*time.Microsecond))
}

func gigabits(bits float64) string { return strconv.FormatFloat(bits/1e9, 'f', 2, 64) }
