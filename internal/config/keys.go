package config

import (
	"bytes"
	"crypto/rand"
	"encoding/base64"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"syscall"
)

// KeySize is the length of a gossip key in bytes: AES-256.
const KeySize = 32

// maxKeyFile bounds a keyring, in bytes.
const maxKeyFile = 64 << 10

// NewKey returns a new random key as a line of a keyring has it.
func NewKey() string {
	key := make([]byte, KeySize)
	_, _ = rand.Read(key) // never fails, see its documentation
	return base64.StdEncoding.EncodeToString(key)
}

// readKeys returns the keys of a keyring, the one that encrypts first, and what is known of the
// file. There is an error for each bad line; none shows a key.
func readKeys(file string) ([][]byte, fs.FileInfo, []*Error) {
	data, info, err := readFile(file, maxKeyFile)
	if err != nil {
		return nil, nil, []*Error{err}
	}
	keys, errs := parseKeys(file, data)
	return keys, info, errs
}

// parseKeys parses a keyring: a base64 key a line, empty lines, and comments.
func parseKeys(file string, data []byte) (keys [][]byte, errs []*Error) {
	lines := make(map[string]int)
	number := 0
	for line := range bytes.Lines(data) {
		number++
		line = bytes.TrimSpace(line)
		if len(line) == 0 || line[0] == '#' {
			continue
		}
		key, err := base64.StdEncoding.Strict().DecodeString(string(line))
		switch first := lines[string(key)]; {
		case err != nil:
			errs = append(errs, fileError(file, number, "the key is not base64"))
		case len(key) != KeySize:
			errs = append(errs, fileError(file, number, "the key has %d bytes, not %d; `lbd keygen` prints one", len(key), KeySize))
		case first != 0:
			errs = append(errs, fileError(file, number, "the key is the same as in line %d", first))
		default:
			lines[string(key)] = number
			keys = append(keys, key)
		}
	}
	if len(keys) == 0 && len(errs) == 0 {
		errs = append(errs, fileError(file, 0, "has no key; `lbd keygen` prints one"))
	}
	return keys, errs
}

// RotateKey puts a new key at the head of a keyring and keeps all else. The file
// is replaced at once, never written in part, with mode 0600 and its owner.
//
// A node encrypts with the first key as soon as it has read it, so the others
// must learn it soon.
func RotateKey(file string) error {
	// A link, as in a mounted Secret, stays one; what it leads to is replaced.
	target, err := filepath.EvalSymlinks(file)
	if errors.Is(err, fs.ErrNotExist) {
		return fileError(file, 0, "does not exist; write the first key with `lbd keygen`")
	}
	if err != nil {
		return fileError(file, 0, "%v", cause(err))
	}
	data, info, bad := readFile(target, maxKeyFile)
	if bad != nil {
		return bad
	}
	if _, errs := parseKeys(file, data); len(errs) > 0 {
		return join(errs)
	}
	content := append([]byte(NewKey()+"\n"), data...)
	if len(content) > maxKeyFile {
		return fileError(file, 0, "would be larger than %d KiB; remove old keys", maxKeyFile>>10)
	}
	if err := replaceFile(target, content, info); err != nil {
		return fmt.Errorf("%s: rotate key: %w", file, err)
	}
	return nil
}

// replaceFile writes content to a new file and puts it where file is.
func replaceFile(file string, content []byte, old fs.FileInfo) (err error) {
	dir := filepath.Dir(file)
	f, err := os.CreateTemp(dir, "."+filepath.Base(file)+".*") // mode 0600
	if err != nil {
		return err
	}
	defer func() {
		if err != nil {
			_ = os.Remove(f.Name())
		}
	}()
	_, err = f.Write(content)
	if err == nil {
		// The group may read a keyring that the unit's user owns through it; others
		// never may.
		err = f.Chmod(old.Mode().Perm() & 0o640)
	}
	if st, ok := old.Sys().(*syscall.Stat_t); ok && err == nil && os.Geteuid() == 0 {
		err = f.Chown(int(st.Uid), int(st.Gid))
	}
	if err == nil {
		err = f.Sync()
	}
	if err = errors.Join(err, f.Close()); err != nil {
		return err
	}
	if err = os.Rename(f.Name(), file); err != nil {
		return err
	}
	d, err := os.Open(dir)
	if err != nil {
		return err
	}
	return errors.Join(d.Sync(), d.Close())
}
