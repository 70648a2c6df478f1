package route

import (
	"maps"
	"net/netip"
	"slices"

	"lbd.dev/lbd/internal/model"
)

// image is what the kernel has, as last seen and changed since.
type image struct {
	hops        map[uint32]*hop // those of others too
	at          map[target]uint32
	routes      map[netip.Prefix]entry // ours by next hops
	unreachable map[netip.Prefix]entry // ours of the high metric
	other       []entry                // with our mark, but none that this version makes
	lent        map[uint32]bool        // ours that nothing needs but routes of others
	links       map[string]int
}

// read looks at the kernel.
func (k *kernel) read() (*image, error) {
	hops, err := k.hops()
	if err != nil {
		return nil, err
	}
	routes, err := k.routes()
	if err != nil {
		return nil, err
	}
	im := &image{
		hops: hops, at: make(map[target]uint32), links: make(map[string]int), lent: make(map[uint32]bool),
		routes: make(map[netip.Prefix]entry), unreachable: make(map[netip.Prefix]entry),
	}
	for _, id := range slices.Sorted(maps.Keys(hops)) {
		if h := hops[id]; h.own() && h.group == nil {
			if _, twice := im.at[h.target()]; !twice {
				im.at[h.target()] = id
			}
		}
	}
	for _, e := range routes {
		switch {
		case e.unreachable && e.metric == model.UnreachableMetric:
			im.unreachable[e.prefix] = e
		case !e.unreachable && e.metric == model.RouteMetric:
			im.routes[e.prefix] = e
		default:
			im.other = append(im.other, e)
		}
	}
	return im, nil
}

func (h *hop) target() target { return target{h.gateway, h.index} }

// prefixes are those for which there is a route of ours, in order.
func (im *image) prefixes() []netip.Prefix {
	all := slices.Collect(maps.Keys(im.routes))
	all = slices.AppendSeq(all, maps.Keys(im.unreachable))
	for _, e := range im.other {
		all = append(all, e.prefix)
	}
	slices.SortFunc(all, model.ComparePaths)
	return slices.Compact(all)
}

// firstID is the lowest number that this driver gives to what it makes. Numbers are shared with
// all other programs, most of which begin with 1; those that are taken are passed over.
const firstID = uint32(model.RouteMetric) << 16

// free is a number that nothing has.
func (im *image) free() uint32 {
	id := firstID
	for im.hops[id] != nil {
		id++
	}
	return id
}

// link is the number of an interface.
func (d *Driver) link(name string) (int, error) {
	if index, known := d.image.links[name]; known {
		return index, nil
	}
	index, err := d.kernel.LinkIndex(name)
	if err == nil {
		d.image.links[name] = index
	}
	return index, err
}

func (d *Driver) linkName(index int) string {
	for name, i := range d.image.links {
		if i == index {
			return name
		}
	}
	name := d.kernel.LinkName(index)
	d.image.links[name] = index
	return name
}
