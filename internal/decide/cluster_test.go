package decide

import (
	"testing"
	"time"

	"lbd.dev/lbd/internal/membership"
	"lbd.dev/lbd/internal/model"
)

// clusterView is a node of a cluster whose API server has not answered yet.
func clusterView() *model.View {
	v := &model.View{
		Started: time.Unix(1000, 0), Self: "m1",
		Synced: map[model.SourceName]bool{
			model.SourceConfig: true, model.SourceLink: true, model.SourceGossip: true, model.SourceHealth: true, model.SourceKube: false,
		},
		Applied: map[model.SinkName]model.Applied{model.SinkAddress: {Gen: 1}, model.SinkLayer2: {Gen: 1}},
	}
	v.Now = v.Started
	return v
}

// at decides at a moment after the start.
func at(v *model.View, d time.Duration) model.Desired {
	v.Now = v.Started.Add(d)
	out := Decide(v)
	v.Memory = out.Memory
	return out
}

// TestWaitsForTheCluster: leftovers and BGP sessions wait for the objects of the
// cluster, but not for ever.
func TestWaitsForTheCluster(t *testing.T) {
	v := clusterView()
	if d := at(v, 0); d.Synced || d.BGP.Ready || !d.Hearing || !d.Wake.Equal(v.Started.Add(membership.HearAll)) {
		t.Errorf("at the start: synced %v, BGP ready %v, hearing %v, wake %v", d.Synced, d.BGP.Ready, d.Hearing, d.Wake)
	}
	if d := at(v, membership.ClusterPatience-1); d.Synced || d.BGP.Ready {
		t.Errorf("before the end: synced %v, BGP ready %v", d.Synced, d.BGP.Ready)
	}
	if d := at(v, membership.ClusterPatience); !d.Synced || !d.BGP.Ready {
		t.Errorf("after it: synced %v, BGP ready %v", d.Synced, d.BGP.Ready)
	}
	v = clusterView()
	at(v, 0)
	v.Synced[model.SourceKube] = true
	if d := at(v, time.Second); !d.Synced || !d.BGP.Ready || d.Hearing {
		t.Errorf("once it is there: synced %v, BGP ready %v, hearing %v", d.Synced, d.BGP.Ready, d.Hearing)
	}
	v = clusterView()
	delete(v.Synced, model.SourceKube)
	if d := at(v, 0); !d.Synced || !d.BGP.Ready {
		t.Errorf("without a cluster: synced %v, BGP ready %v", d.Synced, d.BGP.Ready)
	}
}

// TestHears: rules of the process before stay until all have been heard, this node's own
// sources included.
func TestHears(t *testing.T) {
	begin := func() *model.View {
		v := clusterView()
		v.Synced[model.SourceKube] = true
		v.Gossip = model.Gossip{
			Peers: 1, Exchanged: v.Started.Add(time.Millisecond),
			Members: map[model.NodeName]model.Member{"m2": {Name: "m2", Known: true, Told: true}},
		}
		return v
	}
	for what, c := range map[string]struct {
		change func(*model.View)
		hears  bool
	}{
		"all heard":           {func(*model.View) {}, false},
		"checks not known":    {func(v *model.View) { v.Synced[model.SourceHealth] = false }, true},
		"Services not known":  {func(v *model.View) { v.Synced[model.SourceKube] = false }, true},
		"links not known":     {func(v *model.View) { v.Synced[model.SourceLink] = false }, true},
		"one has not told":    {func(v *model.View) { v.Gossip.Members["m2"] = model.Member{Name: "m2", Known: true} }, true},
		"one is not there":    {func(v *model.View) { v.Gossip.Peers = 2 }, true},
		"one is not expected": {func(v *model.View) { v.Gossip.Peers = 0 }, false},
	} {
		v := begin()
		c.change(v)
		if d := at(v, 2*time.Second); d.Hearing != c.hears {
			t.Errorf("%s: hearing %v", what, d.Hearing)
		}
		if d := at(v, 20*time.Second); d.Hearing {
			t.Errorf("%s: hearing for ever", what)
		}
	}
}

// TestWaitsForTheManagementCluster: addresses of an earlier process stay until it is
// known whether a balancer has them, and nothing else waits.
func TestWaitsForTheManagementCluster(t *testing.T) {
	v := clusterView()
	v.Synced[model.SourceKube], v.Synced[model.SourceMachines] = true, false
	if d := at(v, 0); d.Synced || !d.BGP.Ready || !d.Wake.Equal(v.Started.Add(membership.ClusterPatience)) {
		t.Errorf("at the start: synced %v, BGP ready %v, wake %v", d.Synced, d.BGP.Ready, d.Wake)
	}
	if d := at(v, membership.ClusterPatience); !d.Synced {
		t.Error("it waits for ever")
	}
	v = clusterView()
	v.Synced[model.SourceKube], v.Synced[model.SourceMachines] = true, true
	if d := at(v, 0); !d.Synced {
		t.Error("it waits for what is there")
	}
}

// TestSettlesWithTheCluster: a node that gets its peers from the cluster is not
// alone because it does not know them yet.
func TestSettlesWithTheCluster(t *testing.T) {
	settled := func(v *model.View, d time.Duration, want bool) {
		t.Helper()
		if got := at(v, d).Memory.Settled; got != want {
			t.Errorf("after %v: settled %v", d, got)
		}
	}
	v := clusterView()
	settled(v, 0, false)
	settled(v, 5*time.Second, false)
	v.Synced[model.SourceKube] = true // its peers come a moment later
	settled(v, 5100*time.Millisecond, false)
	v.Gossip.Peers = 2
	settled(v, 5200*time.Millisecond, false)
	settled(v, 5*time.Second+membership.SettleAlone-1, false)
	settled(v, 5*time.Second+membership.SettleAlone, true)

	v = clusterView()
	settled(v, 5*time.Second, false)
	v.Synced[model.SourceKube], v.Gossip.Peers = true, 1
	v.Gossip.Exchanged = v.Started.Add(5500 * time.Millisecond)
	v.Gossip.Members = map[model.NodeName]model.Member{"m2": {Name: "m2", Known: true}}
	settled(v, 5600*time.Millisecond, true)

	v = clusterView() // really alone
	settled(v, 5*time.Second, false)
	v.Synced[model.SourceKube] = true
	settled(v, 5*time.Second+membership.SettleSome-1, false)
	settled(v, 5*time.Second+membership.SettleSome, true)

	v = clusterView() // no API server
	settled(v, membership.ClusterPatience-1, false)
	settled(v, membership.ClusterPatience+membership.SettleSome, true)

	v = clusterView() // no API server, but peers of the files
	v.Gossip.Peers = 2
	settled(v, membership.SettleAlone-1, false)
	settled(v, membership.SettleAlone, true)
}
