package v1alpha1

import (
	"encoding/json"
	"reflect"
	"strings"
	"testing"
	"time"
)

// machineTexts are specs as users write them, with the rules that each breaks.
var machineTexts = map[string]string{
	`{}`:                                            "spec: must have clusterName, clusterRef or machineSelector, or it would select the Machines of every cluster\n",
	`{"clusterName":"prod"}`:                        "",
	`{"clusterName":"prod.1_a"}`:                    "",
	`{"clusterName":"a b"}`:                         `spec.clusterName: "a b" ` + ruleLabelValue + "\n",
	`{"clusterRef":{"name":"prod"}}`:                "",
	`{"clusterRef":{"name":"a b"}}`:                 `spec.clusterRef.name: "a b" ` + ruleLabelValue + "\n",
	`{"clusterRef":{}}`:                             "spec.clusterRef.name: is required\n",
	`{"machineSelector":{}}`:                        "",
	`{"clusterName":"a","clusterRef":{"name":"a"}}`: "",
	`{"clusterName":"b","clusterRef":{"name":"a"}}`: `spec.clusterName: "b" must be the name of spec.clusterRef, if both are given` + "\n",

	`{"clusterName":"a","namespaces":["x","y"]}`:                                                "",
	`{"clusterName":"a","namespaces":["x","x"]}`:                                                `spec.namespaces[1]: "x" is listed twice` + "\n",
	`{"clusterName":"a","namespaces":["X"]}`:                                                    `spec.namespaces[0]: "X" ` + ruleDNSLabel + "\n",
	`{"clusterName":"a","namespaces":` + list(65, `"n%d"`) + `}`:                                "spec.namespaces: has 65 entries; at most 64 are allowed\n",
	`{"clusterName":"a","failureDomains":["rack 1","rack 2"]}`:                                  "",
	`{"clusterName":"a","failureDomains":["a","a"]}`:                                            `spec.failureDomains[1]: "a" is listed twice` + "\n",
	`{"clusterName":"a","failureDomains":[""]}`:                                                 `spec.failureDomains[0]: "" must have 1 to 256 characters` + "\n",
	`{"clusterName":"a","failureDomains":` + list(65, `"n%d"`) + `}`:                            "spec.failureDomains: has 65 entries; at most 64 are allowed\n",
	`{"machineSelector":{"matchLabels":{"a":"b c"}}}`:                                           `spec.machineSelector.matchLabels[a]: "b c" ` + ruleLabelValue + "\n",
	`{"machineSelector":{"matchExpressions":[{"key":"a","operator":"In"}]}}`:                    "spec.machineSelector.matchExpressions[0].values: must have at least one value for In\n",
	`{"machineSelector":{"matchExpressions":[{"key":"a","operator":"Exists","values":["b"]}]}}`: "spec.machineSelector.matchExpressions[0].values: must be left out for Exists\n",

	`{"clusterName":"a","address":"10.0.0.1"}`:                                                                                  "",
	`{"clusterName":"a","address":"fd00::1"}`:                                                                                   "",
	`{"clusterName":"a","address":"10.0.0.1/32"}`:                                                                               `spec.address: "10.0.0.1/32" has a prefix length; write 10.0.0.1` + "\n",
	`{"clusterName":"a","address":"127.0.0.1"}`:                                                                                 `spec.address: "127.0.0.1" is a loopback address` + "\n",
	`{"clusterName":"a","addressPool":"p.q"}`:                                                                                   "",
	`{"clusterName":"a","addressPool":"P"}`:                                                                                     `spec.addressPool: "P" ` + ruleSubdomain + "\n",
	`{"clusterName":"a","address":"10.0.0.1","addressPool":"p"}`:                                                                `spec.addressPool: "p" and spec.address exclude each other` + "\n",
	`{"clusterName":"a","addresses":["10.0.0.1","fd00::1"]}`:                                                                    "",
	`{"clusterName":"a","addresses":["fd00::1"]}`:                                                                               "",
	`{"clusterName":"a","addresses":[]}`:                                                                                        "spec.addresses: must have at least one address\n",
	`{"clusterName":"a","addresses":["10.0.0.1","10.0.0.2"]}`:                                                                   "spec.addresses: must be of two families\n",
	`{"clusterName":"a","addresses":["10.0.0.1","fd00::1","fd00::2"]}`:                                                          "spec.addresses: has 3 entries; at most 2 are allowed\n",
	`{"clusterName":"a","addresses":["10.0.0.1","fe80::1"]}`:                                                                    `spec.addresses[1]: "fe80::1" is an IPv6 link-local address` + "\n",
	`{"clusterName":"a","addresses":["10.0.0.1"],"address":"10.0.0.1"}`:                                                         "spec.addresses: must be left out with spec.address or spec.addressPool\n",
	`{"clusterName":"a","addresses":["10.0.0.1"],"addressPool":"p"}`:                                                            "spec.addresses: must be left out with spec.address or spec.addressPool\n",
	`{"clusterName":"a","addresses":["fd00::1"],"healthCheck":{"tcp":{"port":1,"host":"fd00::1"}}}`:                             `spec.healthCheck.tcp.host: "fd00::1" is an address of this object; ask the service on the node itself, such as 127.0.0.1` + "\n",
	`{"clusterName":"a","addresses":["fd00::1"],"healthCheck":{"http":{"port":1,"host":"fd00::1"}}}`:                            `spec.healthCheck.http.host: "fd00::1" is an address of this object; ask the service on the node itself, such as 127.0.0.1` + "\n",
	`{"clusterName":"a","addresses":["fd00::1"],"healthCheck":{"https":{"port":1,"host":"fd00::1","insecureSkipVerify":true}}}`: `spec.healthCheck.https.host: "fd00::1" is an address of this object; ask the service on the node itself, such as 127.0.0.1` + "\n",
	`{"clusterName":"a","families":["ipv4","ipv6","ipv4"]}`:                                                                     `spec.families[2]: "ipv4" is listed twice` + "\n",
	`{"clusterName":"a","addressPool":"p","families":["ipv6","ipv4"]}`:                                                          "",
	`{"clusterName":"a","families":["ipv6"]}`:                                                                                   "",
	`{"clusterName":"a","families":["ipv6","ipv6"]}`:                                                                            `spec.families[1]: "ipv6" is listed twice` + "\n",
	`{"clusterName":"a","families":["IPv6"]}`:                                                                                   `spec.families[0]: "IPv6" must be ipv4 or ipv6` + "\n",
	`{"clusterName":"a","families":["ipv4"],"address":"10.0.0.1"}`:                                                              "spec.families: are of addresses from a pool; spec.address and spec.addresses have their own\n",
	`{"clusterName":"a","families":["ipv4"],"addresses":["10.0.0.1"]}`:                                                          "spec.families: are of addresses from a pool; spec.address and spec.addresses have their own\n",
	`{"clusterName":"a","port":{"port":443,"protocol":"UDP"}}`:                                                                  "",
	`{"clusterName":"a","port":{"port":443,"machinePort":6443}}`:                                                                "",
	`{"clusterName":"a","port":{"port":-1,"machinePort":1}}`:                                                                    "spec.port.port: -1 must be from 1 to 65535\n",
	`{"clusterName":"a","port":{"port":65536,"machinePort":65536}}`:                                                             "spec.port.port: 65536 must be from 1 to 65535\nspec.port.machinePort: 65536 must be from 1 to 65535\n",
	`{"clusterName":"a","port":{"machinePort":-1}}`:                                                                             "spec.port.machinePort: -1 must be from 1 to 65535\n",
	`{"clusterName":"a","port":{"protocol":"SCTP"}}`:                                                                            `spec.port.protocol: "SCTP" must be TCP or UDP` + "\n",
	`{"clusterName":"a","drain":{"timeout":"2m","hook":false}}`:                                                                 "",
	`{"clusterName":"a","drain":{"preDrainHook":"register"}}`:                                                                   "",
	`{"clusterName":"a","drain":{"preDrainHook":"register","hook":false}}`:                                                      "spec.drain.preDrainHook: needs hook: true\n",
	`{"clusterName":"a","drain":{"preDrainHook":"template"}}`:                                                                   `spec.drain.preDrainHook: "template" must be register` + "\n",
	`{"clusterName":"a","drain":{"timeout":"999ms"}}`:                                                                           "spec.drain.timeout: 999ms must be from 1s to 1h\n",
	`{"clusterName":"a","drain":{"timeout":"61m"}}`:                                                                             "spec.drain.timeout: 1h1m must be from 1s to 1h\n",
	`{"clusterName":"a","drain":{"timeout":"1"}}`:                                                                               "must be a duration with a unit, such as 500ms or 30s\n",
	`{"clusterName":"a","annotateMembers":true}`:                                                                                "",
	`{"clusterName":"a","healthCheck":{"exec":{"command":["/x"]}}}`:                                                             "spec.healthCheck.exec: is for files only: an object of a cluster cannot run programs on hosts\n",

	`{"clusterName":"a","targetKind":{"group":"metal3.io","version":"v1alpha1","kind":"BareMetalHost","addressesPath":"status.hardware.nics"}}`: "",
	`{"clusterName":"a","targetKind":{"version":"v1","kind":"Node","resource":"nodes","nodeNamePath":"metadata.name"}}`:                         "",
	`{"clusterName":"a","targetKind":{}}`: "spec.targetKind.version: \"\" " + ruleDNSLabel + "\nspec.targetKind.kind: is required\n",
	`{"clusterName":"a","targetKind":{"group":"A","version":"V1","kind":"a_b","resource":"Nodes","addressesPath":"a..b","nodeNamePath":"a b"}}`: `spec.targetKind.group: "A" ` + ruleSubdomain + "\n" +
		`spec.targetKind.version: "V1" ` + ruleDNSLabel + "\n" + `spec.targetKind.kind: "a_b" must be letters, digits and -, at most 63` + "\n" +
		`spec.targetKind.resource: "Nodes" ` + ruleDNSLabel + "\n" +
		`spec.targetKind.addressesPath: "a..b" must be names of fields joined by dots, such as status.addresses` + "\n" +
		`spec.targetKind.nodeNamePath: "a b" must be names of fields joined by dots, such as status.addresses` + "\n",
	`{"clusterName":"a","advertise":{"bgp":{"communities":["no-export","65000:1","large:1:2:3"]}}}`: "",
	`{"clusterName":"a","advertise":{"bgp":{"communities":["65000:1","red"]}}}`:                     `spec.advertise.bgp.communities[1]: "red" ` + ruleNoNames + "\n",
	`{"clusterName":"a","advertise":{"bgp":{"communities":["graceful-shutdown"]}}}`:                 `spec.advertise.bgp.communities[0]: "graceful-shutdown" ` + errGracefulByLBD.Error() + "\n",
	`{"clusterName":"a","providerRef":{"apiGroup":"f5.example.com","kind":"BigIP","name":"edge"}}`:  "",
	`{"clusterName":"a","providerRef":{}}`:                                                          "spec.providerRef.kind: is required\nspec.providerRef.name: is required\n",
	`{"clusterName":"a","providerRef":{"apiGroup":"F5","kind":"a.b","name":"A"}}`: `spec.providerRef.apiGroup: "F5" ` + ruleSubdomain + "\n" +
		`spec.providerRef.kind: "a.b" must be letters, digits and -, at most 63` + "\n" + `spec.providerRef.name: "A" ` + ruleSubdomain + "\n",
}

func readMachines(text string) (*MachineLoadBalancer, error) {
	m := new(MachineLoadBalancer)
	if err := json.Unmarshal([]byte(text), m); err != nil {
		return nil, err
	}
	m.Default()
	return m, nil
}

func TestMachineLoadBalancer(t *testing.T) {
	for spec, want := range machineTexts {
		text := `{"apiVersion":"lbd.dev/v1alpha1","kind":"MachineLoadBalancer","metadata":{"name":"a"},"spec":` + spec + `}`
		label := spec
		if len(label) > 100 {
			label = label[:80]
		}
		recordText(t, label, kinds[KindMachineLoadBalancer], []byte(text))
		object, err := readMachines(text)
		got := ""
		if err != nil {
			got = err.Error() + "\n"
		} else {
			got = texts(object.Validate())
		}
		if got != want {
			t.Errorf("%s\nsays  %swants %s", spec, got, want)
		}
	}
}

func TestMachineLoadBalancerDefaults(t *testing.T) {
	m, err := readMachines(`{"spec":{"clusterRef":{"name":"prod"},"port":{"port":443},"targetKind":{"version":"v1","kind":"ByoHost"}}}`)
	if err != nil {
		t.Fatal(err)
	}
	s := m.Spec
	if s.ClusterName != "prod" || s.Port != (MachinePort{443, 443, MachineTCP}) || !*s.Drain.Hook || s.Advertise.L2 == nil ||
		s.TargetKind.ResourceName() != "byohosts" || s.TargetKind.AddressesPath != "status.addresses" || s.TargetKind.NodeNamePath != "status.nodeRef.name" {
		t.Errorf("defaults %+v", s)
	}
	before := s
	m.Default()
	if !reflect.DeepEqual(before, m.Spec) {
		t.Error("defaults of defaults differ")
	}
}

func TestMachines(t *testing.T) {
	c := validNode()
	c.Machines = &MachinesSpec{}
	c.Default()
	if got := texts(c.Validate()); got != "" {
		t.Fatal(got)
	}
	if m := c.Machines; !*m.DrainOnDeletion || m.DrainOnRemediation || m.HookTimeout.Duration != time.Minute || !reflect.DeepEqual(m.DrainLabels, DefaultDrainLabels()) {
		t.Errorf("defaults %+v", m)
	}
	c.Machines = &MachinesSpec{Kubeconfig: "kubeconfig", Namespaces: []string{"a", "A", "a"}, ClusterName: "a b",
		DrainLabels: []string{"cluster.x-k8s.io/control-plane/selected-for-upgrade", "a b", "ok", "ok"}, HookTimeout: Duration{2 * time.Hour}}
	c.Default()
	want := `machines.kubeconfig: "kubeconfig" must be an absolute path
machines.namespaces[1]: "A" ` + ruleDNSLabel + `
machines.namespaces[2]: "a" is listed twice
machines.clusterName: "a b" ` + ruleLabelValue + `
machines.drainLabels[0]: "cluster.x-k8s.io/control-plane/selected-for-upgrade" has two slashes: every API server refuses it as the key of a label and of an annotation, so no Machine can ever have it; use controlplane.cluster.x-k8s.io/selected-for-upgrade
machines.drainLabels[1]: "a b" must be [prefix/]name, with a name of at most 63 letters, digits, -, _ and .
machines.drainLabels[3]: "ok" is listed twice
machines.hookTimeout: 2h must be from 1s to 1h
`
	if got := texts(c.Validate()); got != want {
		t.Errorf("got\n%swant\n%s", got, want)
	}
	c.Machines.DrainLabels = []string{}
	c.Default()
	if strings.Contains(texts(c.Validate()), "drainLabels") || len(c.Machines.DrainLabels) > 0 {
		t.Error("no drain labels are not a choice")
	}
}
