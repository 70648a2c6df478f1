package interop_test

import (
	"encoding/binary"
	"os"
	"path/filepath"
	"testing"

	"lbd.dev/lbd/tests/interop"
)

// floodRoutes is how many the router sends; bird.conf has as many.
const floodRoutes = 20000

// flood makes gobgpd send its routes; those of BIRD are in its configuration.
func flood(t *testing.T, c *interop.Case) {
	t.Helper()
	if _, ok := c.Router.(*interop.GoBGP); !ok {
		return
	}
	file := filepath.Join(c.Net.ToRs[0].Dir, "flood.mrt")
	if err := os.WriteFile(file, mrt(floodRoutes), 0o600); err != nil {
		t.Fatal(err)
	}
	if _, err := c.Router.Show(t.Context(), "mrt inject global "+file); err != nil {
		t.Fatal(err)
	}
}

// mrt is a routing table in the format TABLE_DUMP_V2 (RFC 6396 section 4.3) with
// n host routes of 172.16.0.0/12.
func mrt(n int) []byte {
	const peerIndexTable, ribIPv4Unicast = 1, 2
	peers := []byte{10, 77, 0, 1, 0, 0, 0, 1, 2, 10, 77, 0, 9, 10, 77, 0, 9}
	out := mrtRecord(peerIndexTable, binary.BigEndian.AppendUint32(peers, 65001))
	for i := range n {
		rib := binary.BigEndian.AppendUint32(nil, uint32(i))
		rib = append(rib, 32, 172, 16, byte(i>>8), byte(i), 0, 1, 0, 0, 0, 0, 0, 0)
		attrs := []byte{0x40, 1, 1, 0, 0x40, 2, 6, 2, 1} // ORIGIN IGP, AS_PATH of one AS
		attrs = binary.BigEndian.AppendUint32(attrs, 65001)
		attrs = append(attrs, 0x40, 3, 4, 10, 77, 0, 1) // NEXT_HOP
		rib = binary.BigEndian.AppendUint16(rib, uint16(len(attrs)))
		out = append(out, mrtRecord(ribIPv4Unicast, append(rib, attrs...))...)
	}
	return out
}

func mrtRecord(subtype uint16, body []byte) []byte {
	const tableDumpV2 = 13
	b := binary.BigEndian.AppendUint32(nil, 1)
	b = binary.BigEndian.AppendUint16(b, tableDumpV2)
	b = binary.BigEndian.AppendUint16(b, subtype)
	b = binary.BigEndian.AppendUint32(b, uint32(len(body)))
	return append(b, body...)
}
