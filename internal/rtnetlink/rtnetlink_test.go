package rtnetlink_test

import (
	"encoding/binary"
	"testing"

	"github.com/vishvananda/netlink/nl"
	"golang.org/x/sys/unix"

	"lbd.dev/lbd/internal/rtnetlink"
)

// TestAttributes: each is read, with its padding and without its flags, and none beyond the end.
func TestAttributes(t *testing.T) {
	order := binary.NativeEndian
	attribute := func(size, kind uint16, value ...byte) []byte {
		return append(order.AppendUint16(order.AppendUint16(nil, size), kind), value...)
	}
	two := append(attribute(5, 1, 7, 0, 0, 0), attribute(8, unix.NLA_F_NESTED|2, 1, 2, 3, 4)...)
	for name, c := range map[string]struct {
		b    []byte
		want string
	}{
		"two":                     {two, "1:\x07 2:\x01\x02\x03\x04 "},
		"the last has no value":   {append(two[:16:16], attribute(4, 3)...), "1:\x07 2:\x01\x02\x03\x04 3: "},
		"cut off":                 {two[:15], "1:\x07 "},
		"half a header":           {two[:11], "1:\x07 "},
		"no padding at the end":   {attribute(5, 1, 7), "1:\x07 "},
		"shorter than its header": {append(attribute(3, 1), two...), ""},
		"longer than the rest":    {attribute(9, 1, 1, 2, 3, 4), ""},
		"nothing":                 {nil, ""},
	} {
		got := ""
		for kind, value := range rtnetlink.Attributes(c.b) {
			got += string(rune('0'+kind)) + ":" + string(value) + " "
		}
		if got != c.want {
			t.Errorf("%s: %q, want %q", name, got, c.want)
		}
	}
}

// TestAsk: a dump is handed on message by message, and the errors of the kernel come back.
func TestAsk(t *testing.T) {
	s, err := rtnetlink.Open()
	if err != nil {
		t.Fatal(err)
	}
	defer s.Close()
	links, begun := 0, 0
	err = s.Ask(unix.RTM_GETLINK, unix.NLM_F_DUMP, unix.RTM_NEWLINK, func() { links = 0; begun++ }, func([]byte) { links++ }, nl.NewIfInfomsg(unix.AF_UNSPEC))
	if err != nil || links == 0 || begun == 0 {
		t.Errorf("%d links, begun %d times, %v", links, begun, err)
	}
	none := nl.NewRtAttr(unix.IFLA_IFNAME, nl.ZeroTerminated("no-such-link"))
	err = s.Ask(unix.RTM_GETLINK, 0, unix.RTM_NEWLINK, func() {}, func([]byte) {}, nl.NewIfInfomsg(unix.AF_UNSPEC), none)
	if err != unix.ENODEV {
		t.Errorf("a link that is not there: %v", err)
	}
}
