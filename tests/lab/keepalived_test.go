package lab_test

import (
	"testing"

	"lbd.dev/lbd/tests/lab"
)

// TestKeepalived proves the lab on a system whose figures are known.
func TestKeepalived(t *testing.T) {
	s := &lab.Keepalived{Advert: "0.1"}
	c := cluster(t, s, 3)
	for _, sc := range lab.Scenarios() {
		o, err := c.Run(t.Context(), sc, lab.VIP4())
		t.Logf("%s: %+v %v", sc.Name, o, err)
	}
}
