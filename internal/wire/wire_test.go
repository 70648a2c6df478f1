package wire

import (
	"net/netip"
	"testing"
	"time"

	"lbd.dev/lbd/internal/model"
)

var (
	own  = netip.MustParsePrefix("10.0.0.11/24")
	b, c = netip.MustParseAddr("10.0.0.12"), netip.MustParseAddr("10.0.0.13")
	far  = netip.MustParseAddr("192.0.2.1")
)

// world is one node with an interface, and what it hears.
type world struct {
	*testing.T
	busy    bool // layer 2 puts no question
	mute    bool // gossip is not answered
	in      Input
	out     Output
	answers map[netip.Addr]bool
	asked   int // questions so far
	calls   int // decisions that asked the group who is there
}

func newWorld(t *testing.T, hosts ...netip.Addr) *world {
	w := &world{T: t, answers: map[netip.Addr]bool{b: true, c: true}}
	w.in = Input{Now: time.Unix(1000, 0), Hosts: hosts, Own: []netip.Prefix{own}, Results: map[netip.Addr]model.AppliedVIP{}}
	return w
}

// run lets time pass; layer 2 knows after 200 ms that nobody answers.
func (w *world) run(d time.Duration) {
	w.Helper()
	for end := w.in.Now.Add(d); w.in.Now.Before(end); w.in.Now = w.in.Now.Add(10 * time.Millisecond) {
		w.in.Gen++
		w.out = Step(&w.in)
		m := w.out.Memory
		w.in.Memory = m
		if again := Step(&w.in); !again.Memory.Same(&m) {
			w.Fatalf("a second step changes %+v into %+v", m, again.Memory)
		}
		if w.out.Ask && !w.mute { // who is alive answers
			for i := range w.in.Others {
				w.in.Others[i].Heard = w.in.Now
			}
		}
		if w.out.Ask {
			w.calls++
		}
		for _, a := range m.Asked {
			if w.busy {
				break
			}
			if r := w.in.Results[a].Probe; r.Series == m.Series || !w.answers[a] && w.in.Now.Sub(m.At) < 200*time.Millisecond {
				continue
			}
			w.in.Results[a] = model.AppliedVIP{Probe: model.ProbeResult{Series: m.Series, Done: true, Answered: w.answers[a], At: w.in.Now}}
			w.asked++
		}
	}
}

// dark has nobody answer any more.
func (w *world) dark() { clear(w.answers) }

func (w *world) want(s State) {
	w.Helper()
	if w.out.State != s {
		w.Errorf("state %d, want %d: %+v", w.out.State, s, w.out)
	}
}

func hears(all ...netip.Addr) Other { return Other{Hears: all} }

// TestQuestions: while somebody answers, one host is asked twelve times a minute, and it is
// the same one.
func TestQuestions(t *testing.T) {
	w := newWorld(t, b, c)
	w.run(time.Second)
	w.asked = 0
	w.run(time.Minute)
	w.want(Lit)
	if w.asked != 12 {
		t.Errorf("%d questions in a minute", w.asked)
	}
	if w.out.Memory.By != b || w.out.Hushed || w.out.Ask {
		t.Errorf("%+v", w.out)
	}
}

// TestHostThatDoesNotAnswer: one host that answers no ARP is no cause for anything, be it
// the first that is asked, or the only one.
func TestHostThatDoesNotAnswer(t *testing.T) {
	w := newWorld(t, b, c)
	w.answers[b] = false
	w.run(10 * time.Second)
	w.want(Lit)
	w = newWorld(t, b)
	w.answers[b] = false
	w.in.Others = []Other{hears(own.Addr())} // it hears this node all the same
	w.run(10 * time.Minute)
	w.want(Unknown)
	if w.out.Pending || w.out.Hushed {
		t.Errorf("it holds up a move: %+v", w.out)
	}
}

// TestDarkOnlyBesideTheLight: the wire is dark only while others hear each other on that very
// network, and not this node, and give signs of life.
func TestDarkOnlyBesideTheLight(t *testing.T) {
	for name, x := range map[string]struct {
		others []Other
		want   State
	}{
		"others hear each other":  {[]Other{hears(c), hears(b)}, Dark},
		"a router hears one":      {[]Other{hears(netip.MustParseAddr("10.0.0.1"))}, Dark},
		"nobody hears anybody":    {[]Other{hears(), hears()}, Unknown},
		"of an older version":     {nil, Unknown},
		"on another network":      {[]Other{hears(far)}, Unknown},
		"one of them hears us":    {[]Other{hears(c), hears(own.Addr())}, Unknown},
		"another network as well": {[]Other{hears(far, c)}, Dark},
	} {
		t.Run(name, func(t *testing.T) {
			w := newWorld(t, b, c)
			w.run(6 * time.Second)
			w.want(Lit)
			w.in.Others = x.others
			w.dark()
			w.run(Every + 2*time.Second)
			w.want(x.want)
			w.run(time.Minute)
			w.want(x.want)
			w.answers[c] = true
			if x.want == Dark {
				w.run(2 * time.Second)
			} else { // where nobody hears anybody there is no hurry
				w.run(Every + time.Second)
			}
			w.want(Lit)
		})
	}
}

// TestCutOff: who is cut off from the group as well knows nothing of what others hear now, and
// their last words are no cause to give anything up.
func TestCutOff(t *testing.T) {
	w := newWorld(t, b, c)
	w.run(6 * time.Second)
	w.dark()
	w.in.Others = []Other{hears(c), hears(b)}
	for range 60 {
		for i := range w.in.Others {
			w.in.Others[i].Heard = time.Unix(900, 0) // it asks, and nobody answers
		}
		w.run(10 * time.Millisecond)
		w.in.Others[0].Heard, w.in.Others[1].Heard = time.Time{}, time.Time{}
		w.in.Now = w.in.Now.Add(500 * time.Millisecond)
		if w.out.State == Dark {
			t.Fatalf("dark: %+v", w.out)
		}
	}
}

// TestNetworkComesBack: after all were in the dark, those who hear each other first make
// nobody dark who is heard a moment later.
func TestNetworkComesBack(t *testing.T) {
	w := newWorld(t, b, c)
	w.run(6 * time.Second)
	w.dark()
	w.run(20 * time.Second)
	w.want(Unknown)
	w.in.Others = []Other{hears(c), hears(b)}
	w.answers[b] = true
	for range 300 {
		w.run(10 * time.Millisecond)
		if w.out.State == Dark {
			t.Fatal("dark although somebody answers")
		}
	}
	w.want(Lit)
}

// TestNobodyToAsk: a node alone on its network, or whose others are away, knows nothing and
// waits for nothing.
func TestNobodyToAsk(t *testing.T) {
	w := newWorld(t)
	w.in.Others = []Other{hears(c), hears(b)}
	w.in.Urgent = true
	w.run(time.Minute)
	w.want(Unknown)
	if w.out.Pending || w.out.Hushed || !w.out.Wake.IsZero() {
		t.Errorf("%+v", w.out)
	}
}

// TestUrgent: before a VIP comes all are asked at once, and it waits no longer than for their
// answer; where nobody answers any more it does not come from an owner that is well.
func TestUrgent(t *testing.T) {
	w := newWorld(t, b, c)
	w.in.Others = []Other{hears(c), hears(b)}
	w.run(3 * time.Second)
	if !w.out.Pending {
		t.Error("an answer of 3 s ago is good enough")
	}
	w.in.Urgent = true
	w.run(20 * time.Millisecond)
	if w.want(Lit); w.out.Pending || w.out.Hushed || len(w.out.Memory.Asked) != 2 || For(&w.out.Memory) != 0 {
		t.Errorf("%+v", w.out)
	}
	w.in.Urgent = false
	w.dark()
	w.run(time.Second)
	w.in.Urgent = true
	w.run(300 * time.Millisecond)
	if !w.out.Hushed {
		t.Errorf("a VIP may come: %+v", w.out)
	}
}

// TestSilentLikeTheOthers: where all fall silent together, a node whose own silence is new gets no
// VIP from an owner that takes itself for the only one in the dark. Later on it does: nobody is
// better.
func TestSilentLikeTheOthers(t *testing.T) {
	w := newWorld(t, b, c)
	w.run(6 * time.Second)
	w.dark()
	w.run(Every + 2*Lasts + 100*time.Millisecond)
	if w.want(Unknown); !w.out.Hushed {
		t.Error("it takes what comes though it hears nobody any more")
	}
	w.run(Verdict)
	if w.want(Unknown); w.out.Hushed {
		t.Error("it takes nothing though nobody hears anybody")
	}
}

// TestCannotAsk: questions that cannot be put, for want of carrier, say nothing.
func TestCannotAsk(t *testing.T) {
	w := newWorld(t, b, c)
	w.in.Others = []Other{hears(c), hears(b)}
	for range 1000 {
		w.in.Gen++
		w.out = Step(&w.in)
		w.in.Memory = w.out.Memory
		w.in.Now = w.in.Now.Add(20 * time.Millisecond)
		if w.out.State != Unknown || w.out.Ask {
			t.Fatalf("%+v", w.out)
		}
	}
}

// TestNearest: each node begins with another one, and who answered last goes first.
func TestNearest(t *testing.T) {
	all := []netip.Addr{c, far, b, netip.MustParseAddr("10.0.0.9"), netip.MustParseAddr("10.0.0.8")}
	for first, want := range map[netip.Addr]netip.Addr{{}: b, c: c, all[3]: all[3]} {
		var got []netip.Addr
		for _, a := range all {
			got = Nearest(got, a, own.Addr(), first)
		}
		if len(got) != Most || got[0] != want {
			t.Errorf("first %s: %s", first, got)
		}
	}
}

// TestQuestionThatIsNeverPut: a VIP that is about to come waits once for it, and not again
// before an answer came.
func TestQuestionThatIsNeverPut(t *testing.T) {
	w := newWorld(t, b, c)
	w.in.Urgent, w.busy = true, true
	pending := 0
	for range 6000 { // a minute
		w.run(10 * time.Millisecond)
		if w.out.Pending {
			pending++
		}
	}
	if pending > 100 {
		t.Errorf("a takeover is held up for %d of 60000 ms", 10*pending)
	}
	w.want(Unknown)
	w.busy = false
	w.run(Every)
	w.want(Lit)
	if w.out.Pending {
		t.Errorf("%+v", w.out)
	}
}

// TestAskedOnceThatIsPossible: a host whose first question could not be put, since its
// address was still probed, asks within a second of being able to.
func TestAskedOnceThatIsPossible(t *testing.T) {
	w := newWorld(t, b, c)
	w.busy = true
	w.run(Patience + 100*time.Millisecond)
	w.want(Unknown)
	w.busy = false
	w.run(Again)
	w.want(Lit)
}

// TestDarkWhileNobodyIsAsked: in a large group not all can be asked each time who is there.
// The wire stays dark until those who heard each other say otherwise, or are gone.
func TestDarkWhileNobodyIsAsked(t *testing.T) {
	for name, end := range map[string][]Other{"they hear us": {hears(own.Addr()), hears(b)}, "nor do they": {hears(), hears()}, "gone": nil} {
		t.Run(name, func(t *testing.T) {
			w := newWorld(t, b, c)
			w.in.Others = []Other{hears(c), hears(b)}
			w.run(6 * time.Second)
			w.dark()
			w.run(Every + 2*time.Second)
			w.want(Dark)
			w.mute = true
			for range 6000 {
				w.run(10 * time.Millisecond)
				if w.out.State != Dark || !w.out.Hushed {
					t.Fatalf("a VIP may come: %+v", w.out)
				}
			}
			w.busy = true // for one round of questions
			w.run(1500 * time.Millisecond)
			w.want(Dark)
			w.busy = false
			w.run(time.Second)
			w.in.Others = end
			w.run(20 * time.Millisecond)
			w.want(Unknown)
		})
	}
}

// TestHushedWhileOthersHear: nobody answers by gossip either, so the wire is not dark; but no
// VIP comes here from an owner that is well, for as long as that lasts.
func TestHushedWhileOthersHear(t *testing.T) {
	w := newWorld(t, b, c)
	w.in.Others = []Other{hears(c), hears(b)}
	w.run(6 * time.Second)
	w.dark()
	w.mute = true
	w.run(Every + time.Second)
	for range 3000 {
		w.run(10 * time.Millisecond)
		if w.out.State != Unknown || !w.out.Hushed {
			t.Fatalf("%+v", w.out)
		}
	}
}

// TestSilentNetworkIsLeftInPeace: where nobody hears anybody, or nobody is there to say so,
// there are twelve rounds of questions a minute, and no call to the group in between.
func TestSilentNetworkIsLeftInPeace(t *testing.T) {
	for name, x := range map[string]struct {
		others []Other
		calls  int
	}{
		"nobody hears":       {nil, 0},
		"one hears us":       {[]Other{hears(own.Addr())}, 0},
		"nobody says he did": {[]Other{hears(c), hears(b)}, 12 * 101}, // a second for each
	} {
		t.Run(name, func(t *testing.T) {
			w := newWorld(t, b, c)
			w.mute = true
			w.in.Others = x.others
			w.run(6 * time.Second)
			w.dark()
			w.run(20 * time.Second)
			w.asked, w.calls = 0, 0
			w.run(time.Minute)
			if w.asked > 2*13 || w.calls > x.calls {
				t.Errorf("%d questions and %d calls in a minute", w.asked, w.calls)
			}
		})
	}
}

// TestHostThatOthersHear: a node is not dark while a host that the others hear answers it,
// although none of those does that it asks as a rule.
func TestHostThatOthersHear(t *testing.T) {
	w := newWorld(t, b)
	w.in.Others = []Other{hears(c)}
	w.run(6 * time.Second)
	w.answers[b] = false
	w.in.Known = []netip.Addr{c}
	for range 3000 {
		w.run(10 * time.Millisecond)
		if w.out.State == Dark {
			t.Fatalf("dark: %+v", w.out)
		}
	}
	w.dark()
	w.run(Every + 2*time.Second)
	w.want(Dark)
}

// TestUrgentWaitsForItsQuestions: while the questions are out a VIP waits for the answers.
func TestUrgentWaitsForItsQuestions(t *testing.T) {
	w := newWorld(t, b, c)
	w.in.Others = []Other{hears(c), hears(b)}
	w.run(3 * time.Second)
	w.in.Urgent = true
	w.dark()
	for range 5 {
		if w.run(10 * time.Millisecond); !w.out.Pending {
			t.Fatalf("a VIP comes before anybody has answered: %+v", w.out)
		}
	}
}
