package forward

import (
	"net/netip"

	"github.com/google/nftables"
	"golang.org/x/sys/unix"
)

// TableName is the name of the table in the families ip and ip6.
const TableName = "lbd-forward"

// family is what the rules of IPv4 and of IPv6 differ in.
type family struct {
	name   string // as nft has it
	table  *nftables.Table
	number uint32 // as the kernel has it
	// address is the type of an address; source and destination are where the header has it.
	address             nftables.SetDatatype
	source, destination uint32
	// unreachable is the code of ICMP for a port that nobody listens at.
	unreachable uint8
	// redirect is how ICMP tells of another way: the number of the protocol, and the type.
	redirect [2]byte
	// forwards is the switch without which the kernel forwards nothing.
	forwards string
}

var families = [...]family{
	{
		name: "ip", table: &nftables.Table{Name: TableName, Family: nftables.TableFamilyIPv4}, number: unix.NFPROTO_IPV4,
		address: nftables.TypeIPAddr, source: 12, destination: 16, unreachable: 3, redirect: [2]byte{unix.IPPROTO_ICMP, 5}, forwards: "net.ipv4.ip_forward",
	},
	{
		name: "ip6", table: &nftables.Table{Name: TableName, Family: nftables.TableFamilyIPv6}, number: unix.NFPROTO_IPV6,
		address: nftables.TypeIP6Addr, source: 8, destination: 24, unreachable: 4, redirect: [2]byte{unix.IPPROTO_ICMPV6, 137}, forwards: "net.ipv6.conf.all.forwarding",
	},
}

// familyOf is the index of the family of an address.
func familyOf(a netip.Addr) int {
	if a.Is4() {
		return 0
	}
	return 1
}
