package health

import (
	"context"
	"fmt"
	"path/filepath"
	"strings"

	"lbd.dev/lbd/api/v1alpha1"
)

// A check that an object of a cluster asks for runs on behalf of somebody who need
// not be allowed to look into this host. It runs no program, reads only files that
// the configuration of the node offers, and tells nothing of an answer but its
// status.

// guarded returns the prober for a check of an object of a cluster; directory is
// where it may read files, "" for nowhere.
func guarded(c v1alpha1.HealthCheck, directory string, p prober) prober {
	if c.Exec != nil {
		return refused("exec is for files only: an object of a cluster cannot run programs on hosts")
	}
	if s := c.HTTPS; s != nil {
		for _, f := range []struct{ name, path string }{{"caFile", s.CAFile}, {"certFile", s.CertFile}, {"keyFile", s.KeyFile}} {
			if f.path != "" && !below(directory, f.path) {
				return refused(forbidden(f.name, f.path, directory))
			}
		}
	}
	if h, ok := p.(*httpProber); ok {
		h.discreet = true
	}
	return p
}

// below tells whether a file is in a directory or further down. Both are absolute.
func below(directory, file string) bool {
	if directory == "" {
		return false
	}
	prefix := strings.TrimSuffix(filepath.Clean(directory), "/") + "/"
	return strings.HasPrefix(filepath.Clean(file), prefix)
}

// forbidden says why a file is not read.
func forbidden(field, path, directory string) string {
	const who = "a check of an object of a cluster"
	if directory == "" {
		return fmt.Sprintf("%s %q: %s reads no files on this node: clusterCheckFiles is not set", field, path, who)
	}
	return fmt.Sprintf("%s %q: %s reads only files below %s, which is clusterCheckFiles", field, path, who, directory)
}

// refused is a check that does not run; its text says why.
type refused string

func (r refused) Error() string               { return string(r) }
func (r refused) probe(context.Context) error { return r }
