package propagate

import (
	"fmt"
	"maps"
	"slices"
	"strings"
	"testing"

	"lbd.dev/lbd/api/v1alpha1"
	"lbd.dev/lbd/internal/model"
)

// newSecrets has an Ingress web that names the Secret cert, which is good.
func newSecrets(t *testing.T) *ingresses {
	t.Helper()
	w := newIngresses()
	w.ingress("web", "web").TLS = []v1alpha1.TenantTLS{{Hosts: []string{"web.example.com"}, Secret: "cert"}}
	w.Secrets, w.Written, w.RefusedSecrets = map[model.Key]*Secret{at("cert"): {Copy: "c1"}}, map[string]bool{}, map[string]string{}
	return w
}

// named is the Secret of the hub that the route of the Ingress web names.
func (w *ingresses) named() string { return w.HubRoutes["ingress.default.web"].Spec.TLS[0].HubSecret }

// wantsSecrets are those that the hub is to have.
func (w *ingresses) wantsSecrets() string { return fmt.Sprint(StepIngresses(&w.IngressInput).Secrets) }

// TestSecretIsCopied: a route names a copy once the hub has it, and the one before until then. It names none of
// a Secret that is no good, and people are told.
func TestSecretIsCopied(t *testing.T) {
	w := newSecrets(t)
	w.step(t)
	if w.named() != "" || w.wantsSecrets() != "[{default/cert c1}]" {
		t.Errorf("it names %q, the hub is to have %s", w.named(), w.wantsSecrets())
	}
	w.Written["c1"] = true
	w.step(t)
	w.judge("web", v1alpha1.ConditionTrue, "Accepted", "192.0.2.1")
	if events := w.step(t); w.named() != "c1" || w.wantsSecrets() != "[]" || len(events) > 0 {
		t.Errorf("it names %q, the hub is to have %s; %q", w.named(), w.wantsSecrets(), events)
	}
	clear(w.Written) // another process
	if w.step(t); w.named() != "c1" || w.wantsSecrets() != "[]" {
		t.Errorf("another process: it names %q, the hub is to have %s", w.named(), w.wantsSecrets())
	}

	w.Secrets[at("cert")] = &Secret{Copy: "c2"}
	if w.step(t); w.named() != "c1" || w.wantsSecrets() != "[{default/cert c2}]" {
		t.Errorf("until there is a new one: it names %q, the hub is to have %s", w.named(), w.wantsSecrets())
	}
	w.RefusedSecrets["c2"] = "the quota is full"
	if events := w.step(t); w.named() != "c1" || !slices.Equal(events, []string{"web HubRefused HubRefused: the Secret cert: the quota is full"}) {
		t.Errorf("it names %q; %q", w.named(), events)
	}
	w.Written["c2"] = true
	if events := w.step(t); w.named() != "c2" || len(events) != 1 || !strings.HasPrefix(events[0], "web HubAccepted") {
		t.Errorf("it names %q; %q", w.named(), events)
	}
	w.judge("web", v1alpha1.ConditionTrue, "Accepted", "192.0.2.1")

	w.Secrets[at("cert")] = &Secret{Unread: true}
	if events := w.step(t); w.named() != "c2" || len(events) > 0 {
		t.Errorf("it is not known what the Secret says: the route names %q; %q", w.named(), events)
	}
	w.Secrets[at("cert")] = &Secret{Lacks: "there is none of the name"}
	if events := w.step(t); w.named() != "" || !slices.Equal(events, []string{"web HubRefused InvalidSecret: the Secret cert: there is none of the name"}) {
		t.Errorf("it names %q; %q", w.named(), events)
	}
	if addresses := w.Ingresses[at("web")].Addresses; !slices.Equal(addresses, []string{"192.0.2.1"}) {
		t.Errorf("without a certificate it has the addresses %q", addresses)
	}
	delete(w.Ingresses, at("web"))
	if w.step(t); len(w.HubRoutes) != 0 {
		t.Error(w.HubRoutes)
	}
}

// TestSecretIsMissing: a copy that the hub says it has not is written again, whoever has written it before.
func TestSecretIsMissing(t *testing.T) {
	w := newSecrets(t)
	w.Written["c1"] = true
	w.step(t)
	w.judge("web", v1alpha1.ConditionTrue, "Accepted", "192.0.2.1")
	h := w.HubRoutes["ingress.default.web"]
	h.Conditions = append(h.Conditions, v1alpha1.Condition{Type: v1alpha1.ConditionCertificates, Status: v1alpha1.ConditionFalse, Reason: "SecretMissing", ObservedGeneration: h.Generation})
	w.HubRoutes["ingress.default.web"] = h
	if w.named() != "c1" || w.wantsSecrets() != "[{default/cert c1}]" {
		t.Errorf("it names %q, the hub is to have %s", w.named(), w.wantsSecrets())
	}
	h.Generation++ // what it said was about something else
	w.HubRoutes["ingress.default.web"] = h
	if w.wantsSecrets() != "[]" {
		t.Error(w.wantsSecrets())
	}
}

// TestSecretOfNobody: a Secret that cannot be read without the option is as it was without it, and what the hub
// refuses comes before what is wrong with a Secret.
func TestSecretOfNobody(t *testing.T) {
	w := newSecrets(t)
	w.Secrets = nil
	if events := w.step(t); w.named() != "" || w.wantsSecrets() != "[]" || len(events) > 0 {
		t.Errorf("it names %q, the hub is to have %s; %q", w.named(), w.wantsSecrets(), events)
	}
	w.judge("web", v1alpha1.ConditionFalse, "HostnameTaken")
	w.Secrets = map[model.Key]*Secret{at("cert"): {Lacks: "no good"}}
	if events := w.step(t); len(events) != 1 || !strings.HasPrefix(events[0], "web HubRefused HostnameTaken") {
		t.Error(events)
	}
}

// TestSecretsOf: only what Ingresses of the class name is read, in the namespaces of which it may be, and not
// more than there is room for.
func TestSecretsOf(t *testing.T) {
	w := newIngresses()
	w.ingress("web", "web").TLS = []v1alpha1.TenantTLS{{Secret: "a"}, {Secret: "b"}, {}, {Secret: "a"}}
	other := w.ingress("other", "web")
	other.Class, other.TLS = "nginx", []v1alpha1.TenantTLS{{Secret: "c"}}
	w.Ingresses[model.Key{Namespace: "kube-system", Name: "x"}] = &Ingress{Class: "lbd", TLS: []v1alpha1.TenantTLS{{Secret: "d"}}}
	read, over := SecretsOf(w.Ingresses, "lbd", []string{"default"})
	if !maps.Equal(read, map[model.Key]bool{at("a"): true, at("b"): true}) || len(over) > 0 {
		t.Error(read, over)
	}
	for n := range MaxSecrets {
		w.ingress(fmt.Sprintf("web%d", n), "web").TLS = []v1alpha1.TenantTLS{{Secret: fmt.Sprintf("s%d", n)}}
	}
	if read, over = SecretsOf(w.Ingresses, "lbd", []string{"default"}); len(read) != MaxSecrets || len(over) != 2 {
		t.Error(len(read), len(over))
	}
}
