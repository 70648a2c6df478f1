package machines

import (
	"log/slog"
	"net/http"
	"net/netip"
	"strings"
	"sync"
	"testing"
	"time"

	"lbd.dev/lbd/api/v1alpha1"
	"lbd.dev/lbd/internal/k8s"
	"lbd.dev/lbd/internal/k8s/apitest"
	"lbd.dev/lbd/internal/machines"
)

// steward runs the part of a controller that leads, without pools.
func steward(t *testing.T, api *apitest.Server) {
	t.Helper()
	c, err := k8s.NewFor(api.Config(), k8s.Options{QPS: 1000, Burst: 1000})
	if err != nil {
		t.Fatal(err)
	}
	spec := &v1alpha1.MachinesSpec{}
	spec.Default()
	s := NewSteward(StewardOptions{Logger: slog.New(slog.DiscardHandler), Client: c.Dynamic, Manager: "m", Host: "h", Rules: machines.RulesOf(spec),
		Changed: func() {}, Pooled: func(netip.Addr) bool { return false }, Leads: func() bool { return true }})
	go s.Watch(t.Context())
	go s.Run(t.Context())
}

// TestAddressInUse: an older balancer does not get the address that a younger one has,
// until that is gone.
func TestAddressInUse(t *testing.T) {
	t.Parallel()
	api := apitest.New(t, served())
	api.Put(resBalancers, object("b/api", `"metadata":{"creationTimestamp":"2026-02-02T03:04:05Z"},"spec":{"clusterName":"b","address":"10.0.0.201"}`))
	api.Put(resBalancers, object("a/api", `"spec":{"clusterName":"a","address":"10.0.0.200"}`))
	steward(t, api)
	eventually(t, "both have theirs", func() bool {
		return statusOf(api, "b/api").Address == "10.0.0.201" && statusOf(api, "a/api").Address == "10.0.0.200"
	})
	o := api.Get(resBalancers, "a", "api")
	merge(o, object("a/api", `"spec":{"address":"10.0.0.201"}`))
	api.Put(resBalancers, o)
	eventually(t, "the older one is told", func() bool {
		s := statusOf(api, "a/api")
		for _, c := range s.Conditions {
			if c.Type == v1alpha1.ConditionEndpointAssigned && strings.Contains(c.Message, "b/api") {
				return s.Address == ""
			}
		}
		return false
	})
	if s := statusOf(api, "b/api"); s.Address != "10.0.0.201" {
		t.Errorf("the one that used the address has %q", s.Address)
	}
	api.Delete(resBalancers, "b", "api")
	eventually(t, "the older one has it", func() bool { return statusOf(api, "a/api").Address == "10.0.0.201" })
}

// TestUnreadTargets: a controller that starts leaves members as they are until it has
// read what they are made of.
func TestUnreadTargets(t *testing.T) {
	t.Parallel()
	api := apitest.New(t, servedHosts())
	read := make(chan struct{})
	release := sync.OnceFunc(func() { close(read) })
	t.Cleanup(release)
	api.Gate(func(r *http.Request) int {
		if strings.Contains(r.URL.Path, "/hosts") {
			<-read
		}
		return 0
	})
	api.Put(resHosts, object("a/h1", aHost))
	api.Put(resBalancers, object("a/api", hostsLB+`,
		"status":{"address":"10.0.0.200","reportedBy":"cp1","ready":true,"memberCount":1,"healthyCount":1,"status":"1 of 1 members healthy",
		"members":[{"machine":"h1","namespace":"a","node":"cp1","state":"Active","reason":"Serving","since":"2026-01-02T03:04:05Z"}]}`))
	steward(t, api)
	serves := func() bool {
		s := statusOf(api, "a/api")
		return s.Ready && s.HealthyCount == 1 && len(s.Members) == 1 && s.Members[0].Reason == machines.MemberServing
	}
	eventually(t, "the endpoint is written", func() bool { return statusOf(api, "a/api").Endpoint != nil })
	time.Sleep(2 * statusPause)
	still := serves()
	release()
	if !still {
		t.Errorf("before the hosts were read: %+v", statusOf(api, "a/api"))
	}
	eventually(t, "the conditions of members", func() bool { return serves() && len(statusOf(api, "a/api").Conditions) > 2 })
}
