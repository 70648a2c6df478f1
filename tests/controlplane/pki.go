package controlplane

import (
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/x509"
	"crypto/x509/pkix"
	"encoding/pem"
	"errors"
	"fmt"
	"math/big"
	"net"
	"net/netip"
	"os"
	"path/filepath"
	"time"
)

// PKI is the certificate authority of a control plane. It signs for servers and
// for users.
type PKI struct {
	CA string // file
	// ServiceAccountKey is the file of the key that signs tokens.
	ServiceAccountKey string

	dir   string
	caPEM []byte
	ca    *x509.Certificate
	key   *ecdsa.PrivateKey
}

func newPKI(dir string) (*PKI, error) {
	p := &PKI{CA: filepath.Join(dir, "ca.crt"), ServiceAccountKey: filepath.Join(dir, "sa.key"), dir: dir}
	if err := os.MkdirAll(dir, 0o700); err != nil {
		return nil, fmt.Errorf("pki: %w", err)
	}
	var err error
	if p.key, err = ecdsa.GenerateKey(elliptic.P256(), rand.Reader); err != nil {
		return nil, fmt.Errorf("pki: %w", err)
	}
	p.ca = template(pkix.Name{CommonName: "kubernetes"})
	p.ca.IsCA, p.ca.BasicConstraintsValid = true, true
	p.ca.KeyUsage = x509.KeyUsageCertSign | x509.KeyUsageDigitalSignature
	der, err := x509.CreateCertificate(rand.Reader, p.ca, p.ca, &p.key.PublicKey, p.key)
	if err != nil {
		return nil, fmt.Errorf("pki: %w", err)
	}
	if p.ca, err = x509.ParseCertificate(der); err != nil {
		return nil, fmt.Errorf("pki: %w", err)
	}
	p.caPEM = pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE", Bytes: der})
	sa, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	if err != nil {
		return nil, fmt.Errorf("pki: %w", err)
	}
	saPEM, err := keyPEM(sa)
	return p, errors.Join(err, os.WriteFile(p.CA, p.caPEM, 0o644), os.WriteFile(p.ServiceAccountKey, saPEM, 0o600))
}

func template(subject pkix.Name) *x509.Certificate {
	return &x509.Certificate{
		Subject: subject, NotBefore: time.Now().Add(-time.Hour), NotAfter: time.Now().Add(7 * 24 * time.Hour),
		KeyUsage: x509.KeyUsageDigitalSignature,
	}
}

// server makes the certificate of a server, for its names and addresses.
func (p *PKI) server(name string, dns []string, ips []netip.Addr) (certFile, keyFile string, err error) {
	t := template(pkix.Name{CommonName: name})
	t.ExtKeyUsage = []x509.ExtKeyUsage{x509.ExtKeyUsageServerAuth}
	t.DNSNames = dns
	for _, ip := range ips {
		t.IPAddresses = append(t.IPAddresses, net.IP(ip.AsSlice()))
	}
	cert, key, err := p.sign(t)
	if err != nil {
		return "", "", err
	}
	certFile, keyFile = filepath.Join(p.dir, name+".crt"), filepath.Join(p.dir, name+".key")
	if err := errors.Join(os.WriteFile(certFile, cert, 0o644), os.WriteFile(keyFile, key, 0o600)); err != nil {
		return "", "", fmt.Errorf("pki: %w", err)
	}
	return certFile, keyFile, nil
}

// client makes the certificate of a user and its key, as PEM.
func (p *PKI) client(user string, groups []string) (cert, key []byte, err error) {
	t := template(pkix.Name{CommonName: user, Organization: groups})
	t.ExtKeyUsage = []x509.ExtKeyUsage{x509.ExtKeyUsageClientAuth}
	return p.sign(t)
}

func (p *PKI) sign(t *x509.Certificate) (cert, key []byte, err error) {
	serial, err := rand.Int(rand.Reader, new(big.Int).Lsh(big.NewInt(1), 120))
	if err != nil {
		return nil, nil, fmt.Errorf("pki: %w", err)
	}
	t.SerialNumber = serial
	k, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	if err != nil {
		return nil, nil, fmt.Errorf("pki: %w", err)
	}
	der, err := x509.CreateCertificate(rand.Reader, t, p.ca, &k.PublicKey, p.key)
	if err != nil {
		return nil, nil, fmt.Errorf("pki: sign %q: %w", t.Subject.CommonName, err)
	}
	key, err = keyPEM(k)
	return pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE", Bytes: der}), key, err
}

func keyPEM(k *ecdsa.PrivateKey) ([]byte, error) {
	der, err := x509.MarshalECPrivateKey(k)
	if err != nil {
		return nil, fmt.Errorf("pki: %w", err)
	}
	return pem.EncodeToMemory(&pem.Block{Type: "EC PRIVATE KEY", Bytes: der}), nil
}
