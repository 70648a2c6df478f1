package controller

import (
	"net/netip"
	"strings"
	"testing"
	"unicode/utf8"

	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"

	"lbd.dev/lbd/api/v1alpha1"
)

// TestTextOfNodesIsBounded: a node that writes nonsense into its status neither fills the conditions of
// Services nor has them refused.
func TestTextOfNodesIsBounded(t *testing.T) {
	read := func(vips ...v1alpha1.VIPStatus) v1alpha1.Condition {
		api := newAnnouncedAPI(t)
		says(api, "x", 0, vips...)
		s, ok := convertSight(&unstructured.Unstructured{Object: api.Get(nodeStatuses, "", "x")})
		if !ok {
			t.Fatal("not read")
		}
		return announcement("default/web", []netip.Addr{netip.MustParseAddr("192.0.2.1")}, newTellings(map[string]sight{"n1": s}), "")
	}
	c := read(vip("web", "192.0.2.1", why("Unhealthy", "\x1b[31mred\n"+strings.Repeat("\u00e4", 100_000))))
	if c.Reason != "Unhealthy" || len(c.Message) > 1024 || !utf8.ValidString(c.Message) || !strings.HasSuffix(c.Message, " ...") || strings.ContainsAny(c.Message, "\x1b\n") {
		t.Errorf("%s, %d bytes: %.200q", c.Reason, len(c.Message), c.Message)
	}
	for _, reason := range []string{"", "not a reason", strings.Repeat("x", 2000), "a\nb"} {
		if c := read(vip("web", "192.0.2.1", why(reason, ""))); c.Reason != reasonNotListed {
			t.Errorf("%.20q: %+.200v", reason, c)
		}
	}
}
