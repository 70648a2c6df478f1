package k8s

import (
	"crypto/tls"
	"crypto/x509"
	"encoding/base64"
	"encoding/json"
	"os"
	"strings"
	"time"
)

// CredentialsEnd returns when what a kubeconfig file proves itself with ends: a client
// certificate, or a token that says so. false: it has none, or it does not end.
func CredentialsEnd(kubeconfig string) (time.Time, bool) {
	cfg, err := load(kubeconfig)
	if err != nil {
		return time.Time{}, false
	}
	token := cfg.BearerToken
	if cfg.BearerTokenFile != "" {
		text, err := os.ReadFile(cfg.BearerTokenFile)
		if err != nil {
			return time.Time{}, false
		}
		token = strings.TrimSpace(string(text))
	}
	if token != "" {
		return tokenEnd(token)
	}
	var pair tls.Certificate
	if len(cfg.CertData) > 0 {
		pair, err = tls.X509KeyPair(cfg.CertData, cfg.KeyData)
	} else {
		pair, err = tls.LoadX509KeyPair(cfg.CertFile, cfg.KeyFile)
	}
	if err != nil {
		return time.Time{}, false
	}
	leaf, err := x509.ParseCertificate(pair.Certificate[0])
	if err != nil {
		return time.Time{}, false
	}
	return leaf.NotAfter, true
}

// tokenEnd returns when a JSON Web Token ends (RFC 7519 section 4.1.4). Nothing is verified:
// that is for the API server.
func tokenEnd(token string) (time.Time, bool) {
	parts := strings.Split(token, ".")
	if len(parts) != 3 {
		return time.Time{}, false
	}
	text, err := base64.RawURLEncoding.DecodeString(parts[1])
	if err != nil {
		return time.Time{}, false
	}
	var claims struct {
		Expires float64 `json:"exp"` // seconds since 1970
	}
	if err := json.Unmarshal(text, &claims); err != nil || claims.Expires <= 0 {
		return time.Time{}, false
	}
	return time.Unix(int64(claims.Expires), 0), true
}
