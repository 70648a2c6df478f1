package tenants

import (
	"bytes"
	"crypto/rsa"
	"crypto/tls"
	"crypto/x509"
	"encoding/asn1"
	"encoding/pem"
	"errors"
	"fmt"
	"slices"
	"strings"

	"lbd.dev/lbd/api/v1alpha1"
)

// What bounds a certificate with its chain, its key, and the names in it. The policy for agents in
// packaging/tenant/hub-tls.yaml has the first two in base64.
const (
	MaxCertificate = 32 << 10
	MaxKey         = 16 << 10
	maxNames       = 250
	// maxRSA is in bits. Each handshake costs the engine of all tenants a signature by the key.
	maxRSA = 4096
)

// What marks a Secret that an agent has written in a hub.
const (
	SecretLabel      = "app.kubernetes.io/managed-by"
	SecretLabelValue = "lbd-agent"
)

// ReasonSecretMissing: the hub has not the Secret that a TenantRoute names.
const ReasonSecretMissing Reason = "SecretMissing"

// HubSecretName is the name in the hub of a Secret of the tenant with this content. Another content has
// another name, so that what is there need never be changed.
func HubSecretName(namespace, name string, certificate, key []byte) string {
	return v1alpha1.HubSecretPrefix + hash("Secret", namespace, name, string(certificate), string(key))
}

// ReadCertificate returns the names that an engine may find the certificate by, if it and its key are such as
// an engine can use, and Canonical. An error has nothing of the key.
func ReadCertificate(certificate, key []byte) ([]string, error) {
	switch {
	case len(certificate) == 0 || len(key) == 0:
		return nil, errors.New("it has not both tls.crt and tls.key")
	case len(certificate) > MaxCertificate || len(key) > MaxKey:
		return nil, fmt.Errorf("tls.crt has more than %d bytes, or tls.key more than %d", MaxCertificate, MaxKey)
	}
	chain, private := Canonical(certificate, key)
	switch {
	case chain == nil || private == nil:
		return nil, errors.New("tls.crt has no certificate in PEM, or tls.key no private key")
	case !bytes.Equal(chain, certificate) || !bytes.Equal(private, key):
		return nil, errors.New("it has more than certificates and one key, or these in another form than agents write")
	}
	block, _ := pem.Decode(certificate) // the first is the one of the server
	leaf, err := x509.ParseCertificate(block.Bytes)
	if err != nil {
		return nil, errors.New("tls.crt has a certificate that cannot be read")
	}
	if public, is := leaf.PublicKey.(*rsa.PublicKey); is && public.N.BitLen() > maxRSA {
		return nil, fmt.Errorf("its key is an RSA key of more than %d bits", maxRSA)
	}
	if _, err := tls.X509KeyPair(certificate, key); err != nil {
		return nil, errors.New("tls.key is no private key of the certificate in tls.crt")
	}
	return namesOf(leaf)
}

// Canonical is a certificate with its chain, and its key, in the one form in which the hub takes them: no two
// programs read it in different ways. What else there is, is left out.
func Canonical(certificate, key []byte) (chain, private []byte) {
	for block, rest := pem.Decode(certificate); block != nil; block, rest = pem.Decode(rest) {
		if block.Type == "CERTIFICATE" {
			chain = append(chain, pem.EncodeToMemory(&pem.Block{Type: block.Type, Bytes: block.Bytes})...)
		}
	}
	for block, rest := pem.Decode(key); block != nil && private == nil; block, rest = pem.Decode(rest) {
		if strings.HasSuffix(block.Type, "PRIVATE KEY") {
			private = pem.EncodeToMemory(&pem.Block{Type: block.Type, Bytes: block.Bytes})
		}
	}
	return chain, private
}

var commonName = asn1.ObjectIdentifier{2, 5, 4, 3}

// namesOf are all names in a certificate that can be the hostname of a request. Engines look at common names
// too, and find a certificate by whichever of its names is asked for. Traefik also splits names at commas, trims
// dots, takes more than one * and compares addresses, so a common name that could be read so is refused.
func namesOf(leaf *x509.Certificate) (names []string, err error) {
	if len(leaf.IPAddresses) > 0 {
		return nil, errors.New("the certificate is for IP addresses, and an engine would show it to whoever asks for no hostname")
	}
	for _, name := range leaf.DNSNames {
		name = strings.ToLower(name)
		if !v1alpha1.IsHostname(name) {
			return nil, fmt.Errorf("the certificate is for %.70q, which is no hostname", name)
		}
		names = append(names, name)
	}
	for _, a := range leaf.Subject.Names {
		if !a.Type.Equal(commonName) {
			continue
		}
		name, isText := a.Value.(string)
		if name = strings.ToLower(name); !isText || strings.ContainsFunc(name, func(r rune) bool { return r < ' ' || r == 0x7f }) {
			return nil, errors.New("the certificate has a common name that cannot be read")
		}
		switch {
		case v1alpha1.IsHostname(name):
			names = append(names, name)
		case strings.ContainsAny(name, ",*:") || v1alpha1.IsHostname(strings.Trim(name, " .")):
			return nil, fmt.Errorf("the certificate has the common name %.70q, which is no hostname, and which an engine may take for one", name)
		}
	}
	slices.Sort(names)
	if names = slices.Compact(names); len(names) > maxNames {
		return nil, fmt.Errorf("the certificate has more than %d names", maxNames)
	}
	return names, nil
}
