package allocator

import "testing"

// TestAnnotationsThatCount: only these are kept of a Service, and a change of them is news.
func TestAnnotationsThatCount(t *testing.T) {
	want := map[string]bool{AllocatedFrom: true, "kubectl.kubernetes.io/last-applied-configuration": false, annotationPool: false}
	for _, prefix := range prefixes {
		for _, name := range []string{annotationIPs, annotationPool, annotationShare, annotationCount} {
			want[prefix+name] = true
		}
		want[prefix+"x"] = false
	}
	for key, counts := range want {
		if Relevant(key) != counts {
			t.Errorf("%s counts: %v", key, !counts)
		}
	}
}
