package v1alpha1

import (
	"net/netip"
	"strings"
	"time"
)

// HealthCheck asks the service behind a VIP, on each node for that node alone.
// Exactly one of HTTPS, HTTP, TCP and Exec is set.
//
// +kubebuilder:validation:XValidation:rule="[has(self.https), has(self.http), has(self.tcp), has(self.exec)].filter(c, c).size() == 1",message="must have exactly one of https, http, tcp and exec"
// +kubebuilder:validation:XValidation:rule="!has(self.timeout) || duration(self.timeout) <= duration(self.interval)",message="must not be longer than interval",fieldPath=".timeout"
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
	// +optional
	// +kubebuilder:default="500ms"
	// +kubebuilder:validation:XValidation:rule="duration(self) >= duration('50ms') && duration(self) <= duration('1h')",message="must be from 50ms to 1h"
	Interval Duration `json:"interval,omitzero"`
	// Timeout is how long one check may take: 10ms to Interval. Default: 400ms, or 300ms for
	// backends to which connections are forwarded, or four fifths of Interval if that is shorter.
	// +optional
	// +kubebuilder:validation:XValidation:rule="duration(self) >= duration('10ms')",message="must be at least 10ms"
	Timeout Duration `json:"timeout,omitzero"`
	// Fall is how many failures in a row make the service down: 1 to 100. Default:
	// 2.
	// +kubebuilder:default=2
	// +kubebuilder:validation:Minimum=1
	// +kubebuilder:validation:Maximum=100
	Fall int32 `json:"fall,omitempty"`
	// Rise is how many successes in a row make it up: 1 to 100. Default: 1.
	// +kubebuilder:default=1
	// +kubebuilder:validation:Minimum=1
	// +kubebuilder:validation:Maximum=100
	Rise int32 `json:"rise,omitempty"`
}

// HTTPSCheck passes if a GET over TLS is answered with an expected status. A
// redirect is not followed.
//
// +kubebuilder:validation:XValidation:rule="!(has(self.insecureSkipVerify) && self.insecureSkipVerify && has(self.caFile) && self.caFile != \"\")",message="insecureSkipVerify and caFile exclude each other"
// +kubebuilder:validation:XValidation:rule="(has(self.certFile) && self.certFile != \"\") == (has(self.keyFile) && self.keyFile != \"\")",message="has only one of certFile and keyFile; a client certificate needs both"
type HTTPSCheck struct {
	// Host is an IP address or a host name. Default: 127.0.0.1, and of a LoadBalancer the
	// address of each backend.
	// +kubebuilder:validation:MaxLength=254
	// +kubebuilder:validation:XValidation:rule="self == '' || (isIP(self) ? !ip(self).isUnspecified() && !(cidr('224.0.0.0/4').containsIP(self) || cidr('ff00::/8').containsIP(self)) : self.contains(':') ? self.matches('^[0-9a-fA-F:.]+(%.+)?$') : self.matches('^(?i:[a-z0-9]([-a-z0-9]{0,61}[a-z0-9])?(\\\\.[a-z0-9]([-a-z0-9]{0,61}[a-z0-9])?)*)\\\\.?$') && !self.matches('(^|\\\\.)[0-9]+\\\\.?$'))",message="must be the IP address of one host or a host name"
	Host string `json:"host,omitempty"`
	// Port is required.
	// +kubebuilder:validation:Minimum=1
	// +kubebuilder:validation:Maximum=65535
	Port int32 `json:"port"`
	// Path is what a node has to pass to have the address. It begins with /; a query
	// may follow. Default: /livez?exclude=etcd, so that losing the leader of etcd,
	// which all API servers lose at once, does not take the address away from all of
	// them.
	// +kubebuilder:default="/livez?exclude=etcd"
	// +kubebuilder:validation:Pattern=`^(/[^\x00-\x20\x7f#]*)?$`
	Path string `json:"path,omitempty"`
	// PreferredPath is what a node should pass as well: one that does not is degraded,
	// and leaves the address to one that does, if there is any. A node that passes it is
	// not asked for Path. Default: /livez with the default Path, so that an API server
	// without its etcd is degraded; none with another one. The same as Path is none.
	// +kubebuilder:validation:Pattern=`^(/[^\x00-\x20\x7f#]*)?$`
	PreferredPath string `json:"preferredPath,omitempty"`
	// ServerName is what the certificate must be for. Default: "kubernetes" if
	// Host is a loopback address, else Host. The certificate of every API server
	// of kubeadm and k3s has the name kubernetes, while that of kubeadm lacks
	// 127.0.0.1.
	// +kubebuilder:validation:MaxLength=254
	// +kubebuilder:validation:XValidation:rule="self == '' || isIP(self) || self.contains(':') || self.matches('^(?i:[a-z0-9]([-a-z0-9]{0,61}[a-z0-9])?(\\\\.[a-z0-9]([-a-z0-9]{0,61}[a-z0-9])?)*)\\\\.?$') && !self.matches('(^|\\\\.)[0-9]+\\\\.?$')",message="must be an IP address or a host name"
	ServerName string `json:"serverName,omitempty"`
	// CAFile is the absolute path of the PEM bundle that signs the certificate.
	// Default: the CAs of the host.
	// +optional
	// +kubebuilder:validation:Pattern=`^(/[^\x00]*)?$`
	CAFile string `json:"caFile,omitempty"`
	// InsecureSkipVerify accepts every certificate.
	InsecureSkipVerify bool `json:"insecureSkipVerify,omitempty"`
	// CertFile is the absolute path of a client certificate; it needs KeyFile.
	// +optional
	// +kubebuilder:validation:Pattern=`^(/[^\x00]*)?$`
	CertFile string `json:"certFile,omitempty"`
	// KeyFile is the absolute path of its key; it needs CertFile.
	// +optional
	// +kubebuilder:validation:Pattern=`^(/[^\x00]*)?$`
	KeyFile string `json:"keyFile,omitempty"`
	// ExpectedStatus are the status codes that pass. Default: any from 200 to 299.
	// +optional
	// +listType=atomic
	// +kubebuilder:validation:items:Minimum=200
	// +kubebuilder:validation:items:Maximum=599
	ExpectedStatus []int32 `json:"expectedStatus,omitempty"`
}

// HTTPCheck passes if a GET is answered with an expected status. A redirect is
// not followed.
type HTTPCheck struct {
	// Host is an IP address or a host name. Default: 127.0.0.1, and of a LoadBalancer the
	// address of each backend.
	// +kubebuilder:validation:MaxLength=254
	// +kubebuilder:validation:XValidation:rule="self == '' || (isIP(self) ? !ip(self).isUnspecified() && !(cidr('224.0.0.0/4').containsIP(self) || cidr('ff00::/8').containsIP(self)) : self.contains(':') ? self.matches('^[0-9a-fA-F:.]+(%.+)?$') : self.matches('^(?i:[a-z0-9]([-a-z0-9]{0,61}[a-z0-9])?(\\\\.[a-z0-9]([-a-z0-9]{0,61}[a-z0-9])?)*)\\\\.?$') && !self.matches('(^|\\\\.)[0-9]+\\\\.?$'))",message="must be the IP address of one host or a host name"
	Host string `json:"host,omitempty"`
	// Port is required.
	// +kubebuilder:validation:Minimum=1
	// +kubebuilder:validation:Maximum=65535
	Port int32 `json:"port"`
	// Path is what a node has to pass to have the address. It begins with /; a query
	// may follow. Default: /.
	// +kubebuilder:default="/"
	// +kubebuilder:validation:Pattern=`^(/[^\x00-\x20\x7f#]*)?$`
	Path string `json:"path,omitempty"`
	// PreferredPath is what a node should pass as well: one that does not is degraded,
	// and leaves the address to one that does, if there is any. A node that passes it is
	// not asked for Path. Default: none.
	// +kubebuilder:validation:Pattern=`^(/[^\x00-\x20\x7f#]*)?$`
	PreferredPath string `json:"preferredPath,omitempty"`
	// ExpectedStatus are the status codes that pass. Default: any from 200 to 299.
	// +optional
	// +listType=atomic
	// +kubebuilder:validation:items:Minimum=200
	// +kubebuilder:validation:items:Maximum=599
	ExpectedStatus []int32 `json:"expectedStatus,omitempty"`
}

// TCPCheck passes if a connection can be opened.
type TCPCheck struct {
	// Host is an IP address or a host name. Default: 127.0.0.1, and of a LoadBalancer the
	// address of each backend.
	// +kubebuilder:validation:MaxLength=254
	// +kubebuilder:validation:XValidation:rule="self == '' || (isIP(self) ? !ip(self).isUnspecified() && !(cidr('224.0.0.0/4').containsIP(self) || cidr('ff00::/8').containsIP(self)) : self.contains(':') ? self.matches('^[0-9a-fA-F:.]+(%.+)?$') : self.matches('^(?i:[a-z0-9]([-a-z0-9]{0,61}[a-z0-9])?(\\\\.[a-z0-9]([-a-z0-9]{0,61}[a-z0-9])?)*)\\\\.?$') && !self.matches('(^|\\\\.)[0-9]+\\\\.?$'))",message="must be the IP address of one host or a host name"
	Host string `json:"host,omitempty"`
	// Port is required.
	// +kubebuilder:validation:Minimum=1
	// +kubebuilder:validation:Maximum=65535
	Port int32 `json:"port"`
}

// ExecCheck passes if a program ends with status 0.
type ExecCheck struct {
	// Command is the program and its arguments. No shell reads it.
	// +listType=atomic
	// +kubebuilder:validation:MinItems=1
	// +kubebuilder:validation:items:Pattern=`^[^\x00]*$`
	// +kubebuilder:validation:XValidation:rule="self[0] != ''",message="must name a program"
	Command []string `json:"command"`
}

// The defaults of a HealthCheck.
const (
	DefaultCheckHost     = "127.0.0.1"
	DefaultCheckInterval = 500 * time.Millisecond
	DefaultCheckTimeout  = 400 * time.Millisecond
	// DefaultBackendCheckTimeout is that of a check of other machines. With the default interval a
	// backend that falls silent is out of the table after 800 ms, well before a client sends the
	// first packet of a connection again, after 1 s (RFC 6298 section 2).
	DefaultBackendCheckTimeout = 300 * time.Millisecond
	DefaultCheckFall           = 2
	DefaultCheckRise           = 1
	DefaultHTTPSPath           = "/livez?exclude=etcd" // see HTTPSCheck.Path
	DefaultPreferredPath       = "/livez"              // see HTTPSCheck.PreferredPath
	DefaultHTTPPath            = "/"
	DefaultServerName          = "kubernetes"
)

// Default fills in what is unset.
func (h *HealthCheck) Default() {
	h.defaultPace(DefaultCheckTimeout)
	h.defaultPaths()
	h.defaultHost()
}

// defaultPace fills in how often and how long a check runs: up to this timeout.
func (h *HealthCheck) defaultPace(timeout time.Duration) {
	setDefault(&h.Interval, Duration{DefaultCheckInterval})
	setDefault(&h.Timeout, Duration{min(timeout, h.Interval.Duration*4/5)})
	setDefault(&h.Fall, DefaultCheckFall)
	setDefault(&h.Rise, DefaultCheckRise)
}

// defaultPaths fills in what is asked for.
func (h *HealthCheck) defaultPaths() {
	if c := h.HTTPS; c != nil {
		setDefault(&c.Path, DefaultHTTPSPath)
		if c.Path == DefaultHTTPSPath {
			setDefault(&c.PreferredPath, DefaultPreferredPath)
		}
	}
	if c := h.HTTP; c != nil {
		setDefault(&c.Path, DefaultHTTPPath)
	}
}

// defaultHost fills in who is asked.
func (h *HealthCheck) defaultHost() {
	if c := h.HTTPS; c != nil {
		setDefault(&c.Host, DefaultCheckHost)
		setDefault(&c.ServerName, serverName(c.Host))
	}
	if c := h.HTTP; c != nil {
		setDefault(&c.Host, DefaultCheckHost)
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
