package health

import (
	"context"
	"crypto/tls"
	"crypto/x509"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"log/slog"
	"net"
	"os"
	"strconv"
	"strings"
	"syscall"
	"time"
	"unicode"

	"lbd.dev/lbd/api/v1alpha1"
	"lbd.dev/lbd/internal/fileaccess"
)

// maxDetail bounds what is quoted from a service or a program, in bytes.
const maxDetail = 200

// newProber returns the prober that the check asks for.
func newProber(c v1alpha1.HealthCheck, log *slog.Logger) prober {
	switch {
	case c.HTTPS != nil:
		return newHTTPSProber(*c.HTTPS, log)
	case c.HTTP != nil:
		return newHTTPProber(*c.HTTP)
	case c.TCP != nil:
		return newTCPProber(*c.TCP)
	case c.Exec != nil:
		return execProber{command: c.Exec.Command}
	}
	return invalidProber{}
}

// invalidProber stands for a check without a type. Validation refuses it; if it
// comes all the same, it fails and says so rather than end the daemon.
type invalidProber struct{}

func (invalidProber) probe(context.Context) error {
	return errors.New("the health check has none of https, http, tcp and exec")
}

// dial opens a TCP connection for a check.
func dial(ctx context.Context, address string) (net.Conn, error) {
	// Happy Eyeballs is off: a name with two families must not pass on one of them
	// after waiting for the other. Keep-alive probes have no time to be sent.
	dialer := net.Dialer{FallbackDelay: -1, KeepAlive: -1}
	conn, err := dialer.DialContext(ctx, "tcp", address)
	if err != nil {
		return nil, err
	}
	// A connect to a closed local port of the ephemeral range may be given that
	// port as its own source and so meet itself (simultaneous open, RFC 9293
	// section 3.5): nobody listens.
	if conn.LocalAddr().String() == conn.RemoteAddr().String() {
		return nil, errors.Join(syscall.ECONNREFUSED, conn.Close())
	}
	return conn, nil
}

// hostPort joins a host of a check with its port.
func hostPort(host string, port int32) string {
	return net.JoinHostPort(host, strconv.Itoa(int(port)))
}

// cause says in words that are the same for every attempt why a check failed; in
// particular without the ephemeral port that the net package puts into its
// errors. The phase is what the check was doing.
func cause(ctx context.Context, err error, phase string) string {
	why, ok := ownCause(ctx, err, phase)
	if ok {
		return why
	}
	if hostname, ok := errors.AsType[x509.HostnameError](err); ok {
		return hostname.Error()
	}
	return clip(err.Error())
}

// ownCause is cause in words of our own, without any that came from the server; ok is
// false for what has none.
func ownCause(ctx context.Context, err error, phase string) (why string, ok bool) {
	var (
		expired x509.CertificateInvalidError
		unknown x509.UnknownAuthorityError
		plain   tls.RecordHeaderError
		name    *net.DNSError
		errno   syscall.Errno
		alert   *net.OpError
	)
	switch {
	case timedOut(ctx, err):
		return "no answer in time (" + phase + ")", true
	case errors.Is(err, errHeaderTooLong), errors.As(err, &alert) && alert.Op == "remote error": // crypto/tls, for an alert
		return err.Error(), true
	case errors.As(err, &expired) && expired.Reason == x509.Expired:
		return "certificate is expired or not yet valid: valid from " + day(expired.Cert.NotBefore) + " to " + day(expired.Cert.NotAfter), true
	case errors.As(err, &unknown):
		return "certificate is signed by a CA that the check does not trust; see caFile", true
	case errors.As(err, &plain):
		return "the server does not speak TLS", true
	case errors.As(err, &name):
		if name.IsNotFound {
			return fmt.Sprintf("host %q is not known", name.Name), true
		}
		return fmt.Sprintf("host %q could not be looked up", name.Name), true
	case errors.As(err, &errno):
		return errno.Error(), true
	case errors.Is(err, io.EOF), errors.Is(err, io.ErrUnexpectedEOF):
		return "connection closed before an answer (" + phase + ")", true
	}
	return "", false
}

// timedOut tells that the deadline of the check ended the attempt.
func timedOut(ctx context.Context, err error) bool {
	if errors.Is(ctx.Err(), context.DeadlineExceeded) {
		return true
	}
	var timeout net.Error
	return errors.As(err, &timeout) && timeout.Timeout()
}

func day(t time.Time) string { return t.UTC().Format("2006-01-02 15:04:05 UTC") }

// clip makes one short printable line of foreign text.
func clip(text string) string {
	text = strings.Join(strings.Fields(strings.Map(printable, strings.ToValidUTF8(text, "?"))), " ")
	if len(text) > maxDetail {
		text = strings.ToValidUTF8(text[:maxDetail], "") + "..."
	}
	return text
}

func printable(r rune) rune {
	if unicode.IsSpace(r) || !unicode.IsPrint(r) {
		return ' '
	}
	return r
}

// fileCause says why a file could not be used.
func fileCause(path string, err error) error {
	var at *fs.PathError
	switch {
	case errors.Is(err, os.ErrNotExist):
		return fmt.Errorf("%q does not exist yet", path)
	case errors.As(fileaccess.Explain(err), &at):
		return fmt.Errorf("%q: %w", path, at.Err)
	}
	return fmt.Errorf("%q: %w", path, err)
}
