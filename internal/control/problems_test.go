package control

import (
	"bytes"
	"slices"
	"strings"
	"testing"
	"time"

	"lbd.dev/lbd/api/v1alpha1"
	"lbd.dev/lbd/internal/model"
)

// marked returns the lines with "!" of a status, each unwrapped.
func marked(t *testing.T, s v1alpha1.NodeStatus) []string {
	t.Helper()
	var out bytes.Buffer
	if err := RenderStatus(&out, s, false); err != nil {
		t.Fatal(err)
	}
	var found []string
	head, _, _ := strings.Cut(out.String(), "\n\n")
	for line := range strings.Lines(head) {
		text := strings.TrimSpace(line)
		if rest, ok := strings.CutPrefix(text, "! "); ok {
			found = append(found, rest)
		} else if len(found) > 0 {
			found[len(found)-1] += " " + text
		}
	}
	return found
}

// TestNothingIsMarkedWithoutNeed keeps the marked lines worth reading.
func TestNothingIsMarkedWithoutNeed(t *testing.T) {
	s := calm()
	s.VIPs = append(s.VIPs, v1alpha1.VIPStatus{Name: "b", Address: "10.0.0.9", Mode: "bgp", Reason: "Advertised"}) // has no owner
	s.BGP = []v1alpha1.BGPStatus{{Peer: "tor1", State: "Established"}}
	s.Members[1].State, s.Members[1].Late = "dead", "7s" // it had a line of its own while it was overdue
	if got := marked(t, s); len(got) != 0 {
		t.Errorf("marked: %q", got)
	}
}

func TestOwnerlessIsMarked(t *testing.T) {
	for _, tt := range []struct {
		reason, detail string
		settled        bool
		want           string
	}{
		{"Probing", "", true, "10.0.0.200: nobody is known to own it; this node is asking the network whether the address is really free"},
		{"Standby", "", true, "10.0.0.200: nobody is known to own it; this node is ready to take it"},
		{"Unhealthy", "refused", true, "10.0.0.200: nobody is known to own it; the health check of the service fails on this node: refused"},
		{"NotSettled", "", false, ""}, // for the first 3 s
	} {
		s := calm()
		s.Settled = tt.settled
		s.VIPs = s.VIPs[:1]
		s.VIPs[0].Owner, s.VIPs[0].Reason, s.VIPs[0].Detail = "", tt.reason, tt.detail
		if got := strings.Join(marked(t, s), "|"); got != tt.want {
			t.Errorf("%s:\n got %s\nwant %s", tt.reason, got, tt.want)
		}
	}
}

// TestReasonsThatNeedAPersonAreMarked goes by the reason alone: the VIP may be
// well on another node.
func TestReasonsThatNeedAPersonAreMarked(t *testing.T) {
	look := 0
	for _, reason := range model.Reasons() {
		s := calm()
		s.VIPs = s.VIPs[:1]
		s.VIPs[0].Owner, s.VIPs[0].Reason = "m2", reason.String()
		got := marked(t, s)
		if (len(got) == 1) != reason.Look() {
			t.Errorf("%v: marked %q, want a line %v", reason, got, reason.Look())
		}
		if reason.Look() {
			look++
		}
	}
	for _, r := range []model.Reason{model.ReasonConflict, model.ReasonNoSuccessor, model.ReasonLinkDown} {
		if !r.Look() {
			t.Errorf("%v needs nobody", r)
		}
	}
	if look == len(model.Reasons()) {
		t.Error("every reason needs a person")
	}
}

func TestBGPSessionThatIsDownIsMarked(t *testing.T) {
	s := calm()
	s.BGP = []v1alpha1.BGPStatus{{Peer: "tor1", State: "Established"}, {Peer: "tor2", State: "Active"}}
	want := "BGP session with tor2 is Active; `lbd status bgp` says why"
	if got := strings.Join(marked(t, s), "|"); got != want {
		t.Errorf("got %s\nwant %s", got, want)
	}
}

// TestErrorsOfGossipAndTheLogAreMarked: neither stops a node, so nobody would look for them.
func TestErrorsOfGossipAndTheLogAreMarked(t *testing.T) {
	s := calm()
	s.Gossip.Error = "it has ended:\nno such device"
	s.Drivers = []v1alpha1.DriverStatus{{Name: "layer2"}, {Name: "log", Error: "nobody takes its lines"}}
	want := []string{"gossip: it has ended:; no such device", "log: nobody takes its lines"}
	if got := marked(t, s); !slices.Equal(got, want) {
		t.Errorf("marked: %q, want %q", got, want)
	}
}

func TestOverdueHeartbeatsAreMarked(t *testing.T) {
	s := calm()
	s.Members[0].Late = "2.1s"
	want := "heartbeats of m2 are overdue for 2.1s: its host or its link is down, or its daemon stands still"
	if got := strings.Join(marked(t, s), "|"); got != want {
		t.Errorf("got %s\nwant %s", got, want)
	}
}

func TestMismatchWithoutSender(t *testing.T) {
	s := calm()
	s.Gossip = v1alpha1.GossipStatus{KeyMismatches: 2, LastMismatchAt: ago(time.Second)}
	want := "2 gossip packets could not be decrypted, the last 1s ago: compare the key files of the nodes"
	if got := strings.Join(marked(t, s), "|"); got != want {
		t.Errorf("got %s\nwant %s", got, want)
	}
}

func TestNameConflictBlamesTheRightNode(t *testing.T) {
	for _, tt := range []struct {
		name, want string
		age        time.Duration
	}{
		{"m1", "another host at 10.0.0.98:7947 uses the name of this node, m1, heard 3s ago: give one of them another nodeName", 3 * time.Second},
		{"m3", "a host at 10.0.0.98:7947 uses the name m3 of the member at 10.0.0.13, heard 50s ago: give one of them another nodeName", 50 * time.Second},
		{"m9", "a host at 10.0.0.98:7947 uses the name m9 of a member, heard 0s ago: give one of them another nodeName", 0},
		{"m3", "", 90 * time.Second},
	} {
		s := calm()
		s.Gossip = v1alpha1.GossipStatus{NameConflicts: 4, LastConflictName: tt.name, LastConflictFrom: "10.0.0.98:7947", LastConflictAt: ago(tt.age)}
		if got := strings.Join(marked(t, s), "|"); got != tt.want {
			t.Errorf("%s, %v:\n got %s\nwant %s", tt.name, tt.age, got, tt.want)
		}
	}
}

func TestProblemsOfTheCluster(t *testing.T) {
	now := time.Date(2026, 1, 2, 3, 4, 5, 0, time.UTC)
	for _, c := range []struct {
		name string
		k    *v1alpha1.KubernetesStatus
		want []string
	}{
		{"none is served", nil, nil},
		{"all is well", &v1alpha1.KubernetesStatus{Connected: true, Synced: true, LastError: "of yesterday"}, nil},
		{"an outage", &v1alpha1.KubernetesStatus{Synced: true, Since: now.Add(-90 * time.Second), LastError: "services: refused"},
			[]string{"not connected to the API server for 1m30s, and what was read last stays in force: services: refused"}},
		{"a start without", &v1alpha1.KubernetesStatus{Since: now.Add(-time.Second)},
			[]string{"not connected to the API server for 1s, and its objects are not known yet, and what files say is in force"}},
		{"objects", &v1alpha1.KubernetesStatus{Connected: true, Synced: true, ProblemCount: 60, Problems: []string{"a", "b", "c\nd", "e"}},
			[]string{"cluster: a", "cluster: b", "cluster: c; d", "cluster: 57 more such problems; `lbd status -o json` has them"}},
		{"warnings come last", &v1alpha1.KubernetesStatus{Synced: true, LastError: "refused", Since: now, Warnings: []string{"VirtualIP api: x"}},
			[]string{"not connected to the API server for 0s, and what was read last stays in force: refused", "cluster: VirtualIP api: x"}},
		{"many warnings", &v1alpha1.KubernetesStatus{Connected: true, Synced: true, Warnings: []string{"a", "b", "c", "d", "e"}},
			[]string{"cluster: a", "cluster: b", "cluster: c", "cluster: 2 more such warnings; `lbd status -o json` has them"}},
	} {
		got := problems(v1alpha1.NodeStatus{Time: now, Kubernetes: c.k})
		if !slices.Equal(got, c.want) {
			t.Errorf("%s:\ngot  %q\nwant %q", c.name, got, c.want)
		}
	}
}

func TestProblemOfTheManagementCluster(t *testing.T) {
	s := v1alpha1.NodeStatus{Machines: &v1alpha1.MachinesStatus{LastError: "machines: forbidden\nfor lbd"}}
	if got, want := problems(s), "the management cluster is not read, or not all of it: machines: forbidden; for lbd"; !slices.Equal(got, []string{want}) {
		t.Errorf("%q, want %q", got, want)
	}
}

// TestProblemIsLasting: the problem of a summary is the first of all, in words that
// stay while time passes and counters count.
func TestProblemIsLasting(t *testing.T) {
	for name, c := range map[string]struct {
		break1, later func(*v1alpha1.NodeStatus)
		want          string
	}{
		"nothing": {func(*v1alpha1.NodeStatus) {}, nil, ""},
		"key": {func(s *v1alpha1.NodeStatus) { s.Gossip.KeyMismatches, s.Gossip.LastMismatchAt = 3, s.Time },
			func(s *v1alpha1.NodeStatus) { s.Gossip.KeyMismatches, s.Gossip.LastMismatchFrom = 9, "10.0.0.9" }, "gossip packets could not be decrypted: "},
		"API server": {func(s *v1alpha1.NodeStatus) { s.Kubernetes = &v1alpha1.KubernetesStatus{Synced: true, Since: s.Time} }, nil, "not connected to the API server, and "},
		"heartbeats": {func(s *v1alpha1.NodeStatus) { s.Members[0].Late = "3s" }, func(s *v1alpha1.NodeStatus) { s.Members[0].Late = "7s" }, "heartbeats of m2 are overdue: "},
		"session": {func(s *v1alpha1.NodeStatus) { s.BGP = []v1alpha1.BGPStatus{{Peer: "tor", State: "Active"}} },
			func(s *v1alpha1.NodeStatus) { s.BGP[0].State = "Connect" }, "BGP session with tor is not established"},
		"name": {func(s *v1alpha1.NodeStatus) {
			s.Gossip.NameConflicts, s.Gossip.LastConflictAt, s.Gossip.LastConflictName, s.Gossip.LastConflictFrom = 1, s.Time, s.Node, "10.0.0.9"
		}, func(s *v1alpha1.NodeStatus) { s.Gossip.NameConflicts = 8 }, "another host at 10.0.0.9 uses the name of this node, m1: "},
	} {
		s := calm()
		c.break1(&s)
		first := Problem(s)
		if !strings.HasPrefix(first, c.want) || (first == "") != (c.want == "") {
			t.Errorf("%s: %q", name, first)
		}
		s.Time = s.Time.Add(30 * time.Second)
		if c.later != nil {
			c.later(&s)
		}
		if second := Problem(s); second != first {
			t.Errorf("%s: %q became %q", name, first, second)
		}
		if all := problems(s); c.want != "" && (len(all) == 0 || all[0] == first) {
			t.Errorf("%s: `lbd status` has no time: %q", name, all)
		}
	}
}

// TestDuplicateIsMarked: a host that answers beside the owner is marked on every node, with
// its hardware address, although the VIP is where it should be.
func TestDuplicateIsMarked(t *testing.T) {
	s := calm()
	s.VIPs[0].Duplicate = "02:00:00:00:00:42"
	want := "10.0.0.200: 02:00:00:00:00:42 answers for it beside " + s.VIPs[0].Owner + ", and some clients reach that host: remove the address there"
	if got := marked(t, s); !slices.Equal(got, []string{want}) {
		t.Errorf("marked: %q", got)
	}
	var out bytes.Buffer
	if err := RenderExplain(&out, []v1alpha1.Explanation{{Address: "10.0.0.200", Name: "a", Node: "m1", Owner: "m1", Reason: "Owner", Duplicate: "02:00:00:00:00:42"}}); err != nil {
		t.Fatal(err)
	}
	if text := strings.Join(strings.Fields(out.String()), " "); !strings.Contains(text, "Duplicate: 02:00:00:00:00:42 answers for it beside m1") {
		t.Error(out.String())
	}
}

// TestRingsAreMarked: what keeps open connections from surviving is said once for all
// addresses, also those that are announced in two ways, and by explain.
func TestRingsAreMarked(t *testing.T) {
	const why = "chain output of table inet filter drops what is relayed"
	s := calm()
	s.VIPs[0].Ring = why
	s.VIPs = append(s.VIPs, s.VIPs[0], v1alpha1.VIPStatus{Name: "b", Address: "10.0.0.9", Mode: "bgp", Reason: "Advertised", Ring: why})
	want := "10.0.0.200, 10.0.0.9: a move resets open connections, or some of them: " + why
	if got := marked(t, s); !slices.Equal(got, []string{want}) {
		t.Errorf("marked: %q", got)
	}
	var out bytes.Buffer
	if err := RenderExplain(&out, []v1alpha1.Explanation{{Address: "10.0.0.200", Name: "a", Node: "m1", Owner: "m1", Reason: "Owner", Ring: why}}); err != nil {
		t.Fatal(err)
	}
	if text := strings.Join(strings.Fields(out.String()), " "); !strings.Contains(text, "Connections: a move resets open connections, or some of them: "+why+".") {
		t.Error(out.String())
	}
}

// An owner that asks the wire, as in a handover whose claim is late, is an owner: nobody is to
// read in the status, in `lbd explain` or in a drain that the VIP has none.
func TestOwnerThatAsksIsNoOwnerless(t *testing.T) {
	const want = "owns the VIP and is asking the network whether another node has it now: m2 uses it"
	vip := v1alpha1.VIPStatus{Name: "b", Address: "10.0.0.200", Mode: "l2", Owner: "m1", Reason: "Probing", Detail: "m2 uses it"}
	s := v1alpha1.NodeStatus{Node: "m1", VIPs: []v1alpha1.VIPStatus{vip}}
	var status, explained bytes.Buffer
	writeWhy(&status, s, 10)
	if err := renderExplanation(&explained, v1alpha1.Explanation{Node: "m1", Owner: "m1", Reason: vip.Reason, Detail: vip.Detail}); err != nil {
		t.Fatal(err)
	}
	var drained []string
	watch := drainWatch{progress: func(line string) { drained = append(drained, line) }, said: map[string]string{}}
	watch.look(s)
	for what, got := range map[string]string{
		"status": status.String(), "explain": explained.String(), "drain": strings.Join(drained, " "), "left": leftError(s.VIPs, "m1", 1, time.Second).Error(),
	} {
		if got = strings.Join(strings.Fields(got), " "); !strings.Contains(got, want) || strings.Contains(got, "nobody owns") {
			t.Errorf("%s: %q", what, got)
		}
	}
	if got := sentence("Probing", "m1", "m3", ""); !strings.HasPrefix(got, "nobody owns the VIP; m1 is asking") {
		t.Errorf("one that asks since the owner is silent: %q", got)
	}
}
