package model

// The marks of the addresses that lbd binds. An address that carries neither
// was configured by somebody else and is never touched; an address that carries
// one and is not wanted was left behind by an earlier process.
const (
	// AddressProtocol is the origin that the kernel stores with an address
	// (IFA_PROTO, Linux 5.18). The kernel itself uses 1 to 3
	// (include/uapi/linux/if_addr.h); programs that mark their addresses take
	// their route protocol number (keepalived: 18), and 108 is none of those that
	// /etc/iproute2/rt_protos names.
	AddressProtocol uint8 = 0x6c // 'l'
	// AddressMetric marks addresses where the kernel does not know IFA_PROTO: the
	// metric of the prefix route (IFA_RT_PRIORITY, Linux 4.18), which has no other
	// effect on an address that has no prefix route.
	AddressMetric uint32 = 0x6c626400 // "lbd\0"
)

// AddressMarked tells whether an address with this origin and metric was bound
// by lbd. An attribute that the kernel does not report counts as 0.
func AddressMarked(protocol uint8, metric uint32) bool {
	return protocol == AddressProtocol || protocol == 0 && metric == AddressMetric
}
