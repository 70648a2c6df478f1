package controller

import (
	"fmt"
	"net/http"
	"strings"
	"testing"
	"time"

	"lbd.dev/lbd/internal/k8s/lease"
	"lbd.dev/lbd/internal/model"
)

// TestSlowAPIDoesNotKillTheLeader: a leader that looks for Services which the list had
// and the watch has not goes on turning while the API server answers none of its
// questions. One after the other they took 5 s each, and the liveness probe fails when
// the loop stands still for a minute.
func TestSlowAPIDoesNotKillTheLeader(t *testing.T) {
	t.Parallel()
	api := newAPI(t)
	release := make(chan struct{})
	t.Cleanup(func() { close(release) })
	api.Gate(func(r *http.Request) int {
		if r.Method == http.MethodGet && strings.Contains(r.URL.Path, "/services/") {
			select {
			case <-release:
			case <-r.Context().Done():
			}
		}
		return 0
	})
	l := newLeader(build(t, api, "a"))
	begun := time.Now()
	for i := range 20 {
		l.ghosts[model.Key{Namespace: "default", Name: fmt.Sprintf("s%d", i)}] = begun
	}
	l.hunt(t.Context(), begun)
	if took := time.Since(begun); took > 2*lease.RequestTimeout {
		t.Errorf("the loop stood still for %v", took)
	}
	if n := len(l.ghosts); n != 20 {
		t.Errorf("%d are looked for, want 20: no answer says nothing", n)
	}
}

// TestHuntEnds: what is really gone is forgotten, however many that are.
func TestHuntEnds(t *testing.T) {
	api := newAPI(t)
	l := newLeader(build(t, api, "a"))
	now := time.Now()
	for i := range 2*maxWrites + 1 {
		l.ghosts[model.Key{Namespace: "default", Name: fmt.Sprintf("s%d", i)}] = now
	}
	for range 3 {
		l.hunt(t.Context(), now)
	}
	if n := len(l.ghosts); n != 0 {
		t.Errorf("%d are still looked for", n)
	}
}
