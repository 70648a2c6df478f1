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

// Token is what a JSON Web Token says of itself (RFC 7519). Nothing is verified: that is for the API
// server.
type Token struct {
	// Issued and Ends are when it begins and ends to be good; zero: it does not say so.
	Issued, Ends time.Time
	// Namespace and Account are those of the service account that it is of; empty: it is of none.
	Namespace, Account string
}

// ParseToken reads a token. false: it is no JSON Web Token.
func ParseToken(text string) (Token, bool) {
	parts := strings.Split(text, ".")
	if len(parts) != 3 {
		return Token{}, false
	}
	data, err := base64.RawURLEncoding.DecodeString(parts[1])
	if err != nil {
		return Token{}, false
	}
	var claims struct {
		Issued  float64 `json:"iat"` // seconds since 1970, as exp
		Expires float64 `json:"exp"`
		Subject string  `json:"sub"`
	}
	if err := json.Unmarshal(data, &claims); err != nil {
		return Token{}, false
	}
	var t Token
	if claims.Issued > 0 {
		t.Issued = time.Unix(int64(claims.Issued), 0)
	}
	if claims.Expires > 0 {
		t.Ends = time.Unix(int64(claims.Expires), 0)
	}
	if of, is := strings.CutPrefix(claims.Subject, "system:serviceaccount:"); is {
		t.Namespace, t.Account, _ = strings.Cut(of, ":")
	}
	return t, true
}

func tokenEnd(token string) (time.Time, bool) {
	t, ok := ParseToken(token)
	return t.Ends, ok && !t.Ends.IsZero()
}
