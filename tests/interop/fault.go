package interop

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"math/rand/v2"
	"net/netip"
	"slices"
	"syscall"
	"time"

	"lbd.dev/lbd/tests/lab"
	"lbd.dev/lbd/tests/lab/measure"
)

// Fault is something that happens to one node, and its end.
type Fault struct {
	Name string
	// Prepare waits for the right moment; without it that is a random one.
	Prepare func(ctx context.Context, f *Fabric, m *lab.Node) error
	// Inject does it. The moment before it is the moment of the fault.
	Inject func(ctx context.Context, f *Fabric, m *lab.Node) error
	// Leaves says that routers are expected to drop the node's next hop; Limit
	// bounds the wait for that.
	Leaves bool
	Limit  time.Duration
	// Hold is how long watching goes on after that, or after the fault if the next
	// hop stays.
	Hold time.Duration
	// Undo ends the fault. It may be nil; the second phase then begins by itself.
	Undo func(ctx context.Context, f *Fabric, m *lab.Node) error
	// Conns opens long-lived connections before the fault.
	Conns int
}

// hold is how long watching goes on: over a second, so that the end of an outage
// is seen.
const hold = 1500 * time.Millisecond

func startSpeaker(ctx context.Context, f *Fabric, m *lab.Node) error {
	if m.Daemon.Alive() {
		return nil
	}
	return f.Speaker.Start(ctx, f.Net, m)
}

// LinkDown is a crash of the node as the LAN sees it.
func LinkDown() Fault {
	return Fault{
		Name: "linkdown", Leaves: true, Limit: 20 * time.Second, Hold: hold,
		Inject: func(ctx context.Context, f *Fabric, m *lab.Node) error { return f.LinkDown(ctx, &m.Host) },
		Undo:   func(ctx context.Context, f *Fabric, m *lab.Node) error { return f.LinkUp(ctx, &m.Host) },
	}
}

// Kill kills the daemon; nothing restarts it. The node and its service live.
func Kill() Fault {
	return Fault{
		Name: "sigkill", Leaves: true, Limit: 20 * time.Second, Hold: hold,
		Inject: func(_ context.Context, _ *Fabric, m *lab.Node) error { return m.Kill() },
		Undo:   startSpeaker,
	}
}

// Freeze stops the daemon without ending it.
func Freeze() Fault {
	return Fault{
		Name: "sigstop", Leaves: true, Limit: 20 * time.Second, Hold: hold,
		Inject: func(_ context.Context, _ *Fabric, m *lab.Node) error { return m.Freeze() },
		Undo:   func(_ context.Context, _ *Fabric, m *lab.Node) error { return m.Thaw() },
	}
}

// Terminate stops the daemon in order.
func Terminate() Fault {
	return Fault{
		Name: "sigterm", Leaves: true, Limit: 20 * time.Second, Hold: hold,
		Inject: func(_ context.Context, _ *Fabric, m *lab.Node) error { return m.Terminate(15 * time.Second) },
		Undo:   startSpeaker,
	}
}

// Drain moves everything off the node.
func Drain() Fault {
	return Fault{
		Name: "drain", Leaves: true, Limit: 20 * time.Second, Hold: hold,
		Inject: func(ctx context.Context, f *Fabric, m *lab.Node) error { return f.Speaker.Drain(ctx, f.Net, m) },
		Undo:   func(ctx context.Context, f *Fabric, m *lab.Node) error { return f.Speaker.Undrain(ctx, f.Net, m) },
	}
}

// Respawn kills the daemon and starts it again after one to two seconds, at
// random so that it does not keep step with the routers' timers.
func Respawn() Fault {
	return Fault{
		Name: "respawn", Hold: 6 * time.Second,
		Inject: func(ctx context.Context, f *Fabric, m *lab.Node) error {
			if err := m.Kill(); err != nil {
				return err
			}
			Pause(ctx, time.Second+rand.N(time.Second))
			return startSpeaker(ctx, f, m)
		},
	}
}

// KillAll kills the daemons of all nodes at the same moment and starts them again at once:
// none of them knows who of the others has connections.
func KillAll() Fault {
	return Fault{
		Name: "killall", Hold: 6 * time.Second,
		Inject: func(ctx context.Context, f *Fabric, _ *lab.Node) error {
			var errs []error
			for _, m := range f.Nodes {
				errs = append(errs, m.Daemon.Signal(syscall.SIGKILL))
			}
			for _, m := range f.Nodes {
				errs = append(errs, m.Kill(), startSpeaker(ctx, f, m))
			}
			return errors.Join(errs...)
		},
	}
}

// ServiceDeath kills the service: its ports refuse.
func ServiceDeath() Fault {
	return Fault{
		Name: "appdeath", Leaves: true, Limit: 20 * time.Second, Hold: hold,
		Inject: func(_ context.Context, _ *Fabric, m *lab.Node) error { return m.Service.Kill() },
		Undo:   func(ctx context.Context, f *Fabric, m *lab.Node) error { return f.StartService(ctx, m) },
	}
}

// ServiceHang freezes the service: its ports accept and nothing comes.
func ServiceHang() Fault {
	return Fault{
		Name: "apphang", Leaves: true, Limit: 20 * time.Second, Hold: hold,
		Inject: func(_ context.Context, _ *Fabric, m *lab.Node) error { return m.FreezeService() },
		Undo:   func(_ context.Context, _ *Fabric, m *lab.Node) error { return m.ThawService() },
	}
}

// Faults are all of them, in the order of the report.
func Faults() []Fault {
	return []Fault{LinkDown(), Kill(), Freeze(), Terminate(), Drain(), Respawn(), ServiceDeath(), ServiceHang()}
}

// Outcome is one run of a fault.
type Outcome struct {
	System, Fault, Node string
	At, Undone          measure.Time
	// Gone is when the last router lost the next hop of the last VIP, after the
	// fault; negative if one kept it.
	Gone time.Duration
	// Back is when every router had it again, after the end of the fault; for a
	// fault without end it counts from the fault. Negative: not.
	Back time.Duration
	// Changes are the changes of the next hops of the VIPs on the ToRs, in words.
	Changes []string
	// Hole is for how long a router sent packets for a VIP to the node while its
	// kernel did not have it.
	Hole time.Duration
	// Failed attempts, by cause, over all VIPs, and the longest outage of one, from
	// the fault until its end and from then on.
	First, Second Traffic
	// Own are the long-lived connections that the node served, Others the rest.
	Own, Others measure.Conns
	Load        float64 // of the machine, from the fault to the end
}

// Traffic is what the client saw of all VIPs in one stretch of time.
type Traffic struct {
	Attempts, Failed int
	Outage           time.Duration
	Errors           map[string]int
	// Moved are attempts that were reset because a router changed the next hops
	// while they were under way: it then sends the rest of a connection to another
	// node. They are not counted as failed: the connection was opened.
	Moved int
}

// Run waits until all is well, does the fault to the node at a random moment,
// watches it, ends it, and watches until the node is back.
func (f *Fabric) Run(ctx context.Context, x Fault, m *lab.Node) (*Outcome, error) {
	o, err := f.run(ctx, x, m)
	if err != nil {
		return nil, fmt.Errorf("%s: %s of %s: %w", f.Speaker.Name(), x.Name, m.Name, err)
	}
	return o, ctx.Err()
}

func (f *Fabric) run(ctx context.Context, x Fault, m *lab.Node) (*Outcome, error) {
	if err := f.Calm(ctx); err != nil {
		return nil, err
	}
	if x.Conns > 0 {
		if err := f.Eyes.OpenConns(ctx, f.Speaker.VIPs()[0], x.Conns); err != nil {
			return nil, err
		}
		defer f.Eyes.CloseConns()
	}
	if x.Prepare == nil {
		lab.RandomMoment(ctx)
	} else if err := x.Prepare(ctx, f, m); err != nil {
		return nil, err
	}
	cpu, err := measure.ReadCPU()
	if err != nil {
		return nil, err
	}
	o := &Outcome{System: f.Speaker.Name(), Fault: x.Name, Node: m.Name, Gone: -1, Back: -1, At: measure.Now()}
	if err := x.Inject(ctx, f, m); err != nil {
		return nil, err
	}
	if x.Leaves {
		f.until(ctx, x.Limit, func() bool { _, ok := f.gone(m, o.At); return ok })
	}
	Pause(ctx, x.Hold)
	if at, ok := f.gone(m, o.At); ok {
		o.Gone = at.Sub(o.At)
	}
	from := o.At
	if x.Undo != nil {
		o.Undone = measure.Now()
		from = o.Undone
		if err := x.Undo(ctx, f, m); err != nil {
			return nil, err
		}
	} else if o.Gone >= 0 {
		from = o.At.Add(o.Gone)
	}
	if o.Gone >= 0 {
		f.until(ctx, backLimit, func() bool { _, ok := f.back(m, from); return ok })
	}
	if at, ok := f.back(m, from); ok {
		o.Back = at.Sub(from)
		if x.Undo == nil {
			o.Back = at.Sub(o.At)
		}
	}
	Pause(ctx, hold)
	return o, f.sumUp(o, m, cpu)
}

// backLimit is how long a node may take to be back.
const backLimit = time.Minute

func (f *Fabric) until(ctx context.Context, limit time.Duration, done func() bool) {
	deadline := measure.Now().Add(limit)
	for ctx.Err() == nil && measure.Now() < deadline && !done() {
		Pause(ctx, 20*time.Millisecond)
	}
}

// gone is when the last ToR lost the last next hop through the node, after from.
func (f *Fabric) gone(m *lab.Node, from measure.Time) (measure.Time, bool) {
	return f.last(m, func(events []measure.Route, prefix, gw string) (measure.Time, bool) {
		return measure.ViaGone(events, prefix, gw, from)
	})
}

// back is when the last ToR had the last next hop through the node, after from.
func (f *Fabric) back(m *lab.Node, from measure.Time) (measure.Time, bool) {
	return f.last(m, func(events []measure.Route, prefix, gw string) (measure.Time, bool) {
		return measure.ViaThere(events, prefix, gw, from)
	})
}

func (f *Fabric) last(m *lab.Node, find func(events []measure.Route, prefix, gw string) (measure.Time, bool)) (measure.Time, bool) {
	var last measure.Time
	for _, h := range f.ToRs {
		events, err := f.Events(h)
		if err != nil {
			return 0, false // sumUp tells
		}
		for _, v := range f.Speaker.VIPs() {
			at, ok := find(events, Prefix(v), Gateway(&m.Host, v))
			if !ok {
				return 0, false
			}
			last = max(last, at)
		}
	}
	return last, true
}

// attemptSlack covers attempts under way and the last success before a fault.
const attemptSlack = 300 * time.Millisecond

func (f *Fabric) sumUp(o *Outcome, m *lab.Node, cpu measure.CPU) error {
	end := measure.Now()
	middle := end
	if o.Undone != 0 {
		middle = o.Undone
	}
	var err error
	if o.First, err = f.Traffic(o.At, middle); err != nil {
		return err
	}
	if o.Second, err = f.Traffic(middle, end); err != nil {
		return err
	}
	for _, h := range f.ToRs {
		events, err := f.Events(h)
		if err != nil {
			return err
		}
		addrs, err := f.lo[m].Events()
		if err != nil {
			return err
		}
		for _, v := range f.Speaker.VIPs() {
			for _, c := range measure.Changes(events, Prefix(v), o.At, end) {
				o.Changes = append(o.Changes, fmt.Sprintf("%s after %v: %s via %v", h.Name, c.At.Sub(o.At), c.Prefix, c.Via))
			}
			o.Hole = max(o.Hole, measure.Hole(events, Prefix(v), Gateway(&m.Host, v), addrs, v.String(), o.At, end))
		}
	}
	o.Own, o.Others = f.conns(m.Name, o.At, end)
	now, err := measure.ReadCPU()
	o.Load = measure.Load(cpu, now)
	f.Eyes.Trim()
	return err
}

// Traffic sums up what the client saw of all VIPs in [from, to).
func (f *Fabric) Traffic(from, to measure.Time) (Traffic, error) {
	t := Traffic{Errors: map[string]int{}}
	for _, v := range f.Eyes.VIPs {
		changes, err := f.changes(v, from, to)
		if err != nil {
			return t, err
		}
		all := f.Eyes.Attempts(v)
		for i, a := range all {
			moved := a.Err == "reset" && slices.ContainsFunc(changes, func(c measure.Route) bool { return a.Start <= c.At && c.At <= a.End })
			if moved && a.Start >= from && a.Start < to {
				t.Moved++
				all[i].Err = ""
			}
		}
		r := measure.Reached(all, from.Add(-attemptSlack), to)
		t.Attempts += r.Attempts
		t.Failed += r.Failed
		t.Outage = max(t.Outage, r.Outage)
		for k, n := range r.Errors {
			t.Errors[k] += n
		}
	}
	return t, nil
}

// changes are those of the next hops of a VIP on every router.
func (f *Fabric) changes(vip netip.Addr, from, to measure.Time) ([]measure.Route, error) {
	var out []measure.Route
	for h := range f.routes {
		events, err := f.Events(h)
		if err != nil {
			return nil, err
		}
		out = append(out, measure.Changes(events, Prefix(vip), from, to)...)
	}
	return out, nil
}

// conns tells what became of the long-lived connections that the node served,
// and of those of others.
func (f *Fabric) conns(node string, from, to measure.Time) (own, others measure.Conns) {
	server := map[int]string{}
	all := f.Eyes.ConnEvents()
	for _, e := range all {
		if e.Kind == measure.ConnOpen {
			server[e.Conn] = e.Node
		}
	}
	var mine, rest []measure.ConnEvent
	for _, e := range all {
		if server[e.Conn] == node {
			mine = append(mine, e)
		} else {
			rest = append(rest, e)
		}
	}
	return measure.ConnsIn(mine, from, to), measure.ConnsIn(rest, from, to)
}

// Calm waits until every node is a next hop, the routers watch all their neighbours
// by BFD, and no attempt has failed for half a second.
func (f *Fabric) Calm(ctx context.Context) error {
	const calm = 500 * time.Millisecond
	if err := f.Spread(ctx, 30*time.Second); err != nil {
		return err
	}
	if err := Eventually(ctx, 20*time.Second, "BFD is up", func() error { return f.watched(ctx) }); err != nil {
		return err
	}
	return Eventually(ctx, 10*time.Second, "calm", func() error {
		now := measure.Now().Add(-attemptSlack)
		for _, v := range f.Eyes.VIPs {
			r := f.Eyes.Reach(v, now.Add(-calm), now)
			if r.Failed > 0 || r.Attempts < int(calm/f.Bin.ProbeEvery/2) {
				return fmt.Errorf("%s: %d of %d attempts failed %v", v, r.Failed, r.Attempts, r.Errors)
			}
		}
		return nil
	})
}

// watched tells which BFD session of a router is not up. On a busy machine one
// begins seconds after the BGP session; what happens to the node meanwhile is
// noticed by the hold time.
func (f *Fabric) watched(ctx context.Context) error {
	for i, r := range f.ToRFRR {
		if r.bfdConf == "" {
			continue
		}
		text, err := r.Show(ctx, "show bfd peers json")
		if err != nil {
			return err
		}
		var peers []struct {
			Peer   string `json:"peer"`
			Status string `json:"status"`
		}
		if err := json.Unmarshal([]byte(text), &peers); err != nil {
			return fmt.Errorf("%w in %q", err, text)
		}
		for _, p := range peers {
			if p.Status != "up" {
				return fmt.Errorf("%s: BFD with %s is %s", f.ToRs[i].Name, p.Peer, p.Status)
			}
		}
	}
	return nil
}

// Counts tells how many of the newest attempts each node served.
func (f *Fabric) Counts(vip netip.Addr, attempts int) map[string]int {
	all := f.Eyes.Attempts(vip)
	out := map[string]int{}
	for _, a := range all[max(0, len(all)-attempts):] {
		out[a.Node]++
	}
	return out
}
