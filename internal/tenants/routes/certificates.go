package routes

import (
	"fmt"
	"maps"
	"reflect"
	"slices"
	"strings"

	"lbd.dev/lbd/api/v1alpha1"
	"lbd.dev/lbd/internal/model"
	"lbd.dev/lbd/internal/tenants"
)

// KindSecret is that of the certificates that agents write. They are read and deleted here, and never written.
const KindSecret = "Secret"

// The reasons of verdicts about certificates beside those of routes.
const (
	ReasonNoSecrets  tenants.Reason = "SecretsNotAllowed"
	ReasonUnread     tenants.Reason = "SecretsNotRead"
	ReasonBadContent tenants.Reason = "InvalidCertificate"
)

// Certificate is what counts of a Secret that an agent has written.
type Certificate struct {
	UID string
	// Names are those that an engine finds it by.
	Names []string
	// Broken is why no engine is to use it; empty: it is good.
	Broken string
	// Old: it has been there for long enough for a TenantRoute to name it.
	Old bool
}

// certify judges the certificates of the routes that count, which are given by age. One that is for another's
// hostname is used for no host: an engine shows it to whoever asks for a name that is in it. It also says which
// certificates no route names any more.
func (out *Output) certify(in *Input, byAge []model.Key, taken *claims) {
	out.certificates = make(map[ID]bool)
	has, verdicts := make(map[*v1alpha1.Tenant]int), make(map[ID]tenants.Verdict)
	for _, key := range byAge {
		c := in.Clusters[key.Namespace]
		for _, x := range in.Routes[key].Spec.TLS {
			id := secretID(key.Namespace, x.HubSecret)
			if x.HubSecret == "" {
				continue
			}
			v, judged := verdicts[id]
			if !judged { // once: thousands of entries can name one Secret
				v = out.certificate(in, &c, id, taken, has[c.Tenant])
				verdicts[id] = v
				if v.Reason == tenants.ReasonAccepted {
					out.certificates[id] = true
					has[c.Tenant]++
					for _, name := range in.names(id) {
						taken.add(c.Tenant, name)
					}
				}
			}
			if before, is := out.Certificates[key]; !is || before.Reason == tenants.ReasonAccepted {
				out.Certificates[key] = v
			}
		}
	}
	out.forget(in)
}

// certificate tells whether a Secret may be used for a tenant that has so many others.
func (out *Output) certificate(in *Input, c *tenants.Cluster, id ID, taken *claims, others int) tenants.Verdict {
	tenant, most := c.Tenant.Metadata.Name, int(c.Tenant.Spec.Limits.TLSSecrets)
	if most == 0 {
		return tenants.Verdict{Reason: ReasonNoSecrets, Message: fmt.Sprintf("the Tenant %s has no limits.tlsSecrets: no Secret of it is used", tenant)}
	}
	all, known := in.Certificates[id.Namespace]
	if !known {
		if out.shown[id] {
			return tenants.Verdict{Reason: tenants.ReasonAccepted}
		}
		return tenants.Verdict{Reason: ReasonUnread, Message: "the controller of the hub cannot read the Secrets of the namespace: it needs what `lbd tenant create --tls-secrets` prints"}
	}
	x := all[id.Name]
	switch {
	case x == nil:
		return tenants.Verdict{Reason: tenants.ReasonSecretMissing, Message: "the hub has not the Secret " + id.Name}
	case x.Broken != "":
		return tenants.Verdict{Reason: ReasonBadContent, Message: x.Broken}
	case others >= most:
		return tenants.Verdict{Reason: tenants.ReasonLimit, Message: fmt.Sprintf("with it the Tenant %s has %d Secrets of %d that it may have", tenant, others+1, most)}
	}
	for _, host := range x.Names {
		if !within(host, c.Tenant.Spec.Hostnames) {
			return tenants.Verdict{Reason: ReasonHostname, Message: fmt.Sprintf("a certificate is for %s, which the Tenant %s may not have; it may have %q", host, tenant, c.Tenant.Spec.Hostnames)}
		}
		if c.Tenant.Spec.Suspended && taken.of[host] != c.Tenant {
			return tenants.Verdict{Reason: tenants.ReasonSuspended, Message: fmt.Sprintf("the Tenant %s is suspended: what it has stays, and it gets nothing new, such as a certificate for %s", tenant, host)}
		}
		if other := taken.other(c.Tenant, host); other != "" {
			return tenants.Verdict{Reason: ReasonTaken, Message: fmt.Sprintf("a certificate is for %s, which is taken: another tenant had %s first", host, other)}
		}
	}
	return tenants.Verdict{Reason: tenants.ReasonAccepted}
}

// forget deletes the certificates that neither a route nor an Ingress of the hub names: while an Ingress names
// one, an agent must not get to make another of its name. A new one is given time: its agent writes it before
// the route.
func (out *Output) forget(in *Input) {
	named := maps.Clone(out.shown)
	for key, r := range in.Routes {
		for _, x := range r.Spec.TLS {
			named[secretID(key.Namespace, x.HubSecret)] = true
		}
	}
	for namespace, all := range in.Certificates {
		for _, name := range slices.Sorted(maps.Keys(all)) {
			switch id := secretID(namespace, name); {
			case named[id]:
			case all[name].Old:
				out.Deletes = append(out.Deletes, Delete{id, all[name].UID})
			default:
				out.Young = true
			}
		}
	}
}

func secretID(namespace, name string) ID {
	return ID{KindSecret, model.Key{Namespace: namespace, Name: name}}
}

// names are those in a certificate; of one that is not known there are none.
func (in *Input) names(id ID) []string {
	if x := in.Certificates[id.Namespace][id.Name]; x != nil {
		return x.Names
	}
	return nil
}

// show notes that an engine shows certificates because of an Ingress, and returns the hostnames of those that
// are new: thousands of entries can name one Secret. A Secret made anew holds no hostname that its tenant may
// not have.
func (out *Output) show(in *Input, ingress ID) (hosts []string) {
	t := in.Clusters[ingress.Namespace].Tenant
	for _, name := range secretsOf(in.Have[ingress]) {
		if id := secretID(ingress.Namespace, name); !out.shown[id] {
			out.shown[id] = true
			for _, host := range in.names(id) {
				if t == nil || within(host, t.Spec.Hostnames) {
					hosts = append(hosts, host)
				}
			}
		}
	}
	return hosts
}

// usable tells whether an Ingress that names a Secret of an agent may go on to.
func (in *Input) usable(c *tenants.Cluster, id ID) bool {
	all, known := in.Certificates[id.Namespace]
	x := all[id.Name]
	return c.Tenant.Spec.Limits.TLSSecrets > 0 && (!known || x != nil && x.Broken == "" &&
		!slices.ContainsFunc(x.Names, func(name string) bool { return !within(name, c.Tenant.Spec.Hostnames) }))
}

// keep has an Ingress keep the Secrets of agents that it names, while those that its route names for the same hosts are
// not known.
func keep(in *Input, c *tenants.Cluster, id ID, r *Route, body map[string]any) map[string]any {
	if _, known := in.Certificates[id.Namespace]; known || c.Tenant.Spec.Limits.TLSSecrets == 0 {
		return body
	}
	entries := tlsOf(Have{Body: body})
	sameHosts := func(a, b map[string]any) bool { return reflect.DeepEqual(a["hosts"], b["hosts"]) }
	left := slices.DeleteFunc(tlsOf(in.Have[id]), func(had map[string]any) bool {
		name, _ := had["secretName"].(string)
		return !strings.HasPrefix(name, v1alpha1.HubSecretPrefix) || !in.usable(c, secretID(id.Namespace, name)) ||
			slices.ContainsFunc(entries, func(x map[string]any) bool { return x["secretName"] == name && sameHosts(x, had) })
	})
	for i, entry := range entries {
		if want := r.Spec.TLS[i].HubSecret; want == "" || want == entry["secretName"] {
			continue
		}
		if at := slices.IndexFunc(left, func(had map[string]any) bool { return sameHosts(had, entry) }); at >= 0 {
			entry["secretName"] = left[at]["secretName"]
			left = slices.Delete(left, at, at+1)
		}
	}
	return body
}

// secretsOf are the Secrets that an Ingress names.
func secretsOf(have Have) (names []string) {
	for _, entry := range tlsOf(have) {
		if name, _ := entry["secretName"].(string); name != "" {
			names = append(names, name)
		}
	}
	return names
}

// tlsOf are the entries of an Ingress with hosts and a Secret.
func tlsOf(have Have) []map[string]any { return objectsAt(have.Body, "spec", "tls") }
