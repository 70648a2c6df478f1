package routes

import (
	"iter"
	"maps"
	"slices"
	"strings"

	"lbd.dev/lbd/api/v1alpha1"
)

// within tells whether a hostname is one that a Tenant may have. A bound *.example.com has all names below
// example.com.
func within(host string, bounds []string) bool {
	return slices.ContainsFunc(bounds, func(b string) bool {
		below, wild := strings.CutPrefix(b, "*")
		return host == b || wild && strings.HasSuffix(host, below)
	})
}

// claims are the hostnames that tenants have. A wildcard is taken to stand for all names below it, however
// the engine of the hub reads it.
type claims struct {
	of map[string]*v1alpha1.Tenant // by hostname
	// below are the tenants that have names below a suffix such as .example.com, each with one of them. It has
	// the suffixes of all wildcards that are asked for, and no others: a long name has a hundred.
	below map[string]map[*v1alpha1.Tenant]string
}

// newClaims has room for names below the wildcards that are asked for.
func newClaims(wildcards map[string]bool) *claims {
	c := &claims{of: map[string]*v1alpha1.Tenant{}, below: make(map[string]map[*v1alpha1.Tenant]string, len(wildcards))}
	for suffix := range wildcards {
		c.below[suffix] = map[*v1alpha1.Tenant]string{}
	}
	return c
}

// wildcards are the suffixes of all wildcards that are asked for.
func (in *Input) wildcards() map[string]bool {
	all := map[string]bool{}
	ask := func(hosts []string) {
		for _, host := range hosts {
			if suffix, wild := strings.CutPrefix(host, "*"); wild {
				all[suffix] = true
			}
		}
	}
	for _, r := range in.Routes {
		ask(r.Spec.Hosts())
	}
	for _, have := range in.Have {
		ask(hostsOf(have))
	}
	for namespace, list := range in.Certificates {
		for name := range list {
			ask(in.names(secretID(namespace, name)))
		}
	}
	return all
}

// other is a hostname of another tenant that overlaps this one; empty: there is none.
func (c *claims) other(t *v1alpha1.Tenant, host string) string {
	if o := c.of[host]; o != nil && o != t {
		return host
	}
	for suffix := range suffixes(host) {
		if c.below[suffix] == nil {
			continue
		}
		if o := c.of["*"+suffix]; o != nil && o != t {
			return "*" + suffix
		}
	}
	if suffix, wild := strings.CutPrefix(host, "*"); wild {
		var found []string
		for o, name := range maps.All(c.below[suffix]) {
			if o != t {
				found = append(found, name)
			}
		}
		if len(found) > 0 {
			return slices.Min(found)
		}
	}
	return ""
}

// add has a tenant have a hostname.
func (c *claims) add(t *v1alpha1.Tenant, host string) {
	if c.of[host] != nil {
		return
	}
	c.of[host] = t
	for suffix := range suffixes(host) {
		if below := c.below[suffix]; below != nil {
			if name, has := below[t]; !has || host < name {
				below[t] = host
			}
		}
	}
}

// suffixes of a.b.c are .b.c and .c.
func suffixes(host string) iter.Seq[string] {
	return func(yield func(string) bool) {
		for i := range len(host) {
			if host[i] == '.' && !yield(host[i:]) {
				return
			}
		}
	}
}
