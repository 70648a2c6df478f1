package gossip

import (
	"flag"
	"net/netip"
	"runtime"
	"slices"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"golang.org/x/sys/unix"

	"lbd.dev/lbd/internal/model"
)

// members is how many members TestSize has; docs/benchmarks.md has its figures for thousands.
var members = flag.Int("members", 40, "members of TestSize")

// crowd is a large group in a bubble: real members, links in memory, simulated time.
type crowd struct {
	*lab
	all   []*member
	bytes atomic.Uint64 // in packets
}

// crowdAddr is the address of member i, from 1 on.
func crowdAddr(i int) netip.Addr { return netip.AddrFrom4([4]byte{10, 1, byte(i >> 8), byte(i)}) }

func (c *crowd) add(i int) {
	m := c.start(i, func(o *Options) {
		o.BindAddr, o.Peers = crowdAddr(i), []string{crowdAddr(1).String(), crowdAddr(2).String(), crowdAddr(3).String()}
	})
	if i <= len(c.all) {
		c.all[i-1] = m
	} else {
		c.all = append(c.all, m)
	}
}

// until waits until the condition holds for all members but those that it leaves out, and says how
// long that took.
func (c *crowd) until(limit time.Duration, what string, holds func(m *member) bool, without ...*member) {
	c.t.Helper()
	began := time.Now()
	waits := slices.DeleteFunc(slices.Clone(c.all), func(m *member) bool { return slices.Contains(without, m) })
	for {
		synctest.Wait()
		waits = slices.DeleteFunc(waits, holds)
		if len(waits) == 0 {
			c.t.Logf("%s: %.2f s", what, time.Since(began).Seconds())
			return
		}
		if time.Since(began) >= limit {
			c.t.Fatalf("not within %s: %s: %d members wait", limit, what, len(waits))
		}
		time.Sleep(10 * time.Millisecond)
	}
}

// count is how many others a member takes for alive.
func (m *member) count() (n int) {
	return see(m, func(g *model.Gossip) int {
		for _, x := range g.Members {
			if x.State == model.MemberAlive {
				n++
			}
		}
		return n
	})
}

// used is the processor time of this process so far.
func used() time.Duration {
	var r unix.Rusage
	_ = unix.Getrusage(unix.RUSAGE_SELF, &r) // fails for no process that asks about itself
	return time.Duration(r.Utime.Nano() + r.Stime.Nano())
}

// cost tells what f costs a member for each second that it takes.
func (c *crowd) cost(what string, f func()) (packets, bytes float64) {
	began, sent, inPackets, streamed, cpu := time.Now(), c.net.Sent(), c.bytes.Load(), c.net.Streamed(), used()
	f()
	each := time.Since(began).Seconds() * float64(len(c.all))
	packets, bytes = float64(c.net.Sent()-sent)/each, float64(c.bytes.Load()-inPackets+c.net.Streamed()-streamed)/each
	c.t.Logf("%s: %.1f packets/s, %.2f KB/s (streams %.2f), %.3f %% of a core a member", what,
		packets, bytes/1000, float64(c.net.Streamed()-streamed)/each/1000, 100*(used()-cpu).Seconds()/each)
	return packets, bytes
}

// TestSize is the life of a large group: all start at once, one more comes, an owner dies, a node is
// drained, half of them are cut off for a minute, and all start anew within 30 s. What an idle member
// sends does not depend on how many there are, and nobody is forgotten.
func TestSize(t *testing.T) {
	n := *members
	bubble(t, func(l *lab) {
		c := &crowd{lab: l}
		c.net.SetLatency(200 * time.Microsecond)
		c.net.SetLoss(func(_, _ netip.AddrPort, size int) bool {
			c.bytes.Add(uint64(size))
			return false
		})
		c.cost("start of all at once", func() {
			for i := 1; i <= n; i++ {
				c.add(i)
			}
			c.until(2*time.Minute, "all know all", func(m *member) bool { return m.count() == n-1 })
		})
		for _, m := range c.all {
			m.standby(vip1)
		}
		owner, next, third := c.all[0], c.all[1], c.all[2]
		owner.claim(vip1, 1, next.name, third.name)
		c.until(2*time.Minute, "all know the owner", func(m *member) bool { return len(m.claims(vip1)) == 1 }, owner)
		c.until(2*time.Minute, "all have heard from all", func(m *member) bool {
			return see(m, func(g *model.Gossip) bool {
				for _, x := range g.Members {
					if !x.Known {
						return false
					}
				}
				return true
			})
		})
		time.Sleep(time.Minute) // full exchanges
		var heap runtime.MemStats
		runtime.GC()
		runtime.ReadMemStats(&heap)
		t.Logf("%d members: heap of %.2f MiB a member", n, float64(heap.HeapAlloc)/float64(n)/(1<<20))
		if packets, bytes := c.cost("idle", func() { time.Sleep(30 * time.Second) }); packets > 10 || bytes > 20_000 {
			t.Errorf("an idle member sends %.1f packets, %.0f bytes a second", packets, bytes)
		}
		c.changes(owner, next, third)
		c.storms()
	})
}

// changes has one member come, one die and one drained.
func (c *crowd) changes(owner, next, third *member) {
	n := len(c.all)
	c.add(n + 1)
	c.until(30*time.Second, "all know one more", func(m *member) bool { return m.count() == n })
	time.Sleep(followUps[len(followUps)-1] + time.Second)
	newest := c.all[n]
	newest.mu.Lock()
	if n > joinAlone && newest.exchanges < 1+len(followUps) {
		c.t.Errorf("the newest has exchanged all %d times", newest.exchanges)
	}
	newest.mu.Unlock()
	owner.kill()
	delete(c.nodes, string(owner.name))
	began := time.Now()
	for _, m := range []*member{next, third} {
		c.within(2*time.Second, "the death of the owner is noticed", func() bool { return !m.other(owner.name).Late.IsZero() })
	}
	c.t.Logf("its successors miss the owner: %.3f s", time.Since(began).Seconds())
	c.until(time.Minute, "all know of the death", func(m *member) bool { return m.count() == n-1 }, owner)
	next.apply(func(gs *model.GroupState) { gs.Draining = true })
	c.until(30*time.Second, "all know of a drain", func(m *member) bool { return m.other(next.name).Draining }, owner, next)
	c.add(1)
	c.until(30*time.Second, "the dead one is back", func(m *member) bool { return m.count() == n })
}

// storms cuts half of the group off for a minute, and starts all anew within half a minute.
func (c *crowd) storms() {
	n := len(c.all)
	var halves [2][]netip.Addr
	for i := range c.all {
		halves[i%2] = append(halves[i%2], crowdAddr(i+1))
	}
	c.cost("halves apart for a minute", func() {
		c.net.Partition(halves[:]...)
		time.Sleep(time.Minute)
	})
	c.cost("together again", func() {
		c.net.Heal()
		c.until(3*time.Minute, "the halves know each other", func(m *member) bool { return m.count() == n-1 })
	})
	c.cost("all start anew within 30 s", func() {
		for i, m := range c.all {
			m.kill()
			c.add(i + 1)
			time.Sleep(30 * time.Second / time.Duration(n))
		}
		c.until(2*time.Minute, "all know all again", func(m *member) bool { return m.count() == n-1 })
	})
	c.until(time.Minute, "and what each says", func(m *member) bool {
		return see(m, func(g *model.Gossip) bool {
			for _, x := range g.Members {
				if !x.Known || x.State != model.MemberAlive {
					return false
				}
			}
			return len(g.Members) == n-1
		})
	})
}

// TestAtOnce: the larger a group, the fewer attempts each member makes at a time, and never none.
func TestAtOnce(t *testing.T) {
	for alive, want := range map[int]int{0: joinAtOnce, joinAlone: joinAtOnce, 2 * joinAlone: joinAtOnce / 2, 5000: 1} {
		if got := atOnce(alive); got != want {
			t.Errorf("with %d members %d attempts, want %d", alive, got, want)
		}
	}
}
