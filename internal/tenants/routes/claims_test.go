package routes

import (
	"fmt"
	"strings"
	"testing"

	"lbd.dev/lbd/api/v1alpha1"
	"lbd.dev/lbd/internal/tenants"
)

// TestWildcardBesideNames: a wildcard is compared with the names that others have below it, wherever it comes
// from.
func TestWildcardBesideNames(t *testing.T) {
	for what, ask := range map[string]func(w *world){
		"of a rule": func(w *world) { w.route("bank", "www", 2, "*.a.example.com") },
		"of a certificate": func(w *world) {
			w.certificate("bank", w.route("bank", "www", 2, "bank.example.com"), "x", "*.a.example.com")
		},
	} {
		w := newWorld()
		for _, name := range []string{"shop", "bank"} {
			w.tenant(name, "*.example.com")
		}
		w.secrets(2, "shop", "bank")
		w.route("shop", "web", 1, "x.a.example.com")
		w.step(t)
		ask(w)
		out := Step(&w.Input)
		if v := out.Verdicts[keyOf("shop", "web")]; v.Reason != tenants.ReasonAccepted {
			t.Errorf("%s: who had the name has it no more: %v", what, v)
		}
		v := out.Verdicts[keyOf("bank", "www")]
		if of, is := out.Certificates[keyOf("bank", "www")]; is {
			v = of
		}
		if v.Reason != ReasonTaken {
			t.Errorf("%s: %v", what, v)
		}
	}
}

// TestWildcardOfIngress: a wildcard that only an Ingress of the hub has keeps others from names below it.
func TestWildcardOfIngress(t *testing.T) {
	w := newWorld()
	w.route("bank", "all", 1, "*.bank.example.com")
	w.step(t)
	clear(w.Routes)
	w.tenant("bank", "other.example.com")
	w.tenant("shop", "x.bank.example.com")
	w.route("shop", "web", 2, "x.bank.example.com")
	out := Step(&w.Input)
	if v := out.Verdicts[keyOf("shop", "web")]; v.Reason != ReasonTaken {
		t.Error(v)
	}
	out = w.step(t)
	expect(t, says(&out), map[string]string{"shop/ingress.default.web": "Accepted"})
}

// TestWildcardOfUnknown: while HTTPRoutes are not known, a wildcard keeps others from names below it that only a
// route had, and so does one that only a Tenant may have.
func TestWildcardOfUnknown(t *testing.T) {
	for what, change := range map[string]func(*world, *Route){
		"had": func(w *world, r *Route) {
			r.Spec.HTTP.Hostnames, w.Clusters["shop"].Tenant.Spec.Hostnames = []string{"www.shop.example.com"}, nil
		},
		"may have": func(w *world, _ *Route) { clear(w.Routes) },
	} {
		w := newWorld()
		w.tenant("shop", "*.shop.example.com")
		w.tenant("bank", "x.shop.example.com")
		r := w.httpRoute("shop", "web", 1, "*.shop.example.com")
		w.step(t)
		w.unread()
		change(w, r)
		w.route("bank", "x", 0, "x.shop.example.com")
		out := Step(&w.Input)
		if v := out.Verdicts[keyOf("bank", "x")]; v.Reason != ReasonTaken && v.Reason != ReasonUnknown {
			t.Errorf("what shop %s: %v", what, v)
		}
	}
}

// TestLongHostnames: a hostname costs much the same however many labels it has. Else one tenant keeps the
// routes of all waiting.
func TestLongHostnames(t *testing.T) {
	cost := func(labels int) float64 {
		w := newWorld()
		for i := range 10 {
			var hosts []string
			for k := range 50 {
				hosts = append(hosts, fmt.Sprintf("%sn%d.r%d.shop.example.com", strings.Repeat("a.", labels), k, i))
			}
			w.route("shop", fmt.Sprint(i), i, "a.shop.example.com").Spec.TLS = []v1alpha1.TenantTLS{{Hosts: hosts}}
		}
		w.step(t)
		return testing.AllocsPerRun(3, func() { Step(&w.Input) })
	}
	if short, long := cost(1), cost(100); long > 2*short {
		t.Errorf("%v allocations of short names, and %v of long ones", short, long)
	}
}
