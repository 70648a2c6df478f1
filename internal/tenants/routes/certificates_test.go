package routes

import (
	"encoding/json"
	"fmt"
	"strings"
	"testing"

	"lbd.dev/lbd/api/v1alpha1"
	"lbd.dev/lbd/internal/model"
	"lbd.dev/lbd/internal/tenants"
)

// secrets lets tenants have so many Secrets.
func (w *world) secrets(most int32, all ...string) {
	w.Certificates = map[string]map[string]*Certificate{}
	for _, tenant := range all {
		w.Clusters[tenant].Tenant.Spec.Limits.TLSSecrets = most
		w.Certificates[tenant] = map[string]*Certificate{}
	}
}

// certificate has a route name a Secret of these names.
func (w *world) certificate(tenant string, r *Route, secret string, names ...string) *Certificate {
	r.Spec.TLS = append(r.Spec.TLS, v1alpha1.TenantTLS{Secret: "cert", HubSecret: secret})
	x := &Certificate{UID: "u", Names: names}
	w.Certificates[tenant][secret] = x
	return x
}

// uses are the Secrets that the Ingress of a route names.
func (w *world) uses(tenant, name string) string {
	return strings.Join(secretsOf(w.Have[routeID(tenant, w.Routes[keyOf(tenant, name)].TenantRoute)]), " ")
}

func keyOf(tenant, name string) model.Key {
	return model.Key{Namespace: tenant, Name: tenants.IngressName("default", name)}
}

// judged is what is said of the certificates of a route.
func judged(out *Output, tenant, name string) string {
	v, has := out.Certificates[keyOf(tenant, name)]
	return strings.TrimSpace(fmt.Sprint(has, " ", v.Reason, " ", v.Message))
}

// TestCertificates: the engine gets to know of a certificate if all names in it are such as the tenant may have,
// and nobody else has. Else it serves the route without.
func TestCertificates(t *testing.T) {
	for want, c := range map[string]func(w *world, r *Route){
		"true Accepted": func(w *world, r *Route) { w.certificate("shop", r, "x", "a.shop.example.com", "*.shop.example.com") },
		"true HostnameNotAllowed a certificate is for a.bank.example.com, which the Tenant shop may not have": func(w *world, r *Route) {
			w.certificate("shop", r, "x", "a.shop.example.com", "a.bank.example.com")
		},
		"true HostnameNotAllowed a certificate is for *.example.com": func(w *world, r *Route) { w.certificate("shop", r, "x", "*.example.com") },
		"true HostnameTaken a certificate is for www.example.com, which is taken: another tenant had www.example.com first": func(w *world, r *Route) {
			w.route("bank", "www", 5, "www.example.com")
			w.certificate("shop", r, "x", "www.example.com")
		},
		"true SecretMissing the hub has not the Secret x": func(w *world, r *Route) {
			w.certificate("shop", r, "x", "a.shop.example.com")
			w.Certificates["bank"]["x"], w.Certificates["shop"]["x"] = w.Certificates["shop"]["x"], nil
		},
		"true InvalidCertificate it is broken": func(w *world, r *Route) {
			w.certificate("shop", r, "x", "a.shop.example.com").Broken = "it is broken"
		},
		"true SecretsNotAllowed the Tenant shop has no limits.tlsSecrets": func(w *world, r *Route) {
			w.certificate("shop", r, "x", "a.shop.example.com")
			w.Clusters["shop"].Tenant.Spec.Limits.TLSSecrets = 0
		},
		"true SecretsNotRead": func(w *world, r *Route) {
			w.certificate("shop", r, "x", "a.shop.example.com")
			delete(w.Certificates, "shop")
		},
		"true TenantLimit with it the Tenant shop has 3 Secrets of 2": func(w *world, r *Route) {
			for _, name := range []string{"x1", "x2", "x2"} {
				w.certificate("shop", w.Routes[keyOf("shop", "old")], name, "old.shop.example.com")
			}
			w.certificate("shop", r, "x", "a.shop.example.com")
		},
		"false": func(*world, *Route) {},
	} {
		w := newWorld()
		w.secrets(2, "shop", "bank")
		w.route("shop", "old", 1, "old.shop.example.com")
		r := w.route("shop", "web", 2, "a.shop.example.com")
		c(w, r)
		out := w.step(t)
		if got := judged(&out, "shop", "web"); !strings.HasPrefix(got, want) {
			t.Errorf("%q, want %q", got, want)
		}
		used := w.uses("shop", "web")
		if good := want == "true Accepted"; good && used != "x" || !good && strings.Contains(used, "x") || out.Verdicts[keyOf("shop", "web")].Reason != tenants.ReasonAccepted {
			t.Errorf("%s: the Ingress names %q, the route is %v", want, used, out.Verdicts[keyOf("shop", "web")])
		}
	}
}

// TestCertificateHoldsNames: the names in a certificate that is shown are taken, until the engine shows it no
// more. So no newer object takes a certificate from one that is in use.
func TestCertificateHoldsNames(t *testing.T) {
	w := newWorld()
	w.secrets(2, "shop", "bank")
	r := w.route("shop", "web", 9, "a.shop.example.com")
	w.certificate("shop", r, "x", "a.shop.example.com", "www.example.com")
	w.step(t)
	bank := w.route("bank", "www", 1, "www.example.com")
	out := w.step(t)
	if v := out.Verdicts[keyOf("bank", "www")]; v.Reason != ReasonTaken || w.uses("shop", "web") != "x" {
		t.Errorf("%v, the Ingress names %q", v, w.uses("shop", "web"))
	}
	bank.Spec.Rules[0].Host = "b.bank.example.com"
	w.certificate("bank", bank, "y", "www.example.com")
	if out = w.step(t); !strings.HasPrefix(judged(&out, "bank", "www"), "true HostnameTaken") || w.uses("bank", "www") == "y" {
		t.Error(judged(&out, "bank", "www"))
	}
	r.Spec.TLS = nil
	if out = w.step(t); judged(&out, "bank", "www") != "true Accepted" || w.uses("bank", "www") != "y" {
		t.Error(judged(&out, "bank", "www"))
	}
}

// TestCertificatesUnread: what the engine has stays while the Secrets of a namespace are not known.
func TestCertificatesUnread(t *testing.T) {
	w := newWorld()
	w.secrets(2, "shop")
	r := w.route("shop", "web", 1, "a.shop.example.com")
	w.certificate("shop", r, "x", "a.shop.example.com")
	w.step(t)
	all := w.Certificates
	w.Certificates = nil
	out := w.step(t)
	if judged(&out, "shop", "web") != "true Accepted" || w.uses("shop", "web") != "x" || len(out.Deletes) > 0 {
		t.Error(judged(&out, "shop", "web"), out.Deletes)
	}
	w.Certificates = all
	delete(all["shop"], "x")
	if out = w.step(t); w.uses("shop", "web") == "x" {
		t.Error("it is known that the Secret is gone")
	}
}

// TestCertificatesEnd: a Secret that no route names goes, but not before its agent has had the time to name it.
func TestCertificatesEnd(t *testing.T) {
	w := newWorld()
	w.secrets(2, "shop", "bank")
	r := w.route("shop", "web", 1, "a.shop.example.com")
	w.certificate("shop", r, "x", "a.shop.example.com").Old = true
	w.Certificates["shop"]["new"] = &Certificate{UID: "n"}
	w.Certificates["bank"]["x"] = &Certificate{UID: "b", Old: true} // one of the same name elsewhere
	out := Step(&w.Input)
	if text, _ := json.Marshal(out.Deletes); string(text) != `[{"Kind":"Secret","Namespace":"bank","Name":"x","UID":"b"}]` || !out.Young {
		t.Errorf("%s, young %v", text, out.Young)
	}
	w.Certificates["shop"]["new"].Old = true
	r.Spec.TLS = nil
	out = Step(&w.Input)
	if len(out.Deletes) != 3 || out.Young {
		t.Errorf("%v, young %v", out.Deletes, out.Young)
	}
}

// TestCertificateCountsOnce: a Secret costs the same however many entries name it, whether it is used or refused.
// Else one tenant keeps the routes of all waiting.
func TestCertificateCountsOnce(t *testing.T) {
	for _, refused := range []bool{false, true} {
		// cost is what so many names in the Secret cost, by allocations.
		cost := func(entries, most int) float64 {
			var with [2]float64
			for i, n := range []int{1, most} {
				w := newWorld()
				w.secrets(2, "shop", "bank")
				w.route("bank", "www", 0, "www.example.com")
				var names []string
				for k := range n {
					names = append(names, fmt.Sprintf("%sn%d.shop.example.com", strings.Repeat("a.", 100), k))
				}
				if refused {
					names = append(names, "www.example.com")
				}
				for k := range entries {
					r := w.Routes[keyOf("shop", fmt.Sprint(k%5))]
					if r == nil {
						r = w.route("shop", fmt.Sprint(k%5), k+1, "a.shop.example.com")
					}
					w.certificate("shop", r, "x", names...)
				}
				out := w.step(t)
				if got := judged(&out, "shop", "0"); strings.HasPrefix(got, "true HostnameTaken") != refused || (got == "true Accepted") == refused {
					t.Fatal(got)
				}
				with[i] = testing.AllocsPerRun(3, func() { Step(&w.Input) })
			}
			return with[1] - with[0]
		}
		if one, many := cost(1, 100), cost(100, 100); many > 3*one+1000 {
			t.Errorf("refused %v: the names cost %v allocations of one entry, and %v of a hundred", refused, one, many)
		}
	}
}

// TestCertificateStaysWhileShown: a Secret is not deleted while an Ingress of the hub names it, so that nobody
// makes another of its name that the engine then shows.
func TestCertificateStaysWhileShown(t *testing.T) {
	w := newWorld()
	w.secrets(2, "shop", "bank")
	r := w.route("shop", "web", 1, "a.shop.example.com")
	w.certificate("shop", r, "x", "a.shop.example.com").Old = true
	w.step(t)
	r.Spec.TLS = nil
	if out := Step(&w.Input); w.uses("shop", "web") != "x" || len(out.Writes) != 1 || len(out.Deletes) != 0 { // the write comes later
		t.Errorf("the Ingress names %q, deletes %v, %d writes", w.uses("shop", "web"), out.Deletes, len(out.Writes))
	}
	w.Have[routeID("shop", r.TenantRoute)] = Have{Body: jsonOf(Step(&w.Input).Writes[0].Body)}
	if out := Step(&w.Input); len(out.Deletes) != 1 || out.Deletes[0].ID != secretID("shop", "x") {
		t.Errorf("after the write: deletes %v", out.Deletes)
	}
}

// TestCertificateMadeAnew: one that was made anew under a name that an Ingress has takes no hostname which its
// tenant may not have.
func TestCertificateMadeAnew(t *testing.T) {
	w := newWorld()
	w.secrets(2, "shop", "bank")
	r := w.route("shop", "web", 1, "a.shop.example.com")
	w.certificate("shop", r, "x", "a.shop.example.com")
	w.step(t)
	w.Certificates["shop"]["x"] = &Certificate{UID: "new", Names: []string{"www.bank.example.com"}}
	w.route("bank", "www", 2, "www.bank.example.com")
	out := Step(&w.Input)
	expect(t, says(&out), map[string]string{"bank/ingress.default.www": "Accepted"})
	if w.step(t); w.uses("shop", "web") == "x" {
		t.Error("the Ingress names a certificate for a hostname of another tenant")
	}
}

// TestCertificateOfSuspended: a suspended tenant renews certificates for the names that it has, those that only
// a certificate in use has too, and gets no others by one.
func TestCertificateOfSuspended(t *testing.T) {
	w := newWorld()
	w.secrets(2, "shop", "bank")
	r := w.route("shop", "web", 1, "a.shop.example.com")
	w.certificate("shop", r, "x1", "b.shop.example.com")
	w.step(t)
	w.Clusters["shop"].Tenant.Spec.Suspended = true
	r.Spec.TLS = nil
	w.certificate("shop", r, "x2", "a.shop.example.com", "b.shop.example.com")
	if out := w.step(t); judged(&out, "shop", "web") != "true Accepted" || w.uses("shop", "web") != "x2" {
		t.Errorf("renewed: %s, the Ingress names %q", judged(&out, "shop", "web"), w.uses("shop", "web"))
	}
	for i, name := range []string{"www.example.com", "*.shop.example.com"} {
		r.Spec.TLS = nil
		w.certificate("shop", r, fmt.Sprint("new", i), "a.shop.example.com", name)
		out := w.step(t)
		if got := judged(&out, "shop", "web"); got != "true Suspended the Tenant shop is suspended: what it has stays, and it gets nothing new, such as a certificate for "+name {
			t.Error(got)
		}
	}
	w.route("bank", "www", 2, "www.example.com")
	out := w.step(t)
	expect(t, says(&out), map[string]string{"shop/ingress.default.web": "Accepted", "bank/ingress.default.www": "Accepted"})
}

// TestCertificatesUnreadRenewed: what the engine has stays, while Secrets are not known, if the route names
// others for the same hosts, and nothing else does.
func TestCertificatesUnreadRenewed(t *testing.T) {
	for _, c := range []struct{ before, after, want string }{ // the Secrets of the entries; - is none of its agent
		{"1", "2", "1"},
		{"1 2", "3 4", "1 2"},
		{"1 2", "2 3", "2 1"},
		{"1", "2 3", "1 -"},
		{"1", "-", "-"},
		{"-", "2", "-"},
		{"- 1", "- 2", "- 1"},
	} {
		w := newWorld()
		w.secrets(9, "shop")
		r := w.route("shop", "web", 1, "a.shop.example.com")
		name := func(list string) {
			r.Spec.TLS = nil
			for _, secret := range strings.Fields(list) {
				if secret == "-" {
					r.Spec.TLS = append(r.Spec.TLS, v1alpha1.TenantTLS{Secret: "cert"})
				} else {
					w.certificate("shop", r, v1alpha1.HubSecretPrefix+secret, "a.shop.example.com")
				}
			}
		}
		check := func(when, want string) {
			t.Helper()
			w.step(t)
			got := strings.NewReplacer(v1alpha1.HubSecretPrefix, "", SecretName("shop", "default", "cert"), "-").Replace(w.uses("shop", "web"))
			rest := strings.Count(want, "-") // they come last
			if want = strings.Join(strings.Fields(strings.ReplaceAll(want, "-", "")+strings.Repeat(" -", rest)), " "); got != want {
				t.Errorf("%q, then %q, %s: the Ingress names %q, want %q", c.before, c.after, when, got, want)
			}
		}
		name(c.before)
		check("before", c.before)
		name(c.after)
		all := w.Certificates
		w.Certificates = nil
		check("not known", c.want)
		w.Certificates = all
		check("known", c.after)
		w.Certificates = nil
		w.Clusters["shop"].Tenant.Spec.Limits.TLSSecrets = 0
		check("not allowed", strings.Repeat("- ", len(strings.Fields(c.after))-1)+"-")
	}
}

// TestCertificatesComeFirst: an engine that stops at a Secret which is not there has read those that are.
func TestCertificatesComeFirst(t *testing.T) {
	w := newWorld()
	w.secrets(9, "shop")
	r := w.route("shop", "web", 1, "a.shop.example.com", "b.shop.example.com", "c.shop.example.com")
	r.Spec.TLS = []v1alpha1.TenantTLS{
		{Hosts: []string{"a.shop.example.com"}, Secret: "none"}, {Hosts: []string{"b.shop.example.com"}},
		{Hosts: []string{"c.shop.example.com"}, Secret: "cert", HubSecret: v1alpha1.HubSecretPrefix + "1"},
	}
	w.Certificates["shop"][v1alpha1.HubSecretPrefix+"1"] = &Certificate{Names: []string{"c.shop.example.com"}}
	w.step(t)
	spec := w.Have[routeID("shop", r.TenantRoute)].Body["spec"].(map[string]any)
	if text, _ := json.Marshal(spec["tls"]); !strings.HasPrefix(string(text), `[{"hosts":["c.shop.example.com"],"secretName":"lbd-tls-1"},{"hosts":["a.shop.example.com"],"secretName":"s-`) ||
		!strings.HasSuffix(string(text), `{"hosts":["b.shop.example.com"]}]`) {
		t.Errorf("%s", text)
	}
}

// TestCertificatesUnreadByHosts: as above, with entries of other hosts.
func TestCertificatesUnreadByHosts(t *testing.T) {
	tls := func(host, secret, hubSecret string) v1alpha1.TenantTLS {
		if hubSecret != "" {
			hubSecret = v1alpha1.HubSecretPrefix + hubSecret
		}
		return v1alpha1.TenantTLS{Hosts: []string{host + ".shop.example.com"}, Secret: secret, HubSecret: hubSecret}
	}
	for want, c := range map[string]struct {
		after []v1alpha1.TenantTLS
		known bool
	}{
		"lbd-tls-1 lbd-tls-1": {after: []v1alpha1.TenantTLS{tls("b", "cert", "2"), tls("a", "cert", "2")}},
		"":                    {after: []v1alpha1.TenantTLS{tls("d", "", "2"), tls("c", "", "2")}}, // c had one that was not of an agent
		" ":                   {after: []v1alpha1.TenantTLS{tls("a", "", "2")}, known: true},
	} {
		w := newWorld()
		w.secrets(9, "shop")
		r := w.route("shop", "web", 1, "a.shop.example.com", "b.shop.example.com", "c.shop.example.com", "d.shop.example.com")
		r.Spec.TLS = []v1alpha1.TenantTLS{tls("a", "cert", "1"), tls("b", "cert", "1"), tls("c", "cert", "")}
		w.Certificates["shop"][v1alpha1.HubSecretPrefix+"1"] = &Certificate{Names: []string{"a.shop.example.com"}}
		w.step(t)
		if r.Spec.TLS = c.after; !c.known {
			w.Certificates = nil
		}
		if w.step(t); w.uses("shop", "web") != strings.TrimSpace(want) {
			t.Errorf("%v, known %v: the Ingress names %q, want %q", c.after, c.known, w.uses("shop", "web"), want)
		}
	}
}
