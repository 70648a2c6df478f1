package health

import (
	"crypto/tls"
	"crypto/x509"
	"fmt"
	"io"
	"log/slog"
	"os"
	"slices"
	"syscall"
	"time"
)

// maxFile bounds certificate files, in bytes.
const maxFile = 1 << 20

// stamp tells whether a file has changed without reading it. The inode shows an
// atomic replacement within one tick of the file system's clock.
type stamp struct {
	size     int64
	modified time.Time
	inode    uint64
}

// material is a value made of the content of files. It is made again when one of
// them changes on disk. What was good stays in use while a file is missing or
// broken, since certificates are not always replaced in one step; this is logged
// once. Before the first good content there is only an error.
type material[T any] struct {
	paths []string
	parse func(contents [][]byte) (T, error)
	log   *slog.Logger

	stamps []stamp // of the value
	value  T
	fault  string // logged already
}

// get returns the value for the files as they are now. It is not safe for
// concurrent use.
func (m *material[T]) get() (T, error) {
	value, stamps, err := m.load()
	switch {
	case err == nil:
		m.value, m.stamps, m.fault = value, stamps, ""
	case m.stamps == nil:
		return value, err
	case m.fault != err.Error():
		m.fault = err.Error()
		m.log.Warn("health check goes on with the certificates it had", "err", err)
	}
	return m.value, nil
}

// load returns the present value if no file has changed, and a new one if any
// has.
func (m *material[T]) load() (T, []stamp, error) {
	var zero T
	stamps := make([]stamp, len(m.paths))
	for i, path := range m.paths {
		info, err := os.Stat(path)
		if err != nil {
			return zero, nil, fileCause(path, err)
		}
		stamps[i] = stamp{size: info.Size(), modified: info.ModTime()}
		if sys, ok := info.Sys().(*syscall.Stat_t); ok {
			stamps[i].inode = sys.Ino
		}
	}
	if slices.Equal(stamps, m.stamps) {
		return m.value, stamps, nil
	}
	contents := make([][]byte, len(m.paths))
	for i, path := range m.paths {
		var err error
		if contents[i], err = readBounded(path); err != nil {
			return zero, nil, fileCause(path, err)
		}
	}
	value, err := m.parse(contents)
	return value, stamps, err
}

func readBounded(path string) ([]byte, error) {
	file, err := os.Open(path)
	if err != nil {
		return nil, err
	}
	defer file.Close()
	content, err := io.ReadAll(io.LimitReader(file, maxFile+1))
	if err != nil {
		return nil, err
	}
	if len(content) > maxFile {
		return nil, fmt.Errorf("larger than %d bytes", maxFile)
	}
	return content, nil
}

// newCAPool returns the CAs of a PEM bundle.
func newCAPool(path string, log *slog.Logger) *material[*x509.CertPool] {
	return &material[*x509.CertPool]{
		paths: []string{path},
		log:   log,
		parse: func(contents [][]byte) (*x509.CertPool, error) {
			pool := x509.NewCertPool()
			if !pool.AppendCertsFromPEM(contents[0]) {
				return nil, fmt.Errorf("%q holds no PEM certificate", path)
			}
			return pool, nil
		},
	}
}

// newClientCertificate returns a client certificate and its key.
func newClientCertificate(certPath, keyPath string, log *slog.Logger) *material[tls.Certificate] {
	return &material[tls.Certificate]{
		paths: []string{certPath, keyPath},
		log:   log,
		parse: func(contents [][]byte) (tls.Certificate, error) {
			pair, err := tls.X509KeyPair(contents[0], contents[1])
			if err != nil {
				return tls.Certificate{}, fmt.Errorf("%q with key %q: %w", certPath, keyPath, err)
			}
			return pair, nil
		},
	}
}
