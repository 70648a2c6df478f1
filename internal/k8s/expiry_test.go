package k8s

import (
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/x509"
	"encoding/base64"
	"encoding/pem"
	"fmt"
	"math/big"
	"os"
	"path/filepath"
	"testing"
	"time"
)

func TestCredentialsEnd(t *testing.T) {
	dir := t.TempDir()
	end := time.Unix(1800000000, 0)
	put := func(name, text string) string {
		t.Helper()
		file := filepath.Join(dir, name)
		if err := os.WriteFile(file, []byte(text), 0o600); err != nil {
			t.Fatal(err)
		}
		return file
	}
	kubeconfig := func(user string) string {
		return put("kubeconfig", `{apiVersion: v1, kind: Config, current-context: a,
clusters: [{name: a, cluster: {server: "https://10.0.0.1:6443"}}], contexts: [{name: a, context: {cluster: a, user: a}}], users: [{name: a, user: {`+user+`}}]}`)
	}
	jwt := func(claims string) string {
		return "e30." + base64.RawURLEncoding.EncodeToString([]byte(claims)) + ".c2ln"
	}
	cert, key := pair(t, end)
	b64 := base64.StdEncoding.EncodeToString
	for name, user := range map[string]string{
		"token":            "token: " + jwt(`{"exp":1800000000}`),
		"token file":       "tokenFile: " + put("token", jwt(`{"exp":1800000000.5}`)+"\n"),
		"certificate":      fmt.Sprintf("client-certificate-data: %s, client-key-data: %s", b64(cert), b64(key)),
		"certificate file": fmt.Sprintf("client-certificate: %s, client-key: %s", put("crt", string(cert)), put("key", string(key))),
	} {
		if got, ok := CredentialsEnd(kubeconfig(user)); !ok || !got.Equal(end) {
			t.Errorf("%s: %v %v", name, got, ok)
		}
	}
	for name, user := range map[string]string{
		"none": "", "password": "username: a, password: b", "opaque": "token: abc", "no end": "token: " + jwt(`{"sub":"a"}`),
		"no JSON": "token: " + jwt("x"), "no base64": "token: a.%.c", "no file": "tokenFile: " + dir + "/none",
	} {
		if got, ok := CredentialsEnd(kubeconfig(user)); ok {
			t.Errorf("%s: %v", name, got)
		}
	}
	if _, ok := CredentialsEnd(dir + "/none"); ok {
		t.Error("a file that is not there has an end")
	}
}

// pair makes a certificate that ends then, and its key.
func pair(t *testing.T, end time.Time) (cert, key []byte) {
	t.Helper()
	k, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	if err != nil {
		t.Fatal(err)
	}
	form := &x509.Certificate{SerialNumber: big.NewInt(1), NotAfter: end}
	der, err := x509.CreateCertificate(rand.Reader, form, form, &k.PublicKey, k)
	if err != nil {
		t.Fatal(err)
	}
	raw, err := x509.MarshalPKCS8PrivateKey(k)
	if err != nil {
		t.Fatal(err)
	}
	return pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE", Bytes: der}), pem.EncodeToMemory(&pem.Block{Type: "PRIVATE KEY", Bytes: raw})
}
