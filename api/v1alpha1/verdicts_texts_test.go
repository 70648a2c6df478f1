package v1alpha1

import (
	"encoding/json"
	"fmt"
	"reflect"
	"strings"
	"testing"
)

// kinds are those that a cluster has definitions of.
var kinds = map[string]reflect.Type{
	KindVirtualIP:        reflect.TypeFor[VirtualIP](),
	KindLoadBalancer:     reflect.TypeFor[LoadBalancer](),
	KindBGPPeer:          reflect.TypeFor[BGPPeer](),
	KindBFDProfile:       reflect.TypeFor[BFDProfile](),
	KindCommunity:        reflect.TypeFor[Community](),
	KindIPAddressPool:    reflect.TypeFor[IPAddressPool](),
	KindL2Advertisement:  reflect.TypeFor[L2Advertisement](),
	KindBGPAdvertisement: reflect.TypeFor[BGPAdvertisement](),

	KindMachineLoadBalancer: reflect.TypeFor[MachineLoadBalancer](),
}

// list returns n entries of a format with one number, joined for JSON.
func list(n int, format string) string {
	entries := make([]string, n)
	for i := range entries {
		entries[i] = fmt.Sprintf(format, i)
	}
	return "[" + strings.Join(entries, ",") + "]"
}

// TestTexts has what users write, not yet defaulted, with the number of rules
// that it breaks.
func TestTexts(t *testing.T) {
	const https, vip = `"addresses":["10.0.0.1"],"healthCheck":{"https":{"port":6443`, `"addresses":["10.0.0.1"],`
	const peer = `"myASN":64512,"peerASN":64513,"peerAddress":"10.0.0.1"`
	const pool = `"addresses":["10.0.0.0/24"],"serviceAllocation":`
	check := func(extra string) string { return https + `}` + extra + `}` }
	for kind, specs := range map[string]map[string]int{
		KindVirtualIP: {
			`{}`: 1, `{"addresses":[]}`: 1, `{"addresses":["10.0.0.1"]}`: 0,
			`{` + vip + `"advertise":{"l2":{}}}`: 0, `{` + vip + `"advertise":{"bgp":{}}}`: 0, `{` + vip + `"advertise":{}}`: 1,
			`{` + vip + `"advertise":{"bgp":{"med":4294967296}}}`: 1, `{` + vip + `"advertise":{"bgp":{"localPref":4294967295,"med":4294967295}}}`: 0,
			`{` + vip + `"advertise":{"bgp":{"communities":["65536:1"],"largeCommunities":["1:2:4294967296"]}}}`: 2,
			`{` + vip + `"advertise":{"bgp":{"communities":["large:1:2:4294967296"]}}}`:                          1,
			`{` + vip + `"advertise":{"bgp":{"largeCommunities":` + list(64, `"1:2:%d"`) + `}}}`:                 1,
			`{"addresses":` + list(64, `"10.0.0.%d"`) + `}`:                                                      0, `{"addresses":` + list(65, `"10.0.0.%d"`) + `}`: 1,
			`{` + https + `}}}`: 0, `{` + check(`,"interval":"100ms"`) + `}`: 0, `{` + check(`,"interval":"5m","timeout":"1.5s","fall":100,"rise":100`) + `}`: 0,
			`{` + check(`,"interval":"1h0m1s"`) + `}`: 1, `{` + check(`,"timeout":"9ms"`) + `}`: 1, `{` + check(`,"timeout":"501ms"`) + `}`: 1,
			`{` + check(`,"interval":"5"`) + `}`: 1, `{` + check(`,"interval":5`) + `}`: 1, `{` + check(`,"timeout":"0"`) + `}`: 1,
			`{` + check(`,"tcp":{"port":1}`) + `}`: 1, `{` + vip + `"healthCheck":{}}`: 1,
			`{` + https + `,"host":"10.0.0.1"}}}`: 1, `{` + https + `,"host":"::ffff:127.0.0.1"}}}`: 0, `{` + https + `,"host":"Node-1.example.NET."}}}`: 0,
			`{` + https + `,"host":"a_b"}}}`: 2, `{` + https + `,"host":"224.0.0.1"}}}`: 1, `{` + https + `,"host":"127.1"}}}`: 2,
			`{` + https + `,"host":"127.0.0.1."}}}`: 2, `{` + https + `,"host":"fe80::1%eth0"}}}`: 0, `{` + https + `,"host":"ff02::1"}}}`: 1,
			`{` + https + `,"host":"-a"}}}`: 2, `{` + https + `,"host":"localhost"}}}`: 0, `{` + https + `,"host":"0x7f.1e"}}}`: 0,
			`{` + https + `,"serverName":"10.0.0.9"}}}`: 0, `{` + https + `,"serverName":"1.2"}}}`: 1, `{` + https + `,"path":"livez"}}}`: 1,
			`{` + https + `,"certFile":"/c","keyFile":"/k"}}}`: 0, `{` + https + `,"certFile":"c","keyFile":"k"}}}`: 2,
			`{` + https + `,"expectedStatus":[200,600]}}}`: 1, `{` + https + `,"insecureSkipVerify":true,"caFile":"/ca"}}}`: 1,
			`{` + vip + `"healthCheck":{"http":{"port":80,"preferredPath":"/#"}}}`: 1, `{` + vip + `"healthCheck":{"http":{"port":80,"path":"/","preferredPath":"/ready"}}}`: 0,
			`{` + vip + `"healthCheck":{"http":{"port":80,"path":"/#"}}}`: 1, `{` + vip + `"healthCheck":{"http":{"port":80,"host":"10.0.0.1"}}}`: 1,
			`{` + vip + `"healthCheck":{"http":{"port":65536,"host":"a b"}}}`: 2, `{` + vip + `"healthCheck":{"tcp":{"port":65536,"host":"a b"}}}`: 2,
			`{` + vip + `"healthCheck":{"http":{"port":80,"expectedStatus":[199]}}}`: 1,
			`{` + vip + `"healthCheck":{"tcp":{"port":80,"host":"10.0.0.1"}}}`:       1, `{` + vip + `"healthCheck":{"exec":{"command":["/bin/true",""]}}}`: 0,
			`{` + vip + `"healthCheck":{"exec":{"command":[""]}}}`:                                                    1,
			`{` + vip + `"nodeSelector":{"matchLabels":{"zone":"a","empty":""}},"partition":"quorum","preempt":true}`: 0,
			`{` + vip + `"advertise":{"l2":{"mode":"balanced"}}}`:                                                     0, `{` + vip + `"advertise":{"l2":{"mode":"single"}}}`: 1,
			`{` + vip + `"nodeSelector":{"matchLabels":{"zone":"a b"}}}`: 1,
			`{"addresses":["10.0.0.1","10.0.0.1"]}`:                      1, `{` + vip + `"advertise":{"l2":{"interfaces":["eth0:1"]}}}`: 1,
			`{` + vip + `"advertise":{"bgp":{"asPathPrepend":-1}}}`: 1, `{` + vip + `"advertise":{"bgp":{"med":-1}}}`: 1,
			`{` + vip + `"advertise":{"bgp":{"localPref":4294967296}}}`: 1, `{` + vip + `"advertise":{"bgp":{"largeCommunities":["1:2:3","1:2:3"]}}}`: 1,
			`{` + vip + `"healthCheck":{"exec":{"command":[]}}}`: 1, `{` + check(`,"fall":-1`) + `}`: 1, `{` + check(`,"rise":101`) + `}`: 1,
			`{` + vip + `"healthCheck":{"https":{}}}`: 1, `{` + vip + `"healthCheck":{"http":{}}}`: 1, `{` + vip + `"healthCheck":{"tcp":{}}}`: 1,
			`{` + vip + `"healthCheck":{"http":{"port":0}}}`: 1, `{` + vip + `"healthCheck":{"tcp":{"port":0}}}`: 1,
			`{` + vip + `"healthCheck":{"http":{"port":80,"expectedStatus":[600]}}}`: 1,
		},
		KindLoadBalancer: {
			`{}`: 3, `{"addresses":["10.0.0.1"],"ports":[{"port":80}]}`: 1, `{"addresses":["10.0.0.1"],"backends":[{"address":"10.0.0.2"}]}`: 1,
			`{"addresses":["10.0.0.1"],"ports":[{"port":80}],"backends":[{"address":"10.0.0.2"}],"drainTimeout":"5"}`:  1,
			`{"addresses":["10.0.0.1"],"ports":[{"port":80}],"backends":[{"address":"10.0.0.2"}],"drainTimeout":"1h"}`: 0,
		},
		KindBGPPeer: {
			`{"myASN":64512,"peerASN":0,"peerAddress":"10.0.0.1"}`: 1, `{"myASN":64512,"peerAddress":"10.0.0.1"}`: 1,
			`{"myASN":64512,"dynamicASN":"external","peerAddress":"10.0.0.1"}`: 0, `{` + peer + `,"dynamicASN":"internal"}`: 1,
			`{` + peer + `,"passwordSecret":{}}`: 1, `{` + peer + `,"passwordSecret":{"namespace":"lbd-system"}}`: 1,
			`{` + peer + `,"passwordSecret":{"name":"a","namespace":"lbd-system"}}`: 0, `{` + peer + `,"passwordSecret":{"name":"a/b","namespace":"A"}}`: 2,
			`{}`: 3, `{` + peer + `}`: 0, `{"myASN":4294967296,"peerASN":1,"peerAddress":"10.0.0.1"}`: 1,
			`{` + peer + `,"holdTime":"90s"}`: 0, `{` + peer + `,"holdTime":"0s"}`: 0, `{` + peer + `,"holdTime":"1m30s","keepaliveTime":"89s"}`: 0,
			`{` + peer + `,"holdTime":"3s","keepaliveTime":"3s"}`: 1, `{` + peer + `,"holdTime":"9.0005s"}`: 1, `{` + peer + `,"keepaliveTime":"1.0005s"}`: 1,
			`{` + peer + `,"passive":true}`: 0, `{` + peer + `,"passive":true,"connectTime":"1s"}`: 1, `{` + peer + `,"connectTime":"65536s"}`: 1,
			`{` + peer + `,"families":["ipv6"]}`: 0, `{` + peer + `,"families":[]}`: 0, `{` + peer + `,"routerID":"10.0.0.256"}`: 1,
			`{` + peer + `,"password":"` + strings.Repeat("ä", 40) + `"}`: 0, `{` + peer + `,"password":"` + strings.Repeat("ä", 41) + `"}`: 1,
			`{` + peer + `,"nodeSelectors":[{"matchLabels":{"zone":"a"}},{}]}`: 0, `{` + peer + `,"gracefulShutdownDelay":"5m"}`: 0,
			`{` + peer + `,"maxPrefixes":10000001}`: 1, `{` + peer + `,"peerPort":65536}`: 1, `{` + peer + `,"sourceAddress":"169.254.0.1"}`: 0,
			`{` + peer + `,"interface":"...."}`: 1, `{` + peer + `,"bfdProfile":"a..b"}`: 1, `{` + peer + `,"bfdProfile":"a.b"}`: 0,
			`{` + peer + `,"keepaliveTime":"3"}`: 1, `{` + peer + `,"connectTime":"1"}`: 1, `{` + peer + `,"gracefulShutdownDelay":"1"}`: 1,
			`{` + peer + `,"peerPort":-1}`: 1,
		},
		KindBFDProfile: {
			``: 0, `{}`: 0, `{"minimumTtl":1,"passiveMode":true,"strict":true}`: 0, `{"transmitInterval":49}`: 1, `{"receiveInterval":50}`: 0, `{"receiveInterval":60001}`: 1,
			`{"authKeyID":1}`: 1, `{"authType":"keyed-sha1"}`: 1, `{"authType":"keyed-sha1","authKeyFile":"/k"}`: 0, `{"authKeyFile":"/k"}`: 1,
			`{"authType":"keyed-sha1","authKeyFile":"/k","authKeyID":-1}`: 1,
			`{"minimumTtl":-1}`: 1,
		},
		KindCommunity: {
			`{}`: 1, `{"communities":[{}]}`: 2, `{"communities":[{"name":"a","value":"large:1:2:4294967296"}]}`: 1,
			`{"communities":` + list(1024, `{"name":"n%d","value":"1:1"}`) + `}`: 0,
			`{"communities":` + list(1025, `{"name":"n%d","value":"1:1"}`) + `}`: 1,
			`{"communities":[]}`: 1,
		},
		KindIPAddressPool: {
			`{}`: 1, `{"addresses":[]}`: 1, `{"addresses":["10.0.0.0/24"],"autoAssign":false,"avoidBuggyIPs":true}`: 0,
			`{"addresses":["127.0.0.0/32"]}`: 1, `{"addresses":["10.0.0.1-127.0.0.1"]}`: 1, `{"addresses":["223.255.255.255-240.0.0.1"]}`: 1,
			`{"addresses":["240.0.0.0/5"]}`: 0, `{"addresses":["248.0.0.0/5"]}`: 1, `{"addresses":["2001:db8::9-2001:db8::1"]}`: 1,
			`{"addresses":["f000::-ff00::1"]}`: 1, `{"addresses":["fe00::-fec0::1"]}`: 1, `{"addresses":["::/64"]}`: 1,
			`{"addresses":` + list(256, `"10.0.%d.0/24"`) + `}`: 0, `{"addresses":` + list(257, `"10.0.0.%d/32"`) + `}`: 2,
			`{` + pool + `{"priority":2147483647,"namespaces":["a"],"namespaceSelectors":[{"matchLabels":{"team":"a"}}]}}`: 0,
			`{` + pool + `{"namespaces":["a.b"]}}`: 1, `{` + pool + `{"priority":2147483648}}`: 1,
			`{` + pool + `{"serviceSelectors":[{"matchExpressions":[{"key":"a/b","operator":"In","values":["x"]},{"key":"c","operator":"Exists"}]}]}}`: 0,
			`{` + pool + `{"serviceSelectors":[{"matchExpressions":[{"key":"a b","operator":"Exists"}]}]}}`:                                            1,
			`{` + pool + `{"serviceSelectors":[{"matchExpressions":[{"key":"a","operator":"DoesNotExist","values":["x"]}]}]}}`:                         1,
			`{` + pool + `{"namespaceSelectors":[{"matchExpressions":[{"key":"a","operator":"In","values":[]}]}]}}`:                                    1,
			`{` + pool + `{"serviceSelectors":[{"matchLabels":{"a":"b c"}}]}}`:                                                                         1,
			`{` + pool + `{"serviceSelectors":[{"matchExpressions":[{"key":"a","operator":"In","values":["b c"]}]}]}}`:                                 1,
			`{` + pool + `{"serviceSelectors":[{"matchExpressions":[{"key":"a"}]}]}}`:                                                                  1,
			`{` + pool + `{"serviceSelectors":` + list(65, `{"matchLabels":{"a":"%d"}}`) + `}}`:                                                        1,
			`{` + pool + `{"namespaceSelectors":` + list(65, `{"matchLabels":{"a":"%d"}}`) + `}}`:                                                      1,
			`{` + pool + `{"namespaceSelectors":[{"matchExpressions":` + list(65, `{"key":"a%d","operator":"Exists"}`) + `}]}}`:                        1,
			`{` + pool + `{"serviceSelectors":[{"matchExpressions":[{"operator":"Exists"}]}]}}`:                                                        1,
		},
		KindL2Advertisement: {
			``: 0, `{}`: 0, `{"ipAddressPools":["a","b.c"],"interfaces":["eth0","bond0.7"]}`: 0, `{"ipAddressPools":["` + strings.Repeat("a.", 127) + `"]}`: 1,
			`{"interfaces":["eth0","eth0"]}`: 1, `{"ipAddressPools":["a","a"]}`: 1, `{"interfaces":["eth0:1"]}`: 1,
			`{"preferredNodeSelectors":[{"weight":100}]}`: 0, `{"preferredNodeSelectors":[{"preference":{}}]}`: 1,
			`{"preferredNodeSelectors":` + list(65, `{"weight":1,"preference":{"matchLabels":{"a":"%d"}}}`) + `}`: 1,
			`{"nodeSelectors":` + list(65, `{"matchLabels":{"a":"%d"}}`) + `}`:                                    1,
			`{"ipAddressPoolSelectors":` + list(65, `{"matchLabels":{"a":"%d"}}`) + `}`:                           1,
			`{"serviceSelectors":` + list(65, `{"matchLabels":{"a":"%d"}}`) + `}`:                                 1,
		},
		KindBGPAdvertisement: {
			``: 0, `{}`: 0, `{"aggregationLength":24,"aggregationLengthV6":64,"localPref":4294967295,"peers":["tor1"]}`: 0, `{"localPref":4294967296}`: 1,
			`{"serviceSelectors":[{}]}`: 0, `{"serviceSelectors":[{}],"aggregationLength":32,"aggregationLengthV6":128}`: 0,
			`{"serviceSelectors":[],"aggregationLength":24}`: 0, `{"serviceSelectors":[{}],"aggregationLengthV6":127}`: 1, `{"peers":["tor1","tor1"]}`: 1,
			`{"nodeSelectors":[{"matchExpressions":[{"key":"a","operator":"In"}]}]}`: 1, `{"nodeSelectors":[{"matchExpressions":[{"key":"a","operator":"NotIn","values":[""]}]}]}`: 0,
			`{"ipAddressPoolSelectors":` + list(65, `{"matchLabels":{"a":"%d"}}`) + `}`: 1,
			`{"nodeSelectors":` + list(65, `{"matchLabels":{"a":"%d"}}`) + `}`:          1,
			`{"serviceSelectors":` + list(65, `{"matchLabels":{"a":"%d"}}`) + `}`:       1,
			`{"aggregationLength":33}`: 1, `{"aggregationLengthV6":0}`: 1, `{"localPref":-1}`: 1, `{"ipAddressPools":["a","a"]}`: 1,
		},
	} {
		for spec, broken := range specs {
			text := `{"apiVersion":"lbd.dev/v1alpha1","kind":"` + kind + `","metadata":{"name":"a"}`
			if spec != "" {
				text += `,"spec":` + spec
			}
			text += "}"
			label := spec
			if len(label) > 100 {
				label = fmt.Sprintf("%s... (%d bytes)", label[:80], len(label))
			}
			recordText(t, label, kinds[kind], []byte(text))
			object := reflect.New(kinds[kind]).Interface().(interface {
				Default()
				Validate() []FieldError
			})
			if err := json.Unmarshal([]byte(text), object); err != nil {
				if broken != 1 {
					t.Errorf("%s %s: %v", kind, label, err)
				}
				continue
			}
			object.Default()
			if errs := object.Validate(); len(errs) != broken {
				t.Errorf("%s %s: %d errors, want %d\n%s", kind, label, len(errs), broken, texts(errs))
			}
		}
	}
}
