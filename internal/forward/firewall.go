package forward

import (
	"net/netip"

	"github.com/google/nftables"
	"github.com/google/nftables/expr"

	"lbd.dev/lbd/internal/model"
	"lbd.dev/lbd/internal/nft"
)

// Dropped finds the chain of a firewall that drops all new connections that come in by an
// interface and are forwarded to a server by another one, or the same; "" if there is none, or
// that is not certain. The checks of servers say nothing of that: what this host says itself is
// not forwarded.
func Dropped(in, out string, server netip.Addr, protocol model.Protocol) (chain string, err error) {
	s := nft.New(answerTimeout)
	defer func() { _ = s.Close() }()
	p := nft.Packet{
		Family: families[familyOf(server)].table.Family, Protocol: byte(protocol), State: expr.CtStateBitNEW, In: in, Out: out,
	}
	err = s.Do(func(c *nftables.Conn) error {
		found, err := nft.Droppers(c, TableName, []nft.Packet{p}, nftables.ChainHookForward, nftables.ChainHookPostrouting)
		chain = found[0]
		return err
	})
	return chain, err
}
