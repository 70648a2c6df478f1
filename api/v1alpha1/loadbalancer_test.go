package v1alpha1

import (
	"encoding/json"
	"fmt"
	"reflect"
	"strings"
	"testing"
	"time"
)

// balancerTexts are specs and what Validate says of them. What they leave out of addresses,
// ports and backends is that of a good one. The files of a node are judged by the same rules,
// with lines, in package config.
var balancerTexts = map[string]string{
	`{}`: "",
	`{"ports":[{"port":443,"targetPort":6443},{"port":53,"protocol":"UDP"},{"port":53}]}`:                                                               "",
	`{"addresses":["10.0.0.200","fd00::200"],"backends":[{"address":"10.0.0.11"},{"address":"10.0.0.11","port":81},{"address":"fd00::11","weight":0}]}`: "",
	`{"healthCheck":{"tcp":{"port":80}},"affinity":"client","onFailure":"keep","drainTimeout":"0s","allowedSources":["10.0.0.0/8","192.0.2.1/32"]}`:     "",
	`{"healthCheck":{"https":{"port":6443}},"preempt":true,"partition":"quorum","nodeSelector":{"matchLabels":{"a":"b"}}}`:                              "",
	`{"healthCheck":{"http":{"port":80,"host":""}},"advertise":{"l2":{"interfaces":["eth1"]}}}`:                                                         "",

	`{"backends":[],"backendNodes":{"matchLabels":{"role":"ingress"}}}`: "",
	`{"addresses":["10.0.0.200","fd00::200"],"backendNodes":{}}`:        "",
	`{"backends":[{"address":"fd00::11"}],"backendNodes":{}}`:           "spec.backends[0].address: \"fd00::11\" is of another family than the addresses of this object\n",
	`{"backendNodes":{"matchLabels":{"a":"b c"}}}`:                      "spec.backendNodes.matchLabels[a]: \"b c\" must be letters, digits, -, _ and ., at most 63, beginning and ending with a letter or digit\n",

	`{"ports":[]}`:                                       "spec.ports: must have at least one port\n",
	`{"ports":[{}]}`:                                     "spec.ports[0].port: is required: from 1 to 65535\n",
	`{"ports":[{"port":65536}]}`:                         "spec.ports[0].port: 65536 must be from 1 to 65535\nspec.ports[0].targetPort: 65536 must be from 1 to 65535\n",
	`{"ports":[{"port":-1}]}`:                            "spec.ports[0].port: -1 must be from 1 to 65535\nspec.ports[0].targetPort: -1 must be from 1 to 65535\n",
	`{"ports":[{"port":1,"targetPort":65536}]}`:          "spec.ports[0].targetPort: 65536 must be from 1 to 65535\n",
	`{"ports":[{"port":1,"targetPort":-1}]}`:             "spec.ports[0].targetPort: -1 must be from 1 to 65535\n",
	`{"ports":[{"port":1,"protocol":"SCTP"}]}`:           "spec.ports[0].protocol: \"SCTP\" must be TCP or UDP\n",
	`{"ports":[{"port":1},{"port":1,"protocol":"TCP"}]}`: "spec.ports[1].port: 1 is listed twice with the protocol TCP\n",

	`{"backends":[]}`:   "spec.backends: must have at least one backend\n",
	`{"backends":[{}]}`: "spec.backends[0].address: \"\" is not an IP address\n",
	`{"backends":[{"address":"10.0.0.11"},{"address":"web1"}]}`:                               "spec.backends[1].address: \"web1\" is not an IP address\n",
	`{"backends":[{"address":"10.0.0.11"},{"address":"127.0.0.1"}]}`:                          "spec.backends[1].address: \"127.0.0.1\" is a loopback address\n",
	`{"backends":[{"address":"10.0.0.11"},{"address":"10.0.0.200"}]}`:                         "spec.backends[1].address: \"10.0.0.200\" is an address of this object; give the server's own address\n",
	`{"backends":[{"address":"10.0.0.11"},{"address":"fd00::11"}]}`:                           "spec.backends[1].address: \"fd00::11\" is of another family than the addresses of this object\n",
	`{"addresses":["fd00::200"],"backends":[{"address":"fd00::11"},{"address":"10.0.0.11"}]}`: "spec.backends[1].address: \"10.0.0.11\" is of another family than the addresses of this object\n",
	`{"addresses":["10.0.0.200","fd00::200"]}`:                                                "spec.addresses[1]: \"fd00::200\" has no backend of its family\n",
	`{"addresses":["fd00::200","10.0.0.200"],"backends":[{"address":"fd00::11"}]}`:            "spec.addresses[1]: \"10.0.0.200\" has no backend of its family\n",
	`{"backends":[{"address":"10.0.0.11","weight":101}]}`:                                     "spec.backends[0].weight: 101 must be from 0 to 100\n",
	`{"backends":[{"address":"10.0.0.11","weight":-1}]}`:                                      "spec.backends[0].weight: -1 must be from 0 to 100\n",
	`{"backends":[{"address":"10.0.0.11","port":70000}]}`:                                     "spec.backends[0].port: 70000 must be from 1 to 65535\n",
	`{"backends":[{"address":"10.0.0.11","port":-1}]}`:                                        "spec.backends[0].port: -1 must be from 1 to 65535\n",
	`{"backends":[{"address":"10.0.0.11"},{"address":"10.0.0.11","weight":1}]}`:               "spec.backends[1].address: \"10.0.0.11\" is listed twice\n",

	`{"healthCheck":{"exec":{"command":["/bin/true"]}}}`:      "spec.healthCheck.exec: is not for a LoadBalancer, which asks each backend by the network\n",
	`{"healthCheck":{"tcp":{"port":80,"host":"10.0.0.1"}}}`:   "spec.healthCheck.tcp.host: \"10.0.0.1\" is not for a LoadBalancer, which asks each backend at its own address\n",
	`{"healthCheck":{"http":{"port":80,"host":"10.0.0.1"}}}`:  "spec.healthCheck.http.host: \"10.0.0.1\" is not for a LoadBalancer, which asks each backend at its own address\n",
	`{"healthCheck":{"https":{"port":80,"host":"10.0.0.1"}}}`: "spec.healthCheck.https.host: \"10.0.0.1\" is not for a LoadBalancer, which asks each backend at its own address\n",
	`{"healthCheck":{"fall":3}}`:                              "spec.healthCheck: must have one of https, http, tcp and exec\n",
	`{"affinity":"cookie"}`:                                   "spec.affinity: \"cookie\" must be connection or client\n",
	`{"onFailure":"wait"}`:                                    "spec.onFailure: \"wait\" must be reset or keep\n",
	`{"source":"client"}`:                                     "",
	`{"source":"node"}`:                                       "spec.source: \"node\" must be vip or client\n",
	`{"sourceAddresses":["10.0.0.200"]}`:                      "",
	`{"addresses":["10.0.0.200","fd00::200","10.0.0.201"],"backends":[{"address":"10.0.0.11"},{"address":"fd00::11"}],"sourceAddresses":["10.0.0.201","fd00::200"],"source":"vip"}`: "",
	`{"sourceAddresses":["10.0.0.201"]}`:                                                              "spec.sourceAddresses[0]: \"10.0.0.201\" is none of the addresses of this object, as they are written there\n",
	`{"sourceAddresses":["10.0.0.11"]}`:                                                               "spec.sourceAddresses[0]: \"10.0.0.11\" is none of the addresses of this object, as they are written there\n",
	`{"sourceAddresses":["10.0.0.200","10.0.0.200"]}`:                                                 "spec.sourceAddresses[1]: \"10.0.0.200\" is listed twice\n",
	`{"sourceAddresses":["10.0.0.200"],"source":"client"}`:                                            "spec.sourceAddresses: is for the source vip: with client backends see the client\n",
	`{"sourceAddresses":[],"source":"client"}`:                                                        "",
	`{"addresses":["fd00::0200"],"backends":[{"address":"fd00::1"}],"sourceAddresses":["fd00::200"]}`: "spec.sourceAddresses[0]: \"fd00::200\" is none of the addresses of this object, as they are written there\n",
	`{"drainTimeout":"2h"}`:                                                                           "spec.drainTimeout: 2h must be from 0s to 1h\n",
	`{"allowedSources":["10.0.0.1"]}`:                                                                 "spec.allowedSources[0]: \"10.0.0.1\" is not a prefix; write 10.0.0.1/32\n",
	`{"allowedSources":["all"]}`:                                                                      "spec.allowedSources[0]: \"all\" is not a prefix, such as 10.0.0.0/8\n",
	`{"allowedSources":["10.0.0.1/8"]}`:                                                               "spec.allowedSources[0]: \"10.0.0.1/8\" has bits behind its length; write 10.0.0.0/8\n",
	`{"allowedSources":["10.0.0.0/8","10.0.0.0/8"]}`:                                                  "spec.allowedSources[1]: \"10.0.0.0/8\" is listed twice\n",
	`{"allowedSources":["fd00::/8"]}`:                                                                 "spec.allowedSources[0]: \"fd00::/8\" is of another family than the addresses of this object\n",
	`{"addresses":["fd00::200"],"backends":[{"address":"fd00::1"}],"allowedSources":["10.0.0.0/8"]}`:  "spec.allowedSources[0]: \"10.0.0.0/8\" is of another family than the addresses of this object\n",
	`{"advertise":{"bgp":{}}}`:                                                                        "spec.advertise.bgp: needs l2 beside it: the balancer that owns the addresses there is the one that advertises them\n",
	`{"advertise":{"l2":{},"bgp":{}}}`:                                                                "",
	`{"advertise":{"l2":{},"bgp":{}},"source":"client"}`:                                              "spec.advertise.bgp: is for the source vip: with client the answers of the backends would not come back by a router\n",
	`{"advertise":{"l2":{"mode":"balanced"}}}`:                                                        "spec.advertise.l2.mode: \"balanced\" is not for connections that are forwarded: write active-backup\n",
}

// balancer is the text of an object with this spec, completed.
func balancer(t *testing.T, spec string) string {
	t.Helper()
	var s map[string]any
	if err := json.Unmarshal([]byte(spec), &s); err != nil {
		t.Fatal(err)
	}
	for field, good := range map[string]any{
		"addresses": []string{"10.0.0.200"}, "ports": []any{map[string]any{"port": 443}}, "backends": []any{map[string]any{"address": "10.0.0.11"}},
	} {
		if _, has := s[field]; !has {
			s[field] = good
		}
	}
	text, err := json.Marshal(s)
	if err != nil {
		t.Fatal(err)
	}
	return `{"apiVersion":"lbd.dev/v1alpha1","kind":"LoadBalancer","metadata":{"name":"a"},"spec":` + string(text) + `}`
}

// grid is a spec of so many addresses, ports and backends of each family.
func grid(addresses, ports, backends int) string {
	var a, p, b []string
	for i := range addresses {
		a = append(a, fmt.Sprintf(`"10.9.0.%d","fd09::%d"`, i+1, i+1))
	}
	for i := range ports {
		p = append(p, fmt.Sprintf(`{"port":%d}`, i+1))
	}
	for i := range backends {
		b = append(b, fmt.Sprintf(`{"address":"10.0.%d.%d"},{"address":"fd00::%x"}`, i/250, i%250+1, i+1))
	}
	return fmt.Sprintf(`{"addresses":[%s],"ports":[%s],"backends":[%s]}`, strings.Join(a, ","), strings.Join(p, ","), strings.Join(b, ","))
}

// beyond is a spec with one more of everything than the bounds allow.
func beyond() string {
	var addresses, ports, backends, sources []string
	for i := range 1001 {
		if i < 65 {
			addresses = append(addresses, fmt.Sprintf(`"10.9.0.%d"`, i+1))
		}
		ports = append(ports, fmt.Sprintf(`{"port":%d}`, i+1))
		backends = append(backends, fmt.Sprintf(`{"address":"10.0.%d.%d"}`, i/250, i%250+1))
		sources = append(sources, fmt.Sprintf(`"10.%d.%d.0/24"`, i/250, i%250))
	}
	return fmt.Sprintf(`{"addresses":[%s],"ports":[%s],"backends":[%s],"allowedSources":[%s],"sourceAddresses":[%s]}`,
		strings.Join(addresses, ","), strings.Join(ports, ","), strings.Join(backends, ","), strings.Join(sources, ","), strings.Join(addresses, ","))
}

func TestLoadBalancer(t *testing.T) {
	judge := func(label, spec, want string) {
		t.Helper()
		text := balancer(t, spec)
		recordText(t, label, reflect.TypeFor[LoadBalancer](), []byte(text))
		var object LoadBalancer
		if err := json.Unmarshal([]byte(text), &object); err != nil {
			t.Fatal(err)
		}
		object.Default()
		if got := texts(object.Validate()); got != want {
			t.Errorf("%s\nsays  %swants %s", label, got, want)
		}
	}
	for spec, want := range balancerTexts {
		judge(spec, spec, want)
	}
	const many = "spec.ports: has more than 200000 ways from an address and a port to a backend\n"
	judge("1000 ports of 100 backends of two families", grid(1, 1000, 100), "")
	judge("a backend more", grid(1, 1000, 101), many)
	judge("two addresses more", grid(2, 501, 100), many)
	judge("beyond the bounds", beyond(), "spec.addresses: has 65 entries; at most 64 are allowed\nspec.ports: has 1001 entries; at most 1000 are allowed\n"+
		"spec.backends: has 1001 entries; at most 1000 are allowed\nspec.ports: has more than 200000 ways from an address and a port to a backend\nspec.sourceAddresses: has 65 entries; at most 64 are allowed\nspec.allowedSources: has 1001 entries; at most 1000 are allowed\n")
}

func TestLoadBalancerDefaults(t *testing.T) {
	var lb LoadBalancer
	if err := json.Unmarshal([]byte(balancer(t, `{"ports":[{"port":443}]}`)), &lb); err != nil {
		t.Fatal(err)
	}
	lb.Default()
	s := lb.Spec
	if s.Ports[0] != (ForwardedPort{443, 443, ProtocolTCP}) || *s.Backends[0].Weight != 10 || s.Affinity != AffinityConnection || s.OnFailure != FailureReset || s.Source != SourceVIP ||
		s.DrainTimeout.Duration != 30*time.Second || s.Advertise.L2.Mode != L2ActiveBackup || s.Partition != PartitionAvailable || s.HealthCheck != nil {
		t.Errorf("defaults %+v", s)
	}
	s.DrainTimeout.Duration = 0
	if lb.Default(); s.DrainTimeout.Duration != 0 {
		t.Error("0s is no choice")
	}
}
