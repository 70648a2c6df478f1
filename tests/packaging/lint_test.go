package packaging

import (
	"testing"

	"helm.sh/helm/v3/pkg/lint"
	"helm.sh/helm/v3/pkg/lint/support"
)

// TestLint is `helm lint`.
func TestLint(t *testing.T) {
	for _, m := range lint.All(chart, nil, Namespace, true).Messages {
		if m.Severity > support.InfoSev {
			t.Error(m)
		}
	}
}
