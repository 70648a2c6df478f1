package record

import (
	"net/netip"
	"slices"
	"sync"
	"time"

	"lbd.dev/lbd/internal/model"
)

// FewEntries is up to how many VIPs each change is told with the whole record:
// it fits one datagram.
const FewEntries = 8

// Own is the record of this node: what it has told, with a version for each
// part. It is written by the driver and read by everything that sends.
type Own struct {
	mu   sync.Mutex
	name model.NodeName
	inc  uint64
	seq  uint64
	// quiet counts the changes of seq that were not worth a message.
	quiet uint64
	head  Head
	// machines has V 0 as long as there was nothing to tell of any.
	machines Machines
	drains   []model.MachineDrain // those of machines
	vips     []model.GroupVIP     // as last told, sorted by address; never changed
	entries  map[netip.Addr]Entry
	// complete is set once the decision has spoken: before, an empty record does
	// not mean that the node has nothing.
	complete bool
	raised   time.Time // when inc was last raised
	format   Format    // see Format
}

// NewOwn is the record of a node that begins its life now and has nothing to tell yet.
func NewOwn(name model.NodeName, now time.Time, rules int, version string, keys []string) *Own {
	return &Own{
		name: name, inc: uint64(max(now.UnixNano(), 1)), seq: 1,
		head: Head{
			V: 1, Rules: rules, Weight: model.DefaultWeight, Keys: keys,
			Version: version[:min(len(version), maxWord)], Format: Newest,
		},
		format:  FormatJSON,
		entries: map[netip.Addr]Entry{},
	}
}

// Update takes what the decision wants told. It returns the part that changed;
// ok is false if nothing did.
func (o *Own) Update(gs *model.GroupState) (part Record, ok bool) {
	o.mu.Lock()
	defer o.mu.Unlock()
	first := !o.complete
	if first {
		o.complete = true
	}

	head := o.head
	head.Draining, head.Settled, head.Weight = gs.Draining, gs.Settled, gs.Weight
	head.MACs = encodeMACs(gs.MACs)
	head.Addrs = gs.Addrs[:min(len(gs.Addrs), maxAddrs)]
	head.Hears = gs.Hears[:min(len(gs.Hears), maxAddrs)]
	head.Drained = gs.Drained
	headChanged := !sameHead(&head, &o.head)
	machinesChanged := o.machines.Manager != gs.Manager || !model.SameDrains(o.drains, gs.Drains)
	if !headChanged && !machinesChanged && sameVIPs(gs.VIPs, o.vips) {
		return Record{}, false
	}
	next := o.seq + 1
	changed, quiet := o.diff(gs.VIPs, next)
	o.vips = gs.VIPs
	if !headChanged && !machinesChanged && len(changed) == 0 && !first {
		if quiet {
			o.seq, o.quiet = next, o.quiet+1
		}
		return Record{}, false
	}
	o.seq = next
	if machinesChanged {
		o.machines, o.drains = encodeDrains(o.name, gs.Manager, gs.Drains), gs.Drains
		o.machines.V = next
	}
	if headChanged || first {
		head.V = next
		o.head = head
	}
	part = o.record()
	if machinesChanged || first {
		part.Machines = o.toldMachines()
	}
	if first || len(o.entries) <= FewEntries {
		// Complete, so that it mends whatever an earlier message lost.
		for _, e := range changed {
			if e.Gone {
				part.Entries = append(part.Entries, e)
			}
		}
		part.Head, part.Full = new(o.head), o.seq
		part.Entries = append(part.Entries, o.list()...)
		return part, true
	}
	if o.head.V == next {
		part.Head = new(o.head)
	}
	part.Entries = changed
	return part, true
}

// toldMachines is nil while there was nothing to tell.
func (o *Own) toldMachines() *Machines {
	if o.machines.V == 0 {
		return nil
	}
	return new(o.machines)
}

func (o *Own) list() []Entry {
	out := make([]Entry, 0, len(o.entries))
	for _, vip := range o.vips {
		if e, ok := o.entries[vip.Addr]; ok {
			out = append(out, e)
		}
	}
	return out
}

// diff stores the new entries and returns those that others must hear of. A
// change of Seen alone is not worth a message of its own: it is a consequence
// of what others said, and if each node passed it on at once, one claim would
// cause as many broadcasts as there are nodes. Full exchanges tell it; quiet says that there
// is one. Both lists are sorted, and of thousands of VIPs few differ.
func (o *Own) diff(vips []model.GroupVIP, v uint64) (changed []Entry, quiet bool) {
	var gone []Entry
	old := o.vips[:min(len(o.vips), MaxEntries)]
	forget := func() {
		delete(o.entries, old[0].Addr)
		gone = append(gone, Entry{Addr: old[0].Addr, V: v, Gone: true})
		old = old[1:]
	}
	for _, vip := range vips[:min(len(vips), MaxEntries)] {
		for len(old) > 0 && old[0].Addr.Less(vip.Addr) {
			forget()
		}
		if len(old) > 0 && old[0].Addr == vip.Addr {
			same := old[0] == vip
			if old = old[1:]; same {
				continue
			}
		}
		if e, news := o.enter(&vip, v); news {
			changed = append(changed, e)
		} else {
			quiet = true
		}
	}
	for len(old) > 0 {
		forget()
	}
	return append(changed, gone...), quiet
}

// enter stores one entry; news: it says something else than the one before.
func (o *Own) enter(vip *model.GroupVIP, v uint64) (e Entry, news bool) {
	word, degraded := encodeStanding(vip)
	e = Entry{
		Addr: vip.Addr, Standing: word, Degraded: degraded,
		Epoch: min(vip.Claim.Epoch, MaxNumber), Seen: min(vip.Seen, MaxNumber), Holds: vip.Holds, Name: vip.Name,
	}
	if e.Epoch != 0 {
		e.To, e.Weak = string(vip.Claim.To), vip.Claim.Weak
		e.Duplicate = vip.Claim.Duplicate.String()
		e.Servers, e.Out = uint64(vip.Claim.Verdict.Servers), Bits(vip.Claim.Verdict.Out)
	}
	old := o.entries[vip.Addr]
	e.V = old.V
	old.Seen = e.Seen
	if news = e != old; news {
		e.V = v
	}
	o.entries[vip.Addr] = e
	return e, news
}

// sameVIPs compares two lists, at a glance if they are one.
func sameVIPs(a, b []model.GroupVIP) bool { return model.SameList(a, b) || slices.Equal(a, b) }

// ManyEntries tells whether the whole record cannot fit one datagram.
func (o *Own) ManyEntries() bool {
	o.mu.Lock()
	defer o.mu.Unlock()
	return len(o.entries) > MaxPacket/len(`{"a":"::","v":1},`)
}

func (o *Own) record() Record {
	return Record{Name: string(o.name), Inc: o.inc, Seq: o.seq}
}

// Full is the whole record.
func (o *Own) Full() Record {
	o.mu.Lock()
	defer o.mu.Unlock()
	return o.whole()
}

// whole is Full; the lock is held.
func (o *Own) whole() Record {
	r := o.record()
	r.Head, r.Machines = new(o.head), o.toldMachines()
	if o.complete {
		r.Full = o.seq
	}
	r.Entries = o.list()
	return r
}

// Claims returns the own claims for these addresses, as a part of the record.
func (o *Own) Claims(addrs []netip.Addr) Record {
	o.mu.Lock()
	defer o.mu.Unlock()
	r := o.record()
	for _, a := range addrs {
		if e, ok := o.entries[a]; ok && e.Epoch != 0 {
			r.Entries = append(r.Entries, e)
		}
	}
	return r
}

// Claiming tells whether there is any own claim.
func (o *Own) Claiming() bool {
	o.mu.Lock()
	defer o.mu.Unlock()
	for _, e := range o.entries {
		if e.Epoch != 0 {
			return true
		}
	}
	return false
}

// Epoch is that of the own claim for the address, 0 if there is none.
func (o *Own) Epoch(a netip.Addr) uint64 {
	o.mu.Lock()
	defer o.mu.Unlock()
	return o.entries[a].Epoch
}

// Settled is what was told of this node.
func (o *Own) Settled() bool {
	o.mu.Lock()
	defer o.mu.Unlock()
	return o.head.Settled
}

// Life is the present incarnation.
func (o *Own) Life() uint64 {
	o.mu.Lock()
	defer o.mu.Unlock()
	return o.inc
}

// SetKeys tells the others which keys are known here.
func (o *Own) SetKeys(fingerprints []string) (part Record, ok bool) {
	o.mu.Lock()
	defer o.mu.Unlock()
	if slices.Equal(o.head.Keys, fingerprints) {
		return Record{}, false
	}
	o.seq++
	o.head.Keys, o.head.V = fingerprints, o.seq
	part = o.record()
	part.Head = new(o.head)
	return part, true
}

// Raise continues above a life of this node that somebody knows: the clock of
// the host went backwards between two starts. It reports whether it did; once a
// second at most, so that two nodes with one name do not drive each other up.
func (o *Own) Raise(known uint64, now time.Time) bool {
	o.mu.Lock()
	defer o.mu.Unlock()
	if known < o.inc || known >= MaxNumber || !o.raised.IsZero() && now.Sub(o.raised) < time.Second {
		return false
	}
	o.inc, o.raised = known+1, now
	return true
}

// Leave turns the record into the last one: gone, and no claims.
func (o *Own) Leave() Record {
	o.mu.Lock()
	defer o.mu.Unlock()
	o.seq++
	o.head.Left, o.head.V = true, o.seq
	r := o.record()
	r.Head = new(o.head)
	o.vips = slices.Clone(o.vips)
	for i, vip := range o.vips {
		e, ok := o.entries[vip.Addr]
		if !ok || e.Epoch == 0 {
			continue
		}
		e.Epoch, e.To, e.Weak, e.Duplicate, e.V, e.Standing, e.Degraded = 0, "", false, "", o.seq, model.ReasonDraining.String(), false
		e.Servers, e.Out = 0, ""
		o.entries[vip.Addr] = e
		o.vips[i].Claim = model.Claim{}
		r.Entries = append(r.Entries, e)
	}
	return r
}

func sameHead(a, b *Head) bool {
	return a.Draining == b.Draining && a.Drained == b.Drained && a.Settled == b.Settled && a.Left == b.Left && a.Rules == b.Rules &&
		a.Weight == b.Weight && a.Version == b.Version && slices.Equal(a.MACs, b.MACs) && slices.Equal(a.Addrs, b.Addrs) && slices.Equal(a.Hears, b.Hears) && slices.Equal(a.Keys, b.Keys) && a.Format == b.Format
}

// Told changes with all that is worth a message of its own.
func (o *Own) Told() uint64 {
	o.mu.Lock()
	defer o.mu.Unlock()
	return o.seq - o.quiet
}

// Format is that in which the group is told: the newest that all its members read.
func (o *Own) Format() Format {
	o.mu.Lock()
	defer o.mu.Unlock()
	return o.format
}

// SetFormat sets Format, and reports whether it changed.
func (o *Own) SetFormat(f Format) bool {
	o.mu.Lock()
	defer o.mu.Unlock()
	changed := o.format != f
	o.format = f
	return changed
}

// Version changes with everything that full exchanges tell.
func (o *Own) Version() (inc, seq uint64) {
	o.mu.Lock()
	defer o.mu.Unlock()
	return o.inc, o.seq
}

// Has tells whether the node has a standing for the address.
func (o *Own) Has(a netip.Addr) bool {
	o.mu.Lock()
	defer o.mu.Unlock()
	_, ok := o.entries[a]
	return ok
}
