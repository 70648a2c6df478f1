package learned

import (
	"net/netip"
	"slices"

	"lbd.dev/lbd/internal/model"
)

// Routing is what follows from all listeners of a View.
type Routing struct {
	Output
	// VIPs are those of the View. This machine is kept from those that it could not send on.
	VIPs []model.VIP
}

// Route decides for a View.
func Route(v *model.View) Routing {
	r := Routing{VIPs: v.VIPs}
	if len(v.Listeners) == 0 {
		return r // what an earlier configuration had is in no memory, and the driver removes it
	}
	r.Output = Step(&Input{
		Now: v.Now, Started: v.Started, Listeners: v.Listeners, Paths: v.Applied[model.SinkBGP].Learned,
		Links: v.Links, Memory: v.Memory.Learned,
	})
	if r.Memory.Same(&v.Memory.Learned) {
		r.Memory = v.Memory.Learned
	}
	is, reported := v.Applied[model.SinkRoute]
	for i := range v.VIPs {
		if v.VIPs[i].Learned() && v.VIPs[i].Barred == model.ReasonOwner {
			why, detail := r.standing(v.VIPs[i].Addr, is.Routes, reported)
			r.bar(v, i, why, detail)
		}
	}
	return r
}

// standing is whether this machine may answer for a VIP, or tell routers of it: while there is a
// master to send to, and the kernel does.
func (r *Routing) standing(vip netip.Addr, is map[netip.Prefix]model.AppliedRoute, reported bool) (model.Reason, string) {
	at := slices.IndexFunc(r.State.Routes, func(x model.Route) bool { return x.Prefix.Addr() == vip })
	if at < 0 {
		for _, p := range r.Prefixes {
			if p.Prefix.Addr() == vip {
				return model.ReasonNoNextHop, "acceptPrefixes: " + p.Prefix.String() + " counts for nothing: " + p.Why
			}
		}
		return model.ReasonNoNextHop, "no BGPListener accepts it"
	}
	to := &r.State.Routes[at]
	now := is[to.Prefix]
	switch {
	case len(now.NextHops) > 0 && (len(to.NextHops) > 0 || r.State.Hearing):
		return model.ReasonOwner, ""
	case len(to.NextHops) == 0 && r.State.Hearing:
		return model.ReasonHealthPending, "masters have had no time to connect yet"
	case len(to.NextHops) == 0:
		return model.ReasonNoNextHop, "no master advertises " + to.Prefix.String()
	case !reported || now.Err == "":
		return model.ReasonHealthPending, "the route to the masters is not in the kernel yet"
	}
	return model.ReasonNoNextHop, now.Err
}

// bar keeps this machine from a VIP.
func (r *Routing) bar(v *model.View, at int, why model.Reason, detail string) {
	if why == model.ReasonOwner {
		return
	}
	if &r.VIPs[0] == &v.VIPs[0] { // there may be thousands, and mostly none is barred
		r.VIPs = slices.Clone(r.VIPs)
	}
	r.VIPs[at].Barred, r.VIPs[at].BarredDetail = why, detail
}
