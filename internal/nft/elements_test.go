package nft

import (
	"encoding/binary"
	"testing"
	"time"

	"github.com/google/nftables"
)

func many(n, bytes int) []nftables.SetElement {
	out := make([]nftables.SetElement, n)
	for i := range out {
		out[i].Key = make([]byte, bytes)
		binary.BigEndian.PutUint32(out[i].Key[bytes-4:], uint32(i))
	}
	return out
}

// TestLargeSetIsWhole: of more elements than one message can say the kernel has all, and
// a set that has fewer is noticed.
func TestLargeSetIsWhole(t *testing.T) {
	s := open(t, 10*time.Second)
	for table, key := range map[*nftables.Table]nftables.SetDatatype{one: nftables.TypeIPAddr, six: nftables.TypeIP6Addr} {
		set := &nftables.Set{Table: table, ID: 1, Name: "large", KeyType: key}
		for _, n := range []int{2340, 2341, 10_000} {
			elements := many(n, int(key.Bytes))
			if err := s.Transact(func(c *nftables.Conn) error {
				c.AddTable(table)
				c.DelTable(table)
				c.AddTable(table)
				return AddSet(c, set, elements)
			}); err != nil {
				t.Fatal(err)
			}
			if err := s.Verify(set, n); err != nil {
				t.Error(err)
			}
			if err := s.Verify(set, n+1); err == nil {
				t.Errorf("one that is missing of %d was not noticed", n+1)
			}
			if err := s.Transact(func(c *nftables.Conn) error { return DeleteElements(c, set, elements[:n-1500]) }); err != nil {
				t.Fatal(err)
			}
			if err := s.Verify(set, 1500); err != nil {
				t.Error(err)
			}
		}
	}
}
