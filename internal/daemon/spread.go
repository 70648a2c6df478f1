package daemon

import (
	"fmt"
	"slices"
	"strings"

	"lbd.dev/lbd/internal/model"
	"lbd.dev/lbd/internal/place"
	"lbd.dev/lbd/internal/ring"
)

// spreadStory tells what becomes of new connections to a balanced VIP; nothing for
// another one, unless it was balanced and still has connections.
func spreadStory(v *model.View, d *model.Desired, s model.VIPStatus) []string {
	addr := s.VIP.Addr
	links := place.LinksOf(v.Links)
	link, _ := links.Find(&s.VIP, s.Interface)
	unfit := ring.Unfit(v.Applied[model.SinkRelay].Ring, v.Links, link.Name, addr)
	switch m := d.Memory.BGP[addr]; {
	case !s.VIP.Balanced && m.Balanced && m.Phase >= model.BGPAdvertised:
		return []string{fmt.Sprintf("%s has it bound, silently, for the connections of when it was balanced.", v.Self)}
	case !s.VIP.Balanced:
		return nil
	case v.NoRelay:
		return []string{fmt.Sprintf("%s takes no part in spreading connections: it has connections: reset.", v.Self)}
	case unfit != "" && s.Owner == v.Self:
		return []string{"It takes all new connections itself: " + unfit + "."}
	case unfit != "":
		return []string{fmt.Sprintf("%s takes no part in spreading connections: %s.", v.Self, unfit)}
	case s.Owner == v.Self:
		return []string{spreadBy(v, d, s)}
	case m.Phase == model.BGPAdvertised && s.Owner == "":
		return []string{fmt.Sprintf("%s has it bound, silently, but knows of nobody who could send it connections.", v.Self)}
	case m.Phase == model.BGPAdvertised:
		return []string{fmt.Sprintf("%s has it bound, silently, and serves its share of the connections.", v.Self)}
	case m.Phase > model.BGPAdvertised:
		return []string{fmt.Sprintf("%s has it bound, silently, for the connections that it has; it gets no new ones.", v.Self)}
	}
	return []string{fmt.Sprintf("%s does not have it bound and gets no connections.", v.Self)}
}

// spreadDetail is what the status of a balanced VIP adds on its owner; nothing for
// another one, and where a ring is not possible, which has a reason of its own.
func spreadDetail(v *model.View, d *model.Desired, s model.VIPStatus) string {
	if s.BGP || !s.VIP.Balanced || s.Reason != model.ReasonOwner || s.Ring != "" || v.NoRelay {
		return ""
	}
	words := strings.TrimSuffix(spreadBy(v, d, s), ".")
	return strings.ToLower(words[:1]) + words[1:]
}

// spreadBy is what the owner does.
func spreadBy(v *model.View, d *model.Desired, s model.VIPStatus) string {
	i := slices.IndexFunc(d.Relay, func(r model.Relay) bool { return r.Addr == s.VIP.Addr })
	if i < 0 || len(d.Relay[i].Ring.Spread) == 0 {
		return "It takes all new connections itself: no other node that is well has the address bound where it can be reached."
	}
	if is := v.Applied[model.SinkRelay].VIPs[s.VIP.Addr]; is.Err != "" {
		return "It takes all new connections itself: " + is.Err + "."
	}
	var names []string
	for _, b := range d.Relay[i].Ring.Spread {
		names = append(names, string(b.Node))
	}
	return fmt.Sprintf("New connections are spread over %s.", strings.Join(names, ", "))
}
