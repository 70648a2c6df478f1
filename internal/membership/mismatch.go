package membership

import (
	"fmt"
	"maps"
	"net/netip"
	"slices"

	"lbd.dev/lbd/internal/model"
	"lbd.dev/lbd/internal/shortlist"
)

// Mismatches are, in words, the VIPs that other nodes have under another name, and the
// names that have an address there that they do not have here. Nodes rank by the name, and
// elect for each address: such configurations are not of one group.
func Mismatches(v *model.View) []string {
	here, mine := map[netip.Addr]string{}, map[string]bool{}
	for i := range v.VIPs {
		if n := v.VIPs[i].Told(); n != "" {
			here[v.VIPs[i].Addr], mine[n] = n, true
		}
	}
	by := map[mismatch][]string{}
	for _, n := range slices.Sorted(maps.Keys(v.Gossip.Members)) {
		m := v.Gossip.Members[n]
		if m.State != model.MemberAlive {
			continue
		}
		for a, there := range m.Names {
			var x mismatch
			switch name, has := here[a]; {
			case has && name != there:
				x = mismatch{fmt.Sprintf("%s is %q here and %q on ", a, name, there), ": give it one name on all nodes, by which they rank"}
			case !has && mine[there]:
				x = mismatch{fmt.Sprintf("%q has the address %s on ", there, a), " and not here: give it the same addresses on all nodes"}
			default:
				continue
			}
			by[x] = append(by[x], string(n))
		}
	}
	var out []string
	for x, nodes := range by {
		out = append(out, x.before+shortlist.Join(nodes, mismatchNames)+x.after)
	}
	slices.Sort(out)
	return out
}

// mismatch is one, in words before and after the names of the nodes.
type mismatch struct{ before, after string }

// mismatchNames is how many nodes are named.
const mismatchNames = 3
