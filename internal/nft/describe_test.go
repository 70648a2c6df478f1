package nft

import (
	"strings"
	"testing"
	"time"

	"github.com/google/nftables"
)

// TestDescribe: own tables with what is in them, others by their chains.
func TestDescribe(t *testing.T) {
	s := open(t, time.Minute)
	foreign := &nftables.Table{Name: "other", Family: nftables.TableFamilyINet}
	t.Cleanup(func() { _ = s.Remove(foreign) })
	err := s.Transact(func(c *nftables.Conn) error {
		c.AddTable(one)
		c.AddTable(foreign)
		drop := nftables.ChainPolicyDrop
		for _, table := range []*nftables.Table{one, foreign} {
			chain := c.AddChain(&nftables.Chain{Name: "in-" + table.Name, Table: table, Type: nftables.ChainTypeFilter, Hooknum: nftables.ChainHookInput, Priority: nftables.ChainPriorityFilter, Policy: &drop})
			c.AddRule(&nftables.Rule{Table: table, Chain: chain, Exprs: append(IsTCP(), Accept()...)})
		}
		return AddSet(c, &nftables.Set{Table: one, ID: 1, Name: "vips", KeyType: nftables.TypeIPAddr}, []nftables.SetElement{{Key: []byte{10, 0, 0, 200}}})
	})
	if err != nil {
		t.Fatal(err)
	}
	var out strings.Builder
	if err := s.Describe(&out, "lbd"); err != nil {
		t.Fatal(err)
	}
	got := out.String()
	for _, want := range []string{"table ip lbd-one\n", "  set vips: 1 elements\n    0a0000c8\n", "  chain in-lbd-one: type filter hook 1 priority 0 policy drop\n", "cmp 0 06; Verdict", "table inet other\n  chain in-other: type filter hook 1 priority 0 policy drop\n"} {
		if !strings.Contains(got, want) {
			t.Errorf("%q is not in\n%s", want, got)
		}
	}
	if strings.Count(got, "rule ") != 1 {
		t.Errorf("rules of others are there:\n%s", got)
	}
	var none strings.Builder
	if err := s.Describe(&none, "xyz"); err != nil || strings.Contains(none.String(), "rule ") {
		t.Errorf("%v\n%s", err, none.String())
	}
}
