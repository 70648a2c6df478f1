package layer2

import (
	"slices"
	"testing"
	"testing/synctest"
	"time"

	"lbd.dev/lbd/internal/layer2/arp"
	"lbd.dev/lbd/internal/layer2/nd"
	"lbd.dev/lbd/internal/model"

	"net/netip"
)

// isQuestion tells whether a frame asks who has a VIP, and takes it away from nobody.
func isQuestion(frame []byte) bool {
	if p, ok := arp.Parse(frame); ok {
		return p.Probe()
	}
	m, ok := nd.Parse(frame)
	return ok && m.Probe()
}

// questions is how many there were so far.
func (h *harness) questions() (n int) {
	for _, e := range h.k.sent() {
		if isQuestion(e.frame) {
			n++
		}
	}
	return n
}

// announced are the times of the frames that asked nothing.
func (h *harness) announced() (at []time.Duration) {
	for _, e := range h.k.sent() {
		if !isQuestion(e.frame) {
			at = append(at, e.at)
		}
	}
	return at
}

// answering has another host answer each question for a VIP, as a kernel does.
func (h *harness) answering(by model.MAC, vip netip.Addr) {
	h.k.sending(func(frame []byte) error {
		if p, ok := arp.Parse(frame); ok && p.Probe() {
			go h.k.hear(arp.Reply(by, vip, p))
		} else if m, ok := nd.Parse(frame); ok && m.Probe() {
			go h.k.hear(nd.Reply(by, vip, false, m))
		}
		return nil
	})
}

// TestQuietDuplicateIsFound: a host that answers for the VIP beside its owner, and never
// announces it, is known by its hardware address; and that it has stopped is known, too.
func TestQuietDuplicateIsFound(t *testing.T) {
	for name, vip := range map[string]netip.Addr{"ARP": vip4, "ND": vip6} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				h := newHarness(t)
				defer h.close()
				h.answering(rivalMAC, vip)
				h.apply(announceVIP(vip))
				time.Sleep(4100 * ms)
				if !h.changed() {
					t.Error("Changed did not fire")
				}
				if got := h.apply(announceVIP(vip))[vip]; got.Duplicate != rivalMAC || !got.Announcing || got.Conflicts == 0 {
					t.Fatalf("after a takeover: %+v", got)
				}
				h.k.sending(nil) // the other host lets go
				time.Sleep(20 * time.Second)
				if got := h.apply(announceVIP(vip))[vip]; got.Duplicate != (model.MAC{}) {
					t.Errorf("20 s after its end: %+v", got)
				}
				h.answering(otherHost, vip) // and another one comes much later
				time.Sleep(35 * time.Second)
				if got := h.apply(announceVIP(vip))[vip]; got.Duplicate != otherHost {
					t.Errorf("35 s after another came: %+v", got)
				}
			})
		})
	}
}

var otherHost = model.MAC{2, 0, 0, 0, 0, 0xdd}

// TestMarkStaysWithWhoAnswers: with IPVS and without strictARP each node answers for each VIP,
// in any order. The mark stays with one of them as long as that one answers, then goes to
// another, and nothing is told meanwhile.
func TestMarkStaysWithWhoAnswers(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		h := newHarness(t)
		defer h.close()
		answering := func(hosts ...model.MAC) {
			h.k.sending(func(frame []byte) error {
				if p, ok := arp.Parse(frame); ok && p.Probe() {
					answers := slices.Clone(hosts)
					hosts = append(hosts[1:], hosts[0])
					time.AfterFunc(200*ms, func() {
						for _, by := range answers {
							h.k.hear(arp.Reply(by, vip4, p))
						}
					})
				}
				return nil
			})
		}
		third := model.MAC{2, 0, 0, 0, 0, 0xde}
		answering(rivalMAC, otherHost, third)
		h.apply(announceVIP(vip4))
		time.Sleep(4300 * ms)
		for round := range 8 {
			if got := h.apply(announceVIP(vip4))[vip4].Duplicate; got != rivalMAC {
				t.Fatalf("round %d: the mark is with %s, want %s as before", round, got, rivalMAC)
			}
			time.Sleep(askAgain)
		}
		answering(otherHost, third)
		for range 200 {
			time.Sleep(100 * ms)
			if got := h.apply(announceVIP(vip4))[vip4].Duplicate; got == (model.MAC{}) {
				t.Fatal("nobody is marked while two others answer")
			}
		}
		if got := h.apply(announceVIP(vip4))[vip4].Duplicate; got == rivalMAC {
			t.Error("the mark is with a host that answers no more")
		}
	})
}

// TestManyMarksAreAskedForSeldom: each question for a marked VIP is answered by all who have
// it, so those of many VIPs are spread.
func TestManyMarksAreAskedForSeldom(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		h := newHarness(t)
		defer h.close()
		var want []model.L2Advert
		for a := vip4; len(want) < 500; a = a.Next() {
			want = append(want, announceVIP(a))
		}
		h.k.sending(func(frame []byte) error {
			if p, ok := arp.Parse(frame); ok && p.Probe() {
				go h.k.hear(arp.Reply(rivalMAC, p.TPA, p))
			}
			return nil
		})
		h.apply(want...)
		time.Sleep(5 * time.Second)
		for a, got := range h.apply(want...) {
			if got.Duplicate != rivalMAC {
				t.Fatalf("%s is not marked", a)
			}
		}
		time.Sleep(10 * time.Second)
		before := h.questions()
		time.Sleep(5 * time.Minute)
		if n, most := h.questions()-before, 11*len(want); n > most || n < 9*len(want) {
			t.Errorf("%d questions for %d VIPs in 5 minutes, want one each half minute", n, len(want))
		}
	})
}

// TestOwnerAsksSeldom: two questions a minute for each VIP, and none while a successor is
// told, whose answer would be taken for its announcement.
func TestOwnerAsksSeldom(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		h := newHarness(t)
		defer h.close()
		h.apply(announceVIP(vip4))
		time.Sleep(10 * time.Minute)
		if n := h.questions(); n < 19 || n > 21 {
			t.Errorf("%d questions in 10 minutes", n)
		}
		before := h.questions()
		yielding := announceVIP(vip4)
		yielding.Yield = true
		h.apply(yielding)
		time.Sleep(2 * time.Minute)
		if n := h.questions(); n != before {
			t.Errorf("%d questions while a successor is told", n-before)
		}
	})
}

// TestAnsweredQuestionIsExtended: a host that was asked for stays known without an Apply for
// each renewal of the decision, beside a VIP that is announced.
func TestAnsweredQuestionIsExtended(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		h := newHarness(t)
		defer h.close()
		want := []model.L2Advert{announceVIP(vip4), probeVIP(vip4b, 1)}
		h.apply(want...)
		if h.d.Extend(time.Now().Add(time.Hour)) {
			t.Error("extended while the question is out")
		}
		h.k.hear(gratuitous(rivalMAC, vip4b))
		if !h.d.Extend(time.Now().Add(time.Hour)) {
			t.Error("not extended after the answer")
		}
	})
}
