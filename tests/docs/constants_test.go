package docs

import (
	"fmt"
	"strings"
	"testing"
	"time"

	"lbd.dev/lbd/internal/address"
	"lbd.dev/lbd/internal/decide"
	"lbd.dev/lbd/internal/election"
	"lbd.dev/lbd/internal/membership"
	"lbd.dev/lbd/internal/model"
	"lbd.dev/lbd/internal/ring"
	"lbd.dev/lbd/internal/wire"
)

// timing are the constants that docs/election.md explains.
var timing = map[string]time.Duration{
	"election.Stagger":         election.Stagger,
	"election.FirstWord":       election.FirstWord,
	"election.FirstTurn":       election.FirstTurn,
	"election.FirstTurnMax":    election.FirstTurnMax,
	"election.DoubtFor":        election.DoubtFor,
	"election.DisputeFor":      election.DisputeFor,
	"election.DisputeLong":     election.DisputeLong,
	"election.DisputeGap":      election.DisputeGap,
	"election.HandoverTimeout": election.HandoverTimeout,
	"election.ClaimFollows":    election.ClaimFollows,
	"election.AskMin":          election.AskMin,
	"election.AskMax":          election.AskMax,
	"election.HeardWithin":     election.HeardWithin,
	"election.OutlivedWithin":  election.OutlivedWithin,
	"election.AskClose":        election.AskClose,
	"election.LeaseBefore":     election.LeaseBefore,
	"election.LeaseAfter":      election.LeaseAfter,
	"election.SilenceHolds":    election.SilenceHolds,
	"election.ConsentHolds":    election.ConsentHolds,
	"election.StaleWords":      election.StaleWords,
	"election.LingerMin":       election.LingerMin,
	"election.DriverPatience":  election.DriverPatience,
	"election.DriverPause":     election.DriverPause,
	"election.RetrySuccessor":  election.RetrySuccessor,
	"election.PreemptDelay":    election.PreemptDelay,
	"election.DegradedGrace":   election.DegradedGrace,
	"election.DegradedDrain":   election.DegradedDrain,
	"election.RelayFor":        election.RelayFor,
	"membership.SettleSome":    membership.SettleSome,
	"membership.SettleAlone":   membership.SettleAlone,
	"ring.Probe":               ring.Probe,
	"ring.ProbeAgain":          ring.ProbeAgain,
	"decide.Grace":             decide.Grace,
	"wire.Every":               wire.Every,
	"wire.Again":               wire.Again,
	"wire.Lasts":               wire.Lasts,
	"wire.Fresh":               wire.Fresh,
	"wire.Patience":            wire.Patience,
	"wire.Verdict":             wire.Verdict,
	"wire.WitnessHolds":        wire.WitnessHolds,
	"model.StallLimit":         model.StallLimit,
	"model.ResumeLimit":        model.ResumeLimit,
	"address.Lifetime":         address.Lifetime,
}

func TestConstants(t *testing.T) {
	var got, want []string
	for name := range timing {
		want = append(want, name)
	}
	p := readPage(t, "docs/election.md")
	for _, row := range p.rows("Constants") {
		name := strings.Trim(row[0], "`")
		got = append(got, name)
		if d, ok := timing[name]; ok && row[1] != d.String() {
			t.Errorf("docs/election.md: %s is %s, not %s", name, d, row[1])
		}
	}
	same(t, "docs/election.md", got, want)
	if election.RulesVersion != 2 || !strings.Contains(unbroken(p), "rules version 2") {
		t.Errorf("docs/election.md describes another version than %d", election.RulesVersion)
	}
}

// TestProse: the constants that the text names too are what they are there.
func TestProse(t *testing.T) {
	text := unbroken(readPage(t, "docs/election.md"))
	for _, say := range []string{
		"from " + spoken(election.LeaseBefore) + " before until " + spoken(election.LeaseAfter) + " after it the first successor asks every " + spoken(election.AskClose),
		"take turns by rank, " + spoken(election.Stagger) + " apart",
		"asks again after " + spoken(election.AskMin) + ", doubling to " + spoken(election.AskMax),
		"bind within " + spoken(election.SilenceHolds) + " of the silence",
		"The successor binds within " + spoken(election.ConsentHolds),
		"It stays bound for at least " + spoken(election.LingerMin),
		"No claim within " + spoken(election.HandoverTimeout),
		"A node waits, " + spoken(election.FirstWord) + " at most",
		spoken(election.FirstTurn) + " more for each other address that the node has yet to see an owner of, at most " + spoken(election.FirstTurnMax),
		"asks the wire for " + spoken(election.DoubtFor) + ", longer",
		"It is heard for " + spoken(election.DisputeFor) + ", never over " + spoken(election.DisputeGap) + " apart",
		"yields too, but only after " + spoken(election.DisputeLong),
	} {
		if !strings.Contains(text, say) {
			t.Errorf("docs/election.md does not say %q", say)
		}
	}
}

// unbroken is the text of a page on one line, since words are found wherever a line ends.
func unbroken(p page) string { return strings.Join(strings.Fields(p.text), " ") }

// spoken is a time as the pages write it.
func spoken(d time.Duration) string {
	if d < time.Second {
		return fmt.Sprintf("%d ms", d.Milliseconds())
	}
	return fmt.Sprintf("%g s", d.Seconds())
}

// TestConstantsAreAll finds an exported constant of time in the election that the
// page does not explain.
func TestConstantsAreAll(t *testing.T) {
	for _, name := range durations(t, "internal/election", "election") {
		if _, ok := timing[name]; !ok {
			t.Errorf("docs/election.md does not explain %s", name)
		}
	}
}
