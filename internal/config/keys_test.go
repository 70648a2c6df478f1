package config

import (
	"bytes"
	"encoding/base64"
	"errors"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"testing"

	"lbd.dev/lbd/internal/testnet"
)

// keysOf are those of a keyring, and all that is wrong with it.
func keysOf(file string) ([][]byte, error) {
	keys, _, errs := readKeys(file)
	return keys, join(errs)
}

func TestReadKeys(t *testing.T) {
	long := func(n int) string { return base64.StdEncoding.EncodeToString(bytes.Repeat([]byte{7}, n)) }
	key := NewKey()
	for name, tt := range map[string]struct{ content, want string }{
		"good":     {"# a\n\n  " + key + "\r\n#" + key + "\n" + long(32), ""},
		"empty":    {"", "key: has no key; `lbd keygen` prints one"},
		"comments": {"# a\n", "key: has no key; `lbd keygen` prints one"},
		"short":    {"\n" + long(16) + "\n", "key:2: the key has 16 bytes, not 32; `lbd keygen` prints one"},
		"all bad":  {key + "\n" + long(33) + "\nsecret!\n" + key + "\n", "key:2: the key has 33 bytes, not 32; `lbd keygen` prints one\nkey:3: the key is not base64\nkey:4: the key is the same as in line 1"},
		"loose":    {key[:42] + "/=", "key:1: the key is not base64"}, // bits after the last byte
		"large":    {strings.Repeat("#", maxKeyFile+1), "key: is larger than 64 KiB"},
	} {
		t.Run(name, func(t *testing.T) {
			dir := write(t, map[string]string{"key": tt.content})
			keys, err := keysOf(filepath.Join(dir, "key"))
			if got := message(err, dir); got != tt.want {
				t.Errorf("got\n%s\nwant\n%s", got, tt.want)
			}
			if err == nil && len(keys) != 2 {
				t.Errorf("%d keys", len(keys))
			}
			if err != nil && strings.Contains(err.Error(), "secret") {
				t.Error("the error shows the key")
			}
		})
	}
}

func TestNewKey(t *testing.T) {
	a, b := NewKey(), NewKey()
	if raw, err := base64.StdEncoding.DecodeString(a); a == b || err != nil || len(raw) != KeySize {
		t.Errorf("%q %q %v", a, b, err)
	}
}

func TestRotateKey(t *testing.T) {
	dir := t.TempDir()
	file, link := filepath.Join(dir, "real"), filepath.Join(dir, "key")
	old := "# ring of prod\n" + NewKey() // no newline at the end
	if err := os.WriteFile(file, []byte(old), 0o644); err != nil {
		t.Fatal(err)
	}
	if err := os.Symlink("real", link); err != nil {
		t.Fatal(err)
	}
	before, err := keysOf(link)
	if err != nil {
		t.Fatal(err)
	}
	// A daemon that reads all the time must never see half a file.
	stop := make(chan struct{})
	var readers sync.WaitGroup
	readers.Go(func() {
		for {
			select {
			case <-stop:
				return
			default:
				if _, err := keysOf(link); err != nil {
					t.Errorf("while rotating: %v", err)
					return
				}
			}
		}
	})
	for range 3 {
		if err := RotateKey(link); err != nil {
			t.Fatal(err)
		}
	}
	close(stop)
	readers.Wait()

	after, err := keysOf(link)
	if err != nil || len(after) != 4 || !bytes.Equal(after[3], before[0]) || bytes.Equal(after[0], before[0]) {
		t.Errorf("%v: %d keys", err, len(after))
	}
	data, _ := os.ReadFile(file)
	if !strings.HasSuffix(string(data), old) {
		t.Error("the rest of the file has changed")
	}
	if info, _ := os.Lstat(link); info.Mode()&os.ModeSymlink == 0 {
		t.Error("the link was replaced")
	}
	if info, _ := os.Stat(file); info.Mode().Perm() != 0o640 { // others may not read it any more
		t.Errorf("mode %o", info.Mode().Perm())
	}
	if entries, _ := os.ReadDir(dir); len(entries) != 2 {
		t.Errorf("left behind: %v", entries)
	}
}

func TestRotateKeyRefuses(t *testing.T) {
	dir := write(t, map[string]string{"bad": "x\n"})
	for file, want := range map[string]string{
		"none": "none: does not exist; write the first key with `lbd keygen`",
		"bad":  "bad:1: the key is not base64",
	} {
		if err := RotateKey(filepath.Join(dir, file)); message(err, dir) != want {
			t.Errorf("got %v, want %s", err, want)
		}
	}
	if data, _ := os.ReadFile(filepath.Join(dir, "bad")); string(data) != "x\n" {
		t.Error("a bad keyring was changed")
	}
}

func FuzzKeys(f *testing.F) {
	f.Add([]byte("# a\n" + NewKey() + "\n"))
	f.Add([]byte("x\r\n\x00"))
	f.Fuzz(func(t *testing.T, data []byte) {
		keys, errs := parseKeys("key", data)
		if (len(keys) == 0) && (len(errs) == 0) {
			t.Fatal("neither key nor error")
		}
		for _, k := range keys {
			if len(k) != KeySize {
				t.Fatalf("key of %d bytes", len(k))
			}
		}
		for _, err := range errs {
			checkLine(t, err, "key")
		}
	})
}

// checkLine fails unless the error is one printable line that names its file.
func checkLine(t *testing.T, err *Error, file string) {
	t.Helper()
	text := err.Error()
	if !strings.HasPrefix(text, file+":") || strings.ContainsFunc(text, func(r rune) bool { return r < ' ' || r == 0x7f }) {
		t.Fatalf("error %q", text)
	}
}

// TestKeyOfAnotherUser: the error says why root in a pod cannot read the key of the
// unit's user, what to do, and which field names the file.
func TestKeyOfAnotherUser(t *testing.T) {
	dir := write(t, map[string]string{"gossip.key": NewKey() + "\n"})
	key := filepath.Join(dir, "gossip.key")
	put(t, filepath.Join(dir, "a.yaml"), headNode+"nodeName: m1\ngossip: {keyFile: "+key+"}\n")
	if os.Geteuid() == 0 {
		if err := errors.Join(os.Chmod(key, 0o600), os.Chown(key, 4242, 4242)); err != nil {
			t.Fatal(err)
		}
	}
	testnet.AsInPod(t, func() {
		_, err := Load(dir)
		for _, want := range []string{"permission denied for root without CAP_DAC_OVERRIDE (as in a pod)", "it belongs to 4242 (mode 0600)", "`chown root: " + key + "`", "(gossip.keyFile of NodeConfiguration"} {
			if err == nil || !strings.Contains(err.Error(), want) {
				t.Errorf("got %v, want %q in it", err, want)
			}
		}
	})
}
