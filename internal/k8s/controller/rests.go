package controller

import (
	"cmp"
	"maps"
	"net/netip"
	"slices"
	"strconv"
	"strings"
	"sync"
	"time"

	"lbd.dev/lbd/internal/allocator"
	"lbd.dev/lbd/internal/model"
)

// maxRests bounds the addresses in the note of a Lease, which is written every two
// seconds: those that rest for longest stay.
const maxRests = 2000

// freed remembers, in each process whether it leads or not, which addresses have gone
// from the statuses of Services and of what stands for one. One that begins to lead must not give them out while
// clients still send to them, also if nobody led when they were freed.
type freed struct {
	rest time.Duration

	mu    sync.Mutex // guards all below
	shown map[model.Key][]netip.Addr
	until map[netip.Addr]time.Time
	swept time.Time
}

func newFreed(rest time.Duration) *freed {
	return &freed{rest: rest, shown: map[model.Key][]netip.Addr{}, until: map[netip.Addr]time.Time{}}
}

// see takes over which addresses objects show now.
func (f *freed) see(keys []model.Key, get func(model.Key) []netip.Addr, now time.Time) {
	f.mu.Lock()
	defer f.mu.Unlock()
	for _, k := range keys {
		is := get(k)
		for _, addr := range f.shown[k] {
			if !slices.Contains(is, addr) {
				f.until[addr] = now.Add(f.rest)
			}
		}
		if len(is) > 0 {
			f.shown[k] = is
		} else {
			delete(f.shown, k)
		}
	}
	if now.Sub(f.swept) > f.rest {
		f.swept = now
		maps.DeleteFunc(f.until, func(_ netip.Addr, until time.Time) bool { return !until.After(now) })
	}
}

// seeAs is see for objects of a kind that stand as Services.
func (f *freed) seeAs(kind string, keys []model.Key, get func(model.Key) []netip.Addr, now time.Time) {
	of := make(map[model.Key]model.Key, len(keys))
	named := make([]model.Key, len(keys))
	for i, k := range keys {
		named[i] = standInKey(kind, k)
		of[named[i]] = k
	}
	f.see(named, func(k model.Key) []netip.Addr { return get(of[k]) }, now)
}

// resting returns the addresses that still rest, as far as this process saw and by the
// note of the leader before. Its clock may differ.
func (f *freed) resting(note string, now time.Time) map[netip.Addr]time.Time {
	all := parseRests(note)
	f.mu.Lock()
	defer f.mu.Unlock()
	for addr, until := range f.until {
		if all[addr].Before(until) {
			all[addr] = until
		}
	}
	for addr, until := range all {
		if until.After(now.Add(f.rest)) {
			all[addr] = now.Add(f.rest)
		}
	}
	maps.DeleteFunc(all, func(_ netip.Addr, until time.Time) bool { return !until.After(now) })
	return all
}

// formatRests is the note: for each second in which addresses cease to rest that second
// and the addresses, as in "1763719260=192.0.2.1,192.0.2.7 1763719261=2001:db8::1".
func formatRests(all map[netip.Addr]time.Time) string {
	addrs := slices.SortedFunc(maps.Keys(all), func(a, b netip.Addr) int {
		return cmp.Or(all[b].Compare(all[a]), a.Compare(b))
	})
	var b strings.Builder
	last := int64(0)
	for _, addr := range addrs[:min(len(addrs), maxRests)] {
		at := all[addr].Add(time.Second - 1).Unix() // not too short
		switch {
		case at == last:
			b.WriteByte(',')
		default:
			if b.Len() > 0 {
				b.WriteByte(' ')
			}
			b.WriteString(strconv.FormatInt(at, 10) + "=")
			last = at
		}
		b.WriteString(addr.String())
	}
	return b.String()
}

// parseRests reads a note; what is wrong in it does not count.
func parseRests(note string) map[netip.Addr]time.Time {
	all := map[netip.Addr]time.Time{}
	for part := range strings.FieldsSeq(note) {
		text, list, _ := strings.Cut(part, "=")
		at, err := strconv.ParseInt(text, 10, 64)
		if err != nil {
			continue
		}
		for text := range strings.SplitSeq(list, ",") {
			if addr, err := netip.ParseAddr(text); err == nil {
				all[addr] = time.Unix(at, 0)
			}
		}
	}
	return all
}

// restNote is what the note of the Lease says of the addresses that rest.
type restNote struct {
	told     bool      // it is by this leader
	released uint64    // Counts.Released when it was written
	ends     time.Time // when the last address of it ceases to rest
}

// news returns which addresses rest, if that has changed.
func (n *restNote) news(a *allocator.Allocator, now time.Time) (all map[netip.Addr]time.Time, changed bool) {
	released := a.Counts().Released
	if n.told && released == n.released && (n.ends.IsZero() || now.Before(n.ends)) {
		return nil, false
	}
	*n = restNote{told: true, released: released}
	all = a.Resting()
	for _, until := range all {
		n.ends = model.Latest(n.ends, until)
	}
	return all, true
}

// restsEvery is the time between two looks at the addresses of tenants that rest, while there are any.
const restsEvery = time.Second

// tenantRests is what tenants know of the addresses that rest.
type tenantRests struct {
	released uint64 // Counts.Released at the last look
	next     time.Time
}

// look tells the tenants if what rests may have changed, and returns when to look again.
func (r *tenantRests) look(t *tenantServices, a *allocator.Allocator, now time.Time) time.Time {
	if released := a.Counts().Released; released != r.released || !now.Before(r.next) {
		*r = tenantRests{released, now.Add(beat)}
		if t.rest(a.GaveUp()) {
			r.next = now.Add(restsEvery)
		}
	}
	return r.next
}
