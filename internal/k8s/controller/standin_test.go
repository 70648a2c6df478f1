package controller

import (
	"testing"

	"lbd.dev/lbd/internal/allocator"
	"lbd.dev/lbd/internal/model"
)

// TestAddressEndsTheProblem: once an object gets an address nothing tells any more why it had none, also
// if it needs another one later.
func TestAddressEndsTheProblem(t *testing.T) {
	l := newLeader(build(t, hubAPI(t), "a"))
	key := model.Key{Namespace: "shop", Name: "default.web"}
	full := allocator.Event{Kind: "Service", Object: standInKey(l.c.tenants.kind(), key), Reason: allocator.EventFailed, Message: "the pool is full"}
	l.take(allocator.Result{Events: []allocator.Event{full}})
	if !l.c.tenants.troubled(key) {
		t.Fatal("nothing is known of the problem")
	}
	l.take(allocator.Result{Writes: []allocator.Write{{Service: full.Object, Ingress: []allocator.Ingress{{IP: "192.0.2.1"}}}}})
	if l.c.tenants.troubled(key) {
		t.Error("it has an address, and a problem still")
	}
}
