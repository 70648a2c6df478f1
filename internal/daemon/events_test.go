package daemon_test

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"testing"
	"time"

	"lbd.dev/lbd/api/v1alpha1"
	"lbd.dev/lbd/internal/daemon"
	"lbd.dev/lbd/internal/model"
)

// TestEvents asks a running daemon what has happened: a drain, a new owner, and its death.
func TestEvents(t *testing.T) {
	run(t, func(t *testing.T, b *bed) {
		ask := func(vip string, since time.Duration, after uint64) v1alpha1.NodeEvents {
			t.Helper()
			e, err := b.daemon.Events(t.Context(), vip, since, after)
			if err != nil {
				t.Fatal(err)
			}
			return e
		}
		lines := func(e v1alpha1.NodeEvents) (out []string) {
			for _, x := range e.Events {
				out = append(out, strings.Join(strings.Fields(fmt.Sprintf("%s %s %s>%s %s", x.Kind, x.VIP, x.From, x.To, x.Reason)), " "))
			}
			return out
		}
		b.own()
		begin := ask("", 0, 0)
		if got := lines(begin); got[0] != "daemon >started" || !slices.Contains(got, "member >alive") || !slices.Contains(got, "announced cp >m1") && !slices.Contains(got, "reason cp TakingOver>Owner") {
			t.Errorf("at the begin %q", got)
		}
		if begin.Node != "m1" || begin.Version != "v1" || !begin.Started.Equal(b.begin) || begin.Newest != uint64(len(begin.Events)) || begin.Forgotten != 0 {
			t.Errorf("%+v", begin)
		}

		if err := b.daemon.SetDraining(t.Context(), true); err != nil {
			t.Fatal(err)
		}
		pass(10 * time.Millisecond)
		b.claim()
		pass(3 * time.Second)
		drained := lines(ask("", 0, begin.Newest))
		want := []string{"drain >draining Draining", "standing cp Standby>Draining", "reason cp Owner>HandingOver", "owner cp m1>m2 Draining"}
		if len(drained) < len(want) || !slices.Equal(drained[:len(want)], want) {
			t.Errorf("drained\n got %q\nwant %q", drained, want)
		}
		if err := b.daemon.SetDraining(t.Context(), false); err != nil {
			t.Fatal(err)
		}
		pass(time.Second)

		// The new owner dies, and m1 takes over.
		before := ask("", 0, 0).Newest
		b.gossip.Set(func(v *model.View) {
			group(b.begin, model.Claim{Owner: "m2", Epoch: b.sink.last().VIPs[0].Seen})(v)
			m := v.Gossip.Members["m2"]
			m.State = model.MemberDead
			v.Gossip.Members["m2"] = m
		})
		pass(3 * time.Second)
		took := ask("cp", 0, before)
		if got := lines(took); !slices.Contains(got, "owner cp m2>m1 Dead") || !slices.Contains(got, "announced cp m2>m1") {
			t.Errorf("took over: %q", got)
		}
		for _, e := range took.Events {
			d, err := time.ParseDuration(e.Gap)
			if is := e.Kind == v1alpha1.EventOwner || e.Kind == v1alpha1.EventAnnounced; is && (err != nil || d <= 0 || d > time.Second) {
				t.Errorf("%s: gap %q", e.Kind, e.Gap)
			}
			if e.Mode != "l2" || e.Address != vip.String() || e.Node != "m1" {
				t.Errorf("%+v", e)
			}
		}

		// Old ones, and questions.
		if got := lines(ask("", 4*time.Second, 0)); slices.Contains(got, "daemon >started") || !slices.Contains(got, "member alive>dead") {
			t.Errorf("within four seconds: %q", got)
		}
		for _, vip := range []string{"10.0.0.200", "::ffff:10.0.0.200"} {
			if got := lines(ask(vip, 0, before)); !slices.Equal(got, lines(took)) {
				t.Errorf("by address %s: %q", vip, got)
			}
		}
		if _, err := b.daemon.Events(t.Context(), "nope", 0, 0); !errors.Is(err, daemon.ErrUnknownVIP) || !strings.Contains(err.Error(), `["cp"]`) {
			t.Errorf("unknown VIP: %v", err)
		}
		if e := ask("cp", time.Nanosecond, 0); len(e.Events) != 0 {
			t.Errorf("no event is so new: %q", lines(e))
		}

		// One that is configured no more has events still.
		b.config.Set(func(v *model.View) { v.VIPs = nil })
		pass(100 * time.Millisecond)
		if got := lines(ask("cp", 0, 0)); got[len(got)-1] != "vip cp configured>" {
			t.Errorf("removed: %q", got)
		}
	})
}

// TestEventsCostNoDecision: somebody who asks again and again does not keep the daemon busy,
// and is not kept waiting for one that hangs.
func TestEventsCostNoDecision(t *testing.T) {
	run(t, func(t *testing.T, b *bed) {
		b.own()
		pass(time.Second)
		gen, turns := b.sink.newest().Gen, b.turns()
		for range 1000 {
			if _, err := b.daemon.Events(t.Context(), "", 0, 0); err != nil {
				t.Fatal(err)
			}
		}
		if is := b.sink.newest().Gen; is != gen || b.turns() != turns {
			t.Errorf("generation %d, %d turns; before %d, %d", is, b.turns(), gen, turns)
		}
		b.proc.Freeze()
		ctx, cancel := context.WithTimeout(t.Context(), 2*time.Second)
		defer cancel()
		begin := time.Now()
		pass(time.Second) // until the loop stands
		if _, err := b.daemon.Events(ctx, "", 0, 0); !errors.Is(err, context.DeadlineExceeded) || time.Since(begin) > 3*time.Second {
			t.Errorf("%v after %s", err, time.Since(begin))
		}
	})
}

// TestBackendEvents: a backend that counts otherwise than before is an event, one that is only
// checked anew is none.
func TestBackendEvents(t *testing.T) {
	run(t, func(t *testing.T, b *bed) {
		b.own()
		newest := uint64(0)
		balancer := func(servers ...model.Server) {
			b.config.Set(func(v *model.View) {
				v.VIPs = []model.VIP{{Addr: vip, Name: "cp", Kind: "VirtualIP", L2: true, Check: "api"}}
				v.LoadBalancers = []model.LoadBalancer{{Name: "web", Servers: servers}}
			})
		}
		states := func(a, c model.Health) {
			b.health.Set(func(v *model.View) {
				v.Health = map[string]model.HealthState{"api": {State: model.HealthUp}, "a": {State: a, Detail: "refused"}, "c": {State: c}}
			})
		}
		happened := func(what string, want ...string) {
			t.Helper()
			pass(10 * time.Millisecond)
			e, err := b.daemon.Events(t.Context(), "", 0, newest)
			if err != nil {
				t.Fatal(err)
			}
			newest = e.Newest
			var got []string
			for _, x := range e.Events {
				if x.Kind == v1alpha1.EventBackend {
					got = append(got, fmt.Sprintf("%s %s %s>%s %s", x.VIP, x.Address, x.From, x.To, x.Detail))
				}
			}
			if !slices.Equal(got, want) {
				t.Errorf("%s:\n got %q\nwant %q", what, got, want)
			}
		}
		one, two := model.Server{Addr: vip.Next(), Port: 8080, Weight: 1, Check: "a"}, model.Server{Addr: vip.Next().Next(), Weight: 1}
		balancer(one, two)
		happened("nothing is known of the first", "web "+two.Addr.String()+" >up ")
		states(model.HealthUp, model.HealthUp)
		happened("its check passes", "web "+one.Addr.String()+":8080 >up ")
		states(model.HealthUp, model.HealthDown)
		happened("a check of something else fails")
		states(model.HealthDown, model.HealthDown)
		happened("its check fails", "web "+one.Addr.String()+":8080 up>down refused")
		states(model.HealthUnknown, model.HealthDown)
		happened("it is checked anew")
		states(model.HealthUp, model.HealthDown)
		happened("and passes", "web "+one.Addr.String()+":8080 down>up ")
		one.Weight = 0
		balancer(one, two)
		happened("drained", "web "+one.Addr.String()+":8080 up>out of service its weight is 0")
		if e, err := b.daemon.Events(t.Context(), "web", 0, 0); err != nil || len(e.Events) == 0 || e.Events[len(e.Events)-1].Kind != v1alpha1.EventBackend {
			t.Errorf("asked for the LoadBalancer: %+v, %v", e.Events, err)
		}
		balancer(one)
		happened("removed", "web "+two.Addr.String()+" up> ")
	})
}
