package v1alpha1

import (
	"encoding/json"
	"reflect"
	"strings"
	"testing"
	"time"
)

// The names of the fields are stable.
func TestBGPStatusJSON(t *testing.T) {
	at := time.Date(2026, 11, 21, 10, 0, 0, 0, time.UTC)
	in := BGPStatus{
		Peer: "tor1", Address: "10.0.0.1", LocalASN: 64512, PeerASN: 4200000000, State: "Established", Since: at, HoldTime: "9s",
		Families: []string{"ipv4", "ipv6"}, BFD: "Up", BFDTransmit: "100ms", BFDReceive: "100ms", BFDDetect: "300ms",
		Advertised: []string{"10.0.0.200/32"}, Received: 7, Flaps: 2, Error: "hold timer expired", LastErrorAt: at,
	}
	data, err := json.Marshal(in)
	if err != nil {
		t.Fatal(err)
	}
	if want := `{"peer":"tor1","address":"10.0.0.1","localASN":64512,"peerASN":4200000000,"state":"Established","since":"2026-11-21T10:00:00Z",` +
		`"holdTime":"9s","families":["ipv4","ipv6"],"bfd":"Up","bfdTransmit":"100ms","bfdReceive":"100ms","bfdDetect":"300ms",` +
		`"advertised":["10.0.0.200/32"],"received":7,"flaps":2,"error":"hold timer expired","lastErrorAt":"2026-11-21T10:00:00Z"}`; string(data) != want {
		t.Errorf("got  %s\nwant %s", data, want)
	}
	var out BGPStatus
	if err := json.Unmarshal(data, &out); err != nil || !reflect.DeepEqual(in, out) {
		t.Errorf("%v %+v", err, out)
	}
	if data, _ := json.Marshal(BGPStatus{Peer: "tor2", Address: "10.0.0.2", State: "Idle"}); string(data) != `{"peer":"tor2","address":"10.0.0.2","state":"Idle"}` {
		t.Errorf("what is unknown is written: %s", data)
	}
	if data, _ := json.Marshal(VIPStatus{Mode: "bgp", Peers: []string{"tor1"}}); !strings.Contains(string(data), `"mode":"bgp"`) || !strings.HasSuffix(string(data), `,"peers":["tor1"]}`) {
		t.Errorf("%s", data)
	}
	if data, _ := json.Marshal(VIPStatus{Mode: "l2"}); strings.Contains(string(data), "peers") {
		t.Errorf("%s", data)
	}
}

// Programs that were written for the first form of the object go on to work.
func TestNodeStatusOfTheDesign(t *testing.T) {
	const text = `{"apiVersion":"lbd.dev/v1alpha1","kind":"NodeStatus","node":"m1","version":"v0.1.0","draining":false,"settled":true,
 "members":[{"name":"m2","address":"10.0.0.12","state":"alive","draining":false}],
 "vips":[{"name":"control-plane","kind":"VirtualIP","address":"10.0.0.200","mode":"l2","owner":"m1","reason":"Owner",
          "healthy":true,"bound":true,"announced":true,"epoch":3,"since":"2026-11-21T10:00:00Z"}],
 "bgp":[{"peer":"tor1","address":"10.0.0.1","state":"Established","bfd":"Up","advertised":["10.0.0.200/32"]}]}`
	dec := json.NewDecoder(strings.NewReader(text))
	dec.DisallowUnknownFields()
	var s NodeStatus
	if err := dec.Decode(&s); err != nil {
		t.Fatal(err)
	}
	data, err := json.Marshal(s)
	if err != nil {
		t.Fatal(err)
	}
	var got, want any
	if json.Unmarshal(data, &got) != nil || json.Unmarshal([]byte(text), &want) != nil {
		t.Fatal("not JSON")
	}
	if !holds(got, want) {
		t.Errorf("got %s", data)
	}
}

// holds tells whether got is want with, at most, fields added to objects.
func holds(got, want any) bool {
	switch want := want.(type) {
	case map[string]any:
		object, ok := got.(map[string]any)
		for key, value := range want {
			ok = ok && holds(object[key], value)
		}
		return ok
	case []any:
		list, ok := got.([]any)
		ok = ok && len(list) == len(want)
		for i := range want {
			ok = ok && holds(list[i], want[i])
		}
		return ok
	}
	return got == want
}

// The object of a cluster is the one of the socket with a name and a summary; the
// one of the socket has neither.
func TestNodeStatusOfACluster(t *testing.T) {
	data, err := json.Marshal(NodeStatus{Node: "m1"})
	if err != nil || strings.Contains(string(data), "metadata") || strings.Contains(string(data), "summary") || strings.Contains(string(data), `"time"`) {
		t.Errorf("%v %s", err, data)
	}
	data, err = json.Marshal(NodeStatus{Node: "m1", Metadata: &ObjectMeta{Name: "m1"}, Summary: &NodeSummary{VIPs: 2, Members: "2/2"}})
	if want := `{"apiVersion":"lbd.dev/v1alpha1","kind":"NodeStatus","metadata":{"name":"m1"},"summary":{"vips":2,"announced":0,"members":"2/2"},"node":"m1",`; err != nil || !strings.HasPrefix(string(data), want) {
		t.Errorf("%v %s", err, data)
	}
}
