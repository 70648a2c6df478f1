package controlplane

import (
	"context"
	"crypto/tls"
	"fmt"
	"io"
	"net"
	"net/http"
	"net/netip"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"time"

	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/rest"
	"k8s.io/client-go/tools/clientcmd"
	clientcmdapi "k8s.io/client-go/tools/clientcmd/api"

	"lbd.dev/lbd/tests/lab"
)

// APIPort is where every kube-apiserver listens, on all addresses of its host.
const APIPort = 6443

// Admin is a user who may do everything: a certificate with the group of
// cluster administrators.
var Admin = User{Name: "admin", Groups: []string{"system:masters"}}

// User is who a certificate says its owner is.
type User struct {
	Name   string
	Groups []string
}

// URL is that of the API at an address of a host or a VIP.
func URL(server netip.Addr) string {
	return "https://" + netip.AddrPortFrom(server, APIPort).String()
}

// Config is for a client in this process: its packets leave from the host. The
// server is the address of a kube-apiserver or of a VIP in front of several.
// There is no limit of its own to how much the client asks.
func (c *ControlPlane) Config(from *lab.Host, server netip.Addr, u User) (*rest.Config, error) {
	cert, key, err := c.PKI.client(u.Name, u.Groups)
	if err != nil {
		return nil, err
	}
	return &rest.Config{
		Host: URL(server), QPS: -1,
		TLSClientConfig: rest.TLSClientConfig{CAData: c.PKI.caPEM, CertData: cert, KeyData: key},
		Dial: func(ctx context.Context, network, address string) (net.Conn, error) {
			return c.Lab.Dial(ctx, from, network, address)
		},
	}, nil
}

// Client is an administrator's client of the first kube-apiserver, from its own
// host.
func (c *ControlPlane) Client() (*kubernetes.Clientset, error) {
	s := c.APIServers[0]
	cfg, err := c.Config(s.Host, c.address(s.Host), Admin)
	if err != nil {
		return nil, err
	}
	return kubernetes.NewForConfig(cfg)
}

// Kubeconfig writes a kubeconfig for a program on any host, and returns its file.
func (c *ControlPlane) Kubeconfig(server netip.Addr, u User) (string, error) {
	cert, key, err := c.PKI.client(u.Name, u.Groups)
	if err != nil {
		return "", err
	}
	cfg := clientcmdapi.NewConfig()
	cfg.Clusters["lab"] = &clientcmdapi.Cluster{Server: URL(server), CertificateAuthorityData: c.PKI.caPEM}
	cfg.AuthInfos[u.Name] = &clientcmdapi.AuthInfo{ClientCertificateData: cert, ClientKeyData: key}
	cfg.Contexts["lab"] = &clientcmdapi.Context{Cluster: "lab", AuthInfo: u.Name}
	cfg.CurrentContext = "lab"
	f, err := os.CreateTemp(c.PKI.dir, strings.ReplaceAll(u.Name, ":", "-")+"-*.kubeconfig")
	if err != nil {
		return "", fmt.Errorf("kubeconfig: %w", err)
	}
	if err := f.Close(); err != nil {
		return "", fmt.Errorf("kubeconfig: %w", err)
	}
	if err := clientcmd.WriteToFile(*cfg, f.Name()); err != nil {
		return "", fmt.Errorf("kubeconfig: %w", err)
	}
	return f.Name(), nil
}

// kubectlLimit is how long kubectl may take on a busy machine.
const kubectlLimit = time.Minute

// Kubectl runs kubectl as administrator on the host of the first kube-apiserver
// and returns what it prints.
func (c *ControlPlane) Kubectl(ctx context.Context, args ...string) (string, error) {
	if c.kubeconfig == "" {
		var err error
		if c.kubeconfig, err = c.Kubeconfig(c.address(c.APIServers[0].Host), Admin); err != nil {
			return "", err
		}
	}
	home := filepath.Join(c.PKI.dir, "kubectl-cache") // else it writes into the user's home
	argv := append([]string{c.Programs.Kubectl, "--kubeconfig", c.kubeconfig, "--cache-dir", home}, args...)
	ctx, cancel := context.WithTimeout(ctx, kubectlLimit)
	defer cancel()
	return command(ctx, "", "ip", append([]string{"netns", "exec", c.APIServers[0].Host.NS}, argv...)...)
}

// StatusWrites counts the requests for the status of objects that the first
// kube-apiserver has carried out since it started, refused ones included.
func (c *ControlPlane) StatusWrites(ctx context.Context, resource string) (n int, err error) {
	conf, err := c.adminTLS()
	if err != nil {
		return 0, err
	}
	h := c.APIServers[0].Host
	page, err := get(ctx, c.Lab, h, URL(c.address(h))+"/metrics", conf)
	if err != nil {
		return 0, err
	}
	for line := range strings.Lines(page) {
		labels, value, _ := strings.Cut(strings.TrimSpace(line), "} ")
		if !strings.HasPrefix(labels, "apiserver_request_total{") || !strings.Contains(labels, fmt.Sprintf("resource=%q", resource)) ||
			!strings.Contains(labels, `subresource="status"`) || strings.Contains(labels, `verb="GET"`) {
			continue
		}
		x, err := strconv.ParseFloat(value, 64)
		if err != nil {
			return 0, fmt.Errorf("metrics: %w", err)
		}
		n += int(x)
	}
	return n, nil
}

// address is the one that the host has in the first family of the cluster.
func (c *ControlPlane) address(h *lab.Host) netip.Addr {
	if c.families[0] == IPv6 {
		return h.IP6
	}
	return h.IP4
}

// get asks a URL from a host, wants the answer 200 and returns the body.
func get(ctx context.Context, l *lab.Lab, from *lab.Host, url string, conf *tls.Config) (string, error) {
	client := &http.Client{Transport: &http.Transport{
		DisableKeepAlives: true, TLSClientConfig: conf,
		DialContext: func(ctx context.Context, network, address string) (net.Conn, error) {
			return l.Dial(ctx, from, network, address)
		},
	}}
	req, err := http.NewRequestWithContext(ctx, http.MethodGet, url, nil)
	if err != nil {
		return "", fmt.Errorf("get: %w", err)
	}
	resp, err := client.Do(req)
	if err != nil {
		return "", fmt.Errorf("get: %w", err)
	}
	defer resp.Body.Close()
	body, err := io.ReadAll(resp.Body)
	if err != nil {
		return "", fmt.Errorf("get: %w", err)
	}
	if resp.StatusCode != http.StatusOK {
		return "", fmt.Errorf("get %s: %s: %s", url, resp.Status, short(string(body)))
	}
	return string(body), nil
}

func short(s string) string { return strings.TrimSpace(s[:min(len(s), 500)]) }
