package relay

import (
	"github.com/google/nftables"
	"github.com/google/nftables/expr"
	"golang.org/x/sys/unix"

	"lbd.dev/lbd/internal/model"
	"lbd.dev/lbd/internal/nft"
)

// droppers finds the base chains that drop what is relayed, by family. It leaves this host as
// untracked.
func droppers(c *nftables.Conn) (found model.PerFamily, err error) {
	var packets []nft.Packet
	for f := range families {
		packets = append(packets, nft.Packet{Family: f.table().Family, Protocol: unix.IPPROTO_TCP, State: expr.CtStateBitUNTRACKED})
	}
	all, err := nft.Droppers(c, TableName, packets, nftables.ChainHookOutput, nftables.ChainHookPostrouting)
	copy(found[:], all)
	return found, err
}
