package v1alpha1

import (
	"encoding/json"
	"fmt"
	"reflect"
	"testing"
)

// TestListenerTexts has specs of a BGPListener beside a good one, and what Validate says of
// them. Package config has those that a file shows, with their lines.
func TestListenerTexts(t *testing.T) {
	for spec, want := range map[string]string{
		`{}`: "",
		`{"peerPrefixes":` + list(64, `"10.%d.0.0/16"`) + `}`:                              "",
		`{"peerPrefixes":` + list(65, `"10.%d.0.0/16"`) + `}`:                              "spec.peerPrefixes: has 65 entries; at most 64 are allowed\n",
		`{"acceptPrefixes":` + list(64, `"192.0.2.%d/32"`) + `}`:                           "",
		`{"acceptPrefixes":` + list(65, `"192.0.2.%d/32"`) + `}`:                           "spec.acceptPrefixes: has 65 entries; at most 64 are allowed\n",
		`{"maxPrefixes":64,"acceptPrefixes":` + list(64, `"192.0.2.%d/32"`) + `}`:          "",
		`{"maxPrefixes":2,"acceptPrefixes":["192.0.2.1/32","192.0.2.2/32","fd00::1/128"]}`: "",
		`{"maxPrefixes":10000}`: "", `{"maxPrefixes":10001}`: "spec.maxPrefixes: 10001 must be from 1 to 10000\n",
		`{"maxPrefixes":-1}`: "spec.maxPrefixes: -1 must be from 1 to 10000\n",
		`{"asn":4294967294,"peerASN":1,"holdTime":"65535s","hashSeed":4294967295}`: "",
		`{"asn":4294967295}`:    "spec.asn: 4294967295 is reserved (RFC 7300)\n",
		`{"holdTime":"3.5s"}`:   "spec.holdTime: 3.5s must be whole seconds from 3s to 65535s (RFC 4271 section 4.2)\n",
		`{"holdTime":"65536s"}`: "spec.holdTime: 18h12m16s must be whole seconds from 3s to 65535s (RFC 4271 section 4.2)\n",
		`{"upstream":"bgp","acceptPrefixes":["192.0.2.0/24","fd00::/64"]}`: "",
		`{"upstream":"bgp","acceptPrefixes":["64.0.0.0/2"]}`:               "spec.acceptPrefixes[0]: \"64.0.0.0/2\" has addresses of 127.0.0.0/8, which no host has, or which count on one link only\n",
		`{"acceptPrefixes":["10.9.0.7/32"]}`:                               "", // a single address where the masters are is none of theirs
		`{"acceptPrefixes":["fe80::1%eth0"]}`:                              "spec.acceptPrefixes[0]: \"fe80::1%eth0\" is not a prefix, such as 10.0.0.0/24\n",
		`{"acceptPrefixes":["::ffff:10.0.0.0/104"]}`:                       "spec.acceptPrefixes[0]: \"::ffff:10.0.0.0/104\" is an IPv4 prefix in IPv6 form\n",
		`{"nextHops":{"mode":"multipath"}}`:                                "", `{"nextHops":{"buckets":16,"idleTimer":"24h","unbalancedTimer":"1s"}}`: "",
		`{"nextHops":{"idleTimer":"999ms"}}`:       "spec.nextHops.idleTimer: 999ms must be from 1s to 24h\n",
		`{"nextHops":{"unbalancedTimer":"999ms"}}`: "spec.nextHops.unbalancedTimer: 999ms must be from 1s to 24h, or 0s: buckets in use never move\n",
	} {
		var l BGPListener
		text := `{"apiVersion":"lbd.dev/v1alpha1","kind":"BGPListener","metadata":{"name":"a"},"spec":{"asn":64512,"peerPrefixes":["10.9.0.0/24"],"acceptPrefixes":["192.0.2.1/32"]}}`
		if err := json.Unmarshal([]byte(text), &l); err != nil {
			t.Fatal(err)
		}
		if err := json.Unmarshal([]byte(`{"spec":`+spec+`}`), &l); err != nil {
			t.Fatal(err)
		}
		l.Default()
		got := ""
		for _, e := range l.Validate() {
			got += fmt.Sprintln(e)
		}
		if got != want {
			t.Errorf("%.90s\ngot\n%swant\n%s", spec, got, want)
		}
		again := l
		if again.Default(); !reflect.DeepEqual(again, l) {
			t.Errorf("%.90s: a second Default changes it", spec)
		}
	}
}
