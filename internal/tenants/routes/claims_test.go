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
