package propagate

import (
	"cmp"
	"fmt"
	"maps"
	"slices"

	"lbd.dev/lbd/api/v1alpha1"
	"lbd.dev/lbd/internal/model"
	"lbd.dev/lbd/internal/tenants"
)

// ReasonSecret is why the hub has no certificate for an Ingress.
const ReasonSecret = "InvalidSecret"

// MaxSecrets bounds the Secrets that are read.
const MaxSecrets = 200

// Secret is what is known of a Secret that an Ingress names.
type Secret struct {
	// Copy is its name in the hub, which is another one for other content; empty: the hub is not to have it.
	Copy string
	// Lacks is why it is no good, or cannot be read.
	Lacks string
	// Unread: it is not known what it says, so the hub keeps what it has of it.
	Unread bool
	// Certificate and Key are what the hub gets.
	Certificate []byte
	Key         []byte `json:"-"` // in no log of JSON either
}

// String keeps the key out of whatever prints it.
func (s *Secret) String() string { return cmp.Or(s.Copy, s.Lacks) }

// SecretCopy is a Secret that the hub is to have.
type SecretCopy struct {
	Secret model.Key
	Name   string
}

// SecretsOf are the Secrets that Ingresses of the class name in namespaces of which Secrets may be read, and of
// them those of which there is room.
func SecretsOf(ingresses map[model.Key]*Ingress, class string, namespaces []string) (read, over map[model.Key]bool) {
	read, over = map[model.Key]bool{}, map[model.Key]bool{}
	for _, key := range slices.SortedFunc(maps.Keys(ingresses), model.Key.Compare) {
		if ingresses[key].Class != class || !slices.Contains(namespaces, key.Namespace) {
			continue
		}
		for _, t := range ingresses[key].TLS {
			switch k := (model.Key{Namespace: key.Namespace, Name: t.Secret}); {
			case t.Secret == "" || read[k]:
			case len(read) < MaxSecrets:
				read[k] = true
			default:
				over[k] = true
			}
		}
	}
	return read, over
}

// copies tells which Secrets the hub has: those that were written here, or that it names. One that it says it
// has not is to be written again.
func (in *IngressInput) copies() map[string]bool {
	there := maps.Clone(in.Written)
	if there == nil {
		there = map[string]bool{}
	}
	missing := map[string]bool{}
	for _, h := range in.HubRoutes {
		if h.Spec == nil {
			continue
		}
		lacks := slices.ContainsFunc(h.Conditions, func(c v1alpha1.Condition) bool {
			return c.Type == v1alpha1.ConditionCertificates && c.Reason == string(tenants.ReasonSecretMissing) && c.ObservedGeneration == h.Generation
		})
		for _, t := range h.Spec.TLS {
			there[t.HubSecret] = true
			missing[t.HubSecret] = missing[t.HubSecret] || lacks
		}
	}
	maps.DeleteFunc(there, func(name string, _ bool) bool { return missing[name] })
	return there
}

// secrets has a TenantRoute name the copies of the Secrets of its Ingress that the hub has, and tells what is
// wrong with the others; nil: nothing is. Until a new copy is there, the one before it stays.
func (out *IngressOutput) secrets(in *IngressInput, key model.Key, wanted, hub *v1alpha1.TenantRouteSpec, there map[string]bool) (why *v1alpha1.Condition) {
	wanted.TLS = slices.Clone(wanted.TLS)
	for i := range wanted.TLS {
		t := &wanted.TLS[i]
		of := model.Key{Namespace: key.Namespace, Name: t.Secret}
		s := in.Secrets[of]
		if s == nil {
			continue
		}
		before := copyBefore(hub, t.Secret)
		lacks, reason := s.Lacks, ReasonSecret
		switch {
		case s.Unread:
			t.HubSecret = before
		case s.Copy == "":
		case there[s.Copy]:
			t.HubSecret = s.Copy
		default:
			t.HubSecret = before
			if text, refused := in.RefusedSecrets[s.Copy]; refused {
				lacks, reason = text, ReasonHubRefused
			}
			if c := (SecretCopy{Secret: of, Name: s.Copy}); !slices.Contains(out.Secrets, c) {
				out.Secrets = append(out.Secrets, c)
			}
		}
		if lacks != "" && why == nil {
			why = new(no(reason, fmt.Sprintf("the Secret %s: %s", t.Secret, lacks)))
		}
	}
	return why
}

// copyBefore is the copy of a Secret that a TenantRoute names.
func copyBefore(hub *v1alpha1.TenantRouteSpec, secret string) string {
	if hub == nil {
		return ""
	}
	for _, t := range hub.TLS {
		if t.Secret == secret && t.HubSecret != "" {
			return t.HubSecret
		}
	}
	return ""
}
