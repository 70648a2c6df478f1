package config

import (
	"testing"

	"lbd.dev/lbd/internal/agree"
)

// TestEveryRuleHasWords: no rule between objects is broken in silence.
func TestEveryRuleHasWords(t *testing.T) {
	for rule := agree.AddressTwice; rule <= agree.NoUpstream; rule++ {
		if _, ok := words[rule]; ok == (rule >= agree.UnknownProfile && rule <= agree.UnknownCommunity) {
			t.Errorf("rule %d: words %v", rule, ok)
		}
	}
}
