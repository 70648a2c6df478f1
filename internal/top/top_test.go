package top

import (
	"errors"
	"fmt"
	"slices"
	"strings"
	"testing"
	"time"
	"unicode/utf8"

	"lbd.dev/lbd/api/v1alpha1"
)

var noon = time.Date(2026, 11, 21, 12, 0, 0, 0, time.UTC)

// told is what a daemon with something of everything says.
func told() Told {
	s := v1alpha1.NodeStatus{
		Node: "m1", Version: "v0.1.0", Time: noon, Settled: true,
		Members: []v1alpha1.MemberStatus{{Name: "m2", Address: "10.0.0.12", State: "alive", Settled: true}, {Name: "m3", Address: "10.0.0.13", State: "dead"}},
		VIPs: []v1alpha1.VIPStatus{
			{Name: "control-plane", Kind: "VirtualIP", Address: "10.0.0.200", Mode: "l2", Owner: "m1", Reason: "Owner", Standing: "Owner", Bound: true, Announced: true, Since: noon.Add(-time.Minute)},
			{Name: "ingress", Kind: "VirtualIP", Address: "10.0.0.201", Mode: "l2", Owner: "m2", Reason: "Unhealthy", Standing: "Unhealthy", Detail: "connection refused", Since: noon},
			{Name: "box", Kind: "LoadBalancer", Address: "10.0.0.202", Mode: "l2", Owner: "m1", Reason: "Owner", Standing: "Owner", Announced: true, Since: noon},
		},
		Gossip: v1alpha1.GossipStatus{Absent: []string{"10.0.0.13"}},
		Health: []v1alpha1.HealthStatus{{Name: "ingress", State: "down", Detail: "connection refused", Since: noon}},
		BGP:    []v1alpha1.BGPStatus{{Peer: "tor1", Address: "10.0.0.1", State: "Active", Error: "no route", Since: noon}},
	}
	return Told{
		Status: s, At: noon,
		Events: []v1alpha1.Event{
			{Seq: 1, Time: noon.Add(-time.Second), Kind: v1alpha1.EventMember, Node: "m3", From: "alive", To: "dead"},
			{Seq: 2, Time: noon, Kind: v1alpha1.EventOwner, VIP: "ingress", Address: "10.0.0.201", From: "m1", To: "m2", Reason: "Unhealthy"},
		},
		Backends: []v1alpha1.Explanation{{Name: "box", Address: "10.0.0.202", Backends: []v1alpha1.BackendStatus{{Backend: "10.0.1.1", Weight: 100, Share: 1000, State: "in", Health: "up"}, {Backend: "10.0.1.2", Weight: 100, State: "out", Reason: "CheckFails", By: "m1", Health: "down", Detail: "refused"}}}},
	}
}

// after is the model after messages, in a terminal of 80 by 24.
func after(t *testing.T, messages ...any) (Model, Wish) {
	t.Helper()
	m, w := Model{}, Wish{}
	for _, msg := range append([]any{Resize{80, 24}, Tick(noon), told()}, messages...) {
		m, w = Update(m, msg)
		whole(t, m)
	}
	return m, w
}

// whole wants the screen filled, and no line wider than it.
func whole(t *testing.T, m Model) {
	t.Helper()
	lines := View(m)
	if len(lines) != m.Height {
		t.Fatalf("%d lines of %d", len(lines), m.Height)
	}
	for _, l := range lines {
		if utf8.RuneCountInString(l.Text) > m.Width || strings.ContainsFunc(l.Text, func(r rune) bool { return r < ' ' }) {
			t.Fatalf("%q is wider than %d, or moves the cursor", l.Text, m.Width)
		}
	}
}

func screen(m Model) string {
	var b strings.Builder
	for _, l := range View(m) {
		b.WriteString(l.Text + "\n")
	}
	return b.String()
}

// chosen are the lines with the cursor.
func chosen(m Model) (found []string) {
	for _, l := range View(m) {
		if l.Style == Chosen {
			found = append(found, l.Text)
		}
	}
	return found
}

// TestEverythingFits into 80 by 24: VIPs with owner, standing, since and reason, members, checks,
// sessions, backends and events, with a mark at what is worth a look.
func TestEverythingFits(t *testing.T) {
	m, _ := after(t)
	got := screen(m)
	for _, want := range []string{
		"lbd top: m1, lbd v0.1.0: settled; 2 of 3 nodes alive; 2 of 3 VIPs here", "! (1 of ",
		"  VIP         NAME           OWNER  HERE       STANDING   SINCE  REASON",
		"> 10.0.0.200  control-plane  m1     announced  Owner      60s    Owner",
		"! 10.0.0.201  ingress        m2     no         Unhealthy  0s     Unhealthy: co",
		"  MEMBER", "! m3", "! ingress", "! tor1", "! 10.0.1.2", "  EVENT", "12:00:00.000  owner   ingress  m1 -> m2: Unhealthy", footer,
	} {
		for m := m; !strings.Contains(screen(m), want); { // what is below is there after moving
			before := m.at
			if m, _ = Update(m, Key("j")); m.at == before {
				t.Errorf("%q is not in\n%s", want, got)
				break
			}
		}
	}
}

func TestMoves(t *testing.T) {
	m, _ := after(t)
	last := 0
	for range 20 {
		m, _ = Update(m, Key("down"))
		whole(t, m)
		if c := chosen(m); len(c) != 1 || !strings.HasPrefix(c[0], ">") {
			t.Fatalf("the cursor is on %q\n%s", c, screen(m))
		}
		last = m.at
	}
	if c := chosen(m); last != 8 || !strings.Contains(c[0], "10.0.1.2") {
		t.Errorf("at %d: %q", last, c)
	}
	for keys, want := range map[string]string{"g": "10.0.0.200", "g j": "10.0.0.201", "g j j k": "10.0.0.201", "G": "10.0.1.2", "home pgdown": "10.0.1.2", "end pgup": "10.0.0.200", "g k": "10.0.0.200"} {
		for k := range strings.FieldsSeq(keys) {
			m, _ = Update(m, Key(k))
		}
		if c := chosen(m); !strings.Contains(c[0], want) {
			t.Errorf("%s: %q, want %s", keys, c, want)
		}
	}
}

// TestCursorFollows its row when others come and go, and takes the next one when it goes away.
func TestCursorFollows(t *testing.T) {
	m, _ := after(t, Key("j"))
	news := told()
	news.Status.VIPs = slices.Insert(news.Status.VIPs, 0, v1alpha1.VIPStatus{Name: "new", Address: "10.0.0.100", Mode: "l2", Owner: "m2", Reason: "Standby"})
	if m, _ = Update(m, news); !strings.Contains(chosen(m)[0], "10.0.0.201") {
		t.Errorf("%q", chosen(m))
	}
	news.Status.VIPs = slices.Delete(slices.Clone(news.Status.VIPs), 2, 3)
	if m, _ = Update(m, news); !strings.Contains(chosen(m)[0], "10.0.0.202") {
		t.Errorf("%q", chosen(m))
	}
	if m, _ = Update(m, Told{At: noon}); len(chosen(m)) > 0 || !strings.Contains(screen(m), "knows no VIP") {
		t.Errorf("%s", screen(m))
	}
	for _, k := range []Key{"j", "k", "enter", "G"} {
		m, _ = Update(m, k)
		whole(t, m)
	}
}

func TestFilter(t *testing.T) {
	m, w := after(t, Key("/"), Key("I"), Key("n"), Key("q"), Key("backspace"), Key("g"))
	if got := screen(m); w.Quit || !strings.Contains(got, "filter: Ing_") || strings.Contains(got, "10.0.0.200") || !strings.Contains(got, "10.0.0.201") || strings.Contains(got, "m3 ") {
		t.Errorf("%v\n%s", w, got)
	}
	m, _ = Update(m, Key("enter"))
	if got := screen(m); !strings.Contains(got, "filter: Ing  (Esc shows all)") || strings.Contains(got, "10.0.0.200") {
		t.Errorf("%s", got)
	}
	if _, w = Update(m, Key("enter")); w.Explain != "10.0.0.201" {
		t.Errorf("%v", w)
	}
	m, _ = Update(m, Key("esc"))
	if got := screen(m); !strings.Contains(got, "10.0.0.200") {
		t.Errorf("%s", got)
	}
	m, _ = after(t, Key("/"), Key("z"), Key("z"))
	if got := screen(m); !strings.Contains(got, "Nothing has this text") {
		t.Errorf("%s", got)
	}
	if m, _ = Update(m, Key("esc")); !strings.Contains(screen(m), footer) || !strings.Contains(screen(m), "10.0.0.200") {
		t.Errorf("%s", screen(m))
	}
	if _, w = after(t, Key("/"), Key("ctrl+c")); !w.Quit {
		t.Error("ctrl+c types")
	}
}

func TestExplains(t *testing.T) {
	m, w := after(t, Key("j"), Key("enter"))
	if w.Explain != "10.0.0.201" || !strings.Contains(screen(m), "Asking the daemon") {
		t.Fatalf("%v\n%s", w, screen(m))
	}
	long := v1alpha1.Explanation{Address: "10.0.0.201", Name: "ingress", Node: "m1", Owner: "m2", Reason: "Unhealthy"}
	for i := range 40 {
		long.Story = append(long.Story, fmt.Sprintf("step %d of many that led here, and this one is longer than eighty columns can have", i))
	}
	m, _ = Update(m, Explained{VIP: "10.0.0.99", Err: errors.New("of another")})
	m, _ = Update(m, Explained{VIP: "10.0.0.201", List: []v1alpha1.Explanation{long}})
	whole(t, m)
	if got := screen(m); !strings.Contains(got, "10.0.0.201 (ingress), as m1 sees it") || strings.Contains(got, "of another") || !strings.Contains(got, "Esc back") {
		t.Errorf("%s", got)
	}
	if m, w = Update(m, told()); w.Explain != "10.0.0.201" {
		t.Errorf("it is not asked for again: %v", w)
	}
	m, _ = Update(m, Key("G"))
	if got := screen(m); !strings.Contains(got, "step 39") || strings.Contains(got, "as m1 sees it") {
		t.Errorf("%s", got)
	}
	m, _ = Update(m, Explained{VIP: "10.0.0.201", Err: errors.New("gone\x1b[2J")})
	whole(t, m)
	m, _ = Update(m, Key("esc"))
	if !strings.Contains(screen(m), footer) || !strings.Contains(chosen(m)[0], "10.0.0.201") {
		t.Errorf("%s", screen(m))
	}
	m, w = after(t, Key("j"), Key("j"), Key("j"), Key("enter"))
	if w.Explain != "" || !strings.Contains(screen(m), "Only VIPs and backends") {
		t.Errorf("%v\n%s", w, screen(m))
	}
	if _, w = after(t, Key("G"), Key("enter")); w.Explain != "10.0.0.202" {
		t.Errorf("a backend: %v", w)
	}
}

func TestHelpAndQuit(t *testing.T) {
	m, _ := after(t, Key("?"))
	if !strings.Contains(screen(m), "explain the VIP") {
		t.Errorf("%s", screen(m))
	}
	for _, line := range help {
		if utf8.RuneCountInString(line) > 80 {
			t.Errorf("%q is wider than most terminals", line)
		}
	}
	if m, _ = Update(m, Key("?")); !strings.Contains(screen(m), footer) {
		t.Errorf("%s", screen(m))
	}
	for _, keys := range [][]any{{Key("q")}, {Key("ctrl+c")}, {Key("?"), Key("q")}, {Key("enter"), Key("q")}} {
		if _, w := after(t, keys...); !w.Quit {
			t.Errorf("%v goes on", keys)
		}
	}
}

// TestNoAnswerIsSaid: with its cause, its age, and what was known before; and again when there is
// one.
func TestNoAnswerIsSaid(t *testing.T) {
	m, _ := after(t, Told{Err: errors.New("daemon is not running\x1b"), At: noon.Add(7 * time.Second)})
	if got := screen(m); !strings.Contains(got, "! no answer for 7s, all below is as old; asking again: daemon is not running") || !strings.Contains(got, "10.0.0.200") {
		t.Errorf("%s", got)
	}
	if m, _ = Update(m, told()); strings.Contains(screen(m), "no answer") {
		t.Errorf("%s", screen(m))
	}
	if m, _ = Update(m, Tick(noon.Add(4*time.Second))); !strings.Contains(screen(m), "! no answer for 4s") {
		t.Errorf("one that hangs:\n%s", screen(m))
	}
	m, _ = Update(Model{}, Resize{80, 24})
	m, _ = Update(m, Tick(noon))
	if got := screen(m); !strings.Contains(got, "asking the daemon") || strings.Contains(got, "!") {
		t.Errorf("%s", got)
	}
	m, _ = Update(m, Told{Err: errors.New("daemon is not running"), At: noon})
	if got := screen(m); !strings.Contains(got, "! no answer; asking again: daemon is not running") {
		t.Errorf("%s", got)
	}
}

// TestServices: where connections to Services are reset the screen says so, unless there is a problem.
func TestServices(t *testing.T) {
	const line = "Services: a move of an address resets open connections: kube-proxy is in IPVS"
	reset := told()
	reset.Status.ServiceConnections = &v1alpha1.ServiceConnectionsStatus{Reason: "kube-proxy is in IPVS mode"}
	m, _ := after(t, reset)
	if strings.Contains(screen(m), line) {
		t.Errorf("in place of a problem:\n%s", screen(m))
	}
	reset.Status.Gossip.Absent, reset.Status.BGP, reset.Status.VIPs, reset.Status.Health, reset.Status.Members = nil, nil, nil, nil, nil
	if m, _ = after(t, reset); !strings.Contains(screen(m), line) {
		t.Errorf("not in\n%s", screen(m))
	}
}

// TestAnySize fits, also with many VIPs, long names and wide letters.
func TestAnySize(t *testing.T) {
	many := told()
	for i := range 300 {
		many.Status.VIPs = append(many.Status.VIPs, v1alpha1.VIPStatus{Name: strings.Repeat("名", 30), Address: fmt.Sprintf("2001:db8:1111:2222:3333:4444:5555:%x", i), Mode: "l2", Reason: "Conflict", Detail: strings.Repeat("x\n\x1b[2J", 90)})
	}
	m, _ := after(t, many)
	for _, h := range []int{0, 1, 5, 6, 7, 11, 12, 24, 50, 200} {
		for _, w := range []int{0, 1, 19, 20, 21, 40, 80, 300} {
			m, _ = Update(m, Resize{w, h})
			for _, k := range []Key{"G", "k", "enter", "esc", "?", "pgdown", "?", "g"} {
				m, _ = Update(m, k)
				whole(t, m)
			}
			if h >= 7 && w >= 20 && len(chosen(m)) != 1 {
				t.Fatalf("%d by %d: no cursor in\n%s", w, h, screen(m))
			}
		}
	}
}

// TestColourIsNeverAlone: without colours the same text, marks and all, and no sequence but those
// that place it.
func TestColourIsNeverAlone(t *testing.T) {
	m, _ := after(t)
	lines := View(m)
	bare, coloured := frame(lines, false), frame(lines, true)
	if strings.Contains(bare, "\x1b[0m") || strings.Contains(bare, "\x1b[7m") || strings.Contains(bare, "\x1b[33m") || !strings.Contains(coloured, "\x1b[33m! ") || !strings.Contains(coloured, "\x1b[7m>") {
		t.Errorf("%q\n%q", bare, coloured)
	}
	for _, sgr := range []string{"\x1b[0m", "\x1b[1m", "\x1b[7m", "\x1b[33m"} {
		coloured = strings.ReplaceAll(coloured, sgr, "")
	}
	if bare != coloured {
		t.Errorf("%q\n%q", bare, coloured)
	}
	for _, l := range lines {
		if l.Style == Look && !strings.HasPrefix(l.Text, "!") || l.Style == Chosen && !strings.HasPrefix(l.Text, ">") {
			t.Errorf("%q has no mark", l.Text)
		}
	}
}

func TestKeys(t *testing.T) {
	for in, want := range map[string]string{
		"q": "q", "\x1b[A\x1bOB": "up down", "jk": "j k", "\r": "enter", "\n": "enter", "\x7f": "backspace", "\x03": "ctrl+c", "\x1b": "esc", "\x1bq": "esc q",
		"\x1b[5~\x1b[6~": "pgup pgdown", "\x1b[1;5A": "", "\x1b[200~x": "x", "ü控": "ü 控", "\x00\x1a": "", "\xff": "", "\x1b[": "", "\x1bOPx": "x", "\x1b[Hg": "home g",
	} {
		for cut := range len(in) + 1 { // wherever a read ends
			first, rest := parseKeys([]byte(in[:cut]), false)
			more, rest := parseKeys(append(rest, in[cut:]...), false)
			last, rest := parseKeys(rest, true)
			var got []string
			for _, k := range slices.Concat(first, more, last) {
				got = append(got, string(k))
			}
			if strings.Join(got, " ") != want || len(rest) > 0 {
				t.Errorf("%q cut at %d: %q, rest %q, want %s", in, cut, got, rest, want)
			}
		}
	}
}
