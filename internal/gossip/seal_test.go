package gossip

import (
	"errors"
	"net/netip"
	"testing"
	"time"

	"github.com/hashicorp/memberlist"

	"lbd.dev/lbd/internal/gossip/beat"
	"lbd.dev/lbd/internal/gossip/record"
)

// TestHeartbeatsPassMemberlistBy: what begins like a heartbeat never reaches
// memberlist, and is counted if it is none.
func TestHeartbeatsPassMemberlistBy(t *testing.T) {
	from := netip.MustParseAddrPort("10.0.0.9:7947")
	g, _, err := prepare(Options{Name: "m1", BindAddr: netip.MustParseAddr("10.0.0.1"), Label: "lbd", Keys: [][]byte{key1}})
	if err != nil {
		t.Fatal(err)
	}
	msg := (&record.Beat{Name: "m2", Inc: 1, Interval: 50, Seq: 1}).Append(record.FormatJSON, nil)
	same := sealerOf(t, "lbd", key1)
	for name, c := range map[string]struct {
		b                     []byte
		taken                 bool
		beats                 int
		keys, labels, invalid uint64
	}{
		"a heartbeat":      {b: same.Seal(nil, msg), taken: true, beats: 1},
		"of memberlist":    {b: []byte{244, 3, 'l', 'b', 'd', 1}},
		"nothing":          {},
		"cut":              {b: same.Seal(nil, msg)[:10], taken: true, invalid: 1},
		"another key":      {b: sealerOf(t, "lbd", key2).Seal(nil, msg), taken: true, keys: 1},
		"another group":    {b: sealerOf(t, "x", key1).Seal(nil, msg), taken: true, labels: 1},
		"not a heartbeat":  {b: same.Seal(nil, record.Ask{Name: "m2"}.Encode(record.FormatJSON)), taken: true, invalid: 1},
		"not even a state": {b: same.Seal(nil, []byte("x")), taken: true, invalid: 1},
	} {
		before, beforeKeys, beforeLabels := g.count.invalid.Load(), uint64(0), uint64(0)
		k, l, _ := g.writer.counts()
		beforeKeys, beforeLabels = k.Count, l.Count
		taken := g.takeBeat(c.b, from, time.Now())
		k, l, _ = g.writer.counts()
		n := 0
		for {
			if _, ok := g.beatbox.pop(); !ok {
				break
			}
			n++
		}
		if taken != c.taken || n != c.beats || k.Count-beforeKeys != c.keys || l.Count-beforeLabels != c.labels || g.count.invalid.Load()-before != c.invalid {
			t.Errorf("%s: taken %v, %d beats, keys %+v, labels %+v, %d invalid", name, taken, n, k, l, g.count.invalid.Load()-before)
		}
		if c.keys > 0 && k.Peer != from.String() {
			t.Errorf("%s: peer %q", name, k.Peer)
		}
	}
}
func sealerOf(t testing.TB, label string, keys ...[]byte) *beat.Sealer {
	t.Helper()
	if len(keys) == 0 {
		return beat.NewSealer(nil, label)
	}
	ring, err := memberlist.NewKeyring(keys, keys[0])
	if err != nil {
		t.Fatal(err)
	}
	return beat.NewSealer(ring, label)
}

// TestSealFollowsTheRing: the cache of ciphers must not outlive a key.
func TestSealFollowsTheRing(t *testing.T) {
	ring, err := memberlist.NewKeyring([][]byte{key1}, key1)
	if err != nil {
		t.Fatal(err)
	}
	s, other := beat.NewSealer(ring, "lbd"), sealerOf(t, "lbd", key2)
	if _, err := s.Open(other.Seal(nil, []byte("x"))); !errors.Is(err, beat.ErrKey) {
		t.Fatal(err)
	}
	if err := ring.AddKey(key2); err != nil {
		t.Fatal(err)
	}
	if _, err := s.Open(other.Seal(nil, []byte("x"))); err != nil {
		t.Errorf("a new key does not decrypt: %v", err)
	}
	if _, err := other.Open(s.Seal(nil, []byte("x"))); err == nil {
		t.Error("a key that is only added encrypts")
	}
	if err := ring.UseKey(key2); err != nil {
		t.Fatal(err)
	}
	if _, err := other.Open(s.Seal(nil, []byte("x"))); err != nil {
		t.Errorf("the new first key does not encrypt: %v", err)
	}
	k := &keys{ring: ring, configured: [][]byte{key2}}
	k.remove(key1)
	if _, err := s.Open(sealerOf(t, "lbd", key1).Seal(nil, []byte("x"))); !errors.Is(err, beat.ErrKey) {
		t.Errorf("a key that was taken away decrypts: %v", err)
	}
}
