package k8s_test

import (
	"encoding/json"
	"io"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/serializer"
	"k8s.io/client-go/rest"

	"lbd.dev/lbd/internal/k8s"
)

// TestCreateSecret: the first call makes it, the second leaves it, and neither asks
// for more than to create.
func TestCreateSecret(t *testing.T) {
	var calls []string
	var stored *corev1.Secret
	code := http.StatusCreated
	s := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		calls = append(calls, r.Method+" "+r.URL.Path)
		answer := metav1.Status{TypeMeta: metav1.TypeMeta{Kind: "Status", APIVersion: "v1"}, Status: metav1.StatusFailure, Code: int32(code)}
		switch {
		case code == http.StatusForbidden:
			answer.Reason, answer.Message = metav1.StatusReasonForbidden, "not you"
		case stored != nil:
			answer.Reason, answer.Code = metav1.StatusReasonAlreadyExists, http.StatusConflict
		default:
			body, _ := io.ReadAll(r.Body)
			stored = &corev1.Secret{}
			if err := runtime.DecodeInto(serializer.NewCodecFactory(k8s.Scheme).UniversalDeserializer(), body, stored); err != nil {
				t.Error(err)
			}
			answer.Status = metav1.StatusSuccess
		}
		w.Header().Set("Content-Type", "application/json")
		w.WriteHeader(int(answer.Code))
		_ = json.NewEncoder(w).Encode(answer)
	}))
	defer s.Close()
	c, err := k8s.NewFor(&rest.Config{Host: s.URL}, k8s.Options{UserAgent: "lbd-test"})
	if err != nil {
		t.Fatal(err)
	}
	for i, want := range []bool{true, false} {
		created, err := c.CreateSecret(t.Context(), "ns", "key", "gossip.key", []byte{byte('a' + i)})
		if err != nil || created != want {
			t.Errorf("call %d: %v, %v", i, created, err)
		}
	}
	if stored == nil || stored.Name != "key" || string(stored.Data["gossip.key"]) != "a" || stored.Type != corev1.SecretTypeOpaque {
		t.Errorf("stored %v", stored)
	}
	code = http.StatusForbidden
	if created, err := c.CreateSecret(t.Context(), "ns", "key", "gossip.key", nil); err == nil || created || !strings.Contains(err.Error(), "Secret ns/key: not you") {
		t.Errorf("forbidden: %v, %v", created, err)
	}
	for _, call := range calls {
		if call != "POST /api/v1/namespaces/ns/secrets" {
			t.Errorf("asked for %s", call)
		}
	}
}
