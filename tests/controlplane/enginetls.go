package controlplane

import (
	"context"
	"crypto/tls"
	"crypto/x509"
	"errors"
	"fmt"
	"net"
	"net/http"
	"net/netip"
	"slices"
	"strings"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"lbd.dev/lbd/tests/lab"
)

// EngineTLSPort is where an Engine serves HTTPS.
const EngineTLSPort = 8448

// serveTLS serves HTTPS with the certificates that Ingresses name.
func (e *standIn) serveTLS(ctx context.Context, on *Node, s *http.Server) error {
	l, err := on.Listen(fmt.Sprintf("[::]:%d", EngineTLSPort))
	if err != nil {
		return err
	}
	go func() {
		_ = s.Serve(tls.NewListener(l, &tls.Config{MinVersion: tls.VersionTLS12, GetCertificate: func(h *tls.ClientHelloInfo) (*tls.Certificate, error) {
			return e.certificate(ctx, h.ServerName)
		}}))
	}()
	return nil
}

// certificate is the first one that has the name, of whatever Ingress it is and whichever hosts this has it for:
// there are engines that do so.
func (e *standIn) certificate(ctx context.Context, name string) (*tls.Certificate, error) {
	for _, i := range e.ingresses(ctx) {
		for _, t := range i.Spec.TLS {
			s, err := e.client.CoreV1().Secrets(i.Namespace).Get(ctx, t.SecretName, metav1.GetOptions{})
			if err != nil {
				continue
			}
			pair, err := tls.X509KeyPair(s.Data[corev1.TLSCertKey], s.Data[corev1.TLSPrivateKeyKey])
			_, below, _ := strings.Cut(name, ".")
			if err == nil && (slices.Contains(pair.Leaf.DNSNames, name) || slices.Contains(pair.Leaf.DNSNames, "*."+below)) {
				return &pair, nil
			}
		}
	}
	return nil, errors.New("no Ingress has a certificate for it")
}

// GetTLS asks the engine by HTTPS: the certificate, the status and the body.
func (e *Engine) GetTLS(ctx context.Context, from *lab.Host, host, path string) (leaf *x509.Certificate, code int, body string, err error) {
	ctx, cancel := context.WithTimeout(ctx, 5*time.Second)
	defer cancel()
	req, err := http.NewRequestWithContext(ctx, http.MethodGet, "https://"+host+path, nil)
	if err != nil {
		return nil, 0, "", fmt.Errorf("get: %w", err)
	}
	client := &http.Client{Transport: &http.Transport{
		DisableKeepAlives: true, TLSClientConfig: &tls.Config{InsecureSkipVerify: true}, // which one it is, is what is asked
		DialContext: func(ctx context.Context, network, _ string) (net.Conn, error) {
			return e.lab.Dial(ctx, from, network, netip.AddrPortFrom(e.Host.IP4, EngineTLSPort).String())
		},
	}}
	resp, err := client.Do(req)
	if err != nil {
		return nil, 0, "", fmt.Errorf("get: %w", err)
	}
	defer resp.Body.Close()
	data := make([]byte, 1000)
	n, _ := resp.Body.Read(data) // the answers are short
	return resp.TLS.PeerCertificates[0], resp.StatusCode, string(data[:n]), nil
}
