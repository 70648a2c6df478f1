package routes

import (
	"fmt"
	"log/slog"
	"net/http"
	"strings"
	"testing"
	"time"
	"unicode/utf8"

	"lbd.dev/lbd/api/v1alpha1"
	"lbd.dev/lbd/internal/k8s"
	"lbd.dev/lbd/internal/k8s/apitest"
	"lbd.dev/lbd/internal/k8s/objects"
	"lbd.dev/lbd/internal/model"
	"lbd.dev/lbd/internal/tenants"
	"lbd.dev/lbd/internal/tenants/routes"
)

// bed is a writer with the API server that it writes to.
func bed(t *testing.T) (*apitest.Server, *writer) {
	t.Helper()
	api := apitest.New(t, map[string]string{"networking.k8s.io/v1/ingresses": "Ingress", "v1/services": "Service", "discovery.k8s.io/v1/endpointslices": "EndpointSlice"})
	c, err := k8s.NewFor(api.Config(), k8s.Options{QPS: 1000, Burst: 1000})
	if err != nil {
		t.Fatal(err)
	}
	k := New(Options{Logger: slog.New(slog.DiscardHandler), Client: c, Manager: "test", Valid: func() bool { return true }})
	return api, &writer{k: k, past: map[routes.ID]past{}}
}

// sent are the requests that changed something, in short.
func sent(api *apitest.Server) (list []string) {
	for _, r := range api.Requests() {
		if method, path, _ := strings.Cut(r, " "); method == http.MethodPatch || method == http.MethodDelete {
			path, _, _ = strings.Cut(path, "?")
			list = append(list, method+" "+path[strings.LastIndexByte(path, '/')+1:])
		}
	}
	return list
}

func ingress(name, host string) routes.Object {
	id := routes.ID{Kind: routes.KindIngress, Key: model.Key{Namespace: "shop", Name: name}}
	return routes.Object{ID: id, Body: map[string]any{"apiVersion": "networking.k8s.io/v1", "kind": "Ingress", "metadata": map[string]any{"name": name, "namespace": "shop"},
		"spec": map[string]any{"rules": []any{map[string]any{"host": host}}}}}
}

// TestWritesInTurn: what changes all the time is written once in a while, also if what was written has been
// seen in between.
func TestWritesInTurn(t *testing.T) {
	api, w := bed(t)
	began := time.Now()
	for i := range 20 {
		if next := w.write(t.Context(), &routes.Output{Writes: []routes.Object{ingress("web", fmt.Sprintf("a%d.example.com", i%2))}}); next > pause && i > 0 {
			t.Errorf("it looks again in %s", next)
		}
		w.write(t.Context(), &routes.Output{}) // it was seen
	}
	if n, most := len(sent(api)), 1+int(time.Since(began)/pause); n < 1 || n > most {
		t.Errorf("%d writes, at most %d: %q", n, most, sent(api))
	}
	w.write(t.Context(), &routes.Output{Writes: []routes.Object{ingress("more", "b.example.com")}})
	if list := sent(api); list[len(list)-1] != "PATCH more" {
		t.Errorf("another object waits: %q", list)
	}
}

// TestOrderOfWrites: an Ingress goes before another one comes, and a Service after all that leads to it. What
// has been made anew is not deleted.
func TestOrderOfWrites(t *testing.T) {
	api, w := bed(t)
	for name, res := range map[string]string{"old": "networking.k8s.io/v1/ingresses", "anew": "networking.k8s.io/v1/ingresses", "old-service": "v1/services"} {
		api.Put(res, map[string]any{"metadata": map[string]any{"namespace": "shop", "name": name, "uid": "uid-" + name}})
	}
	gone := func(kind, name, uid string) routes.Delete {
		return routes.Delete{ID: routes.ID{Kind: kind, Key: model.Key{Namespace: "shop", Name: name}}, UID: uid}
	}
	service := ingress("new-service", "")
	service.Kind, service.Body["apiVersion"], service.Body["kind"], service.Body["spec"] = routes.KindService, "v1", "Service", map[string]any{"type": "ClusterIP"}
	w.write(t.Context(), &routes.Output{
		Writes:  []routes.Object{service, ingress("new", "a.example.com")},
		Deletes: []routes.Delete{gone(routes.KindService, "old-service", "uid-old-service"), gone(routes.KindIngress, "old", "uid-old")},
	})
	if got := strings.Join(sent(api), ", "); got != "DELETE old, PATCH new-service, PATCH new, DELETE old-service" {
		t.Error(got)
	}
	w.write(t.Context(), &routes.Output{Deletes: []routes.Delete{gone(routes.KindIngress, "anew", "uid-before")}})
	if api.Get("networking.k8s.io/v1/ingresses", "shop", "anew") == nil {
		t.Error("a newer object is deleted")
	}
}

// TestMessagesAreBounded: whatever a tenant writes, a condition about it is short.
func TestMessagesAreBounded(t *testing.T) {
	_, w := bed(t)
	o := objects.Object[*v1alpha1.TenantRoute]{Value: new(v1alpha1.TenantRoute)}
	for range 100 {
		o.Errors = append(o.Errors, v1alpha1.FieldError{Path: "spec.annotations[" + strings.Repeat("\u00e4", 300) + "]", Rule: "is wrong"})
	}
	for _, out := range []*routes.Output{{}, {Verdicts: map[model.Key]tenants.Verdict{{}: {Reason: tenants.ReasonLimit, Message: strings.Repeat("\u00e4", 5000)}}}} {
		conditions, _ := w.status(model.Key{}, &o, out)
		for _, c := range conditions {
			if len(c.Message) > 1024 || !utf8.ValidString(c.Message) {
				t.Errorf("%d bytes: %q", len(c.Message), c.Message)
			}
		}
		if text := conditions[0].Message; len(text) < 1000 || !strings.HasSuffix(text, " ...") {
			t.Errorf("%q", text)
		}
		o.Errors = nil
	}
}
