package link

import (
	"net/netip"
	"testing"

	"github.com/vishvananda/netlink/nl"
	"golang.org/x/sys/unix"

	"lbd.dev/lbd/internal/model"
)

// TestMalformedMessages: a message that is too short, or whose attributes do not fit into it, says
// nothing of any interface or address.
func TestMalformedMessages(t *testing.T) {
	overlong := nl.NewRtAttr(unix.IFA_LOCAL, []byte{10, 0, 0, 200}).Serialize()
	nl.NativeEndian().PutUint16(overlong, uint16(len(overlong)+4))

	address := (&nl.IfAddrmsg{IfAddrmsg: unix.IfAddrmsg{Family: unix.AF_INET, Prefixlen: 32, Index: 7}}).Serialize()
	for name, m := range map[string][]byte{
		"nothing":                 nil,
		"a header that is cut":    address[:len(address)-1],
		"an attribute beyond end": append(address, overlong...),
	} {
		if index, prefix, marked, ok := parseAddress(m); index != 0 || prefix != (netip.Prefix{}) || marked || ok {
			t.Errorf("an address from %s: %d, %v, marked %v, %v", name, index, prefix, marked, ok)
		}
	}

	link := nl.NewIfInfomsg(unix.AF_UNSPEC).Serialize()
	for name, m := range map[string][]byte{
		"nothing":                 nil,
		"a header that is cut":    link[:len(link)-1],
		"an attribute beyond end": append(link, overlong...),
	} {
		if l, r, ok := parseLink(m); l.Index != 0 || l.Name != "" || r != (relation{}) || ok {
			t.Errorf("an interface from %s: %+v, %+v, %v", name, l, r, ok)
		}
	}
}

// TestValuesOfAnotherLength: an attribute whose value has not the length of its kind is passed over.
func TestValuesOfAnotherLength(t *testing.T) {
	m := nl.NewIfInfomsg(unix.AF_UNSPEC).Serialize()
	m = append(m, nl.NewRtAttr(unix.IFLA_IFNAME, nl.ZeroTerminated("ib0")).Serialize()...)
	m = append(m, nl.NewRtAttr(unix.IFLA_ADDRESS, make([]byte, 20)).Serialize()...) // InfiniBand
	m = append(m, nl.NewRtAttr(unix.IFLA_MTU, make([]byte, 2)).Serialize()...)
	m = append(m, nl.NewRtAttr(unix.IFLA_OPERSTATE, nil).Serialize()...)
	m = append(m, nl.NewRtAttr(unix.IFLA_MASTER, make([]byte, 2)).Serialize()...)
	l, r, ok := parseLink(m)
	if !ok || l.Name != "ib0" || l.MAC != (model.MAC{}) || l.MTU != 0 || r != (relation{}) {
		t.Errorf("an interface: %+v, %+v, %v", l, r, ok)
	}

	m = (&nl.IfAddrmsg{IfAddrmsg: unix.IfAddrmsg{Family: unix.AF_INET, Prefixlen: 32, Index: 7}}).Serialize()
	m = append(m, nl.NewRtAttr(unix.IFA_LOCAL, []byte{10, 0, 0, 200}).Serialize()...)
	m = append(m, nl.NewRtAttr(ifaProto, nil).Serialize()...)
	m = append(m, nl.NewRtAttr(unix.IFA_RT_PRIORITY, make([]byte, 2)).Serialize()...)
	if _, prefix, marked, ok := parseAddress(m); !ok || marked || prefix != netip.MustParsePrefix("10.0.0.200/32") {
		t.Errorf("an address: %v, marked %v, %v", prefix, marked, ok)
	}
}
