package machines

import "testing"

// TestBothAddresses: a member has each of two addresses, with the one check, and loses both
// when it is taken out.
func TestBothAddresses(t *testing.T) {
	t.Parallel()
	b := start(t, served(), nil)
	b.api.Put(resBalancers, object("a/api", mlb+`,"status":{"address":"10.0.0.200","addresses":["10.0.0.200","fd00::200"]}`))
	b.api.Put(resMachines, aMachine("a/m1", "cp1", "10.0.0.11", ``))
	b.decide(false)
	b.wants("a/api@10.0.0.200 a/api@fd00::200 manager")
	b.mu.Lock()
	if v := b.view.VIPs; len(b.checks) != 1 || v[0].Check != "MachineLoadBalancer/a/api" || v[1].Check != v[0].Check || len(b.view.Machines.Balanced) != 2 {
		t.Errorf("checks %+v of %+v, balanced %v", b.checks, v, b.view.Machines.Balanced)
	}
	b.mu.Unlock()
	b.api.Put(resMachines, aMachine("a/m1", "cp1", "10.0.0.11", `"metadata":{"annotations":{"loadbalancer.cluster.x-k8s.io/disabled":""}}`))
	b.wants("a/m1(cp1)=Disabled[10.0.0.200 fd00::200] a/api@10.0.0.200 a/api@fd00::200 manager")
	o := b.api.Get(resBalancers, "a", "api")
	o["status"] = map[string]any{"address": "fd00::200", "addresses": []any{"fd00::200"}}
	b.api.Put(resBalancers, o)
	b.wants("a/m1(cp1)=Disabled[fd00::200] a/api@fd00::200 manager")
}
