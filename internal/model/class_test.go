package model

import "testing"

// TestEachReasonHasAClass: a new reason has a row in the table, or nodes with that standing
// would keep what they should give up.
func TestEachReasonHasAClass(t *testing.T) {
	for _, r := range Reasons() {
		if c := r.Class(); c == 0 || c >= classCount {
			t.Errorf("reason %d, %q, has no class", r, r)
		}
		if got, known := ParseReason(r.String()); !known || got != r {
			t.Errorf("reason %d has the name %q, which is of reason %d, %v", r, r, got, known)
		}
	}
	if c := reasonCount.Class(); c != 0 || reasonCount.Look() || reasonCount.Eligible() {
		t.Errorf("what is no reason has the class %d", c)
	}
}

// TestClassesDiffer: a class that means what another one does is one too many, unless the
// policies ask for it by name.
func TestClassesDiffer(t *testing.T) {
	asked := map[Class]bool{ClassProgress: true, ClassRemoved: true}
	type meaning struct{ eligible, adopts, leaves, letsGo, planned bool }
	seen := map[meaning]Class{}
	used := map[Class]bool{}
	for _, r := range Reasons() {
		used[r.Class()] = true
		if r.Eligible() && (r.Leaves() || r.LetsGo()) {
			t.Errorf("%v may take what it would give up", r)
		}
	}
	for c := ClassProgress; c < classCount; c++ {
		if !used[c] {
			t.Errorf("class %d has no reason", c)
		}
		if x, twice := seen[meaning(classes[c])]; twice && !asked[c] && !asked[x] {
			t.Errorf("classes %d and %d mean the same", x, c)
		}
		seen[meaning(classes[c])] = c
	}
}

// What is bound and not advertised has one name, whatever it waits for.
func TestNamesOfPhases(t *testing.T) {
	for p, want := range []string{"idle", "binding", "advertised", "shutdown", "withdrawing", "lingering", "lingering", "lingering"} {
		if got := BGPPhase(p).String(); got != want {
			t.Errorf("phase %d is %q, want %q", p, got, want)
		}
	}
}
