package control

import (
	"bufio"
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"net/url"
	"os"
	"strings"
	"testing"
	"time"

	"lbd.dev/lbd/api/v1alpha1"
)

var eventsFrom = time.Date(2026, 11, 21, 10, 0, 0, 0, time.UTC)

// happened are events of every sort, some with hostile words.
func happened() v1alpha1.NodeEvents {
	at := func(d time.Duration) time.Time { return eventsFrom.Add(d) }
	return v1alpha1.NodeEvents{
		Node: "m1", Version: "v0.1.0", Time: at(time.Hour), Started: eventsFrom, Forgotten: 3, Newest: 12,
		Events: []v1alpha1.Event{
			{Seq: 4, Time: at(0), Kind: v1alpha1.EventDaemon, Node: "m1", To: "started", Detail: "v0.1.0"},
			{Seq: 5, Time: at(120 * time.Millisecond), Kind: v1alpha1.EventMember, Node: "m2", Address: "10.0.0.12", From: "alive", To: "dead"},
			{Seq: 6, Time: at(time.Second), Kind: v1alpha1.EventOwner, VIP: "control-plane", Address: "10.0.0.200", Mode: "l2", Node: "m1", From: "m2", To: "m1", Reason: "Late", Detail: "heartbeats overdue for 180ms", Gap: "94ms"},
			{Seq: 7, Time: at(time.Second), Kind: v1alpha1.EventAnnounced, VIP: "control-plane", Address: "10.0.0.200", Mode: "l2", Node: "m1", From: "m2", To: "m1", Gap: "250ms"},
			{Seq: 8, Time: at(2 * time.Second), Kind: v1alpha1.EventStanding, VIP: "a-name-that-is-much-too-long", Address: "2001:db8:1::200", Mode: "l2", Node: "m1", From: "Standby", To: "Unhealthy", Detail: strings.Repeat("refused ", 9)},
			{Seq: 9, Time: at(3 * time.Second), Kind: v1alpha1.EventDrain, Node: "m1", From: "draining"},
			{Seq: 10, Time: at(4 * time.Second), Kind: v1alpha1.EventOwner, Mode: "l2", Node: "m1", From: "m2", To: "m3", Reason: "Draining", More: 2979},
			{Seq: 11, Time: at(5 * time.Second), Kind: v1alpha1.EventConfig, Node: "m1", From: "generation 1", To: "refused", Detail: "a.yaml:3: wrong\nb.yaml:4: \x1b[2Jwrong"},
			{Seq: 12, Time: at(6 * time.Second), Kind: v1alpha1.EventStall, Node: "m1", Gap: "1.5s"},
			{Seq: 12, Time: at(7 * time.Second), Kind: v1alpha1.EventBGP, Node: "m1", Peer: "tor1", Address: "10.0.0.1", From: "Established"},
		},
	}
}

// TestRenderEvents: a table, and what comes later below it in the same columns.
func TestRenderEvents(t *testing.T) {
	var out bytes.Buffer
	var table EventTable
	e := happened()
	write := func() {
		t.Helper()
		if err := table.Write(&out, e); err != nil {
			t.Fatal(err)
		}
	}
	write()
	e.Events = nil
	write() // nothing new
	e.Events = []v1alpha1.Event{{Time: eventsFrom, Kind: v1alpha1.EventMember, Node: "m2", To: "alive"}}
	write()
	if strings.ContainsRune(out.String(), '\x1b') {
		t.Error("foreign text reaches the terminal")
	}
	golden(t, "events.txt", out.Bytes())

	var first, later bytes.Buffer
	var empty EventTable
	if err := empty.Write(&first, v1alpha1.NodeEvents{Node: "m1", Version: "v1", Started: eventsFrom}); err != nil || first.String() != "Node m1, lbd v1: started 2026-11-21T10:00:00Z; no event\n" {
		t.Errorf("%q, %v", first.String(), err)
	}
	if err := empty.Write(&later, e); err != nil || !strings.HasPrefix(later.String(), "\nTIME ") {
		t.Errorf("%q, %v", later.String(), err)
	}
}

// TestEventsJSON pins the names that programs depend on.
func TestEventsJSON(t *testing.T) {
	text, err := json.MarshalIndent(happened(), "", " ")
	if err != nil {
		t.Fatal(err)
	}
	golden(t, "events.json", append(text, '\n'))
	var back v1alpha1.NodeEvents
	if err := json.Unmarshal(text, &back); err != nil {
		t.Fatal(err)
	}
	if again, err := json.MarshalIndent(back, "", " "); err != nil || !bytes.Equal(again, text) {
		t.Errorf("the events change on their way through JSON (%v):\n%s", err, again)
	}
	if text, err := json.Marshal(v1alpha1.NodeEvents{}); err != nil || !strings.Contains(string(text), `"events":[]`) {
		t.Errorf("%s, %v", text, err)
	}
}

// TestEventQueries: what a client asks for is what the daemon is asked for.
func TestEventQueries(t *testing.T) {
	backend := &fakeBackend{events: happened()}
	opts := testOptions(t, backend)
	start(t, opts)
	client := NewClient(opts.Socket)
	for _, q := range []EventQuery{{}, {VIP: "a & b"}, {VIP: "fd00::1", Since: 90 * time.Second, After: 1 << 60}} {
		e, err := client.Events(t.Context(), q)
		if err != nil || len(e.Events) != len(happened().Events) || backend.asked != q {
			t.Errorf("%+v: asked for %+v, %d events, %v", q, backend.asked, len(e.Events), err)
		}
	}
	if _, err := client.Events(t.Context(), EventQuery{VIP: "nope"}); !errors.Is(err, ErrNotFound) {
		t.Errorf("unknown VIP: %v", err)
	}
	for query, want := range map[string]string{
		"since=x": `invalid question: since "x" is no duration above 0`, "since=-1s": `invalid question: since "-1s" is no duration above 0`,
		"since=0": `invalid question: since "0" is no duration above 0`,
		"after=x": `invalid question: after "x" is no number of an event`, "after=-1": `invalid question: after "-1" is no number of an event`,
	} {
		if _, err := url.ParseQuery(query); err != nil {
			t.Fatal(err)
		}
		err := client.do(t.Context(), http.MethodGet, pathEvents+"?"+query, nil, &struct{}{})
		if err == nil || err.Error() != want {
			t.Errorf("%s: %v, want %s", query, err, want)
		}
	}
	for _, method := range []string{http.MethodPost, http.MethodPut, http.MethodDelete} {
		if err := client.do(t.Context(), method, pathEvents, nil, &struct{}{}); err == nil {
			t.Errorf("%s is taken", method)
		}
	}
}

// TestSlowReadersOfEvents: clients that do not read their answers keep nobody else from his,
// and are given up.
func TestSlowReadersOfEvents(t *testing.T) {
	e := v1alpha1.NodeEvents{Node: "m1"}
	for n := range 500 {
		e.Events = append(e.Events, v1alpha1.Event{Seq: uint64(n + 1), Detail: strings.Repeat("x", 1000)})
	}
	opts := testOptions(t, &fakeBackend{events: e})
	server := New(opts)
	server.slowest = 3 * time.Second // on a busy host an answer begins late
	startServer(t, server)
	var slow []net.Conn
	for range 20 {
		c, err := net.Dial("unix", opts.Socket)
		if err != nil {
			t.Fatal(err)
		}
		defer c.Close()
		if _, err := fmt.Fprintf(c, "GET %s HTTP/1.1\r\nHost: lbd\r\n\r\n", pathEvents); err != nil {
			t.Fatal(err)
		}
		// One after the other, for an answer that has begun takes no more of a busy host.
		if err := c.SetReadDeadline(time.Now().Add(30 * time.Second)); err != nil {
			t.Fatal(err)
		}
		if _, err := io.ReadFull(c, make([]byte, 1)); err != nil {
			t.Fatal(err)
		}
		slow = append(slow, c)
	}
	for range 5 {
		got, err := NewClient(opts.Socket).Events(t.Context(), EventQuery{})
		if err != nil || len(got.Events) != 500 {
			t.Fatalf("%d events, %v", len(got.Events), err)
		}
	}
	// The server hangs up; what the kernel holds of the answer is less than the answer.
	time.Sleep(2 * server.slowest)
	end := time.Now().Add(30 * time.Second)
	for _, c := range slow {
		if err := c.SetReadDeadline(end); err != nil {
			t.Fatal(err)
		}
		if n, err := io.Copy(io.Discard, c); err != nil || n == 0 || n >= 500_000 {
			t.Errorf("read %d bytes of an answer of 500 kB, %v", n, err)
		}
	}
}

// TestSlowBodies: a client that sends the body of its request byte by byte, which nobody wants, is
// hung up on.
func TestSlowBodies(t *testing.T) {
	opts := testOptions(t, &fakeBackend{})
	opts.HTTPAddress = "127.0.0.1:0"
	server := New(opts)
	server.slowest = time.Second
	startServer(t, server)
	waitHTTP(t, server)
	for network, address := range map[string]string{"tcp": server.HTTPAddr().String(), "unix": opts.Socket} {
		c, err := net.Dial(network, address)
		if err != nil {
			t.Fatal(err)
		}
		defer c.Close()
		if _, err := io.WriteString(c, "GET /healthz HTTP/1.1\r\nHost: 127.0.0.1\r\nContent-Length: 1000\r\n\r\n"); err != nil {
			t.Fatal(err)
		}
		gone := false
		for began := time.Now(); !gone && time.Since(began) < 30*time.Second; time.Sleep(100 * time.Millisecond) {
			_, err := io.WriteString(c, "x")
			gone = err != nil
		}
		if !gone {
			t.Errorf("%s: the client may send for as long as it likes", network)
		}
	}
}

// TestManyConnections: who opens more connections than there may be loses his oldest, and keeps
// nobody else from an answer.
func TestManyConnections(t *testing.T) {
	opts := testOptions(t, &fakeBackend{})
	opts.HTTPAddress = "127.0.0.1:0"
	server, _ := start(t, opts)
	base := "http://" + waitHTTP(t, server)
	var all []net.Conn
	for range maxConns + 10 {
		c, err := net.Dial("tcp", server.HTTPAddr().String())
		if err != nil {
			t.Fatal(err)
		}
		defer c.Close()
		if _, err := io.WriteString(c, "GET /healthz HTTP/1.1\r\nHost: 127.0.0.1\r\n\r\n"); err != nil {
			t.Fatal(err)
		}
		answer, err := http.ReadResponse(bufio.NewReader(c), nil)
		if err != nil || answer.StatusCode != 200 {
			t.Fatal(answer, err)
		}
		all = append(all, c) // it is kept for a minute
	}
	if code, text := get(t, base+"/healthz"); code != 200 {
		t.Errorf("%d %q", code, text)
	}
	for i, c := range all {
		wait := 30 * time.Second
		if i > 10 { // that it is open cannot be awaited
			wait = time.Millisecond
		}
		if err := c.SetReadDeadline(time.Now().Add(wait)); err != nil {
			t.Fatal(err)
		}
		_, err := c.Read(make([]byte, 1))
		if timeout := errors.Is(err, os.ErrDeadlineExceeded); timeout != (i > 10) {
			t.Errorf("connection %d of %d: %v", i, len(all), err)
		}
	}
}
