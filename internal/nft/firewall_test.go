package nft

import (
	"testing"

	"github.com/google/nftables"
	"github.com/google/nftables/expr"
	"golang.org/x/sys/unix"
)

// TestQueueMayAccept: what goes to a program in user space may be accepted by it, so nothing after
// that drops for certain, unless the rule is one for other packets.
func TestQueueMayAccept(t *testing.T) {
	udp := []expr.Any{
		&expr.Meta{Key: expr.MetaKeyL4PROTO, Register: 1},
		&expr.Cmp{Op: expr.CmpOpEq, Register: 1, Data: []byte{unix.IPPROTO_UDP}},
	}
	for name, c := range map[string]struct {
		rule  []expr.Any
		doubt bool
	}{
		"by nft":                 {[]expr.Any{&expr.Queue{Num: 1}}, true},
		"by iptables":            {[]expr.Any{&expr.Target{Name: "NFQUEUE", Rev: 3}}, true},
		"by a verdict":           {[]expr.Any{&expr.Verdict{Kind: expr.VerdictQueue}}, true},
		"others, by nft":         {append(udp[:2:2], &expr.Queue{Num: 1}), false},
		"others, by iptables":    {append(udp[:2:2], &expr.Target{Name: "NFQUEUE", Rev: 3}), false},
		"a side effect":          {[]expr.Any{&expr.Target{Name: "CONNMARK", Rev: 1}}, false},
		"a verdict to go on":     {[]expr.Any{&expr.Verdict{Kind: expr.VerdictContinue}}, false},
		"a chain that is absent": {[]expr.Any{&expr.Verdict{Kind: expr.VerdictJump, Chain: "gone"}}, true},
	} {
		w := &walk{p: &Packet{Family: nftables.TableFamilyIPv4, Protocol: unix.IPPROTO_TCP, State: expr.CtStateBitUNTRACKED}}
		got, err := w.rule(&nftables.Table{}, &nftables.Rule{Exprs: c.rule})
		if err != nil || got != falls || w.doubt != c.doubt {
			t.Errorf("%s: %d, doubt %v, %v", name, got, w.doubt, err)
		}
	}
}
