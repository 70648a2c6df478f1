package v1alpha1

import (
	"fmt"
	"regexp"
	"strings"
	"unicode/utf8"
)

// The bounds of a TenantRoute.
const (
	maxRouteRules       = 50
	maxRoutePaths       = 50 // of a rule
	maxRouteTLSHosts    = 250
	maxAllRoutePaths    = 250
	maxRoutePath        = 256
	maxRouteAnnotations = 64
	maxRouteAnnotated   = 16 << 10 // characters of annotations, with their keys
	maxTenantHostnames  = 64
	maxAllowed          = 64 // annotations
)

const (
	ruleHasHTTP  = "an HTTPRoute or a GRPCRoute must have http, and nothing else may"
	ruleHostname = "must be a hostname in lower case, such as www.example.com or *.example.com"
	rulePath     = "must begin with a slash and have only letters, digits and ._~+,=:@- in segments that are not empty and not dots alone"
)

// routePath keeps out what has a meaning of its own in the rules of an engine.
var routePath = regexp.MustCompile(`^/((\.?[A-Za-z0-9_~+,=:@-][A-Za-z0-9._~+,=:@-]*)/)*(\.?[A-Za-z0-9_~+,=:@-][A-Za-z0-9._~+,=:@-]*)?$`)

// allowedAnnotation is a key, or the beginning of keys and *.
var allowedAnnotation = regexp.MustCompile(`^[A-Za-z0-9][-A-Za-z0-9_./]{0,250}\*?$`)

// hubSecret is the name of a Secret that an agent writes in a hub.
var hubSecret = regexp.MustCompile(`^` + HubSecretPrefix + `[0-9a-f]{20}$`)

// IsHostname tells whether a TenantRoute can have this hostname.
func IsHostname(s string) bool { return isRouteHost(s) }

// isRouteHost tells whether s is a hostname, the first label of which may be *.
func isRouteHost(s string) bool {
	return len(s) <= maxSubdomain && isSubdomain(strings.TrimPrefix(s, "*."))
}

// tenantIngress checks what a Tenant may have of the engine of the hub.
func (k *checker) tenantIngress(s *TenantSpec) {
	k.atMost("spec.hostnames", len(s.Hostnames), maxTenantHostnames)
	k.eachOnce("spec.hostnames", s.Hostnames, func(at, text string) { k.want(isRouteHost(text), at, text, ruleHostname) })
	if s.IngressClass != "" {
		k.want(isSubdomain(s.IngressClass), "spec.ingressClass", s.IngressClass, ruleSubdomain)
	}
	if s.Gateway != "" {
		namespace, name, _ := strings.Cut(s.Gateway, "/")
		k.want(isDNSLabel(namespace) && isSubdomain(name), "spec.gateway", s.Gateway, "must be the namespace and the name of a Gateway, such as edge/public")
	}
	allow := s.Annotations.Allow
	k.atMost("spec.annotations.allow", len(allow), maxAllowed)
	k.eachOnce("spec.annotations.allow", allow, func(at, text string) {
		k.want(allowedAnnotation.MatchString(text), at, text, "must be the key of an annotation, or how keys begin and *")
		k.want(!strings.Contains(text, "snippet"), at, text, "would let a tenant write into the configuration of the engine")
	})
}

// Validate returns every rule that the defaulted object breaks, in the order of its fields.
func (t *TenantRoute) Validate() []FieldError {
	var k checker
	k.typeMeta(t.TypeMeta, KindTenantRoute)
	k.objectMeta(t.Metadata)
	s := &t.Spec
	oneOf(&k, "spec.origin.kind", s.Origin.Kind, OriginIngress, OriginHTTPRoute, OriginGRPCRoute)
	k.want(isDNSLabel(s.Origin.Namespace), "spec.origin.namespace", s.Origin.Namespace, ruleDNSLabel)
	k.want(isSubdomain(s.Origin.Name), "spec.origin.name", s.Origin.Name, ruleSubdomain)
	k.want(s.Origin.Generation >= 0, "spec.origin.generation", s.Origin.Generation, "must not be negative")
	if s.Origin.Kind != OriginIngress {
		k.want(s.Rules == nil, "spec", nil, "an Ingress must have rules, and nothing else may")
		k.want(s.TLS == nil && s.Annotations == nil, "spec", nil, "only an Ingress may have tls and annotations")
		if k.want(s.HTTP != nil, "spec", nil, ruleHasHTTP); s.HTTP != nil {
			k.tenantHTTP(s.HTTP)
			k.tenantGRPC(s.HTTP, s.Origin.Kind == OriginGRPCRoute)
		}
		return k.errs
	}
	k.want(s.HTTP == nil, "spec", nil, ruleHasHTTP)
	k.ingressRules(s)
	k.routeAnnotations(s.Annotations)
	return k.errs
}

// ingressRules checks what a TenantRoute has of the rules and the tls of an Ingress.
func (k *checker) ingressRules(s *TenantRouteSpec) {
	k.want(len(s.Rules) > 0, "spec.rules", nil, "must have at least one rule")
	k.atMost("spec.rules", len(s.Rules), maxRouteRules)
	paths := 0
	for i, r := range s.Rules {
		paths += len(r.Paths)
		at := fmt.Sprintf("spec.rules[%d]", i)
		k.want(isRouteHost(r.Host), at+".host", r.Host, ruleHostname)
		k.want(len(r.Paths) > 0, at+".paths", nil, "must have at least one path")
		k.atMost(at+".paths", len(r.Paths), maxRoutePaths)
		for j, p := range r.Paths {
			k.tenantPath(fmt.Sprintf("%s.paths[%d]", at, j), p)
		}
	}
	k.want(paths <= maxAllRoutePaths, "spec.rules", nil, fmt.Sprintf("have more than %d paths in all", maxAllRoutePaths))
	k.atMost("spec.tls", len(s.TLS), maxRouteRules)
	hosts := 0
	for i, x := range s.TLS {
		hosts += len(x.Hosts)
		at := fmt.Sprintf("spec.tls[%d]", i)
		k.atMost(at+".hosts", len(x.Hosts), maxRouteRules)
		for j, host := range x.Hosts {
			k.want(isRouteHost(host), fmt.Sprintf("%s.hosts[%d]", at, j), host, ruleHostname)
		}
		if x.Secret != "" {
			k.want(isSubdomain(x.Secret), at+".secret", x.Secret, ruleSubdomain)
		}
		if x.HubSecret != "" {
			k.want(hubSecret.MatchString(x.HubSecret), at+".hubSecret", x.HubSecret, "must be "+HubSecretPrefix+" and 20 hexadecimal digits in lower case")
		}
	}
	k.want(hosts <= maxRouteTLSHosts, "spec.tls", nil, fmt.Sprintf("have more than %d hostnames in all", maxRouteTLSHosts))
}

// IsAnnotationKey tells whether an object of Kubernetes can have an annotation with this key. The prefix may
// be in either case.
func IsAnnotationKey(key string) bool { return isLabelKey(strings.ToLower(key)) }

// routeAnnotations bounds what goes into an object of the hub. Keys are looked at where it is decided which of
// them go there: an API server cannot bear what the rule costs in CEL.
func (k *checker) routeAnnotations(all map[string]string) {
	const at = "spec.annotations"
	if k.atMost(at, len(all), maxRouteAnnotations); len(all) > maxRouteAnnotations {
		return
	}
	characters := 0
	for key, value := range all {
		characters += utf8.RuneCountInString(key) + utf8.RuneCountInString(value)
	}
	k.want(characters <= maxRouteAnnotated, at, nil, fmt.Sprintf("have more than %d characters in all", maxRouteAnnotated))
}

func (k *checker) tenantPath(at string, p TenantPath) {
	k.routePath(at+".path", p.Path)
	oneOf(k, at+".type", p.Type, PathExact, PathPrefix)
	k.want(isDNSLabel(p.Service), at+".service", p.Service, ruleDNSLabel)
	k.port(at+".nodePort", p.NodePort)
	k.oneFamily(at+".family", p.Family)
}

func (k *checker) oneFamily(at string, f AddressFamily) {
	if f != "" {
		oneOf(k, at, f, FamilyIPv4, FamilyIPv6)
	}
}

func (k *checker) routePath(at, path string) {
	k.want(len(path) <= maxRoutePath && routePath.MatchString(path), at, path, rulePath)
}
