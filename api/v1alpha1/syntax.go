package v1alpha1

import (
	"errors"
	"net/netip"
	"strconv"
	"strings"
)

// Limits of the syntaxes below.
const (
	maxSubdomain     = 253 // RFC 1123 and Kubernetes object names
	maxLabel         = 63  // RFC 1035 section 2.3.4; label values of Kubernetes
	maxInterfaceName = 15  // IFNAMSIZ without the final NUL
	maxUnixPath      = 107 // sun_path of unix(7) without the final NUL
)

// Lengths of lists that the definitions of packaging/crds have rules for in CEL.
// An API server refuses a definition with a rule for each entry of a list without
// end, since it counts what the rule may cost. They are far beyond what anybody
// needs.
const (
	maxVIPAddresses  = 64
	maxPoolAddresses = 256
	maxSelectors     = 64
	maxExpressions   = 64
	maxAliases       = 1024
)

func isLower(c byte) bool { return 'a' <= c && c <= 'z' }
func isUpper(c byte) bool { return 'A' <= c && c <= 'Z' }
func isDigit(c byte) bool { return '0' <= c && c <= '9' }

// isDNSLabel tells whether s is a label by RFC 1123 section 2.1, lower case.
func isDNSLabel(s string) bool { return IsDNSLabel(s) }

// IsDNSLabel tells whether s can be the name of a namespace.
func IsDNSLabel(s string) bool {
	if s == "" || len(s) > maxLabel || s[0] == '-' || s[len(s)-1] == '-' {
		return false
	}
	for i := range len(s) {
		if c := s[i]; !isLower(c) && !isDigit(c) && c != '-' {
			return false
		}
	}
	return true
}

// isSubdomain tells whether s is one or more DNS labels joined by dots.
func isSubdomain(s string) bool {
	if len(s) > maxSubdomain {
		return false
	}
	for label := range strings.SplitSeq(s, ".") {
		if !isDNSLabel(label) {
			return false
		}
	}
	return true
}

// isHostName tells whether s may be looked up: a subdomain of either case whose
// last label is not a number, so that a mistyped IPv4 address is none.
func isHostName(s string) bool {
	s = strings.ToLower(strings.TrimSuffix(s, "."))
	last := s[strings.LastIndexByte(s, '.')+1:]
	return isSubdomain(s) && strings.Trim(last, "0123456789") != ""
}

// isQualified tells whether s is the name part of a label key, or a label value
// that is not empty, of Kubernetes.
func isQualified(s string) bool {
	if s == "" || len(s) > maxLabel {
		return false
	}
	for i := range len(s) {
		c := s[i]
		inner := (c == '-' || c == '_' || c == '.') && i > 0 && i < len(s)-1
		if !isLower(c) && !isUpper(c) && !isDigit(c) && !inner {
			return false
		}
	}
	return true
}

// isLabelKey tells whether s is a label key of Kubernetes: [subdomain/]name.
func isLabelKey(s string) bool {
	if prefix, name, found := strings.Cut(s, "/"); found {
		return isSubdomain(prefix) && isQualified(name)
	}
	return isQualified(s)
}

// isInterfaceName follows dev_valid_name of the Linux kernel.
func isInterfaceName(s string) bool {
	return s != "" && len(s) <= maxInterfaceName && s != "." && s != ".." &&
		!strings.ContainsAny(s, "/: \t\n\v\f\r\x00")
}

// isAbsPath tells whether s is an absolute path that the kernel can take.
func isAbsPath(s string) bool {
	return strings.HasPrefix(s, "/") && !strings.ContainsRune(s, 0)
}

// isHTTPPath tells whether s can stand in the first line of an HTTP request.
func isHTTPPath(s string) bool {
	return strings.HasPrefix(s, "/") && !strings.ContainsFunc(s, func(r rune) bool {
		return r <= ' ' || r == 0x7f || r == '#'
	})
}

var (
	errPeerHost = errors.New("is neither an IP address nor a host name, with an optional port")
	errPeerPort = errors.New("has a port that is not from 1 to 65535")
)

// SplitPeer splits an entry of GossipSpec.Peers into its host (without brackets)
// and port, which is 0 if there is none. The error completes a sentence that
// begins with the entry.
func SplitPeer(s string) (host string, port uint16, err error) {
	if _, err := netip.ParseAddr(s); err == nil {
		return s, 0, nil // IPv6 without brackets too
	}
	host, portText := s, ""
	if i := strings.LastIndexByte(s, ':'); i > strings.LastIndexByte(s, ']') {
		host, portText = s[:i], s[i+1:]
		n, err := strconv.ParseUint(portText, 10, 16)
		if err != nil || n == 0 {
			return "", 0, errPeerPort
		}
		port = uint16(n)
	}
	if inner, ok := strings.CutPrefix(host, "["); ok {
		inner, ok = strings.CutSuffix(inner, "]")
		if addr, err := netip.ParseAddr(inner); !ok || err != nil || !addr.Is6() {
			return "", 0, errPeerHost
		}
		return inner, port, nil
	}
	if addr, err := netip.ParseAddr(host); err == nil && addr.Is4() {
		return host, port, nil
	}
	if !isHostName(host) {
		return "", 0, errPeerHost
	}
	return host, port, nil
}
