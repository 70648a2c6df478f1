package link

import (
	"net/netip"
	"testing"

	"github.com/vishvananda/netlink/nl"
	"golang.org/x/sys/unix"

	"lbd.dev/lbd/internal/model"
)

// TestMarkOfAnAddress: what lbd binds is known by its protocol, or by its metric where the kernel
// knows of no protocol (before 5.18); addresses of others are those of the host.
func TestMarkOfAnAddress(t *testing.T) {
	want := netip.MustParsePrefix("10.0.0.200/32")
	for name, c := range map[string]struct {
		protocol []byte
		metric   uint32
		marked   bool
	}{
		"by its protocol":                 {[]byte{model.AddressProtocol}, 0, true},
		"by its metric":                   {nil, model.AddressMetric, true},
		"another protocol, our metric":    {[]byte{model.AddressProtocol + 1}, model.AddressMetric, false},
		"neither":                         {nil, 0, false},
		"another metric, and no protocol": {nil, model.AddressMetric + 1, false},
	} {
		m := (&nl.IfAddrmsg{IfAddrmsg: unix.IfAddrmsg{Family: unix.AF_INET, Prefixlen: 32, Index: 7}}).Serialize()
		m = append(m, nl.NewRtAttr(unix.IFA_LOCAL, want.Addr().AsSlice()).Serialize()...)
		if c.protocol != nil {
			m = append(m, nl.NewRtAttr(ifaProto, c.protocol).Serialize()...)
		}
		if c.metric != 0 {
			m = append(m, nl.NewRtAttr(unix.IFA_RT_PRIORITY, nl.Uint32Attr(c.metric)).Serialize()...)
		}
		index, prefix, marked, ok := parseAddress(m)
		if index != 7 || prefix != want || !ok || marked != c.marked {
			t.Errorf("%s: %d, %v, marked %v, %v", name, index, prefix, marked, ok)
		}
	}
}
