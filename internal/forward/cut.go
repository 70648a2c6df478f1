package forward

import (
	"fmt"
	"net/netip"
	"time"

	"lbd.dev/lbd/internal/model"
	"lbd.dev/lbd/internal/sockdiag"
)

// forgetTimeout bounds how long entries of connection tracking are deleted.
const forgetTimeout = 5 * time.Second

// looks are when to look for the connections of a server, after it is to have none: a
// packet that was on its way while the rules changed may have begun one. The second look comes
// long before a client sends its first packet again, after 1 s: the same packet would go to
// the same server, and the client would wait 1 s more.
var looks = [...]time.Duration{0, 100 * time.Millisecond, 4 * time.Second}

// cuts are the servers whose connections are to end.
type cuts struct {
	servers map[model.CutServer]*cut
	timer   *time.Timer // nil: no look is due later
}

// cut is one of them.
type cut struct {
	since time.Time
	looks int // so many are done
}

func (c *cut) due(now time.Time) bool { return c.looks < len(looks) && !now.Before(c.next()) }

func (c *cut) next() time.Time { return c.since.Add(looks[c.looks]) }

func (c *cuts) stop() {
	if c.timer != nil {
		c.timer.Stop()
	}
}

// want keeps the memory of the servers that are wanted, and tells of which connections are
// to be looked for now.
func (c *cuts) want(servers []model.CutServer, now time.Time) map[model.CutServer]*cut {
	all, due := make(map[model.CutServer]*cut, len(servers)), make(map[model.CutServer]*cut)
	for _, s := range servers {
		if all[s] = c.servers[s]; all[s] == nil {
			all[s] = &cut{since: now}
		}
		if all[s].due(now) {
			due[s] = all[s]
		}
	}
	c.servers = all
	return due
}

// arm has wake called when the next look is due.
func (c *cuts) arm(wake func(), now time.Time) {
	c.stop()
	c.timer = nil
	var first time.Time
	for _, s := range c.servers {
		if s.looks < len(looks) && (first.IsZero() || s.next().Before(first)) {
			first = s.next()
		}
	}
	if !first.IsZero() {
		c.timer = time.AfterFunc(first.Sub(now), wake)
	}
}

// service is one, as connection tracking has it.
type service struct {
	protocol uint8
	at       netip.AddrPort
}

// settle has connection tracking forget what does not fit the rules that are in force: the
// connections of servers that are to have none, and what came for a service before it had
// rules, and would never be translated.
func (d *Driver) settle(services [len(families)][]*model.ForwardService, cut []model.CutServer, now time.Time) error {
	ready := make([]model.CutServer, 0, len(cut))
	for _, c := range cut {
		if d.tables[familyOf(c.VIP)].known() {
			ready = append(ready, c)
		}
	}
	due, fresh := d.cuts.want(ready, now), make(map[service]bool)
	for f := range d.tables {
		if !d.tables[f].grown {
			continue
		}
		for _, s := range services[f] {
			fresh[service{uint8(s.Protocol), netip.AddrPortFrom(s.Addr, s.Port)}] = true
		}
	}
	if len(due) > 0 || len(fresh) > 0 {
		n, err := sockdiag.Forget(func(e sockdiag.Entry) bool {
			if !e.Translated {
				// One that its server has begun here is that of a VIP, too.
				_, is := due[model.CutServer{VIP: e.Seen.Addr(), Server: e.From, Protocol: model.Protocol(e.Protocol)}]
				return is || fresh[service{e.Protocol, e.To}]
			}
			of := model.CutServer{VIP: e.To.Addr(), Server: e.Server, Protocol: model.Protocol(e.Protocol)}
			_, is := due[of]
			of.Unanswered = true
			_, unanswered := due[of]
			return is || unanswered && !e.Answered
		}, time.Now().Add(forgetTimeout))
		if err != nil {
			return fmt.Errorf("forward: %w", err)
		}
		if n > 0 {
			d.log.Info("ended connections", "count", n, "servers", len(due))
		}
	}
	for _, c := range due {
		c.looks++
	}
	for f := range d.tables {
		d.tables[f].grown = false
	}
	d.cuts.arm(d.wake, now)
	return nil
}
