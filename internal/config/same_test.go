package config

import (
	"reflect"
	"testing"

	"lbd.dev/lbd/api/v1alpha1"
	"lbd.dev/lbd/internal/fieldtest"
	"lbd.dev/lbd/internal/model"
)

// TestSameFacts: what decisions are told again is what decisions are told, and of what they
// are told nothing is left out.
func TestSameFacts(t *testing.T) {
	type parts struct {
		Node   Node
		VIPs   []model.VIP
		LBs    []model.LoadBalancer
		Checks map[string]v1alpha1.HealthCheck
		Peers  []model.BGPPeer
		Hears  []model.BGPListener
		BGP    model.BGPConfig
	}
	var a, b parts
	of := func(p *parts) *Config {
		return &Config{Node: p.Node, VIPs: p.VIPs, LoadBalancers: p.LBs, Checks: p.Checks, Peers: p.Peers, Listeners: p.Hears, BGP: p.BGP}
	}
	told := func(c *Config) (v model.View) {
		c.into(&v)
		return v
	}
	facts := 0
	fieldtest.Each(&a, &b, func(name string, differ bool) {
		x, y := of(&a), of(&b)
		same := reflect.DeepEqual(told(x), told(y))
		if got := x.sameFacts(y); got != same {
			t.Errorf("%s: the View is the same %v, sameFacts %v", name, same, got)
		}
		if got := x.equal(y); got == differ {
			t.Errorf("%s: differs %v, equal %v", name, differ, got)
		}
		if !same {
			facts++
		}
	})
	if facts < 50 {
		t.Errorf("only %d fields are facts", facts)
	}
}
