package gossip

import (
	"fmt"
	"slices"
	"testing"

	"github.com/hashicorp/memberlist"

	"lbd.dev/lbd/internal/model"
)

// TestNamedNodesAreAsked: of a large group those are asked who is there whose word matters,
// and others only to make up the number.
func TestNamedNodesAreAsked(t *testing.T) {
	group := func() (all []*memberlist.Node) {
		for i := range 100 {
			all = append(all, &memberlist.Node{Name: fmt.Sprintf("m%02d", i)})
		}
		return all
	}
	var ten []model.NodeName
	for i := range 10 {
		ten = append(ten, model.NodeName(fmt.Sprintf("m%02d", 90+i)))
	}
	for _, named := range [][]model.NodeName{nil, {"m77"}, ten} {
		got := asked(group(), named)
		if len(got) != max(askSome, len(named)) {
			t.Errorf("%d are asked of %d that are named", len(got), len(named))
		}
		for _, n := range named {
			if !slices.ContainsFunc(got, func(to *memberlist.Node) bool { return to.Name == string(n) }) {
				t.Errorf("%s is not asked", n)
			}
		}
	}
	if got := asked(group()[:3], ten); len(got) != 3 {
		t.Errorf("%d of 3", len(got))
	}
}
