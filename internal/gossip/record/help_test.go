package record

import (
	"net/netip"
	"testing"
	"time"

	"lbd.dev/lbd/internal/fieldtest"
	"lbd.dev/lbd/internal/model"
)

var (
	vip1 = netip.MustParseAddr("10.0.0.200")
	vip2 = netip.MustParseAddr("fd00::200")
)

// at is where a node of a test is.
func at(i int) netip.AddrPort {
	return netip.AddrPortFrom(netip.AddrFrom4([4]byte{10, 0, 0, byte(10 + i)}), 7947)
}

// viewOf is the whole state as a View has it.
func viewOf(t *Table) model.Gossip {
	var v model.View
	t.Whole().Apply(&v)
	return v.Gossip
}

// take merges messages as they come from the network.
func take(t *testing.T, tab *Table, msgs [][]byte) model.Gossip {
	t.Helper()
	for _, m := range msgs {
		r, err := recordOf(m)
		if err != nil {
			t.Fatal(err)
		}
		tab.Merge(&r, time.Now())
	}
	return viewOf(tab)
}

// recordOf is the record that a message carries.
func recordOf(msg []byte) (Record, error) {
	m, err := Open(msg)
	if err != nil {
		return Record{}, err
	}
	return m.Record()
}

var formats = []Format{FormatJSON, FormatBinary}

// TestSame: a change of whatever the others are told is told, that of a new field too.
func TestSame(t *testing.T) {
	fieldtest.Same(t, sameHead, "V")
	fieldtest.Same(t, func(a, b *[]model.GroupVIP) bool { return sameVIPs(*a, *b) })
}
