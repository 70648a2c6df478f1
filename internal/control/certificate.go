package control

import (
	"context"
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/tls"
	"crypto/x509"
	"crypto/x509/pkix"
	"fmt"
	"math/big"
	"os"
	"sync"
	"time"
)

// SecureMetrics is the HTTPS listener of /metrics.
type SecureMetrics struct {
	// Address is host:port.
	Address string
	// CertFile and KeyFile are the certificate and its key in PEM; without them one is made
	// and signed by itself at the start.
	CertFile, KeyFile string
	// Authorize returns the status of the answer to whoever has the token: 200 if they may
	// read the metrics, else the error says why not, for the log.
	Authorize func(ctx context.Context, token string) (int, error)
}

const (
	// certificateAge is how long a certificate that was read from files is used before
	// they are read again.
	certificateAge = time.Minute
	// selfSignedFor is the validity of a certificate that the process makes. Nobody can
	// verify that one, and it ends with the process.
	selfSignedFor = 10 * 365 * 24 * time.Hour
)

// certificate is that of the listener.
type certificate struct {
	certFile, keyFile string // "": made here

	mu   sync.Mutex // guards all below
	last *tls.Certificate
	read time.Time
}

// config is the TLS of the listener, and a function that tells whether it has a certificate.
func (m *SecureMetrics) config() (*tls.Config, func() error) {
	c := &certificate{certFile: m.CertFile, keyFile: m.KeyFile}
	get := func(*tls.ClientHelloInfo) (*tls.Certificate, error) { return c.get() }
	// HTTP/2 would only add what a stranger can do before it has shown a token.
	return &tls.Config{MinVersion: tls.VersionTLS12, GetCertificate: get, NextProtos: []string{"http/1.1"}},
		func() error { _, err := c.get(); return err }
}

// get returns the certificate. While files cannot be read, or do not fit each other, as in
// the middle of a change, the one before stays.
func (c *certificate) get() (*tls.Certificate, error) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.last != nil && (c.certFile == "" || time.Since(c.read) < certificateAge) {
		return c.last, nil
	}
	load := selfSigned
	if c.certFile != "" {
		load = func() (tls.Certificate, error) { return tls.LoadX509KeyPair(c.certFile, c.keyFile) }
	}
	fresh, err := load()
	c.read = time.Now()
	switch {
	case err == nil:
		c.last = &fresh
	case c.last == nil:
		return nil, fmt.Errorf("certificate: %w", err)
	}
	return c.last, nil
}

// selfSigned makes a certificate for the name of this host.
func selfSigned() (tls.Certificate, error) {
	key, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	if err != nil {
		return tls.Certificate{}, err
	}
	serial, err := rand.Int(rand.Reader, new(big.Int).Lsh(big.NewInt(1), 127))
	if err != nil {
		return tls.Certificate{}, err
	}
	name, err := os.Hostname()
	if err != nil {
		name = "lbd"
	}
	now := time.Now()
	form := &x509.Certificate{
		SerialNumber: serial, Subject: pkix.Name{CommonName: name}, DNSNames: []string{name},
		NotBefore: now.Add(-time.Hour), NotAfter: now.Add(selfSignedFor), // clocks differ
		KeyUsage: x509.KeyUsageDigitalSignature, ExtKeyUsage: []x509.ExtKeyUsage{x509.ExtKeyUsageServerAuth},
	}
	der, err := x509.CreateCertificate(rand.Reader, form, form, &key.PublicKey, key)
	return tls.Certificate{Certificate: [][]byte{der}, PrivateKey: key}, err
}
