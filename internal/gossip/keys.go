package gossip

import (
	"bytes"
	"crypto/sha256"
	"encoding/hex"
	"errors"
	"fmt"
	"slices"
	"sync"
	"time"

	"github.com/hashicorp/memberlist"

	"lbd.dev/lbd/internal/gossip/record"
)

// keyGrace is for how long a key that left the configuration still decrypts, so
// that messages under way and nodes that are a moment behind are understood.
const keyGrace = 10 * time.Second

var (
	errNoKeys   = errors.New("gossip: no key: set gossip.keyFile (lbd keygen writes one), or gossip.insecure to run without encryption")
	errInsecure = errors.New("gossip: keys: this process runs without encryption: restart it to use keys")
)

// keys rotates the keyring while others are at another step of the rotation.
// Every key that is configured decrypts at once; but a new first key encrypts
// only when all live members have told that they know it, so that the order in
// which the nodes are given the new file does not matter.
type keys struct {
	mu         sync.Mutex
	ring       *memberlist.Keyring // nil without encryption
	configured [][]byte
	retired    []retiredKey
}

type retiredKey struct {
	key   []byte
	until time.Time
}

func newKeys(configured [][]byte, insecure bool) (*keys, error) {
	if len(configured) == 0 {
		if insecure {
			return &keys{}, nil
		}
		return nil, errNoKeys
	}
	if err := checkKeys(configured); err != nil {
		return nil, err
	}
	configured = cloneKeys(configured)
	ring, err := memberlist.NewKeyring(configured, configured[0])
	if err != nil {
		return nil, fmt.Errorf("gossip: keys: %w", err)
	}
	return &keys{ring: ring, configured: configured}, nil
}

func checkKeys(ks [][]byte) error {
	if len(ks) > record.MaxKeys {
		return fmt.Errorf("gossip: keys: %d keys are more than %d", len(ks), record.MaxKeys)
	}
	for i, k := range ks {
		if err := memberlist.ValidateKey(k); err != nil {
			return fmt.Errorf("gossip: key %d: %d bytes are not 16, 24 or 32", i+1, len(k))
		}
	}
	return nil
}

// set takes a new configuration. Nothing changes if it returns an error.
func (k *keys) set(configured [][]byte, known func(fingerprint string) bool) error {
	k.mu.Lock()
	defer k.mu.Unlock()
	if k.ring == nil {
		if len(configured) == 0 {
			return nil
		}
		return errInsecure
	}
	if len(configured) == 0 {
		return errNoKeys
	}
	if err := checkKeys(configured); err != nil {
		return err
	}
	configured = cloneKeys(configured)
	for _, key := range configured {
		if err := k.ring.AddKey(key); err != nil {
			return fmt.Errorf("gossip: keys: %w", err)
		}
	}
	for _, old := range k.configured {
		if !hasKey(configured, old) {
			k.retired = append(k.retired, retiredKey{old, time.Now().Add(keyGrace)})
		}
	}
	k.retired = slices.DeleteFunc(k.retired, func(r retiredKey) bool { return hasKey(configured, r.key) })
	k.configured = configured
	k.choose(known)
	return nil
}

// tend moves on: to a better key that all now know, and away from retired keys.
// It reports whether the set of keys that decrypt has changed.
func (k *keys) tend(known func(fingerprint string) bool) bool {
	k.mu.Lock()
	defer k.mu.Unlock()
	if k.ring == nil {
		return false
	}
	k.choose(known)
	now, before := time.Now(), len(k.retired)
	for len(k.retired) > 0 && !now.Before(k.retired[0].until) {
		k.remove(k.retired[0].key)
		k.retired = k.retired[1:]
	}
	return len(k.retired) != before
}

// choose encrypts with the first configured key that all know. While there is
// none it stays with a key whose grace lasts. The lock is held.
func (k *keys) choose(known func(fingerprint string) bool) {
	primary := k.ring.GetPrimaryKey()
	best := k.configured[0]
	for _, key := range k.configured {
		if known(fingerprint(key)) {
			best = key
			break
		}
	}
	if !known(fingerprint(best)) {
		graced := slices.ContainsFunc(k.retired, func(r retiredKey) bool {
			return bytes.Equal(r.key, primary) && time.Now().Before(r.until)
		})
		if graced || hasKey(k.configured, primary) {
			best = primary
		}
	}
	if !bytes.Equal(best, primary) {
		// The key is on the ring, so there is no error.
		_ = k.ring.UseKey(best)
	}
}

// remove takes a key off the ring. Keyring.RemoveKey shifts the keys behind it
// within an array that readers may be walking; so the key is brought to the
// end first, by using each of the others once. The lock is held.
func (k *keys) remove(key []byte) {
	primary := k.ring.GetPrimaryKey()
	if bytes.Equal(primary, key) {
		primary = k.configured[0]
	}
	for _, other := range slices.Backward(k.ring.GetKeys()) {
		if !bytes.Equal(other, key) && !bytes.Equal(other, primary) {
			_ = k.ring.UseKey(other)
		}
	}
	_ = k.ring.UseKey(primary)
	_ = k.ring.RemoveKey(key)
}

// fingerprints lists the keys that decrypt, for the others to know.
func (k *keys) fingerprints() []string {
	k.mu.Lock()
	defer k.mu.Unlock()
	if k.ring == nil {
		return nil
	}
	var out []string
	for _, key := range k.ring.GetKeys() {
		out = append(out, fingerprint(key))
	}
	slices.Sort(out)
	return out[:min(len(out), record.MaxKeys)]
}

// fingerprint names a key without giving it away; it only travels encrypted.
func fingerprint(key []byte) string {
	sum := sha256.Sum256(append([]byte("lbd gossip key "), key...))
	return hex.EncodeToString(sum[:6])
}

func hasKey(ks [][]byte, key []byte) bool {
	return slices.ContainsFunc(ks, func(k []byte) bool { return bytes.Equal(k, key) })
}

func cloneKeys(in [][]byte) [][]byte {
	var out [][]byte
	for _, k := range in {
		if !hasKey(out, k) {
			out = append(out, bytes.Clone(k))
		}
	}
	return out
}
