package health

import (
	"context"
	"crypto/tls"
	"crypto/x509"
	"fmt"
	"io"
	"log/slog"
	"net"
	"net/http"
	"net/http/httptrace"
	"net/url"
	"slices"
	"strings"
	"sync/atomic"

	"lbd.dev/lbd/api/v1alpha1"
)

const (
	// maxBody bounds how much of an answer is read, in bytes.
	maxBody = 64 << 10
	// maxHeader bounds the header of an answer, in bytes.
	maxHeader = 64 << 10
)

// httpProber passes if a GET is answered in whole with an expected status.
//
// Each probe opens a connection of its own, as a new client of the VIP would: a
// server that goes on serving old connections while its listener is gone or its
// backlog is full would otherwise pass. For an API server this is two TLS
// handshakes a second. A proxy of the environment is never used, a redirect is
// never followed.
type httpProber struct {
	url      string
	expected []int32 // empty: 200 to 299
	// tls returns the settings for one connection; nil for plain HTTP.
	tls func() (*tls.Config, error)
}

func newHTTPProber(c v1alpha1.HTTPCheck) *httpProber {
	return &httpProber{url: checkURL("http", c.Host, c.Port, c.Path), expected: c.ExpectedStatus}
}

func newHTTPSProber(c v1alpha1.HTTPSCheck, log *slog.Logger) *httpProber {
	return &httpProber{
		url:      checkURL("https", c.Host, c.Port, c.Path),
		expected: c.ExpectedStatus,
		tls:      newTLSSettings(c, log),
	}
}

// checkURL keeps the path as the user wrote it, its query and escapes included.
func checkURL(scheme, host string, port int32, path string) string {
	base := url.URL{Scheme: scheme, Host: hostPort(host, port)}
	return base.String() + path
}

// newTLSSettings returns a function that makes the settings for one connection
// of the files as they are then.
func newTLSSettings(c v1alpha1.HTTPSCheck, log *slog.Logger) func() (*tls.Config, error) {
	var (
		pool   *material[*x509.CertPool]
		client *material[tls.Certificate]
	)
	if c.CAFile != "" && !c.InsecureSkipVerify {
		pool = newCAPool(c.CAFile, log)
	}
	if c.CertFile != "" {
		client = newClientCertificate(c.CertFile, c.KeyFile, log)
	}
	return func() (*tls.Config, error) {
		config := &tls.Config{
			MinVersion:         tls.VersionTLS12,
			ServerName:         c.ServerName,
			InsecureSkipVerify: c.InsecureSkipVerify,
		}
		if pool != nil {
			roots, err := pool.get()
			if err != nil {
				return nil, fmt.Errorf("CA file %w", err)
			}
			config.RootCAs = roots
		}
		if client != nil {
			pair, err := client.get()
			if err != nil {
				return nil, fmt.Errorf("client certificate %w", err)
			}
			config.Certificates = []tls.Certificate{pair}
		}
		return config, nil
	}
}

func (p *httpProber) probe(ctx context.Context) error {
	var phase phase
	why, err := p.get(phase.trace(ctx))
	if err != nil {
		why = cause(ctx, err, phase.String())
	}
	if why != "" {
		return fmt.Errorf("%s: %s", p.url, why)
	}
	return nil
}

// get makes the request. An answer that does not pass is described in why; err
// is why there was none.
func (p *httpProber) get(ctx context.Context) (why string, err error) {
	transport := &http.Transport{
		DialContext:            func(ctx context.Context, _, address string) (net.Conn, error) { return dial(ctx, address) },
		DisableKeepAlives:      true,
		DisableCompression:     true,
		MaxResponseHeaderBytes: maxHeader,
	}
	if p.tls != nil {
		if transport.TLSClientConfig, err = p.tls(); err != nil {
			return err.Error(), nil
		}
	}
	request, err := http.NewRequestWithContext(ctx, http.MethodGet, p.url, nil)
	if err != nil {
		return "", err
	}
	request.Header.Set("User-Agent", "lbd-health-check")
	response, err := transport.RoundTrip(request)
	if err != nil {
		return "", err
	}
	defer response.Body.Close()
	// A server that sends a header and then hangs is not well.
	body, err := io.ReadAll(io.LimitReader(response.Body, maxBody))
	if err != nil {
		return "", err
	}
	if p.passes(response.StatusCode) {
		return "", nil
	}
	return statusCause(response, body), nil
}

func (p *httpProber) passes(status int) bool {
	if len(p.expected) == 0 {
		return status >= 200 && status <= 299
	}
	return slices.Contains(p.expected, int32(status))
}

// statusCause says what came instead of an expected status: of the answer of a
// Kubernetes server only the checks that failed, which its /livez and /readyz
// mark with "[-]".
func statusCause(response *http.Response, body []byte) string {
	why := fmt.Sprintf("status %d %s", response.StatusCode, http.StatusText(response.StatusCode))
	switch response.StatusCode {
	case http.StatusUnauthorized, http.StatusForbidden:
		return why + ": the check may not read this path; give it certFile and keyFile"
	case http.StatusMovedPermanently, http.StatusFound, http.StatusSeeOther, http.StatusTemporaryRedirect, http.StatusPermanentRedirect:
		return why + " to " + clip(response.Header.Get("Location"))
	}
	said := string(body)
	var failed []string
	for line := range strings.Lines(said) {
		if strings.HasPrefix(line, "[-]") {
			failed = append(failed, strings.TrimSpace(line))
		}
	}
	if failed != nil {
		said = strings.Join(failed, ", ")
	}
	if said = clip(said); said != "" {
		why += ": " + said
	}
	return why
}

// phase is what a request is doing, for the text of a timeout.
type phase struct {
	at atomic.Int32
}

const (
	phaseConnect int32 = iota
	phaseTLS
	phaseAnswer
	phaseBody
)

// trace returns a context that keeps the phase up to date.
func (p *phase) trace(ctx context.Context) context.Context {
	return httptrace.WithClientTrace(ctx, &httptrace.ClientTrace{
		TLSHandshakeStart:    func() { p.at.Store(phaseTLS) },
		GotConn:              func(httptrace.GotConnInfo) { p.at.Store(phaseAnswer) },
		GotFirstResponseByte: func() { p.at.Store(phaseBody) },
	})
}

// String says what the request was doing last.
func (p *phase) String() string {
	switch p.at.Load() {
	case phaseConnect:
		return "connecting"
	case phaseTLS:
		return "TLS handshake"
	case phaseAnswer:
		return "waiting for an answer"
	}
	return "reading the answer"
}
