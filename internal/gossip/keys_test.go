package gossip

import (
	"bytes"
	"slices"
	"strings"
	"testing"
	"time"

	"lbd.dev/lbd/internal/model"
)

func TestKeyRotationHasNoGap(t *testing.T) {
	bubble(t, func(l *lab) {
		for i := 1; i <= 3; i++ {
			l.start(i)
		}
		l.joined(5 * time.Second)
		a := l.nodes["m1"]
		a.claim(vip1, 1, "m2", "m3")
		time.Sleep(time.Second)
		for _, step := range [][][]byte{{key2, key1}, {key2}} {
			for i := 1; i <= 3; i++ { // one after the other
				if err := l.nodes["m"+string(rune('0'+i))].SetKeys(step); err != nil {
					t.Fatal(err)
				}
				time.Sleep(12 * time.Second) // longer than the grace
			}
		}
		for name, m := range l.nodes {
			s := m.Stats()
			if s.KeyMismatches.Count != 0 {
				t.Errorf("%s: %+v", name, s.KeyMismatches)
			}
			for _, p := range s.Peers {
				if p.Missed != 0 || p.Late != 0 || p.State != model.MemberAlive {
					t.Errorf("%s: %+v", name, p)
				}
			}
			if keys := m.keys.ring.GetKeys(); len(keys) != 1 || !bytes.Equal(keys[0], key2) {
				t.Errorf("%s has %d keys, or the wrong one", name, len(keys))
			}
		}
		if a.heard("m2").Sent < 1400 {
			t.Errorf("sent = %d", a.heard("m2").Sent)
		}
		if err := a.SetKeys(nil); err == nil {
			t.Error("no keys were accepted")
		}
		if err := a.SetKeys([][]byte{{1}}); err == nil {
			t.Error("a bad key was accepted")
		}
	})
}

// TestRetiredKeyStillDecrypts takes the old key from one node seconds before it
// is taken from the other, which encrypts with it.
func TestRetiredKeyStillDecrypts(t *testing.T) {
	bubble(t, func(l *lab) {
		both := func(o *Options) { o.Keys = [][]byte{key1, key2} }
		a, b := l.start(1, both), l.start(2, both)
		l.joined(5 * time.Second)
		a.claim(vip1, 1, "m2")
		b.claim(vip2, 1, "m1")
		time.Sleep(time.Second)
		for i, m := range []*member{a, b} {
			if err := m.SetKeys([][]byte{key2}); err != nil {
				t.Fatal(err)
			}
			time.Sleep(5 * time.Second)
			if i == 0 && len(a.keys.ring.GetKeys()) != 2 {
				t.Error("the retired key is gone at once")
			}
		}
		time.Sleep(keyGrace)
		if n := len(a.keys.ring.GetKeys()) + len(b.keys.ring.GetKeys()); n != 2 {
			t.Errorf("%d keys are left", n)
		}
		if n := a.Stats().KeyMismatches.Count + b.Stats().KeyMismatches.Count + a.heard("m2").Missed + b.heard("m1").Missed; n != 0 {
			t.Errorf("%d messages were not understood", n)
		}
	})
}

func TestNewKeyEncryptsOnceAllKnowIt(t *testing.T) {
	bubble(t, func(l *lab) {
		a, b := l.start(1), l.start(2)
		l.joined(5 * time.Second)
		time.Sleep(time.Second)
		if err := a.SetKeys([][]byte{key2, key1}); err != nil {
			t.Fatal(err)
		}
		time.Sleep(time.Minute)
		if !bytes.Equal(a.keys.ring.GetPrimaryKey(), key1) {
			t.Error("m1 encrypts with a key that m2 does not have")
		}
		if err := b.SetKeys([][]byte{key2, key1}); err != nil {
			t.Fatal(err)
		}
		l.within(100*time.Millisecond, "both use the new key", func() bool {
			return bytes.Equal(a.keys.ring.GetPrimaryKey(), key2) && bytes.Equal(b.keys.ring.GetPrimaryKey(), key2)
		})
	})
}

func TestWrongKeyAndLabelAreCounted(t *testing.T) {
	bubble(t, func(l *lab) {
		a := l.start(1)
		l.start(2, func(o *Options) { o.Keys = [][]byte{key2} })
		l.start(3, func(o *Options) { o.Label = "other" })
		time.Sleep(10 * time.Second)
		s := a.Stats()
		if s.KeyMismatches.Count == 0 || !strings.HasPrefix(s.KeyMismatches.Peer, "10.0.0.1") || s.KeyMismatches.At.IsZero() {
			t.Errorf("keys: %+v", s.KeyMismatches)
		}
		if s.LabelMismatches.Count == 0 {
			t.Errorf("labels: %+v", s.LabelMismatches)
		}
		if len(a.alive()) != 0 {
			t.Errorf("members: %v", a.alive())
		}
		if want := []string{"10.0.0.12:7947", "10.0.0.13:7947"}; !slices.Equal(s.Absent, want) {
			t.Errorf("absent = %v, want %v", s.Absent, want)
		}
		if s.Joins == 0 || s.JoinErrors == 0 {
			t.Errorf("joins = %d, errors = %d", s.Joins, s.JoinErrors)
		}
	})
	// A packet, too.
	bubble(t, func(l *lab) {
		a, b := l.start(1), l.start(2)
		l.joined(5 * time.Second)
		_ = b.keys.ring.AddKey(key2)
		_ = b.keys.ring.UseKey(key2)
		b.claim(vip1, 1, "m1")
		time.Sleep(time.Second)
		if s := a.Stats(); s.KeyMismatches.Count < 15 || s.KeyMismatches.Peer != "10.0.0.12:7947" {
			t.Errorf("keys: %+v", s.KeyMismatches)
		}
	})
}
