package nodestatus

import (
	"bytes"
	"context"
	"encoding/json"
	"fmt"
	"log/slog"
	"net/http"
	"reflect"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"lbd.dev/lbd/api/v1alpha1"
	"lbd.dev/lbd/internal/k8s"
	"lbd.dev/lbd/internal/k8s/apitest"
	"lbd.dev/lbd/internal/model"
)

const resource = "lbd.dev/v1alpha1/nodestatuses"

// full has something in every field that is left out, or that may differ.
func full() v1alpha1.NodeStatus {
	at := time.Date(2026, 11, 21, 10, 0, 0, 0, time.UTC)
	return v1alpha1.NodeStatus{
		Node: "n1", Version: "v0.1.0", Time: at, Settled: true,
		Summary: &v1alpha1.NodeSummary{VIPs: 2, Announced: 1, Members: "1/1", BGP: "0/1"},
		Members: []v1alpha1.MemberStatus{{Name: "n2", State: "alive", Late: "180ms", Settled: true}},
		VIPs: []v1alpha1.VIPStatus{
			{Name: "default/web", Kind: "Service", Address: "192.0.2.1", Mode: "l2", Owner: "n1", Reason: "Owner", Announced: true, Since: at},
			{Name: "default/api", Kind: "Service", Address: "192.0.2.2", Mode: "l2", Owner: "n2", Reason: "Standby", Since: at},
		},
		BGP: []v1alpha1.BGPStatus{{Peer: "tor", Address: "192.0.2.99", State: "Active", Error: "refused", Received: 3, Flaps: 2, LastErrorAt: at,
			Advertised: []string{"192.0.2.1/32"}, Paths: []v1alpha1.BGPPathStatus{{Prefix: "192.0.2.1/32"}}}},
		Gossip:        v1alpha1.GossipStatus{KeyMismatches: 4, LastMismatchFrom: "192.0.2.7", LastMismatchAt: at, Absent: []string{"n3"}, NameConflicts: 1, LastConflictAt: at},
		Health:        []v1alpha1.HealthStatus{{Name: "x", State: "down", Detail: "no", LastDuration: "1ms", Successes: 5, Failures: 6}},
		Drivers:       []v1alpha1.DriverStatus{{Name: "layer2"}},
		LoadBalancers: []v1alpha1.BalancerStatus{{Name: "api", Backends: []v1alpha1.BackendStatus{{Backend: "192.0.2.11", State: "out", Detail: "refused", Since: at}}}},
		Kubernetes:    &v1alpha1.KubernetesStatus{Connected: true, Synced: true, Since: at, LastError: "away"},
	}
}

// passing is what happens while nothing does.
func passing(s *v1alpha1.NodeStatus) {
	s.Time = s.Time.Add(time.Hour)
	s.Members[0].Late = "7s"
	b, h := &s.BGP[0], &s.Health[0]
	b.Received, b.Flaps, b.LastErrorAt, b.Paths = 9, 9, s.Time, nil
	h.LastDuration, h.Successes, h.Failures = "2ms", 9, 9
	s.Gossip.KeyMismatches, s.Gossip.LastMismatchAt, s.Gossip.LastMismatchFrom = 99, s.Time, "192.0.2.8"
	s.Gossip.NameConflicts, s.Gossip.LastConflictAt = 7, s.Time
}

func TestCompare(t *testing.T) {
	for name, c := range map[string]struct {
		change func(*v1alpha1.NodeStatus)
		want   change
	}{
		"time passes":        {passing, none},
		"another owner":      {func(s *v1alpha1.NodeStatus) { s.VIPs[1].Owner = "n3" }, move},
		"announced":          {func(s *v1alpha1.NodeStatus) { s.VIPs[1].Announced = true }, move},
		"one beyond 500":     {func(s *v1alpha1.NodeStatus) { s.Summary.Announced++ }, move},
		"a session":          {func(s *v1alpha1.NodeStatus) { s.Summary.BGP, s.BGP[0].State = "1/1", established }, move},
		"draining":           {func(s *v1alpha1.NodeStatus) { s.Draining = true }, move},
		"a member":           {func(s *v1alpha1.NodeStatus) { s.Members[0].State = "dead" }, usual},
		"a problem":          {func(s *v1alpha1.NodeStatus) { s.Summary.Problem = "x" }, usual},
		"a reason":           {func(s *v1alpha1.NodeStatus) { s.VIPs[1].Reason = "Conflict" }, usual},
		"a driver fails":     {func(s *v1alpha1.NodeStatus) { s.Drivers[0].Error = "x" }, usual},
		"session tries":      {func(s *v1alpha1.NodeStatus) { s.BGP[0].State = "Connect" }, words},
		"another error":      {func(s *v1alpha1.NodeStatus) { s.BGP[0].Error = "reset" }, words},
		"another detail":     {func(s *v1alpha1.NodeStatus) { s.VIPs[0].Detail, s.Health[0].Detail = "x", "y" }, words},
		"of a backend":       {func(s *v1alpha1.NodeStatus) { s.LoadBalancers[0].Backends[0].Detail = "x" }, words},
		"a backend is in":    {func(s *v1alpha1.NodeStatus) { s.LoadBalancers[0].Backends[0].State = "in" }, usual},
		"API server is back": {func(s *v1alpha1.NodeStatus) { s.Kubernetes.Since, s.Kubernetes.LastError = s.Time, "x" }, words},
	} {
		before, after := full(), full()
		c.change(&after)
		a, b := trim(before), trim(after)
		if got := compare(&a, &b); got != c.want {
			t.Errorf("%s: %d, want %d", name, got, c.want)
		}
		if !reflect.DeepEqual(before, full()) {
			t.Fatalf("%s: the status was changed", name)
		}
	}
}

// TestPace: what moves is written sooner, three times; what is words only, later.
func TestPace(t *testing.T) {
	w := New(Options{})
	now := time.Unix(1000, 0)
	state := trim(full())
	epoch := 0
	next := func(alter func(*v1alpha1.NodeStatus)) v1alpha1.NodeStatus {
		s := full()
		epoch++
		alter(&s)
		return trim(s)
	}
	// write returns how long a change waits.
	write := func(alter func(*v1alpha1.NodeStatus)) time.Duration {
		s := next(alter)
		for begin := now; ; now = now.Add(100 * time.Millisecond) {
			if w.due(&s, now) {
				w.written, w.at = &s, now
				return now.Sub(begin)
			}
			if now.Sub(begin) > 2*time.Minute {
				return -1
			}
		}
	}
	if !w.due(&state, now) {
		t.Fatal("the first is not written at once")
	}
	w.written, w.at = &state, now
	if got := write(passing); got != -1 {
		t.Errorf("nothing is written after %v", got)
	}
	move := func(s *v1alpha1.NodeStatus) { s.VIPs[1].Owner = fmt.Sprint(epoch) }
	var got []time.Duration
	for range 6 {
		got = append(got, write(move))
	}
	want := []time.Duration{0, Soon, Soon, Soon, Pace, 3 * time.Second} // the last when a turn has come back
	if !reflect.DeepEqual(got, want) {
		t.Errorf("moves wait %v, want %v", got, want)
	}
	last := func(s *v1alpha1.NodeStatus) { s.VIPs[1].Owner = fmt.Sprint(epoch - 1) }
	if got := write(func(s *v1alpha1.NodeStatus) { last(s); s.Members[0].Version = "v2" }); got != Pace {
		t.Errorf("others wait %v", got)
	}
	if got := write(func(s *v1alpha1.NodeStatus) {
		s.VIPs[1].Owner, s.Members[0].Version, s.BGP[0].Error = fmt.Sprint(epoch-2), "v2", "reset"
	}); got != Slow {
		t.Errorf("words wait %v", got)
	}
	if got := write(func(s *v1alpha1.NodeStatus) { s.Draining = true }); got != Soon {
		t.Errorf("after a minute of quiet a move waits %v", got)
	}
}

// bed is a Writer at work.
type bed struct {
	*Writer
	api *apitest.Server
	log *bytes.Buffer

	mu    sync.Mutex // guards all below
	state v1alpha1.NodeStatus
	vips  []model.VIPStatus
	asked int // how often for vips
}

func run(t *testing.T, api *apitest.Server) *bed {
	client, err := k8s.NewFor(api.Config(), k8s.Options{QPS: 1000, Burst: 1000})
	if err != nil {
		t.Fatal(err)
	}
	b := &bed{api: api, log: &bytes.Buffer{}, state: full()}
	b.Writer = New(Options{
		Logger: slog.New(slog.NewTextHandler(b.log, nil)), Client: client.Dynamic,
		Status: func() (v1alpha1.NodeStatus, bool) {
			b.mu.Lock()
			defer b.mu.Unlock()
			return b.state, true
		},
		VIPs: func() []model.VIPStatus {
			b.mu.Lock()
			defer b.mu.Unlock()
			b.asked++
			return b.vips
		},
	})
	ctx, cancel := context.WithCancel(t.Context())
	done := make(chan struct{})
	go func() { defer close(done); b.Run(ctx) }()
	t.Cleanup(func() { cancel(); <-done })
	return b
}

func (b *bed) change(f func(*v1alpha1.NodeStatus)) {
	b.mu.Lock()
	defer b.mu.Unlock()
	s := full()
	f(&s)
	b.state = s
}

// own sets all VIPs, which the status need not have.
func (b *bed) own(all ...model.VIPStatus) {
	b.mu.Lock()
	defer b.mu.Unlock()
	b.vips = all
}

// looked waits until the VIPs that there are now have been looked at, and events about them sent.
func (b *bed) looked(t *testing.T) {
	t.Helper()
	asked := func() int {
		b.mu.Lock()
		defer b.mu.Unlock()
		return b.asked
	}
	before := asked()
	eventually(t, "two looks", func() bool { return asked() >= before+2 })
}

// object is what the API server has.
func (b *bed) object() (s v1alpha1.NodeStatus) {
	data, _ := json.Marshal(b.api.Get(resource, "", "n1"))
	_ = json.Unmarshal(data, &s)
	return s
}

// sent counts the writes that reached the API server, refused ones too.
func (b *bed) sent() (n int) {
	for _, r := range b.api.Requests() {
		if strings.HasPrefix(r, "PATCH /apis/lbd.dev/v1alpha1/nodestatuses/n1?") {
			n++
		}
	}
	return n
}

func eventually(t *testing.T, what string, ok func() bool) {
	t.Helper()
	for end := time.Now().Add(30 * time.Second); time.Now().Before(end); time.Sleep(5 * time.Millisecond) {
		if ok() {
			return
		}
	}
	t.Fatalf("after 30 s still not: %s", what)
}

func TestWriter(t *testing.T) {
	api := apitest.New(t, map[string]string{resource: "NodeStatus"})
	b := run(t, api)
	eventually(t, "the object is there", func() bool { return b.object().Node == "n1" })
	o := b.object()
	if o.Metadata.Name != "n1" || o.Summary.VIPs != 2 || len(o.VIPs) != 2 || o.BGP[0].Advertised[0] != "192.0.2.1/32" {
		t.Errorf("object %+v", o)
	}
	raw, _ := json.Marshal(api.Get(resource, "", "n1"))
	for _, field := range []string{`"time"`, `"flaps"`, `"received"`, `"paths"`, `"successes"`, `"lastDuration"`, `"late"`, `"lastMismatchAt"`} {
		if bytes.Contains(raw, []byte(field)) {
			t.Errorf("the object has %s: %s", field, raw)
		}
	}
	b.change(passing)
	time.Sleep(3 * Look)
	if n := b.sent(); n != 1 {
		t.Errorf("%d writes while nothing happens", n)
	}
	b.change(func(s *v1alpha1.NodeStatus) { s.VIPs[1].Owner = "n3" })
	eventually(t, "the new owner", func() bool { return b.object().VIPs[1].Owner == "n3" })
	eventually(t, "it is counted", func() bool { return b.Stats() == (Stats{OK: 2}) })
	if n := b.sent(); n != 2 {
		t.Errorf("%d writes, %+v", n, b.Stats())
	}
}

// TestAway: what changes while the API server is away is written once it is back,
// the newest only, and the log is quiet.
func TestAway(t *testing.T) {
	api := apitest.New(t, map[string]string{resource: "NodeStatus"})
	b := run(t, api)
	eventually(t, "the object is there", func() bool { return b.object().Node == "n1" && b.Stats().OK == 1 })
	api.Stop()
	b.change(func(s *v1alpha1.NodeStatus) { s.VIPs[1].Owner = "n3" })
	eventually(t, "a write fails", func() bool { return b.Stats().Failed > 0 })
	b.change(func(s *v1alpha1.NodeStatus) { s.VIPs[1].Owner = "n4" })
	api.Start()
	eventually(t, "the newest owner", func() bool { return b.object().VIPs[1].Owner == "n4" })
	if n := b.sent(); n != 2 || b.log.Len() > 0 {
		t.Errorf("%d writes, log %s", n, b.log)
	}
}

// TestRefused: a refusal is said once, and so is its end.
func TestRefused(t *testing.T) {
	api := apitest.New(t, map[string]string{resource: "NodeStatus"})
	api.Gate(func(*http.Request) int { return http.StatusForbidden })
	b := run(t, api)
	eventually(t, "two refusals", func() bool { return b.Stats().Failed > 1 })
	api.Gate(nil)
	eventually(t, "the object is there", func() bool { return b.object().Node == "n1" && b.Stats().OK == 1 })
	b.change(func(s *v1alpha1.NodeStatus) { s.Draining = true })
	eventually(t, "another write", func() bool { return b.Stats().OK == 2 })
	if got := b.log.String(); strings.Count(got, "\n") != 2 || strings.Count(got, "level=WARN") != 1 || strings.Count(got, "written again") != 1 {
		t.Errorf("log %s", got)
	}
}

// TestFarewell: what has not been written when the daemon ends is.
func TestFarewell(t *testing.T) {
	api := apitest.New(t, map[string]string{resource: "NodeStatus"})
	client, err := k8s.NewFor(api.Config(), k8s.Options{QPS: 1000, Burst: 1000})
	if err != nil {
		t.Fatal(err)
	}
	state := full()
	w := New(Options{Client: client.Dynamic, Status: func() (v1alpha1.NodeStatus, bool) { return state, true }})
	first := trim(full())
	w.written, w.at = &first, time.Now()
	state.Draining = true
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	w.Run(ctx)
	if draining, _ := api.Get(resource, "", "n1")["draining"].(bool); !draining {
		t.Errorf("object %v", api.Get(resource, "", "n1"))
	}
}

// TestAssignedIsAnEvent: a node that begins to announce a Service says so by an event of the
// Service, once, also if the VIP is beyond those that a status has room for; and many at once are
// told one after the other.
func TestAssignedIsAnEvent(t *testing.T) {
	const services, events = "v1/services", "v1/events"
	api := apitest.New(t, map[string]string{resource: "NodeStatus", services: "Service", events: "Event"})
	for n := range 4 {
		api.Put(services, map[string]any{"metadata": map[string]any{"namespace": "default", "name": fmt.Sprintf("s%d", n), "uid": fmt.Sprintf("u%d", n)}})
	}
	b := run(t, api)
	b.own(service(0, "n1", 1), service(1, "n2", 1))
	told := func() (all []string) {
		for _, o := range api.All(events) {
			of := o["involvedObject"].(map[string]any)
			all = append(all, fmt.Sprint(o["type"], " ", o["reason"], " ", of["kind"], " ", of["name"], " ", of["uid"], ": ", o["message"]))
		}
		slices.Sort(all)
		return all
	}
	b.looked(t)
	began := time.Now()
	b.own(service(0, "n1", 1), service(1, "n1", 2), service(2, "n1", 1), service(3, "n1", 1))
	eventually(t, "all events", func() bool { return len(told()) >= 3 })
	if took := time.Since(began); took < 2*Look {
		t.Errorf("all were told within %v", took)
	}
	b.looked(t)
	want := []string{
		"Normal nodeAssigned Service s1 u1: 192.0.2.1 is announced from node n1 by layer 2",
		"Normal nodeAssigned Service s2 u2: 192.0.2.2 is announced from node n1 by layer 2",
		"Normal nodeAssigned Service s3 u3: 192.0.2.3 is announced from node n1 by layer 2",
	}
	if all := told(); !slices.Equal(all, want) {
		t.Errorf("told\n%s\nwant\n%s", strings.Join(all, "\n"), strings.Join(want, "\n"))
	}
}

// TestDuplicateIsAnEvent: the owner of an address that another host has too tells so by an
// event about the Service, once, and by one about its own status if the address is from a file.
func TestDuplicateIsAnEvent(t *testing.T) {
	const services, events = "v1/services", "v1/events"
	api := apitest.New(t, map[string]string{resource: "NodeStatus", services: "Service", events: "Event", "lbd.dev/v1alpha1/virtualips": "VirtualIP"})
	api.Put(services, map[string]any{"metadata": map[string]any{"namespace": "default", "name": "web", "uid": "u1"}})
	b := run(t, api)
	eventually(t, "the object is there", func() bool { return b.object().Node == "n1" })
	told := func() (all []string) {
		for _, o := range api.All(events) {
			of := o["involvedObject"].(map[string]any)
			all = append(all, fmt.Sprint(o["type"], " ", o["reason"], " ", of["kind"], " ", of["name"], " ", of["uid"], ": ", o["message"]))
		}
		return all
	}
	duplicates := func(s *v1alpha1.NodeStatus) {
		s.VIPs[0].Duplicate, s.VIPs[1].Duplicate = "02:00:00:00:00:09", "02:00:00:00:00:08" // the second is of n2
		s.VIPs = append(s.VIPs, v1alpha1.VIPStatus{Name: "api", Kind: "VirtualIP", Address: "192.0.2.3", Mode: "l2", Owner: "n1", Reason: "Owner", Duplicate: "02:00:00:00:00:07"})
	}
	b.change(duplicates)
	eventually(t, "two events", func() bool { return len(told()) == 2 })
	b.change(func(s *v1alpha1.NodeStatus) { duplicates(s); s.VIPs[1].Owner = "n3" })
	eventually(t, "another write", func() bool { return b.Stats().OK == 3 })
	want := []string{
		"Warning DuplicateAddress NodeStatus n1 : 02:00:00:00:00:07 answers for 192.0.2.3 beside node n1, and some clients reach that host: remove the address there",
		"Warning DuplicateAddress Service web u1: 02:00:00:00:00:09 answers for 192.0.2.1 beside node n1, and some clients reach that host: remove the address there",
	}
	got := told()
	slices.Sort(got)
	if !slices.Equal(got, want) {
		t.Errorf("told\n%s\nwant\n%s", strings.Join(got, "\n"), strings.Join(want, "\n"))
	}
}
