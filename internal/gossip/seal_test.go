package gossip

import (
	"bytes"
	"errors"
	"net/netip"
	"testing"
	"time"

	"github.com/hashicorp/memberlist"
)

func sealerOf(t testing.TB, label string, keys ...[]byte) *sealer {
	t.Helper()
	s := &sealer{label: label}
	if len(keys) > 0 {
		ring, err := memberlist.NewKeyring(keys, keys[0])
		if err != nil {
			t.Fatal(err)
		}
		s.ring = ring
	}
	return s
}

func TestSeal(t *testing.T) {
	msg := []byte("a heartbeat")
	both := sealerOf(t, "lbd", key1, key2)
	for name, c := range map[string]struct {
		from, to *sealer
		want     error
	}{
		"same key":          {sealerOf(t, "lbd", key1), sealerOf(t, "lbd", key1), nil},
		"second key":        {sealerOf(t, "lbd", key2), both, nil},
		"without a label":   {sealerOf(t, "", key1), sealerOf(t, "", key1), nil},
		"plain":             {sealerOf(t, "lbd"), sealerOf(t, "lbd"), nil},
		"another key":       {sealerOf(t, "lbd", key1), sealerOf(t, "lbd", key2), errKey},
		"another group":     {sealerOf(t, "lbd", key1), sealerOf(t, "other", key1), errLabel},
		"plain to a key":    {sealerOf(t, "lbd"), sealerOf(t, "lbd", key1), errKey},
		"a key to plain":    {sealerOf(t, "lbd", key1), sealerOf(t, "lbd"), errKey},
		"plain, not ours":   {sealerOf(t, "lbd"), sealerOf(t, "other"), errLabel},
		"label is a prefix": {sealerOf(t, "lb", key1), sealerOf(t, "lbd", key1), errLabel},
	} {
		b := c.from.seal([]byte("what was in the buffer"), msg)
		got, err := c.to.open(b)
		if !errors.Is(err, c.want) || err == nil && !bytes.Equal(got, msg) {
			t.Errorf("%s: %q, %v, want %v", name, got, err, c.want)
		}
	}
	// No two packets are the same, and no byte of one may be another.
	one, two := both.seal(nil, msg), both.seal(nil, msg)
	if bytes.Equal(one, two) {
		t.Error("a nonce was used twice")
	}
	for i := range one {
		one[i] ^= 1
		if _, err := both.open(one); err == nil {
			t.Errorf("byte %d is not authenticated", i)
		}
		one[i] ^= 1
		if _, err := both.open(one[:i]); err == nil {
			t.Errorf("cut after %d bytes it is accepted", i)
		}
	}
}

// TestSealFollowsTheRing: the cache of ciphers must not outlive a key.
func TestSealFollowsTheRing(t *testing.T) {
	s, other := sealerOf(t, "lbd", key1), sealerOf(t, "lbd", key2)
	if _, err := s.open(other.seal(nil, []byte("x"))); !errors.Is(err, errKey) {
		t.Fatal(err)
	}
	if err := s.ring.AddKey(key2); err != nil {
		t.Fatal(err)
	}
	if _, err := s.open(other.seal(nil, []byte("x"))); err != nil {
		t.Errorf("a new key does not decrypt: %v", err)
	}
	if _, err := other.open(s.seal(nil, []byte("x"))); err == nil {
		t.Error("a key that is only added encrypts")
	}
	if err := s.ring.UseKey(key2); err != nil {
		t.Fatal(err)
	}
	if _, err := other.open(s.seal(nil, []byte("x"))); err != nil {
		t.Errorf("the new first key does not encrypt: %v", err)
	}
	k := &keys{ring: s.ring, configured: [][]byte{key2}}
	k.remove(key1)
	if _, err := s.open(sealerOf(t, "lbd", key1).seal(nil, []byte("x"))); !errors.Is(err, errKey) {
		t.Errorf("a key that was taken away decrypts: %v", err)
	}
}

// TestHeartbeatsPassMemberlistBy: what begins like a heartbeat never reaches
// memberlist, and is counted if it is none.
func TestHeartbeatsPassMemberlistBy(t *testing.T) {
	from := netip.MustParseAddrPort("10.0.0.9:7947")
	g, _, err := prepare(Options{Name: "m1", BindAddr: netip.MustParseAddr("10.0.0.1"), Label: "lbd", Keys: [][]byte{key1}})
	if err != nil {
		t.Fatal(err)
	}
	beat := encode(typeBeat, wireBeat{Name: "m2", Inc: 1, Interval: 50, Seq: 1})
	same := sealerOf(t, "lbd", key1)
	for name, c := range map[string]struct {
		b                     []byte
		taken                 bool
		beats                 int
		keys, labels, invalid uint64
	}{
		"a heartbeat":      {b: same.seal(nil, beat), taken: true, beats: 1},
		"of memberlist":    {b: []byte{244, 3, 'l', 'b', 'd', 1}},
		"nothing":          {},
		"cut":              {b: same.seal(nil, beat)[:10], taken: true, invalid: 1},
		"another key":      {b: sealerOf(t, "lbd", key2).seal(nil, beat), taken: true, keys: 1},
		"another group":    {b: sealerOf(t, "x", key1).seal(nil, beat), taken: true, labels: 1},
		"not a heartbeat":  {b: same.seal(nil, encode(typeAsk, wireAsk{Name: "m2"})), taken: true, invalid: 1},
		"not even a state": {b: same.seal(nil, []byte("x")), taken: true, invalid: 1},
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

func FuzzSeal(f *testing.F) {
	s, plain := sealerOf(f, "lbd", key1), sealerOf(f, "lbd")
	f.Add(s.seal(nil, []byte("x")))
	f.Add(plain.seal(nil, []byte("x")))
	f.Add([]byte{sealByte, formAESGCM, 255})
	f.Fuzz(func(t *testing.T, b []byte) {
		if msg, err := s.open(b); err == nil && len(b) != len(msg)+3+len("lbd")+sealNonce+sealTag {
			t.Errorf("%d bytes became %d", len(b), len(msg))
		}
		if msg, err := plain.open(b); err == nil && !bytes.Equal(plain.seal(nil, msg), b) {
			t.Errorf("%x", b)
		}
	})
}
