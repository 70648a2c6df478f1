package beat

import (
	"bytes"
	"errors"
	"testing"

	"github.com/hashicorp/memberlist"
)

var key1, key2 = bytes.Repeat([]byte{1}, 32), bytes.Repeat([]byte{2}, 32)

func sealerOf(t testing.TB, label string, keys ...[]byte) *Sealer {
	t.Helper()
	if len(keys) == 0 {
		return NewSealer(nil, label)
	}
	ring, err := memberlist.NewKeyring(keys, keys[0])
	if err != nil {
		t.Fatal(err)
	}
	return NewSealer(ring, label)
}

func TestSeal(t *testing.T) {
	msg := []byte("a heartbeat")
	both := sealerOf(t, "lbd", key1, key2)
	for name, c := range map[string]struct {
		from, to *Sealer
		want     error
	}{
		"same key":          {sealerOf(t, "lbd", key1), sealerOf(t, "lbd", key1), nil},
		"second key":        {sealerOf(t, "lbd", key2), both, nil},
		"without a label":   {sealerOf(t, "", key1), sealerOf(t, "", key1), nil},
		"plain":             {sealerOf(t, "lbd"), sealerOf(t, "lbd"), nil},
		"another key":       {sealerOf(t, "lbd", key1), sealerOf(t, "lbd", key2), ErrKey},
		"another group":     {sealerOf(t, "lbd", key1), sealerOf(t, "other", key1), ErrLabel},
		"plain to a key":    {sealerOf(t, "lbd"), sealerOf(t, "lbd", key1), ErrKey},
		"a key to plain":    {sealerOf(t, "lbd", key1), sealerOf(t, "lbd"), ErrKey},
		"plain, not ours":   {sealerOf(t, "lbd"), sealerOf(t, "other"), ErrLabel},
		"label is a prefix": {sealerOf(t, "lb", key1), sealerOf(t, "lbd", key1), ErrLabel},
	} {
		b := c.from.Seal([]byte("what was in the buffer"), msg)
		got, err := c.to.Open(b)
		if !errors.Is(err, c.want) || err == nil && !bytes.Equal(got, msg) {
			t.Errorf("%s: %q, %v, want %v", name, got, err, c.want)
		}
	}
	// No two packets are the same, and no byte of one may be another.
	one, two := both.Seal(nil, msg), both.Seal(nil, msg)
	if bytes.Equal(one, two) {
		t.Error("a nonce was used twice")
	}
	for i := range one {
		one[i] ^= 1
		if _, err := both.Open(one); err == nil {
			t.Errorf("byte %d is not authenticated", i)
		}
		one[i] ^= 1
		if _, err := both.Open(one[:i]); err == nil {
			t.Errorf("cut after %d bytes it is accepted", i)
		}
	}
}

func FuzzSeal(f *testing.F) {
	s, plain := sealerOf(f, "lbd", key1), sealerOf(f, "lbd")
	f.Add(s.Seal(nil, []byte("x")))
	f.Add(plain.Seal(nil, []byte("x")))
	f.Add([]byte{SealByte, formAESGCM, 255})
	f.Fuzz(func(t *testing.T, b []byte) {
		if msg, err := s.Open(b); err == nil && len(b) != len(msg)+3+len("lbd")+sealNonce+sealTag {
			t.Errorf("%d bytes became %d", len(b), len(msg))
		}
		if msg, err := plain.Open(b); err == nil && !bytes.Equal(plain.Seal(nil, msg), b) {
			t.Errorf("%x", b)
		}
	})
}
