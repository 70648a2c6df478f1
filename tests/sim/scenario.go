package sim

import (
	"bufio"
	"fmt"
	"slices"
	"strconv"
	"strings"
	"testing"
	"time"

	"lbd.dev/lbd/internal/gossip"
	"lbd.dev/lbd/internal/lbdtest"
	"lbd.dev/lbd/internal/model"
)

// Scenario is a script: what happens to a cluster and when.
//
//	# words
//	nodes 5
//	vips 20
//	seed 7
//	quorum v1 v2        VIPs that need a majority
//	preempt v3          VIPs that go to the best node
//	unchecked v4        VIPs without health check
//	both v5             VIPs that BGP advertises too
//	bgp v6              VIPs that only BGP advertises
//	unbound v7          VIPs that no node binds
//	forwarded v8        VIPs of load balancers: if both, only the owner advertises them
//	routers bfd plain   the kinds of BGP routers; one of each if not given
//	drain 10s           how long connections may linger
//	loss 0.01           of gossip datagrams
//	detection fast
//	+0s start m1 m2     each after the time since the step before
//	+10s quiet 10s      wait, then check everything that must hold at rest
//
// The verbs are those of Verbs.
type Scenario struct {
	Comment []string
	Options Options
	Steps   []Step
}

// Step is one thing that happens.
type Step struct {
	After time.Duration
	Verb  string
	Args  []string
}

// Verbs are what can happen in a scenario, with what they take.
var Verbs = map[string]func(c *Cluster, args []string) error{
	"start":       nodes(func(c *Cluster, n string) { c.Start(n) }),
	"crash":       nodes((*Cluster).Crash),
	"kill":        nodes((*Cluster).Kill),
	"stop":        nodes((*Cluster).StopSoon),
	"freeze":      nodes((*Cluster).Freeze),
	"thaw":        nodes((*Cluster).Thaw),
	"drain":       nodes(func(c *Cluster, n string) { c.Drain(n, true) }),
	"undrain":     nodes(func(c *Cluster, n string) { c.Drain(n, false) }),
	"sick":        nodes(func(c *Cluster, n string) { c.Sick(n, true) }),
	"well":        nodes(func(c *Cluster, n string) { c.Sick(n, false) }),
	"unplug":      nodes(func(c *Cluster, n string) { c.Plug(n, false) }),
	"plug":        nodes(func(c *Cluster, n string) { c.Plug(n, true) }),
	"cut-wire":    group(func(c *Cluster, n ...string) { c.CutWire(n...) }),
	"cut-gossip":  group(func(c *Cluster, n ...string) { c.CutGossip(n...) }),
	"cut":         group(func(c *Cluster, n ...string) { c.CutWire(n...); c.CutGossip(n...) }),
	"heal":        group(func(c *Cluster, _ ...string) { c.Heal() }),
	"heal-wire":   group(func(c *Cluster, _ ...string) { c.HealWire() }),
	"heal-gossip": group(func(c *Cluster, _ ...string) { c.HealGossip() }),
	"remove":      vips(func(c *Cluster, v model.VIP) { c.RemoveByHand(v.Addr) }),
	"remove-lo":   vips(func(c *Cluster, v model.VIP) { c.RemoveLoopbackByHand(v.Addr) }),
	"foreign":     vips(func(c *Cluster, v model.VIP) { c.Foreign(v.Addr, true) }),
	"native":      vips(func(c *Cluster, v model.VIP) { c.Foreign(v.Addr, false) }),
	"unconfigure": vips(func(c *Cluster, v model.VIP) { c.RemoveVIP(v.Name) }),
	"configure":   vips(func(c *Cluster, v model.VIP) { c.RemoveVIP(v.Name); c.AddVIP(v) }),
	"quiet": func(c *Cluster, args []string) error {
		if len(args) != 1 {
			return fmt.Errorf("quiet takes a duration")
		}
		d, err := time.ParseDuration(args[0])
		if err == nil {
			c.Quiet(d)
		}
		return err
	},
}

func nodes(f func(*Cluster, string)) func(*Cluster, []string) error {
	return func(c *Cluster, args []string) error {
		for _, a := range args {
			if c.nodes[a] == nil {
				return fmt.Errorf("no node %q", a)
			}
			f(c, a)
		}
		return nil
	}
}

func group(f func(*Cluster, ...string)) func(*Cluster, []string) error {
	return func(c *Cluster, args []string) error {
		for _, a := range args {
			if c.nodes[a] == nil {
				return fmt.Errorf("no node %q", a)
			}
		}
		f(c, args...)
		return nil
	}
}

func vips(f func(*Cluster, model.VIP)) func(*Cluster, []string) error {
	return func(c *Cluster, args []string) error {
		for _, a := range args {
			i := slices.IndexFunc(c.opts.VIPs, func(v model.VIP) bool { return v.Name == a })
			if i < 0 {
				return fmt.Errorf("no VIP %q", a)
			}
			f(c, c.opts.VIPs[i])
		}
		return nil
	}
}

// Play plays the scenario in a bubble and returns what went wrong, with the logs.
func (s *Scenario) Play(t *testing.T) (failures []string, trace string) {
	return Run(t, s.Options, func(c *Cluster) {
		for _, step := range s.Steps {
			time.Sleep(step.After)
			fmt.Fprintf(c, "%.4f ### %s %s\n", c.Since().Seconds(), step.Verb, strings.Join(step.Args, " "))
			if err := Verbs[step.Verb](c, step.Args); err != nil {
				c.failf("%s: %v", step.Verb, err)
			}
		}
	})
}

// String is the scenario as Parse reads it.
func (s *Scenario) String() string {
	var b strings.Builder
	for _, l := range s.Comment {
		fmt.Fprintf(&b, "# %s\n", l)
	}
	o := s.Options
	fmt.Fprintf(&b, "nodes %d\nvips %d\nseed %d\n", o.Nodes, len(o.VIPs), o.Seed)
	for _, p := range properties {
		if l := p.list(o.VIPs); len(l) > 0 {
			fmt.Fprintf(&b, "%s %s\n", p.word, strings.Join(l, " "))
		}
	}
	if len(o.Routers) > 0 {
		fmt.Fprintf(&b, "routers %s\n", strings.Trim(fmt.Sprint(o.Routers), "[]"))
	}
	if o.Drain > 0 {
		fmt.Fprintf(&b, "drain %s\n", o.Drain)
	}
	if o.Loss > 0 {
		fmt.Fprintf(&b, "loss %g\n", o.Loss)
	}
	if o.Detection != "" {
		fmt.Fprintf(&b, "detection %s\n", o.Detection)
	}
	for _, st := range s.Steps {
		fmt.Fprintf(&b, "+%s\n", strings.TrimSpace(st.After.String()+" "+st.Verb+" "+strings.Join(st.Args, " ")))
	}
	return b.String()
}

// property is a setting of single VIPs.
type property struct {
	word string
	has  func(model.VIP) bool
	set  func(*model.VIP)
}

var properties = []property{
	{"quorum", func(v model.VIP) bool { return v.Partition == model.PartitionQuorum }, func(v *model.VIP) { v.Partition = model.PartitionQuorum }},
	{"preempt", func(v model.VIP) bool { return v.Preempt }, func(v *model.VIP) { v.Preempt = true }},
	{"unchecked", func(v model.VIP) bool { return v.Check == "" }, func(v *model.VIP) { v.Check = "" }},
	{"both", func(v model.VIP) bool { return v.L2 && len(v.BGP) > 0 }, func(v *model.VIP) { v.BGP = []model.BGPAdvert{{}} }},
	{"balanced", func(v model.VIP) bool { return v.Balanced }, func(v *model.VIP) { v.Balanced = true }},
	{"unbound", func(v model.VIP) bool { return v.Unbound }, func(v *model.VIP) { v.Unbound = true }},
	{"forwarded", func(v model.VIP) bool { return v.Forwarded() }, func(v *model.VIP) { v.Kind = model.KindLoadBalancer }},
	{"bgp", func(v model.VIP) bool { return !v.L2 }, func(v *model.VIP) { v.L2, v.BGP = false, []model.BGPAdvert{{}} }},
}

func (p property) list(vips []model.VIP) []string {
	var out []string
	for _, v := range vips {
		if p.has(v) {
			out = append(out, v.Name)
		}
	}
	return out
}

// Parse reads a scenario.
func Parse(text string) (*Scenario, error) {
	s := &Scenario{}
	lines := bufio.NewScanner(strings.NewReader(text))
	for i := 1; lines.Scan(); i++ {
		line := strings.TrimSpace(lines.Text())
		if c, ok := strings.CutPrefix(line, "#"); ok {
			s.Comment = append(s.Comment, strings.TrimSpace(c))
			continue
		}
		words := strings.Fields(line)
		if len(words) == 0 {
			continue
		}
		if err := s.line(words); err != nil {
			return nil, fmt.Errorf("line %d: %q: %w", i, line, err)
		}
	}
	return s, nil
}

func (s *Scenario) line(words []string) error {
	if d, ok := strings.CutPrefix(words[0], "+"); ok {
		after, err := time.ParseDuration(d)
		if err != nil {
			return err
		}
		if len(words) < 2 || Verbs[words[1]] == nil {
			return fmt.Errorf("there is no such verb")
		}
		s.Steps = append(s.Steps, Step{after, words[1], words[2:]})
		return nil
	}
	if len(words) < 2 {
		return fmt.Errorf("has no value")
	}
	o := &s.Options
	for _, p := range properties {
		if p.word != words[0] {
			continue
		}
		for _, name := range words[1:] {
			i := slices.IndexFunc(o.VIPs, func(v model.VIP) bool { return v.Name == name })
			if i < 0 {
				return fmt.Errorf("there is no VIP %q", name)
			}
			p.set(&o.VIPs[i])
		}
		return nil
	}
	var err error
	switch words[0] {
	case "nodes":
		o.Nodes, err = strconv.Atoi(words[1])
	case "vips":
		var n int
		n, err = strconv.Atoi(words[1])
		o.VIPs = VIPs(n)
	case "seed":
		o.Seed, err = strconv.ParseUint(words[1], 10, 64)
	case "routers":
		for _, k := range words[1:] {
			o.Routers = append(o.Routers, lbdtest.RouterKind(k))
		}
	case "drain":
		o.Drain, err = time.ParseDuration(words[1])
	case "loss":
		o.Loss, err = strconv.ParseFloat(words[1], 64)
	case "detection":
		o.Detection = gossip.Detection(words[1])
	default:
		err = fmt.Errorf("there is no such setting")
	}
	return err
}
