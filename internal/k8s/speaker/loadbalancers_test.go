package speaker

import (
	"net/http"
	"strings"
	"sync/atomic"
	"testing"
	"time"
)

// TestLoadBalancersOfTheCluster are in the View with their VIPs, and go with the object.
func TestLoadBalancersOfTheCluster(t *testing.T) {
	api := cluster(t)
	api.Serve(resBalancers, "LoadBalancer")
	b := run(t, api, nil)
	b.become("")
	spec := map[string]any{
		"addresses": []string{"198.51.100.1"}, "ports": []any{map[string]any{"port": 443}},
		"backends": []any{map[string]any{"address": "198.51.100.11"}}, "healthCheck": map[string]any{"tcp": map[string]any{"port": 443}},
	}
	api.Put(resBalancers, custom("web", spec))
	b.become("198.51.100.1=web")
	b.lock(func() {
		if all := b.view.LoadBalancers; len(all) != 1 || all[0].Servers[0].Check != "web/198.51.100.11" || !b.view.VIPs[0].Forwarded() {
			t.Errorf("LoadBalancers %+v, VIPs %+v", all, b.view.VIPs)
		}
	})
	api.Delete(resBalancers, "", "web")
	b.become("")
	b.lock(func() {
		if len(b.view.LoadBalancers) != 0 {
			t.Errorf("LoadBalancers %+v", b.view.LoadBalancers)
		}
	})
}

// TestRolesOfAnEarlierVersion: a daemon that may not read LoadBalancers yet serves everything
// else, says so, and takes them as soon as it may.
func TestRolesOfAnEarlierVersion(t *testing.T) {
	api := cluster(t)
	api.Serve(resBalancers, "LoadBalancer")
	api.Put(resBalancers, custom("web", map[string]any{
		"addresses": []string{"198.51.100.1"}, "ports": []any{map[string]any{"port": 443}}, "backends": []any{map[string]any{"address": "198.51.100.11"}},
	}))
	api.Put(resServices, lb("s", false, "192.0.2.1"))
	api.Put(resSlices, endpointsOf("s", "n1"))
	var may atomic.Bool
	var refused atomic.Int64
	api.Gate(func(r *http.Request) int {
		if strings.HasSuffix(r.URL.Path, "/loadbalancers") && !may.Load() {
			refused.Add(1)
			return http.StatusForbidden
		}
		return 0
	})
	b := run(t, api, nil)
	b.become("192.0.2.1=default/s")
	b.eventually("connected", func() bool { return b.Status().Connected })
	if p := b.Status().Problems; len(p) != 1 || p[0].Kind != "LoadBalancer" || !strings.Contains(p[0].Text, "apply the manifest of this version") {
		t.Errorf("problems %+v", p)
	}
	before := refused.Load()
	api.Fail(http.StatusServiceUnavailable) // ends the watches, after which all begin again
	api.Fail(0)
	b.eventually("asked again", func() bool { return refused.Load() > before })
	time.Sleep(LostAfter + 200*time.Millisecond)
	b.eventually("connected", func() bool { return b.Status().Connected })
	may.Store(true)
	b.become("192.0.2.1=default/s 198.51.100.1=web")
	b.eventually("no problem", func() bool { return len(b.Status().Problems) == 0 })
}
