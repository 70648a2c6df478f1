package tenants

import (
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/rsa"
	"crypto/x509"
	"crypto/x509/pkix"
	"encoding/pem"
	"fmt"
	"math/big"
	"net"
	"strings"
	"testing"
	"time"

	"lbd.dev/lbd/api/v1alpha1"
)

// pair is a certificate with its key, in PEM.
func pair(t testing.TB, change func(*x509.Certificate)) (crt, key []byte) {
	t.Helper()
	private, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	if err != nil {
		t.Fatal(err)
	}
	template := &x509.Certificate{SerialNumber: big.NewInt(1), NotAfter: time.Now().Add(time.Hour)}
	change(template)
	der, err := x509.CreateCertificate(rand.Reader, template, template, &private.PublicKey, private)
	if err != nil {
		t.Fatal(err)
	}
	data, err := x509.MarshalPKCS8PrivateKey(private)
	if err != nil {
		t.Fatal(err)
	}
	return pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE", Bytes: der}), pem.EncodeToMemory(&pem.Block{Type: "PRIVATE KEY", Bytes: data})
}

// TestCertificateNames: an engine finds a certificate by any of its names, so all are found here, and what could
// be read as another name is refused.
func TestCertificateNames(t *testing.T) {
	names := func(list ...string) func(*x509.Certificate) {
		return func(c *x509.Certificate) { c.DNSNames = list }
	}
	common := func(list ...string) func(*x509.Certificate) {
		return func(c *x509.Certificate) {
			for _, name := range list {
				c.Subject.ExtraNames = append(c.Subject.ExtraNames, pkix.AttributeTypeAndValue{Type: commonName, Value: name})
			}
		}
	}
	many := make([]string, 251)
	for i := range many {
		many[i] = fmt.Sprintf("a%d.com", i)
	}
	for what, c := range map[string]struct {
		change func(*x509.Certificate)
		want   string
	}{
		"names":             {names("b.com", "*.A.com", "b.com"), "[*.a.com b.com]"},
		"common names":      {common("B.com", "a.com", "Shop Ltd.", "c"), "[a.com b.com c]"},
		"none":              {names(), "[]"},
		"all of *":          {names("*"), `the certificate is for "*", which is no hostname`},
		"two of *":          {names("*.*.a.com"), `which is no hostname`},
		"the end of a text": {names("evil.com\x00.a.com"), `which is no hostname`},
		"a dot at the end":  {names("evil.com."), `which is no hostname`},
		"common, the end":   {common("evil.com\x00.a.com"), "a common name that cannot be read"},
		"two at a comma":    {common("x,evil.com"), `the common name "x,evil.com", which is no hostname`},
		"common, all below": {common("*.evil.com."), "which an engine may take for one"},
		"common, two of *":  {common("*.*.com"), "which an engine may take for one"},
		"common, only *":    {common("*"), "which an engine may take for one"},
		"common, a dot":     {common("evil.com."), "which an engine may take for one"},
		"common, a blank":   {common(" evil.com"), "which an engine may take for one"},
		"common, IPv6":      {common("fd00::1"), "which an engine may take for one"},
		"common, IPv4":      {common("10.0.0.1"), "[10.0.0.1]"}, // no Tenant has such a hostname
		"an address":        {func(c *x509.Certificate) { c.IPAddresses = []net.IP{net.IPv4(10, 0, 0, 1)} }, "is for IP addresses"},
		"many":              {names(many...), "more than 250 names"},
	} {
		crt, key := pair(t, c.change)
		got, err := ReadCertificate(crt, key)
		if text := fmt.Sprint(got); err == nil && text != c.want || err != nil && !strings.Contains(err.Error(), c.want) {
			t.Errorf("%s: %s, %v, want %s", what, text, err, c.want)
		}
	}
}

// TestCertificateContent: what no engine could use is refused, and no word of it says anything of the key.
func TestCertificateContent(t *testing.T) {
	crt, key := pair(t, func(*x509.Certificate) {})
	other, otherKey := pair(t, func(*x509.Certificate) {})
	long := strings.Repeat("\n", MaxCertificate)
	const form, none = "in another form than agents write", "no certificate in PEM, or tls.key no private key"
	indented := strings.ReplaceAll(string(other), "\n", "\n ")
	for what, c := range map[string]struct{ crt, key, want string }{
		"good":                     {string(crt), string(key), ""},
		"with a chain":             {string(crt) + string(other), string(key), ""},
		"no key":                   {string(crt), "", "not both"},
		"no certificate":           {"", string(key), "not both"},
		"another key":              {string(crt), string(otherKey), "no private key of the certificate"},
		"another order":            {string(other) + string(crt), string(key), "no private key of the certificate"},
		"no PEM":                   {"sesame", string(key), none},
		"no PEM in the key":        {string(crt), "sesame", none},
		"the key in both":          {string(crt) + string(key), string(key), form},
		"the certificate in both":  {string(crt), string(key) + string(crt), form},
		"two keys":                 {string(crt), string(key) + string(otherKey), form},
		"one that others may read": {indented + string(crt), string(key), none},
		"one of another type":      {strings.ReplaceAll(string(other), "CERT", "TRUSTED CERT") + string(crt), string(key), form},
		"words":                    {"sesame\n" + string(crt), string(key), form},
		"other ends of lines":      {strings.ReplaceAll(string(crt), "\n", "\r\n"), string(key), form},
		"broken":                   {strings.Replace(string(crt), "\nMI", "\nAA", 1), string(key), "cannot be read"},
		"long":                     {string(crt) + long, string(key), "more than 32768 bytes"},
		"a long key":               {string(crt), string(key) + long[:MaxKey], "more than 16384"},
	} {
		_, err := ReadCertificate([]byte(c.crt), []byte(c.key))
		if c.want == "" && err != nil || c.want != "" && (err == nil || !strings.Contains(err.Error(), c.want)) {
			t.Errorf("%s: %v, want %s", what, err, c.want)
		}
		if body := strings.Split(string(key), "\n")[1]; err != nil && (strings.Contains(err.Error(), body[:10]) || strings.Contains(err.Error(), "sesame")) {
			t.Errorf("%s: it shows the key: %v", what, err)
		}
	}
	chain, private := Canonical([]byte("words\n"+strings.ReplaceAll(string(crt)+string(other), "\n", "\r\n")), []byte("-----BEGIN EC PARAMETERS-----\nBggqhkjOPQMBBw==\n-----END EC PARAMETERS-----\n"+string(key)))
	if string(chain) != string(crt)+string(other) || string(private) != string(key) {
		t.Errorf("%s%s", chain, private)
	}
	name := HubSecretName("default", "web", crt, key)
	for what, other := range map[string]string{"key": HubSecretName("default", "web", crt, otherKey), "certificate": HubSecretName("default", "web", other, key),
		"name": HubSecretName("default", "we", crt, key), "namespace": HubSecretName("defaul", "web", crt, key)} {
		if other == name {
			t.Errorf("the same name for another %s", what)
		}
	}
	if !strings.HasPrefix(name, v1alpha1.HubSecretPrefix) || len(name) != 28 {
		t.Error(name)
	}
}

// TestLargeKey: a key that costs much processor time at each handshake is refused, before anything is computed
// with it.
func TestLargeKey(t *testing.T) {
	signer, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	if err != nil {
		t.Fatal(err)
	}
	_, key := pair(t, func(*x509.Certificate) {})
	for bits, want := range map[uint]string{maxRSA: "tls.key is no private key of the certificate in tls.crt", maxRSA + 1: "its key is an RSA key of more than 4096 bits"} {
		n := new(big.Int).Lsh(big.NewInt(1), bits-1)
		template := &x509.Certificate{SerialNumber: big.NewInt(1), NotAfter: time.Now().Add(time.Hour), DNSNames: []string{"a.com"}}
		der, err := x509.CreateCertificate(rand.Reader, template, template, &rsa.PublicKey{N: n.Add(n, big.NewInt(1)), E: 65537}, signer)
		if err != nil {
			t.Fatal(err)
		}
		crt := pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE", Bytes: der})
		if _, err := ReadCertificate(crt, key); fmt.Sprint(err) != want {
			t.Errorf("%d bits: %v, want %s", bits, err, want)
		}
	}
}

// FuzzReadCertificate: whatever an agent writes, what is taken has one form and names that are hostnames.
func FuzzReadCertificate(f *testing.F) {
	for _, names := range [][]string{{}, {"a.com", "*.b.com"}, {"*"}} {
		crt, key := pair(f, func(c *x509.Certificate) { c.DNSNames = names })
		f.Add(crt, key)
	}
	f.Add([]byte("-----BEGIN CERTIFICATE-----\n-----END CERTIFICATE-----\n"), []byte("-----BEGIN PRIVATE KEY-----\n-----END PRIVATE KEY-----\n"))
	f.Fuzz(func(t *testing.T, certificate, key []byte) {
		certificate, key = Canonical(certificate, key)
		if again, _ := Canonical(certificate, key); string(again) != string(certificate) {
			t.Errorf("%q becomes %q", certificate, again)
		}
		names, err := ReadCertificate(certificate, key)
		for _, name := range names {
			if err != nil || !v1alpha1.IsHostname(name) {
				t.Errorf("%q: %v", name, err)
			}
		}
	})
}
