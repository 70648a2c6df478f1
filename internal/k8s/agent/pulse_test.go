package agent

import (
	"net/http"
	"strings"
	"testing"
	"time"

	"lbd.dev/lbd/internal/tenants"
)

const leasesOf = "coordination.k8s.io/v1/leases"

// renewed is when the agent gave its last sign of life in the hub, and who did.
func (b *bed) renewed() string {
	spec, _ := b.hub.Get(leasesOf, namespace, tenants.PulseName)["spec"].(map[string]any)
	at, _ := spec["renewTime"].(string)
	who, _ := spec["holderIdentity"].(string)
	return strings.TrimSpace(at + " " + who)
}

// TestPulse: the agent that leads tells the hub that it is there, as long as it sees both clusters. It makes
// no Lease, and says so if it lacks it, or the right.
func TestPulse(t *testing.T) {
	t.Parallel()
	b := newBed(t)
	b.node("a", "10.1.0.1")
	a := b.agent("one", b.hub)
	a.o.Secret = "lbd-hub"
	b.run(a)
	b.eventually("its own first sign of life, and the last for a minute", func() bool { return strings.HasSuffix(b.renewed(), " one") })
	b.hub.Delete(leasesOf, namespace, tenants.PulseName)
	without := &pulse{a: a}
	without.beat(t.Context(), time.Now())
	without.beat(t.Context(), time.Now())
	if b.hub.Get(leasesOf, namespace, tenants.PulseName) != nil || !strings.Contains(without.said, "lbd tenant create") {
		t.Fatalf("it made a Lease, or it says %q", without.said)
	}
	const denied = "lbd-agent/lbd-hub Warning HubDenied: the hub takes no sign of life: "
	b.eventually("an event says so", func() bool { return strings.Contains(strings.Join(b.told(), "\n"), denied) })
	b.lease()
	p, now := &pulse{a: a}, time.Date(2026, 1, 2, 3, 4, 5, 6000, time.UTC)
	b.eventually("renewed", func() bool {
		p.beat(t.Context(), now)
		return b.renewed() == "2026-01-02T03:04:05.000006Z one"
	})
	b.hub.Gate(func(r *http.Request) int {
		if strings.Contains(r.URL.Path, "/leases/") {
			return http.StatusForbidden
		}
		return 0
	})
	p.beat(t.Context(), now.Add(time.Minute))
	if !strings.Contains(p.said, "lbd tenant create") {
		t.Errorf("without the right it says %q", p.said)
	}
	events := func() int { return strings.Count(strings.Join(b.told(), "\n"), denied) }
	b.eventually("a second event says so", func() bool { return events() > 1 })
	time.Sleep(300 * time.Millisecond) // for one that is one too many
	if n := events(); n != 2 {
		t.Errorf("%d events, want one for each time", n)
	}
	b.hub.Gate(nil)
	p.beat(t.Context(), now.Add(2*time.Minute))
	if got := b.renewed(); got != "2026-01-02T03:06:05.000006Z one" || p.said != "" {
		t.Errorf("renewed: %s; it says %q", got, p.said)
	}
	b.tenant.Stop()
	b.eventually("the tenant is lost", func() bool { return a.lost(SideTenant, lostAfter) != nil })
	p.beat(t.Context(), now.Add(3*time.Minute))
	if got := b.renewed(); got != "2026-01-02T03:06:05.000006Z one" {
		t.Error("renewed without a sight of its cluster:", got)
	}
}

// TestPulseAtStart: the sign of life comes as soon as the agent leads, and again.
func TestPulseAtStart(t *testing.T) {
	t.Parallel()
	b := newBed(t)
	a, _ := b.start("one")
	b.eventually("it says that it is there", func() bool { return strings.HasSuffix(b.renewed(), " one") })
	first := b.renewed()
	go (&pulse{a: a, every: 20 * time.Millisecond}).run(t.Context())
	b.eventually("it says so again", func() bool { return b.renewed() != first })
}
