package decide

import (
	"maps"

	"lbd.dev/lbd/internal/audience"
	"lbd.dev/lbd/internal/loopback"
	"lbd.dev/lbd/internal/model"
)

// aggregate adds the paths to prefixes of several addresses.
func (f *facts) aggregate(d *model.Desired) {
	d.Memory.Aggregates, d.Memory.Conflicts = f.audiences.Aggregates()
	for _, path := range d.Memory.Aggregates {
		f.lists.path(path)
	}
	if len(d.Memory.Aggregates) > 0 && !maps.Equal(d.Memory.Conflicts, f.v.Memory.Conflicts) {
		f.w.by(f.v.Now) // the next decision tells of them
	}
}

// speaker fills in what all sessions share.
func (f *facts) speaker(d *model.Desired) {
	peers := audience.Peers(f.v)
	f.audiences = audience.New(peers)
	f.routers = loopback.Routers{
		Peers: peers, Report: f.v.Applied[model.SinkBGP], Aggregates: f.v.Memory.Aggregates, Conflicts: f.v.Memory.Conflicts,
	}
	if len(peers) > 0 && !d.Memory.RouterID.IsValid() {
		d.Memory.RouterID = audience.RouterID(f.v, peers)
	}
	d.BGP = model.BGPState{
		RouterID: d.Memory.RouterID, Listen: f.v.BGP.Listen, ListenPort: f.v.BGP.ListenPort,
		Peers: peers, Ready: !awaited(f.v, f.w),
	}
}
