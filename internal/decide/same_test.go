package decide

import (
	"testing"

	"lbd.dev/lbd/internal/fieldtest"
	"lbd.dev/lbd/internal/model"
	"lbd.dev/lbd/internal/place"
)

// TestSameLinks: of an interface that counts, each field does.
func TestSameLinks(t *testing.T) {
	fieldtest.Same(t, func(a, b *model.Link) bool {
		vips := []model.VIP{{Interfaces: []string{"eth0"}}}
		return place.SameLinks(vips, map[string]model.Link{"eth0": *a}, map[string]model.Link{"eth0": *b})
	})
}
