package v1alpha1

import (
	"fmt"
	"net/netip"
	"slices"
	"strings"
	"time"
)

// The bounds of a HealthCheck.
const (
	// MinCheckInterval bounds the load that a check puts on the service.
	MinCheckInterval = 50 * time.Millisecond
	maxCheckInterval = time.Hour
	minCheckTimeout  = 10 * time.Millisecond
	maxCheckCount    = 100
)

// Validate returns every rule that the defaulted check breaks, with paths that
// begin at the check.
func (h *HealthCheck) Validate() []FieldError {
	var k checker
	k.healthCheck("", h, nil)
	for i := range k.errs {
		k.errs[i].Path = strings.TrimPrefix(k.errs[i].Path, ".")
	}
	return k.errs
}

// healthCheck checks h, whose VIP has the addresses vips.
func (k *checker) healthCheck(path string, h *HealthCheck, vips []netip.Addr) {
	var set []string
	if c := h.HTTPS; c != nil {
		set = append(set, "https")
		at := path + ".https"
		k.target(at, c.Host, c.Port, vips)
		k.page(at, c.Path, c.PreferredPath, c.ExpectedStatus)
		k.tls(at, c)
	}
	if c := h.HTTP; c != nil {
		set = append(set, "http")
		at := path + ".http"
		k.target(at, c.Host, c.Port, vips)
		k.page(at, c.Path, c.PreferredPath, c.ExpectedStatus)
	}
	if c := h.TCP; c != nil {
		set = append(set, "tcp")
		k.target(path+".tcp", c.Host, c.Port, vips)
	}
	if c := h.Exec; c != nil {
		set = append(set, "exec")
		k.command(path+".exec.command", c.Command)
	}
	switch len(set) {
	case 0:
		k.bad(path, nil, "must have one of https, http, tcp and exec")
	case 1:
	default:
		k.bad(path, nil, "has %s; one check is allowed", strings.Join(set, " and "))
	}
	k.pace(path, h)
}

// pace checks how often and how long a check runs.
func (k *checker) pace(path string, h *HealthCheck) {
	interval, timeout := h.Interval.Duration, h.Timeout.Duration
	k.duration(path+".interval", h.Interval, MinCheckInterval, maxCheckInterval)
	switch {
	case timeout < minCheckTimeout:
		k.bad(path+".timeout", h.Timeout, "must be at least %v", minCheckTimeout)
	case timeout > interval && interval >= MinCheckInterval:
		// Checks start on schedule; a longer one would overlap the next.
		k.bad(path+".timeout", h.Timeout, "must not be longer than the interval, %v", h.Interval)
	}
	between(k, path+".fall", h.Fall, 1, maxCheckCount)
	between(k, path+".rise", h.Rise, 1, maxCheckCount)
}

// target checks where a check connects to.
func (k *checker) target(path, host string, port int32, vips []netip.Addr) {
	addr, err := netip.ParseAddr(host)
	switch {
	case err != nil:
		k.want(isHostName(host), path+".host", host, "is neither an IP address nor a host name")
	case addr.IsUnspecified(), addr.IsMulticast():
		k.bad(path+".host", host, "is not the address of one host")
	case slices.Contains(vips, addr.Unmap()):
		// Without an owner no node could pass, so none could become the owner.
		k.bad(path+".host", host, "is an address of this object; ask the service on the node itself, such as 127.0.0.1")
	}
	if port == 0 {
		k.bad(path+".port", nil, "is required: from 1 to 65535")
		return
	}
	k.port(path+".port", port)
}

// page checks what an HTTP check asks for and expects.
func (k *checker) page(path, page, preferred string, statuses []int32) {
	const rule = "must begin with / and have no blanks and no #"
	k.want(isHTTPPath(page), path+".path", page, rule)
	if preferred != "" {
		k.want(isHTTPPath(preferred), path+".preferredPath", preferred, rule)
	}
	for i, status := range statuses {
		between(k, fmt.Sprintf("%s.expectedStatus[%d]", path, i), status, 200, 599)
	}
}

// tls checks how a server is verified and how the check proves itself.
func (k *checker) tls(path string, c *HTTPSCheck) {
	if _, err := netip.ParseAddr(c.ServerName); err != nil {
		k.want(isHostName(c.ServerName), path+".serverName", c.ServerName, "is neither an IP address nor a host name")
	}
	if c.InsecureSkipVerify && c.CAFile != "" {
		k.bad(path+".insecureSkipVerify", true, "and caFile exclude each other")
	}
	if (c.CertFile == "") != (c.KeyFile == "") {
		k.bad(path, nil, "has only one of certFile and keyFile; a client certificate needs both")
	}
	for _, f := range []struct{ name, path string }{
		{".caFile", c.CAFile}, {".certFile", c.CertFile}, {".keyFile", c.KeyFile},
	} {
		if f.path != "" {
			k.want(isAbsPath(f.path), path+f.name, f.path, ruleAbsPath)
		}
	}
}

// command checks the program of an exec check.
func (k *checker) command(path string, command []string) {
	if len(command) == 0 || command[0] == "" {
		k.bad(path, nil, "must name a program")
	}
	for i, arg := range command {
		if strings.ContainsRune(arg, 0) {
			k.bad(fmt.Sprintf("%s[%d]", path, i), arg, "has a NUL byte")
		}
	}
}
