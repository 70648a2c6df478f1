package controlplane

import (
	"context"
	"crypto/tls"
	"crypto/x509"
	"errors"
	"fmt"
	"net/netip"
	"os"
	"path/filepath"
	"slices"
	"strings"

	"lbd.dev/lbd/tests/lab"
)

// Family is a family of addresses, as in spec.ipFamilies of a Service.
type Family string

// The families that a cluster may have.
const (
	IPv4 Family = "IPv4"
	IPv6 Family = "IPv6"
)

// Options say what a control plane is like. The zero value is one kube-apiserver
// of a dual-stack cluster.
type Options struct {
	// Host is the name of the host of etcd and the controller manager, and Number its number on
	// the LAN: those of one control plane of several in a lab. "" is cp, 20.
	Host   string
	Number int
	// Families are those of the cluster, the first of Services that do not care
	// first; none is IPv4 and IPv6.
	Families []Family
	// APIServers are the hosts that run a kube-apiserver; none is the host of etcd.
	APIServers []*lab.Host
	// Names are further addresses in the certificate of the kube-apiservers: VIPs.
	Names []netip.Addr
	// Controllers are those of kube-controller-manager, which is not started
	// without one. DefaultControllers has those that a cluster without kubelets
	// can use.
	Controllers []string
	// Daemon are more lines of the configuration of lbd's daemons.
	Daemon string
}

// DefaultControllers remove namespaces and what has lost its owner, give each
// namespace its service account and CA, and make EndpointSlices of Pods.
func DefaultControllers() []string {
	return []string{
		"namespace-controller", "garbage-collector-controller", "serviceaccount-controller", "serviceaccount-token-controller",
		"root-ca-certificate-publisher-controller", "endpointslice-controller", "clusterrole-aggregation-controller",
	}
}

// The control plane's own host on the LAN is 10.77.0.20, unless Options say otherwise.
const (
	hostName   = "cp"
	hostNumber = 20
)

// ControlPlane is a running control plane. It ends with its lab, which kills what
// is in its namespaces, also when the test dies.
type ControlPlane struct {
	Lab      *lab.Lab
	Programs *Programs
	PKI      *PKI
	Host     *lab.Host // of etcd and the controller manager

	Etcd       *Server
	APIServers []*Server
	Manager    *Server // nil without controllers

	families   []Family
	daemon     string
	kubeconfig string
	nodes      []*Node
	agent      *Server // of lbd, in the cluster of a tenant; nil: none was started
}

// Start adds a host to the lab, with etcd, starts the kube-apiservers and waits
// until all are ready.
func Start(ctx context.Context, l *lab.Lab, p *Programs, o Options) (*ControlPlane, error) {
	c := &ControlPlane{Lab: l, Programs: p, families: o.Families, daemon: o.Daemon}
	if len(c.families) == 0 {
		c.families = []Family{IPv4, IPv6}
	}
	if o.Host == "" {
		o.Host, o.Number = hostName, hostNumber
	}
	var err error
	if c.Host, err = l.AddHost(ctx, o.Host, o.Number); err != nil {
		return nil, err
	}
	if c.PKI, err = newPKI(filepath.Join(c.Host.Dir, "pki")); err != nil {
		return nil, err
	}
	if err := c.startEtcd(ctx); err != nil {
		return nil, err
	}
	hosts := o.APIServers
	if len(hosts) == 0 {
		hosts = []*lab.Host{c.Host}
	}
	for _, h := range hosts {
		s, err := c.apiServer(h, o.Names)
		if err != nil {
			return nil, err
		}
		c.APIServers = append(c.APIServers, s)
		if err := s.Launch(); err != nil {
			return nil, err
		}
	}
	for _, s := range c.APIServers {
		if err := s.WaitReady(ctx); err != nil {
			return nil, err
		}
	}
	if len(o.Controllers) > 0 {
		err = c.startManager(ctx, o.Controllers)
	}
	return c, err
}

func (c *ControlPlane) startEtcd(ctx context.Context) error {
	here, all := "http://127.0.0.1:2379", "http://[::]:2379"
	c.Etcd = &Server{
		Name: "etcd", Host: c.Host, lab: c.Lab,
		argv: []string{
			c.Programs.Etcd, "--name=lab", "--data-dir=" + filepath.Join(c.Host.Dir, "etcd.data"),
			"--listen-client-urls=" + all, "--advertise-client-urls=" + here, "--listen-peer-urls=http://127.0.0.1:2380",
			// A crash of the machine may lose what it stored; a kill does not.
			"--unsafe-no-fsync", "--log-level=warn",
		},
		ready: func(ctx context.Context) error {
			_, err := get(ctx, c.Lab, c.Host, here+"/health", nil)
			return err
		},
	}
	return c.Etcd.Start(ctx)
}

// Ranges of addresses; those of Pods are split between nodes.
var (
	serviceRange = map[Family]string{IPv4: "10.96.0.0/16", IPv6: "fd96::/112"}
	podRange     = map[Family]string{IPv4: "10.244.0.0/16", IPv6: "fd44::/48"}
)

// join lists the ranges of the cluster's families.
func (c *ControlPlane) join(of map[Family]string) string {
	var out []string
	for _, f := range c.families {
		out = append(out, of[f])
	}
	return strings.Join(out, ",")
}

func (c *ControlPlane) apiServer(h *lab.Host, names []netip.Addr) (*Server, error) {
	first := netip.MustParsePrefix(serviceRange[c.families[0]]).Addr().Next() // the Service "kubernetes"
	ips := append([]netip.Addr{h.IP4, h.IP6, first, netip.AddrFrom4([4]byte{127, 0, 0, 1}), netip.IPv6Loopback()}, names...)
	cert, key, err := c.PKI.server("kube-apiserver-"+h.Name, []string{"kubernetes", "kubernetes.default.svc", "localhost", h.Name}, ips)
	if err != nil {
		return nil, err
	}
	etcd := "http://127.0.0.1:2379"
	if h != c.Host {
		etcd = "http://" + netip.AddrPortFrom(c.Host.IP4, 2379).String()
	}
	conf, err := c.adminTLS()
	if err != nil {
		return nil, err
	}
	return &Server{
		Name: "kube-apiserver", Host: h, lab: c.Lab,
		argv: []string{
			c.Programs.APIServer, "--etcd-servers=" + etcd, "--bind-address=::", fmt.Sprintf("--secure-port=%d", APIPort),
			"--advertise-address=" + c.address(h).String(), "--service-cluster-ip-range=" + c.join(serviceRange),
			"--tls-cert-file=" + cert, "--tls-private-key-file=" + key, "--client-ca-file=" + c.PKI.CA,
			"--cert-dir=" + filepath.Join(h.Dir, "certs"), "--authorization-mode=Node,RBAC", "--allow-privileged=true",
			"--service-account-issuer=https://kubernetes.default.svc", "--service-account-key-file=" + c.PKI.ServiceAccountKey,
			"--service-account-signing-key-file=" + c.PKI.ServiceAccountKey, "--profiling=false",
		},
		ready: func(ctx context.Context) error {
			_, err := get(ctx, c.Lab, h, URL(c.address(h))+"/readyz", conf)
			return err
		},
	}, nil
}

func (c *ControlPlane) adminTLS() (*tls.Config, error) {
	cert, key, err := c.PKI.client(Admin.Name, Admin.Groups)
	if err != nil {
		return nil, err
	}
	pair, err := tls.X509KeyPair(cert, key)
	if err != nil {
		return nil, fmt.Errorf("pki: %w", err)
	}
	roots := x509.NewCertPool()
	roots.AddCert(c.PKI.ca)
	return &tls.Config{MinVersion: tls.VersionTLS12, RootCAs: roots, Certificates: []tls.Certificate{pair}}, nil
}

func (c *ControlPlane) startManager(ctx context.Context, controllers []string) error {
	cert, key, err := c.PKI.server("kube-controller-manager", []string{"localhost"}, []netip.Addr{netip.AddrFrom4([4]byte{127, 0, 0, 1})})
	if err != nil {
		return err
	}
	kubeconfig, err := c.Kubeconfig(c.address(c.APIServers[0].Host), User{Name: "system:kube-controller-manager"})
	if err != nil {
		return err
	}
	conf, err := c.adminTLS()
	if err != nil {
		return err
	}
	c.Manager = &Server{
		Name: "kube-controller-manager", Host: c.Host, lab: c.Lab,
		argv: []string{
			c.Programs.ControllerManager, "--kubeconfig=" + kubeconfig, "--controllers=" + strings.Join(controllers, ","),
			"--leader-elect=false", "--use-service-account-credentials=true", "--bind-address=127.0.0.1",
			"--tls-cert-file=" + cert, "--tls-private-key-file=" + key,
			"--root-ca-file=" + c.PKI.CA, "--service-account-private-key-file=" + c.PKI.ServiceAccountKey, "--profiling=false",
		},
		ready: func(ctx context.Context) error {
			_, err := get(ctx, c.Lab, c.Host, "https://127.0.0.1:10257/healthz", conf)
			return err
		},
	}
	return c.Manager.Start(ctx)
}

// Servers are all programs that were started, kube-proxies included.
func (c *ControlPlane) Servers() []*Server {
	all := append([]*Server{c.Etcd}, c.APIServers...)
	all = append(all, c.Manager)
	for _, n := range c.nodes {
		all = append(all, n.Proxy)
	}
	return slices.DeleteFunc(all, func(s *Server) bool { return s == nil || s.proc == nil })
}

// Logs returns the last lines of every program, for a test that failed.
func (c *ControlPlane) Logs(lines int) string {
	var b strings.Builder
	for _, s := range c.Servers() {
		fmt.Fprintf(&b, "--- %s on %s\n%s\n", s.Name, s.Host.Name, s.proc.Tail(lines))
	}
	return b.String()
}

// KeepLogs copies every log of the lab's hosts to a folder that outlives the lab.
func KeepLogs(l *lab.Lab, dir string) error {
	files, _ := filepath.Glob(filepath.Join(l.Dir, "*", "*.log")) // the pattern is well formed
	errs := []error{os.MkdirAll(dir, 0o755)}
	for _, f := range files {
		b, err := os.ReadFile(f)
		name := filepath.Base(filepath.Dir(f)) + "-" + filepath.Base(f)
		errs = append(errs, err, os.WriteFile(filepath.Join(dir, name), b, 0o644))
	}
	return errors.Join(errs...)
}
