package machines

import (
	"encoding/json"
	"net/netip"
	"reflect"
	"testing"

	"lbd.dev/lbd/api/v1alpha1"
	"lbd.dev/lbd/internal/k8s/apitest"
	"lbd.dev/lbd/internal/machines"
	"lbd.dev/lbd/internal/model"
)

const (
	theirs = `"spec":{"clusterName":"prod","clusterRef":{"name":"prod"},"address":"10.0.0.200","annotateMembers":true,
		"providerRef":{"apiGroup":"f5.example.com","kind":"BigIP","name":"edge"}}`
	// provided is what somebody else has to say of it.
	provided = `"status":{"endpoint":{"host":"api.example.net","port":443},"url":"https://api.example.net","ready":true,
		"status":"7 of 9 members healthy","memberCount":9,"healthyCount":7,
		"members":[{"machine":"m1","namespace":"a","state":"Active","reason":"Up","since":"2026-01-02T03:04:05Z"}],
		"conditions":[{"type":"Ready","status":"True","reason":"Up","message":"by BigIP","lastTransitionTime":"2026-01-02T03:04:05Z"},
			{"type":"Provisioned","status":"True","reason":"Done","message":"","lastTransitionTime":"2026-01-02T03:04:05Z"}]}`
)

// TestProvider is the contract with whoever provides a load balancer instead of lbd: of
// an object with providerRef lbd writes the condition Accepted and nothing else, gives
// its members no address, and leaves its Cluster and its Machines alone. Without it the
// object is lbd's.
func TestProvider(t *testing.T) {
	t.Parallel()
	api := apitest.New(t, served())
	api.Put(resMachines, aMachine("a/m1", "cp1", "10.0.0.11", ``))
	api.Put(resClusters, object("a/prod", `"spec":{}`))
	api.Put(resBalancers, object("a/theirs", theirs+","+provided))
	api.Put(resBalancers, object("a/ours", `"spec":{"clusterName":"prod","address":"10.0.0.201"}`))
	b := startOn(t, api, nil)
	steward(t, api)
	b.decide(true, model.MachineMember{Node: "cp1", Standing: map[netip.Addr]model.Reason{
		netip.MustParseAddr("10.0.0.200"): model.ReasonOwner, netip.MustParseAddr("10.0.0.201"): model.ReasonOwner}})
	accepted := func() string {
		for _, c := range statusOf(api, "a/theirs").Conditions {
			if c.Type == v1alpha1.ConditionAccepted {
				return string(c.Status) + " " + c.Reason
			}
		}
		return ""
	}
	eventually(t, "it is not accepted", func() bool { return accepted() == "False "+machines.UnknownProvider })
	// When both have written about the other one, they have been over this one too.
	eventually(t, "ours has a member", func() bool { return statusOf(api, "a/ours").Status == "1 of 1 members healthy" })
	b.wants("a/ours@10.0.0.201 manager")
	left := func() (s v1alpha1.MachineLoadBalancerStatus) {
		s = statusOf(api, "a/theirs")
		s.ObservedGeneration = 0
		s.Conditions = others(s.Conditions, v1alpha1.Condition{Type: v1alpha1.ConditionAccepted})[1:]
		return s
	}
	var want struct {
		Status v1alpha1.MachineLoadBalancerStatus
	}
	if err := json.Unmarshal([]byte("{"+provided+"}"), &want); err != nil {
		t.Fatal(err)
	}
	if got := left(); !reflect.DeepEqual(got, want.Status) {
		t.Errorf("the status of the provider is now\n%+v, want\n%+v", got, want.Status)
	}
	if n := api.Versions(resBalancers, "a", "theirs"); n != 2 {
		t.Errorf("it has had %d states, want that of the provider and one more", n)
	}
	if api.Versions(resClusters, "a", "prod") != 1 || api.Versions(resMachines, "a", "m1") != 1 {
		t.Error("its Cluster or its Machine was written")
	}
	api.Put(resBalancers, object("a/theirs", `"spec":{"clusterName":"prod","clusterRef":{"name":"prod"},"address":"10.0.0.200"}`))
	b.wants("a/theirs@10.0.0.200 a/ours@10.0.0.201 manager")
	eventually(t, "it is lbd's", func() bool { return accepted() == "True "+machines.Accepted })
}
