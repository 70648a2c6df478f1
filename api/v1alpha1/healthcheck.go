package v1alpha1

import (
	"net/netip"
	"strings"
	"time"
)

// HealthCheck asks the service behind a VIP, on each node for that node alone.
// Exactly one of HTTPS, HTTP, TCP and Exec is set.
type HealthCheck struct {
	// HTTPS asks for a page over TLS.
	HTTPS *HTTPSCheck `json:"https,omitempty"`
	// HTTP asks for a page.
	HTTP *HTTPCheck `json:"http,omitempty"`
	// TCP opens a connection.
	TCP *TCPCheck `json:"tcp,omitempty"`
	// Exec runs a program.
	Exec *ExecCheck `json:"exec,omitempty"`

	// Interval is the time between the starts of two checks: 50ms to 1h. Default:
	// 500ms.
	Interval Duration `json:"interval,omitzero"`
	// Timeout is how long one check may take: 10ms to Interval. Default: 400ms, or
	// four fifths of Interval if that is shorter.
	Timeout Duration `json:"timeout,omitzero"`
	// Fall is how many failures in a row make the service down: 1 to 100. Default:
	// 2.
	Fall int32 `json:"fall,omitempty"`
	// Rise is how many successes in a row make it up: 1 to 100. Default: 1.
	Rise int32 `json:"rise,omitempty"`
}

// HTTPSCheck passes if a GET over TLS is answered with an expected status. A
// redirect is not followed.
type HTTPSCheck struct {
	// Host is an IP address or a host name. Default: 127.0.0.1.
	Host string `json:"host,omitempty"`
	// Port is required.
	Port int32 `json:"port"`
	// Path begins with /; a query may follow. Default: /livez?exclude=etcd, so that
	// losing the leader of etcd, which all API servers lose at once, does not take
	// the address away from all of them.
	Path string `json:"path,omitempty"`
	// ServerName is what the certificate must be for. Default: "kubernetes" if
	// Host is a loopback address, else Host. The certificate of every API server
	// of kubeadm and k3s has the name kubernetes, while that of kubeadm lacks
	// 127.0.0.1.
	ServerName string `json:"serverName,omitempty"`
	// CAFile is the absolute path of the PEM bundle that signs the certificate.
	// Default: the CAs of the host.
	CAFile string `json:"caFile,omitempty"`
	// InsecureSkipVerify accepts every certificate.
	InsecureSkipVerify bool `json:"insecureSkipVerify,omitempty"`
	// CertFile and KeyFile are the absolute paths of a client certificate; both or
	// none.
	CertFile string `json:"certFile,omitempty"`
	KeyFile  string `json:"keyFile,omitempty"`
	// ExpectedStatus are the status codes that pass. Default: any from 200 to 299.
	ExpectedStatus []int32 `json:"expectedStatus,omitempty"`
}

// HTTPCheck passes if a GET is answered with an expected status. A redirect is
// not followed.
type HTTPCheck struct {
	// Host is an IP address or a host name. Default: 127.0.0.1.
	Host string `json:"host,omitempty"`
	// Port is required.
	Port int32 `json:"port"`
	// Path begins with /; a query may follow. Default: /.
	Path string `json:"path,omitempty"`
	// ExpectedStatus are the status codes that pass. Default: any from 200 to 299.
	ExpectedStatus []int32 `json:"expectedStatus,omitempty"`
}

// TCPCheck passes if a connection can be opened.
type TCPCheck struct {
	// Host is an IP address or a host name. Default: 127.0.0.1.
	Host string `json:"host,omitempty"`
	// Port is required.
	Port int32 `json:"port"`
}

// ExecCheck passes if a program ends with status 0.
type ExecCheck struct {
	// Command is the program and its arguments. No shell reads it.
	Command []string `json:"command"`
}

// The defaults of a HealthCheck.
const (
	DefaultCheckHost     = "127.0.0.1"
	DefaultCheckInterval = 500 * time.Millisecond
	DefaultCheckTimeout  = 400 * time.Millisecond
	DefaultCheckFall     = 2
	DefaultCheckRise     = 1
	DefaultHTTPSPath     = "/livez?exclude=etcd" // see HTTPSCheck.Path
	DefaultHTTPPath      = "/"
	DefaultServerName    = "kubernetes"
)

// Default fills in what is unset.
func (h *HealthCheck) Default() {
	setDefault(&h.Interval, Duration{DefaultCheckInterval})
	setDefault(&h.Timeout, Duration{min(DefaultCheckTimeout, h.Interval.Duration*4/5)})
	setDefault(&h.Fall, DefaultCheckFall)
	setDefault(&h.Rise, DefaultCheckRise)
	if c := h.HTTPS; c != nil {
		setDefault(&c.Host, DefaultCheckHost)
		setDefault(&c.Path, DefaultHTTPSPath)
		setDefault(&c.ServerName, serverName(c.Host))
	}
	if c := h.HTTP; c != nil {
		setDefault(&c.Host, DefaultCheckHost)
		setDefault(&c.Path, DefaultHTTPPath)
	}
	if c := h.TCP; c != nil {
		setDefault(&c.Host, DefaultCheckHost)
	}
}

// serverName is the default of HTTPSCheck.ServerName.
func serverName(host string) string {
	addr, err := netip.ParseAddr(host)
	if err == nil && addr.IsLoopback() || strings.EqualFold(host, "localhost") {
		return DefaultServerName
	}
	return host
}
