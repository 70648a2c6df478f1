package routes

import (
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
	// below are the tenants that have names below a suffix such as .example.com, each with one of them.
	below map[string]map[*v1alpha1.Tenant]string
}

func newClaims() *claims {
	return &claims{of: map[string]*v1alpha1.Tenant{}, below: map[string]map[*v1alpha1.Tenant]string{}}
}

// other is a hostname of another tenant that overlaps this one; empty: there is none.
func (c *claims) other(t *v1alpha1.Tenant, host string) string {
	if o := c.of[host]; o != nil && o != t {
		return host
	}
	for _, suffix := range suffixes(host) {
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
	for _, suffix := range suffixes(host) {
		if c.below[suffix] == nil {
			c.below[suffix] = map[*v1alpha1.Tenant]string{}
		}
		if name, has := c.below[suffix][t]; !has || host < name {
			c.below[suffix][t] = host
		}
	}
}

// suffixes of a.b.c are .b.c and .c.
func suffixes(host string) (list []string) {
	for i := range len(host) {
		if host[i] == '.' {
			list = append(list, host[i:])
		}
	}
	return list
}
