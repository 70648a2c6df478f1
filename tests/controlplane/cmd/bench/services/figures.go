package services

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"time"

	"lbd.dev/lbd/tests/controlplane"
	"lbd.dev/lbd/tests/lab"
	"lbd.dev/lbd/tests/lab/bench"
	"lbd.dev/lbd/tests/lab/measure"
)

// figures are what was measured with one number of Services. Of three daemons the
// worst counts.
type figures struct {
	services int
	proxy    bool
	errors   []string

	allocated, announced   time.Duration // from the start of the controller, of the daemons
	speakerRSS, speakerMax int64         // bytes; after the steady time, and at most
	ctlRSS, ctlMax         int64
	speakerCPU, ctlCPU     float64             // of a core, while nothing happens
	start, steady          map[string]requests // of "speaker" and "controller"
	steadyFor              time.Duration
	short, second, frames  int // frames about VIPs on the wire at the start: in 10 ms and in a second at most, and in sum
	spread                 []int
	given, visible, served []time.Duration // created to allocated, announced, reachable
	servedUsual            []time.Duration // reachable with kube-proxy at its default
	moves                  []time.Duration
	cuts                   []cut
	load                   map[string]float64 // of the machine, by what was measured
}

// cut is one time that a node with some VIPs was cut off.
type cut struct {
	vips       int
	first, all time.Duration // until another node announced the first of them, and all
	reachable  time.Duration // until all were reached; 0 without kube-proxy
}

// requests counts requests to the API server by verb.
type requests map[string]float64

const (
	allocateLimit = 3 * time.Minute
	announceLimit = 3 * time.Minute
	changeLimit   = 30 * time.Second
)

// poll waits until check is true.
func poll(ctx context.Context, limit, every time.Duration, what string, check func() (bool, error)) error {
	for end := time.Now().Add(limit); ; {
		ok, err := check()
		switch {
		case ok:
			return nil
		case err != nil:
			return fmt.Errorf("%s: %w", what, err)
		case time.Now().After(end):
			return fmt.Errorf("%s: not within %v", what, limit)
		}
		select {
		case <-ctx.Done():
			return ctx.Err()
		case <-time.After(every):
		}
	}
}

// loaded notes how busy the machine was while f ran.
func (f *figures) loaded(what string, run func() error) error {
	load, err := bench.Loaded(run)
	if err != nil {
		return err
	}
	if f.load == nil {
		f.load = map[string]float64{}
	}
	f.load[what] = load
	return nil
}

func (f *figures) say(format string, args ...any) {
	fmt.Fprintf(os.Stderr, "%d Services: %s\n", f.services, fmt.Sprintf(format, args...))
}

// measureController starts the controller, with all Services waiting.
func (c *cluster) measureController(ctx context.Context, f *figures, _ *options) error {
	from := time.Now()
	if err := c.createMany(ctx, f.services); err != nil {
		return err
	}
	f.say("created in %v", time.Since(from).Round(time.Millisecond))
	err := f.loaded("allocation", func() error {
		from = time.Now()
		if err := c.lbd.StartController(ctx); err != nil {
			return err
		}
		return poll(ctx, allocateLimit, 10*time.Millisecond, "all Services have addresses", func() (bool, error) {
			n, at, err := c.watch.count()
			if n == f.services {
				f.allocated = at.Sub(from)
			}
			return n == f.services, err
		})
	})
	f.say("allocated after %v", f.allocated)
	return err
}

// measureStart starts the daemons of all nodes, with all addresses in the statuses.
func (c *cluster) measureStart(ctx context.Context, f *figures, o *options) error {
	c.wire.forget()
	err := f.loaded("start", func() error {
		from := time.Now()
		if err := c.startSpeakers(ctx); err != nil {
			return err
		}
		profile := c.profile(ctx, o, f, "start", 10)
		defer profile()
		said := 0
		return poll(ctx, announceLimit, 10*time.Millisecond, "all addresses are announced", func() (bool, error) {
			n, at := c.wire.claimed()
			if n/1000 > said/1000 {
				f.say("%d announced after %v", n, at.Sub(from))
				said = n
			}
			if n == f.services {
				f.announced = at.Sub(from)
			}
			return n == f.services, c.alive()
		})
	})
	if err != nil {
		n, _ := c.wire.claimed()
		return fmt.Errorf("%w: %d", err, n)
	}
	f.say("announced after %v", f.announced)
	time.Sleep(10 * time.Second) // the last announcements of each burst, and what else the start has left
	f.short, f.second, f.frames = c.wire.busiest()
	f.say("%d frames, at most %d in 10 ms and %d in a second", f.frames, f.short, f.second)
	for _, n := range c.nodes {
		f.spread = append(f.spread, len(c.wire.of(n.MAC)))
	}
	f.say("announced by each node: %v", f.spread)
	f.start, err = c.requests(ctx)
	f.say("requests: %v", f.start)
	return err
}

func (c *cluster) alive() error {
	for _, n := range c.nodes {
		if !n.Daemon.Alive() {
			return fmt.Errorf("%s: the daemon has ended: %s", n.Name, n.Daemon.Tail(3))
		}
	}
	return nil
}

// pids are the daemons of the nodes, and the controller last.
func (c *cluster) pids() []int {
	var out []int
	for _, n := range c.nodes {
		out = append(out, n.Daemon.PID())
	}
	return append(out, c.lbd.Controllers[0].Proc().PID())
}

// measureSteady looks at what lbd costs while nothing happens.
func (c *cluster) measureSteady(ctx context.Context, f *figures, o *options) error {
	err := f.loaded("steady", func() error {
		from := time.Now()
		var before, after []time.Duration
		for _, at := range []*[]time.Duration{&before, &after} {
			for _, pid := range c.pids() {
				cpu, err := measure.ProcessCPU(pid)
				if err != nil {
					return err
				}
				*at = append(*at, cpu)
			}
			if after == nil {
				time.Sleep(o.steady / 3)
			}
		}
		took := time.Since(from)
		for i := range before {
			share := float64(after[i]-before[i]) / float64(took)
			if i < len(c.nodes) {
				f.speakerCPU = max(f.speakerCPU, share)
			} else {
				f.ctlCPU = share
			}
		}
		time.Sleep(o.steady - o.steady/3)
		f.steadyFor = time.Since(from)
		return nil
	})
	if err != nil {
		return err
	}
	now, err := c.requests(ctx)
	if err != nil {
		return err
	}
	f.steady = map[string]requests{}
	for who, all := range now {
		f.steady[who] = requests{}
		for verb, n := range all {
			f.steady[who][verb] = n - f.start[who][verb]
		}
	}
	for i, pid := range c.pids() {
		rss, err := measure.RSS(pid)
		most, err2 := peak(pid)
		if err := errors.Join(err, err2); err != nil {
			return err
		}
		if i < len(c.nodes) {
			f.speakerRSS, f.speakerMax = max(f.speakerRSS, rss), max(f.speakerMax, most)
		} else {
			f.ctlRSS, f.ctlMax = rss, most
		}
	}
	f.say("speaker %d MiB (%d at most), %.2f %% of a core; controller %d MiB (%d), %.2f %%; requests in %v: %v",
		f.speakerRSS>>20, f.speakerMax>>20, 100*f.speakerCPU, f.ctlRSS>>20, f.ctlMax>>20, 100*f.ctlCPU, f.steadyFor, f.steady)
	c.profile(ctx, o, f, "steady", 10)()
	return nil
}

// peak is the most memory that a process has had in RAM, in bytes.
func peak(pid int) (int64, error) {
	b, err := os.ReadFile(fmt.Sprintf("/proc/%d/status", pid))
	if err != nil {
		return 0, err
	}
	for line := range strings.Lines(string(b)) {
		if rest, ok := strings.CutPrefix(line, "VmHWM:"); ok {
			kib, err := strconv.ParseInt(strings.Fields(rest)[0], 10, 64)
			return kib * 1024, err
		}
	}
	return 0, fmt.Errorf("process %d has no VmHWM", pid)
}

// requests reads the counters of the daemon that has sent most, and of the
// controller.
func (c *cluster) requests(ctx context.Context) (map[string]requests, error) {
	all := map[string]requests{}
	for _, n := range c.nodes {
		r, err := c.counted(ctx, &n.Host, "127.0.0.1:7477")
		if err != nil {
			return nil, err
		}
		if r.sum() >= all["speaker"].sum() {
			all["speaker"] = r
		}
	}
	var err error
	all["controller"], err = c.counted(ctx, c.Host, "127.0.0.1:7478")
	return all, err
}

func (r requests) sum() (n float64) {
	for _, x := range r {
		n += x
	}
	return n
}

func (r requests) String() string {
	var out []string
	for verb, n := range r {
		if n > 0 {
			out = append(out, fmt.Sprintf("%s %.0f", verb, n))
		}
	}
	slices.Sort(out)
	return strings.Join(out, ", ")
}

// counted adds up the requests of a process by verb, whatever came of them.
func (c *cluster) counted(ctx context.Context, h *lab.Host, address string) (requests, error) {
	page, err := c.get(ctx, h, "http://"+address+"/metrics")
	if err != nil {
		return nil, err
	}
	r := requests{}
	for line := range strings.Lines(string(page)) {
		rest, ok := strings.CutPrefix(line, "lbd_kubernetes_requests_total{")
		if !ok {
			continue
		}
		labels, value, _ := strings.Cut(rest, "} ")
		_, verb, _ := strings.Cut(labels, `method="`)
		verb, _, _ = strings.Cut(verb, `"`)
		n, err := strconv.ParseFloat(strings.TrimSpace(value), 64)
		if err != nil {
			return nil, err
		}
		r[verb] += n
	}
	return r, nil
}

// get asks a URL from a host.
func (c *cluster) get(ctx context.Context, h *lab.Host, url string) ([]byte, error) {
	client := &http.Client{Transport: &http.Transport{
		DisableKeepAlives: true,
		DialContext: func(ctx context.Context, network, address string) (net.Conn, error) {
			return c.Lab.Dial(ctx, h, network, address)
		},
	}}
	req, err := http.NewRequestWithContext(ctx, http.MethodGet, url, nil)
	if err != nil {
		return nil, err
	}
	resp, err := client.Do(req)
	if err != nil {
		return nil, err
	}
	defer resp.Body.Close()
	return io.ReadAll(resp.Body)
}

// profile takes profiles of the first node's daemon, if asked to. The function that
// it returns waits for them.
func (c *cluster) profile(ctx context.Context, o *options, f *figures, when string, seconds int) func() {
	if o.profiles == "" {
		return func() {}
	}
	done := make(chan struct{})
	go func() {
		defer close(done)
		h := &c.nodes[0].Host
		for _, what := range []string{fmt.Sprintf("profile?seconds=%d", seconds), "heap"} {
			name, _, _ := strings.Cut(what, "?")
			var page []byte
			err := poll(ctx, 10*time.Second, 100*time.Millisecond, "profile", func() (bool, error) {
				var err error
				page, err = c.get(ctx, h, "http://127.0.0.1:7477/debug/pprof/"+what)
				return err == nil, nil
			})
			if err == nil {
				err = os.WriteFile(filepath.Join(o.profiles, fmt.Sprintf("%s-%d.%s", when, f.services, name)), page, 0o644)
			}
			if err != nil {
				f.say("%v", err)
			}
		}
		_ = controlplane.KeepLogs(c.Lab, filepath.Join(o.profiles, "logs"))
	}()
	return func() { <-done }
}
