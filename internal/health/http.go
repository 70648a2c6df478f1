package health

import (
	"bytes"
	"context"
	"crypto/tls"
	"crypto/x509"
	"fmt"
	"log/slog"
	"net/http"
	"net/url"
	"slices"
	"strings"
	"sync"
	"time"

	"lbd.dev/lbd/api/v1alpha1"
)

// httpProber passes if a GET is answered in whole with an expected status.
//
// A connection that was answered serves the probes of the next two seconds, then
// comes a new one, as a new client of the VIP would open: a server that goes on
// serving old connections while its listener is gone or its backlog is full would
// pass for ever otherwise. Whatever goes wrong on an old one but a timeout says
// nothing yet, and a new one is asked in the same probe. A proxy of the environment
// is never used, a redirect is never followed.
//
// With a preferred page that one is asked for first, see preferred.go.
type httpProber struct {
	url      string
	expected []int32 // empty: 200 to 299
	// tls returns the settings for one connection; nil for plain HTTP.
	tls func() (*tls.Config, error)
	// discreet: nothing of an answer is told but its status.
	discreet bool
	// kept is the line that the last probe has left open, if any.
	kept *line
	// preferred is nil if no page is.
	preferred *preferred
}

func newHTTPProber(c v1alpha1.HTTPCheck) *httpProber {
	return &httpProber{
		url: checkURL("http", c.Host, c.Port, c.Path), expected: c.ExpectedStatus,
		preferred: newPreferred("http", c.Host, c.Port, c.PreferredPath, c.Path),
	}
}

func newHTTPSProber(c v1alpha1.HTTPSCheck, log *slog.Logger) *httpProber {
	return &httpProber{
		url:       checkURL("https", c.Host, c.Port, c.Path),
		expected:  c.ExpectedStatus,
		tls:       newTLSSettings(c, new(sessions), log),
		preferred: newPreferred("https", c.Host, c.Port, c.PreferredPath, c.Path),
	}
}

// checkURL keeps the path as the user wrote it, its query and escapes included.
func checkURL(scheme, host string, port int32, path string) string {
	base := url.URL{Scheme: scheme, Host: hostPort(host, port)}
	return base.String() + path
}

// curves leaves out the key exchanges with ML-KEM: what a check says need not be
// kept from the computers of the future, and each would cost both ends about a
// tenth of a millisecond.
var curves = []tls.CurveID{tls.X25519, tls.CurveP256, tls.CurveP384, tls.CurveP521}

// fullHandshake is how often at least the certificate of the server is verified
// anew. Between, a handshake may resume the session of the one before (RFC 8446
// section 2.2), which costs both ends half of it. A server that was restarted has
// forgotten its sessions, so only a certificate that was replaced while it runs is
// noticed this late.
const fullHandshake = 5 * time.Second

// sessions keeps what a handshake needs to resume the one before, for as long as
// it was made with the same files and is not too old.
type sessions struct {
	cache  tls.ClientSessionCache
	until  time.Time
	roots  *x509.CertPool
	client []byte // DER of the client certificate
}

func (s *sessions) get(config *tls.Config) tls.ClientSessionCache {
	var client []byte
	if len(config.Certificates) > 0 {
		client = config.Certificates[0].Certificate[0]
	}
	if now := time.Now(); !now.Before(s.until) || s.roots != config.RootCAs || !bytes.Equal(s.client, client) {
		*s = sessions{tls.NewLRUClientSessionCache(1), now.Add(fullHandshake), config.RootCAs, client}
	}
	return s.cache
}

// newTLSSettings returns a function that makes the settings for one connection
// of the files as they are then. resume keeps the session of the connection before.
func newTLSSettings(c v1alpha1.HTTPSCheck, resume *sessions, log *slog.Logger) func() (*tls.Config, error) {
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
	var one sync.Mutex // at most two ask at once
	return func() (*tls.Config, error) {
		one.Lock()
		defer one.Unlock()
		config := &tls.Config{
			MinVersion:         tls.VersionTLS12,
			ServerName:         c.ServerName,
			InsecureSkipVerify: c.InsecureSkipVerify,
			CurvePreferences:   curves,
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
		config.ClientSessionCache = resume.get(config)
		return config, nil
	}
}

func (p *httpProber) probe(ctx context.Context) error {
	if p.preferred != nil {
		return p.probeBoth(ctx)
	}
	return p.require(ctx)
}

// cause says why there was no answer.
func (p *httpProber) cause(ctx context.Context, err error, phase string) string {
	if !p.discreet {
		return cause(ctx, err, phase)
	}
	if why, ok := ownCause(ctx, err, phase); ok {
		return why
	}
	return "the answer is none that the check can use" // its text may quote what came
}

// require asks for the page that must pass.
func (p *httpProber) require(ctx context.Context) error {
	o := p.get(ctx, p.take(), p.url)
	p.kept = o.line
	return p.failure(&o)
}

// failure is why the service is down by the outcome of a request, whatever it asked for.
func (p *httpProber) failure(o *outcome) error {
	if o.why == "" {
		return nil
	}
	return fmt.Errorf("%s: %s", p.url, o.why)
}

// outcome is what a request has led to.
type outcome struct {
	// why it does not pass, in words; empty if it does.
	why string
	// silent: there was no answer at all, and not for want of time.
	silent bool
	line   *line // to keep; nil if there is none
}

// get makes the request, on the line if there is one.
func (p *httpProber) get(ctx context.Context, l *line, url string) outcome {
	phase := "connecting"
	o, err := p.exchange(ctx, l, url, &phase)
	if err != nil {
		o.why, o.silent = p.cause(ctx, err, phase), !timedOut(ctx, err)
	}
	return o
}

// exchange makes it. An answer that does not pass is described in the outcome; err is why
// there was none.
func (p *httpProber) exchange(ctx context.Context, l *line, url string, phase *string) (outcome, error) {
	request, err := http.NewRequestWithContext(ctx, http.MethodGet, url, nil)
	if err != nil {
		if l != nil {
			l.close()
		}
		return outcome{}, err
	}
	request.Header.Set("User-Agent", "lbd-health-check")
	if l != nil {
		*phase = "waiting for an answer"
		o, err := p.ask(ctx, l, request, phase)
		if err == nil || timedOut(ctx, err) {
			return o, err
		}
	}
	var config *tls.Config
	if p.tls != nil {
		if config, err = p.tls(); err != nil {
			return outcome{why: err.Error()}, nil
		}
	}
	if l, err = open(ctx, request.URL.Host, config, phase); err != nil {
		return outcome{}, err
	}
	return p.ask(ctx, l, request, phase)
}

// ask makes the request on a line, which is to be kept if the answer passes.
func (p *httpProber) ask(ctx context.Context, l *line, request *http.Request, phase *string) (o outcome, err error) {
	a, err := l.ask(ctx, request, phase)
	if err == nil && !p.passes(a.status) {
		if p.discreet {
			a.header, a.body = nil, nil
		}
		o.why = statusCause(a.status, a.header, a.body)
	}
	if err == nil && o.why == "" && a.again && l.watch() {
		o.line = l
	} else {
		l.close()
	}
	return o, err
}

// take returns the line that is kept, if it is still good.
func (p *httpProber) take() *line {
	l := p.kept
	p.kept = nil
	switch {
	case l == nil:
		return nil
	case time.Since(l.since) >= lineAge || len(l.readable) > 0:
		l.close()
		return nil
	}
	return l
}

func (p *httpProber) lost() <-chan struct{} {
	if p.kept == nil {
		return nil
	}
	return p.kept.readable
}

func (p *httpProber) drop() {
	if p.preferred != nil {
		p.preferred.drop()
	}
	if p.kept != nil {
		p.kept.close()
		p.kept = nil
	}
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
func statusCause(status int, header http.Header, body []byte) string {
	why := fmt.Sprintf("status %d %s", status, http.StatusText(status))
	switch status {
	case http.StatusUnauthorized, http.StatusForbidden:
		return why + ": the check may not read this path; give it certFile and keyFile"
	case http.StatusMovedPermanently, http.StatusFound, http.StatusSeeOther, http.StatusTemporaryRedirect, http.StatusPermanentRedirect:
		if to := clip(header.Get("Location")); to != "" {
			why += " to " + to
		}
		return why
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
