package hub

import (
	"errors"
	"strings"
	"testing"
	"time"

	"lbd.dev/lbd/internal/tenants"
)

// TestRebind: the cluster that is refused takes the place of the one that the hub knows, while its agent asks. Who looks at the tenant sees
// the former until then.
func TestRebind(t *testing.T) {
	api, c := bed(t)
	note := func(refused string) {
		l := api.Get(resLeases, "lbd-shop-main", tenants.PulseName)
		meta := l["metadata"].(map[string]any)
		meta["annotations"] = map[string]any{tenants.AnnotationCluster: "first", tenants.AnnotationRefused: refused}
		meta["managedFields"] = append(meta["managedFields"].([]any), map[string]any{"manager": "lbd-agent-refused", "operation": "Update", "time": "2026-01-03T12:45:00Z"})
		api.Put(resLeases, l)
	}
	look := func() Cluster {
		x, err := Find(t.Context(), c, "shop")
		if err != nil {
			t.Fatal(err)
		}
		return x.Clusters[0]
	}
	now := time.Date(2026, 1, 3, 12, 46, 0, 0, time.UTC)
	for _, nobody := range []string{"", strings.Repeat("x", maxUID+1)} {
		note(nobody)
		if _, err := Rebind(t.Context(), c, "lbd-shop-main", now); !errors.Is(err, ErrNobodyRefused) || look().Refused.UID != "" {
			t.Errorf("%q: %v, %+v", nobody, err, look().Refused)
		}
	}
	note("second 2026-01-03T12:44:00Z")
	x := look()
	if want := (Refused{"second", time.Date(2026, 1, 3, 12, 45, 0, 0, time.UTC)}); x.Refused != want || x.AgentHeard.Format(time.TimeOnly) != "12:00:00" {
		t.Errorf("refused %+v, heard %v", x.Refused, x.AgentHeard)
	}
	if _, err := Rebind(t.Context(), c, "lbd-shop-main", now.Add(2*time.Minute)); !errors.Is(err, ErrNobodyRefused) || !strings.HasSuffix(err.Error(), "The one with the UID second was seen at 2026-01-03T12:45:00Z, and it is 2026-01-03T12:48:00Z now") {
		t.Errorf("a cluster that has not asked for 3 minutes: %v", err)
	}
	if to, err := Rebind(t.Context(), c, "lbd-shop-main", now); err != nil || to.UID != "second" {
		t.Errorf("%+v, %v", to, err)
	}
	got := api.Get(resLeases, "lbd-shop-main", tenants.PulseName)["metadata"].(map[string]any)["annotations"].(map[string]any)
	if _, left := got[tenants.AnnotationRefused]; got[tenants.AnnotationCluster] != "second" || left || look().Refused.UID != "" {
		t.Errorf("%v", got)
	}
}
