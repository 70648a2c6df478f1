package controller

import (
	"fmt"
	"net/http"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"lbd.dev/lbd/internal/tenants"
)

// TestPulses: an agent counts as away when the Lease by which it says that it is there has not changed for
// long, by the clock of the controller that leads; one that never said so does not.
func TestPulses(t *testing.T) {
	const leases = "coordination.k8s.io/v1/leases"
	api := hubAPI(t)
	putTenant(api, "zoo", old, `{"clusters":[{"name":"main","namespace":"zoo","nodeCIDRs":["10.2.0.0/24"]},{"name":"two","namespace":"zoo-2","nodeCIDRs":["10.3.0.0/24"]}],"pools":["public"]}`)
	beat := func(namespace, renewed string) {
		putSpec(api, leases, namespace, tenants.PulseName, old, fmt.Sprintf(`{"renewTime":%q}`, renewed))
	}
	beat("shop", "2026-01-01T00:00:00.000000Z") // its clock is wrong
	putSpec(api, leases, "zoo-2", tenants.PulseName, old, `{}`)
	c := build(t, api, "c1")
	c.pulses.every = 20 * time.Millisecond
	p := run(t, c)
	says := func() string {
		var out []string
		use := c.TenantUse()
		for _, tenant := range []string{"shop", "zoo"} {
			for _, cluster := range []string{"main", "two"} {
				if away, ok := use[tenant].Away[cluster]; ok {
					out = append(out, fmt.Sprintf("%s/%s %t", tenant, cluster, away))
				}
			}
		}
		return strings.Join(out, ", ")
	}
	become := func(want string) {
		t.Helper()
		for end := time.Now().Add(20 * time.Second); says() != want; time.Sleep(10 * time.Millisecond) {
			if time.Now().After(end) {
				t.Fatalf("%q, not %q", says(), want)
			}
		}
	}
	become("shop/main false")
	seen := func() time.Time {
		c.pulses.mu.Lock()
		defer c.pulses.mu.Unlock()
		return c.pulses.last["shop"].seen
	}
	first := seen()
	q := &pulses{c: c, last: map[string]pulse{}}
	var failing atomic.Bool
	api.Gate(func(r *http.Request) int {
		if failing.Load() && strings.HasSuffix(r.URL.Path, "/leases/"+tenants.PulseName) {
			return http.StatusInternalServerError
		}
		return 0
	})
	at := func(after time.Duration) bool {
		q.listen(t.Context(), first.Add(after))
		return q.away()["shop"]
	}
	if at(0) || at(tenants.AwayAfter) {
		t.Error("it counts as away too soon")
	}
	failing.Store(true)
	if at(tenants.AwayAfter + time.Second) {
		t.Error("it counts as away because the API server does not answer")
	}
	failing.Store(false)
	if !at(tenants.AwayAfter + time.Second) {
		t.Error("it does not count as away")
	}
	for what, change := range map[string]func(){ // with which nobody can renew it
		"gone":      func() { api.Delete(leases, "shop", tenants.PulseName) },
		"made anew": func() { putSpec(api, leases, "shop", tenants.PulseName, old, `{}`) },
	} {
		change()
		q = &pulses{c: c, last: map[string]pulse{"shop": q.last["shop"]}}
		if !at(tenants.AwayAfter + time.Second) {
			t.Errorf("its Lease is %s, and it does not count as away", what)
		}
		become("shop/main false")
	}
	beat("shop", "2026-01-01T00:00:00.000000Z")
	beat("zoo-2", "2026-02-01T00:00:00.000000Z")
	become("shop/main false, zoo/two false")
	if got := seen(); got != first {
		t.Error("an old sign of life was taken for a new one")
	}
	beat("shop", "2026-01-01T00:01:00.000000Z")
	for end := time.Now().Add(20 * time.Second); seen() == first; time.Sleep(10 * time.Millisecond) {
		if time.Now().After(end) {
			t.Fatal("a new sign of life was not seen")
		}
	}
	putTenant(api, "zoo", old, `{"clusters":[{"name":"main","namespace":"zoo","nodeCIDRs":["10.2.0.0/24"]}],"pools":["public"]}`)
	become("shop/main false")
	for end := time.Now().Add(20 * time.Second); len(c.pulses.away()) != 1; time.Sleep(10 * time.Millisecond) {
		if time.Now().After(end) {
			t.Fatal("a cluster that is gone was not forgotten")
		}
	}
	// Who may not read them knows of none; Tenants are served as before.
	api.Gate(func(r *http.Request) int {
		if strings.HasSuffix(r.URL.Path, "/leases/"+tenants.PulseName) {
			return http.StatusForbidden
		}
		return 0
	})
	become("")
	api.Gate(nil)
	become("shop/main false")
	p.stop()
	become("") // another controller leads
}
