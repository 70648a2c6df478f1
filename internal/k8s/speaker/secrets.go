package speaker

import (
	"errors"
	"maps"
	"os"
	"strings"

	"lbd.dev/lbd/api/v1alpha1"
	"lbd.dev/lbd/internal/fileaccess"
)

// maxSecret bounds a file with a password, in bytes.
const maxSecret = 4 << 10

// secretFiles are the files that objects name, with the rule for what is in them.
func (l *loop) secretFiles() map[string]func(string) string {
	files := make(map[string]func(string) string)
	for _, p := range l.all.Peers {
		if f := p.Spec.PasswordFile; f != "" {
			files[f] = v1alpha1.MD5KeyRule
		}
	}
	for _, p := range l.all.Profiles {
		if f := p.Spec.AuthKeyFile; f != "" {
			files[f] = v1alpha1.BFDKeyRule
		}
	}
	return files
}

// readSecrets reads the files that objects name and tells whether any has changed.
// What cannot be read, or breaks the rule, counts as not there: a session without
// its password is no session.
func (l *loop) readSecrets() bool {
	read := make(map[string]string)
	for f, rule := range l.secretFiles() {
		if key, err := readKey(f); err == nil && rule(key) == "" {
			read[f] = key
		}
	}
	changed := !maps.Equal(read, l.secrets)
	l.secrets = read
	return changed
}

// readKey returns the content of a regular file without one newline at its end.
func readKey(file string) (string, error) {
	info, err := os.Stat(file)
	if err != nil {
		return "", err
	}
	if !info.Mode().IsRegular() || info.Size() > maxSecret {
		return "", errors.New("is no file with a password")
	}
	data, err := os.ReadFile(file)
	if err != nil {
		return "", fileaccess.Explain(err)
	}
	return strings.TrimSuffix(string(data), "\n"), nil
}
