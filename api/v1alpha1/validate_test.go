package v1alpha1

import (
	"encoding/json"
	"reflect"
	"strings"
	"testing"
	"time"
)

// validNode returns a defaulted object that breaks no rule.
func validNode() *NodeConfiguration {
	c := &NodeConfiguration{
		TypeMeta: TypeMeta{APIVersion, KindNodeConfiguration},
		NodeName: "m1",
		Gossip:   GossipSpec{Peers: []string{"10.0.0.11", "10.0.0.12"}, KeyFile: "/etc/lbd/gossip.key"},
	}
	c.Default()
	return c
}

// validVIP returns a defaulted object that breaks no rule.
func validVIP() *VirtualIP {
	v := &VirtualIP{
		TypeMeta: TypeMeta{APIVersion, KindVirtualIP},
		Metadata: ObjectMeta{Name: "cp"},
		Spec: VirtualIPSpec{
			Addresses:   []string{"10.0.0.200", "fd00::200"},
			HealthCheck: &HealthCheck{HTTPS: &HTTPSCheck{Port: 6443}},
		},
	}
	v.Default()
	return v
}

// texts renders errors one a line.
func texts(errs []FieldError) string {
	var b strings.Builder
	for _, e := range errs {
		b.WriteString(e.Error() + "\n")
	}
	return b.String()
}

func TestDefaults(t *testing.T) {
	c, v := validNode(), validVIP()
	if got := texts(c.Validate()) + texts(v.Validate()); got != "" {
		t.Fatalf("valid objects are refused:\n%s", got)
	}
	if c.Weight != 100 || c.Gossip.Port != 7947 || c.Gossip.Label != "lbd" || c.Gossip.Detection != DetectionLAN ||
		*c.HTTP.Address != "127.0.0.1:7477" || c.Socket != "/run/lbd/lbd.sock" || c.Drain.Timeout.Duration != 30*time.Second ||
		c.Log.Level != LogInfo || c.Log.Format != LogText {
		t.Errorf("node defaults: %+v", c)
	}
	h := v.Spec.HealthCheck
	if h.Interval.Duration != 500*time.Millisecond || h.Timeout.Duration != 400*time.Millisecond || h.Fall != 2 || h.Rise != 1 {
		t.Errorf("check defaults: %+v", h)
	}
	if want := (HTTPSCheck{Host: "127.0.0.1", Port: 6443, Path: "/livez?exclude=etcd", PreferredPath: "/livez", ServerName: "kubernetes"}); !reflect.DeepEqual(*h.HTTPS, want) {
		t.Errorf("https defaults: %+v, want %+v", *h.HTTPS, want)
	}
	if v.Spec.Advertise == nil || v.Spec.Advertise.L2 == nil || v.Spec.Partition != PartitionAvailable {
		t.Errorf("spec defaults: %+v", v.Spec)
	}
	// Twice is once.
	before, _ := json.Marshal(v)
	v.Default()
	if after, _ := json.Marshal(v); string(after) != string(before) {
		t.Errorf("Default is not idempotent:\n%s\n%s", before, after)
	}
}

func TestDefaultsThatDepend(t *testing.T) {
	for host, want := range map[string]string{
		"": "kubernetes", "127.0.0.1": "kubernetes", "127.9.9.9": "kubernetes", "::1": "kubernetes", "localhost": "kubernetes",
		"::ffff:127.0.0.1": "kubernetes", "10.0.0.5": "10.0.0.5", "api.example.net": "api.example.net",
	} {
		h := HealthCheck{HTTPS: &HTTPSCheck{Host: host, Port: 1}}
		h.Default()
		if h.HTTPS.ServerName != want {
			t.Errorf("host %q: server name %q, want %q", host, h.HTTPS.ServerName, want)
		}
	}
	for interval, want := range map[time.Duration]time.Duration{
		100 * time.Millisecond: 80 * time.Millisecond,
		500 * time.Millisecond: 400 * time.Millisecond,
		10 * time.Second:       400 * time.Millisecond,
	} {
		h := HealthCheck{TCP: &TCPCheck{Port: 1}, Interval: Duration{interval}}
		h.Default()
		if h.Timeout.Duration != want {
			t.Errorf("interval %v: timeout %v, want %v", interval, h.Timeout, want)
		}
	}
	h := HealthCheck{HTTP: &HTTPCheck{Port: 80}}
	h.Default()
	if h.HTTP.Path != "/" || h.HTTP.Host != "127.0.0.1" {
		t.Errorf("http defaults: %+v", h.HTTP)
	}
}

func TestNodeConfigurationRules(t *testing.T) {
	for name, tt := range map[string]struct {
		change func(*NodeConfiguration)
		want   string
	}{
		"all at once": {func(c *NodeConfiguration) { c.NodeName, c.Weight, c.Gossip.Port = "", 1001, 70000 },
			"nodeName: is required\nweight: 1001 must be from 1 to 1000\ngossip.port: 70000 must be from 1 to 65535\n"},
		"api version": {func(c *NodeConfiguration) { c.APIVersion = "lbd.dev/v1" }, `apiVersion: "lbd.dev/v1" must be lbd.dev/v1alpha1`},
		"no version":  {func(c *NodeConfiguration) { c.APIVersion = "" }, `apiVersion: is required: lbd.dev/v1alpha1`},
		"node name":   {func(c *NodeConfiguration) { c.NodeName = "M_1" }, `nodeName: "M_1" ` + ruleSubdomain},
		"label key":   {func(c *NodeConfiguration) { c.NodeLabels = map[string]string{"a b": "x"} }, `nodeLabels[a b]: has a key that is not [prefix/]name, with a name of at most 63 letters, digits, -, _ and .`},
		"label value": {func(c *NodeConfiguration) { c.NodeLabels = map[string]string{"zone": "a/b"} }, `nodeLabels[zone]: "a/b" must be letters, digits, -, _ and ., at most 63, beginning and ending with a letter or digit`},
		"weight":      {func(c *NodeConfiguration) { c.Weight = -1 }, `weight: -1 must be from 1 to 1000`},
		"bind any":    {func(c *NodeConfiguration) { c.Gossip.BindAddress = "0.0.0.0" }, `gossip.bindAddress: "0.0.0.0" must be one address of the node, not all`},
		"bind name":   {func(c *NodeConfiguration) { c.Gossip.BindAddress = "eth0" }, `gossip.bindAddress: "eth0" is not an IP address`},
		"bind zone":   {func(c *NodeConfiguration) { c.Gossip.BindAddress = "fe80::1%eth0" }, `gossip.bindAddress: "fe80::1%eth0" is an IPv6 link-local address, which gossip cannot use`},
		"bind mapped": {func(c *NodeConfiguration) { c.Gossip.BindAddress = "::ffff:10.0.0.1" }, `gossip.bindAddress: "::ffff:10.0.0.1" is an IPv4 address in IPv6 form; write 10.0.0.1`},
		"peer twice":  {func(c *NodeConfiguration) { c.Gossip.Peers = []string{"10.0.0.1", "10.0.0.1:7947"} }, `gossip.peers[1]: "10.0.0.1:7947" is the same peer as gossip.peers[0]`},
		"peer name":   {func(c *NodeConfiguration) { c.Gossip.Peers = []string{"n1", "N1"} }, `gossip.peers[1]: "N1" is the same peer as gossip.peers[0]`},
		"peer port":   {func(c *NodeConfiguration) { c.Gossip.Peers = []string{"10.0.0.1:0"} }, `gossip.peers[0]: "10.0.0.1:0" has a port that is not from 1 to 65535`},
		"peer host":   {func(c *NodeConfiguration) { c.Gossip.Peers = []string{"http://x"} }, `gossip.peers[0]: "http://x" has a port that is not from 1 to 65535`},
		"peer bcast":  {func(c *NodeConfiguration) { c.Gossip.Peers = []string{"255.255.255.255"} }, `gossip.peers[0]: "255.255.255.255" is not the address of one node`},
		"no key":      {func(c *NodeConfiguration) { c.Gossip.KeyFile = "" }, "gossip.keyFile: is required: write one with `lbd keygen`, or set gossip.insecure: true to run without encryption"},
		"both":        {func(c *NodeConfiguration) { c.Gossip.Insecure = true }, `gossip.insecure: true and gossip.keyFile exclude each other`},
		"key path":    {func(c *NodeConfiguration) { c.Gossip.KeyFile = "gossip.key" }, `gossip.keyFile: "gossip.key" must be an absolute path`},
		"label":       {func(c *NodeConfiguration) { c.Gossip.Label = "my cluster" }, `gossip.label: "my cluster" must be 1 to 63 letters, digits, -, _ and ., beginning and ending with a letter or digit`},
		"detection":   {func(c *NodeConfiguration) { c.Gossip.Detection = "slow" }, `gossip.detection: "slow" must be lan, fast or wan`},
		"http name":   {func(c *NodeConfiguration) { c.HTTP.Address = new("localhost:80") }, `http.address: "localhost:80" must be IP:port, :port for every address, or off`},
		"http port":   {func(c *NodeConfiguration) { c.HTTP.Address = new("127.0.0.1:0") }, `http.address: "127.0.0.1:0" must be IP:port, :port for every address, or off`},
		"pprof":       {func(c *NodeConfiguration) { c.HTTP = HTTPSpec{Address: new("off"), Pprof: true} }, `http.pprof: true needs http.address, which is off`},
		"page":        {func(c *NodeConfiguration) { c.HTTP = HTTPSpec{Address: new("off"), Page: new(true)} }, `http.page: true needs http.address, which is off`},
		"socket":      {func(c *NodeConfiguration) { c.Socket = "/" + strings.Repeat("x", 107) }, "socket: (108 bytes) \"/" + strings.Repeat("x", 99) + "\" must be an absolute path of at most 107 bytes"},
		"drain":       {func(c *NodeConfiguration) { c.Drain.Timeout = Duration{2 * time.Hour} }, `drain.timeout: 2h must be from 1s to 1h`},
		"log level":   {func(c *NodeConfiguration) { c.Log.Level = "trace" }, `log.level: "trace" must be debug, info, warn or error`},
		"log format":  {func(c *NodeConfiguration) { c.Log.Format = "xml" }, `log.format: "xml" must be text or json`},

		"notify nothing": {func(c *NodeConfiguration) { c.Notify = []NotifySpec{{Timeout: Duration{time.Second}}} }, `notify[0].command: must name a program`},
		"notify": {func(c *NodeConfiguration) {
			c.Notify = []NotifySpec{
				{Command: []string{"/bin/true"}, Timeout: Duration{time.Second}},
				{Command: []string{"/bin/true", "a\x00"}, States: []NotifyState{"owner", "master", "owner"}, VirtualIPs: []string{"cp", "VI_1", "cp"}, Timeout: Duration{time.Hour}},
			}
		}, `notify[1].command[1]: "a\x00" has a NUL byte
notify[1].states[1]: "master" must be owner, standby or fault
notify[1].states[2]: "owner" is listed twice
notify[1].virtualIPs[1]: "VI_1" ` + ruleSubdomain + `
notify[1].virtualIPs[2]: "cp" is listed twice
notify[1].timeout: 1h must be from 100ms to 5m`},
		"notify in no time": {func(c *NodeConfiguration) {
			c.Notify = []NotifySpec{{Command: []string{"a"}, Timeout: Duration{99 * time.Millisecond}}}
		}, `notify[0].timeout: 99ms must be from 100ms to 5m`},

		"good: notify": {func(c *NodeConfiguration) {
			c.Notify = []NotifySpec{{Command: []string{"systemctl", "start", "a.service"}, States: []NotifyState{NotifyOwner, NotifyStandby, NotifyFault}, VirtualIPs: []string{"cp"}}}
			c.Default()
		}, ""},
		"metrics alone": {func(c *NodeConfiguration) { c.Metrics.Address = ":7479" },
			`metrics.address: ":7479" needs kubernetes, whose API server says who may read; without a cluster set http.address`},
		"metrics name": {func(c *NodeConfiguration) { c.Kubernetes, c.Metrics.Address = cluster(), "a:1" },
			`metrics.address: "a:1" must be IP:port, :port for every address, or off`},
		"metrics key":   {func(c *NodeConfiguration) { c.Metrics.KeyFile = "/a" }, `metrics: has only one of certFile and keyFile`},
		"metrics files": {func(c *NodeConfiguration) { c.Metrics.CertFile, c.Metrics.KeyFile = "/a", "b" }, `metrics.keyFile: "b" ` + ruleAbsPath},
		"good: metrics": {func(c *NodeConfiguration) {
			c.Kubernetes, c.Metrics = cluster(), MetricsSpec{Address: ":7479", CertFile: "/a", KeyFile: "/b"}
		}, ""},
		"good: metrics off": {func(c *NodeConfiguration) { c.Metrics.Address = "off" }, ""},
		"good: http all":    {func(c *NodeConfiguration) { c.HTTP.Address = new(":7477") }, ""},
		"good: http v6":     {func(c *NodeConfiguration) { c.HTTP.Address = new("[::1]:7477") }, ""},
		"good: http empty":  {func(c *NodeConfiguration) { c.HTTP.Address = new("") }, ""},
		"good: insecure":    {func(c *NodeConfiguration) { c.Gossip.KeyFile, c.Gossip.Insecure = "", true }, ""},
		"good: no peers":    {func(c *NodeConfiguration) { c.Gossip.Peers = nil }, ""},
		"good: ports": {func(c *NodeConfiguration) {
			c.Gossip.Peers = []string{"10.0.0.1", "10.0.0.1:7948", "fd00::1", "[fd00::1]:1", "[fd00::2]", "n1.example.net:80"}
		}, ""},
		"good: labels": {func(c *NodeConfiguration) {
			c.NodeLabels = map[string]string{"node-role.kubernetes.io/control-plane": "", "zone": "A_1.b"}
		}, ""},
	} {
		t.Run(name, func(t *testing.T) {
			c := validNode()
			tt.change(c)
			if got := strings.TrimSuffix(texts(c.Validate()), "\n"); got != strings.TrimSuffix(tt.want, "\n") {
				t.Errorf("got\n%s\nwant\n%s", got, tt.want)
			}
		})
	}
}

func TestVirtualIPRules(t *testing.T) {
	long := strings.Repeat("a", 64)
	for name, tt := range map[string]struct {
		change func(*VirtualIP)
		want   string
	}{
		"no name":       {func(v *VirtualIP) { v.Metadata.Name = "" }, `metadata.name: is required`},
		"name":          {func(v *VirtualIP) { v.Metadata.Name = "Control Plane" }, `metadata.name: "Control Plane" ` + ruleSubdomain},
		"long name":     {func(v *VirtualIP) { v.Metadata.Name = long }, `metadata.name: "` + long + `" ` + ruleSubdomain},
		"namespace":     {func(v *VirtualIP) { v.Metadata.Namespace = "a.b" }, `metadata.namespace: "a.b" must be lower case letters, digits and -, at most 63 (DNS-1123)`},
		"annotation":    {func(v *VirtualIP) { v.Metadata.Annotations = map[string]string{"": "x"} }, `metadata.annotations[]: has a key that is not [prefix/]name, with a name of at most 63 letters, digits, -, _ and .`},
		"no address":    {func(v *VirtualIP) { v.Spec.Addresses = nil }, `spec.addresses: must have at least one address`},
		"two checks":    {func(v *VirtualIP) { v.Spec.HealthCheck.TCP = &TCPCheck{Host: "::1", Port: 1} }, `spec.healthCheck: has https and tcp; one check is allowed`},
		"no check":      {func(v *VirtualIP) { v.Spec.HealthCheck.HTTPS = nil }, `spec.healthCheck: must have one of https, http, tcp and exec`},
		"no port":       {func(v *VirtualIP) { v.Spec.HealthCheck.HTTPS.Port = 0 }, `spec.healthCheck.https.port: is required: from 1 to 65535`},
		"port":          {func(v *VirtualIP) { v.Spec.HealthCheck.HTTPS.Port = 65536 }, `spec.healthCheck.https.port: 65536 must be from 1 to 65535`},
		"host":          {func(v *VirtualIP) { v.Spec.HealthCheck.HTTPS.Host = "10.0.0.300" }, `spec.healthCheck.https.host: "10.0.0.300" is neither an IP address nor a host name`},
		"host any":      {func(v *VirtualIP) { v.Spec.HealthCheck.HTTPS.Host = "::" }, `spec.healthCheck.https.host: "::" is not the address of one host`},
		"host is VIP":   {func(v *VirtualIP) { v.Spec.HealthCheck.HTTPS.Host = "fd00:0::200" }, `spec.healthCheck.https.host: "fd00:0::200" is an address of this object; ask the service on the node itself, such as 127.0.0.1`},
		"path":          {func(v *VirtualIP) { v.Spec.HealthCheck.HTTPS.Path = "/a b" }, `spec.healthCheck.https.path: "/a b" must begin with / and have no blanks and no #`},
		"status":        {func(v *VirtualIP) { v.Spec.HealthCheck.HTTPS.ExpectedStatus = []int32{200, 99} }, `spec.healthCheck.https.expectedStatus[1]: 99 must be from 200 to 599`},
		"server name":   {func(v *VirtualIP) { v.Spec.HealthCheck.HTTPS.ServerName = "*.x" }, `spec.healthCheck.https.serverName: "*.x" is neither an IP address nor a host name`},
		"skip and CA":   {func(v *VirtualIP) { h := v.Spec.HealthCheck.HTTPS; h.InsecureSkipVerify, h.CAFile = true, "/ca" }, `spec.healthCheck.https.insecureSkipVerify: true and caFile exclude each other`},
		"half a pair":   {func(v *VirtualIP) { v.Spec.HealthCheck.HTTPS.KeyFile = "/key" }, `spec.healthCheck.https: has only one of certFile and keyFile; a client certificate needs both`},
		"preferred":     {func(v *VirtualIP) { v.Spec.HealthCheck.HTTPS.PreferredPath = "livez" }, `spec.healthCheck.https.preferredPath: "livez" must begin with / and have no blanks and no #`},
		"CA path":       {func(v *VirtualIP) { v.Spec.HealthCheck.HTTPS.CAFile = "ca.crt" }, `spec.healthCheck.https.caFile: "ca.crt" must be an absolute path`},
		"interval":      {func(v *VirtualIP) { v.Spec.HealthCheck.Interval = Duration{49 * time.Millisecond} }, `spec.healthCheck.interval: 49ms must be from 50ms to 1h`},
		"timeout":       {func(v *VirtualIP) { v.Spec.HealthCheck.Timeout = Duration{501 * time.Millisecond} }, `spec.healthCheck.timeout: 501ms must not be longer than the interval, 500ms`},
		"short timeout": {func(v *VirtualIP) { v.Spec.HealthCheck.Timeout = Duration{-1} }, `spec.healthCheck.timeout: -1ns must be at least 10ms`},
		"fall":          {func(v *VirtualIP) { v.Spec.HealthCheck.Fall = 101 }, `spec.healthCheck.fall: 101 must be from 1 to 100`},
		"rise":          {func(v *VirtualIP) { v.Spec.HealthCheck.Rise = -1 }, `spec.healthCheck.rise: -1 must be from 1 to 100`},
		"command":       {func(v *VirtualIP) { v.Spec.HealthCheck.HTTPS, v.Spec.HealthCheck.Exec = nil, &ExecCheck{} }, `spec.healthCheck.exec.command: must name a program`},
		"NUL": {func(v *VirtualIP) {
			v.Spec.HealthCheck.HTTPS, v.Spec.HealthCheck.Exec = nil, &ExecCheck{[]string{"a\x00"}}
		}, `spec.healthCheck.exec.command[0]: "a\x00" has a NUL byte`},
		"no announcer": {func(v *VirtualIP) { v.Spec.Advertise = &Advertise{} }, `spec.advertise: must have l2, bgp or both; leave advertise out for the default`},
		"interface":    {func(v *VirtualIP) { v.Spec.Advertise.L2.Interfaces = []string{"eth0", "eth0"} }, `spec.advertise.l2.interfaces[1]: "eth0" is listed twice`},
		"selector":     {func(v *VirtualIP) { v.Spec.NodeSelector = &LabelSelector{map[string]string{"a/b/c": ""}} }, `spec.nodeSelector.matchLabels[a/b/c]: has a key that is not [prefix/]name, with a name of at most 63 letters, digits, -, _ and .`},
		"mode":         {func(v *VirtualIP) { v.Spec.Advertise.L2.Mode = "single" }, `spec.advertise.l2.mode: "single" must be active-backup or balanced`},
		"partition":    {func(v *VirtualIP) { v.Spec.Partition = "majority" }, `spec.partition: "majority" must be available or quorum`},

		"good: no check": {func(v *VirtualIP) { v.Spec.HealthCheck = nil }, ""},
		"good: query":    {func(v *VirtualIP) { v.Spec.HealthCheck.HTTPS.Path = "/livez?verbose&exclude=etcd" }, ""},
		"good: skip":     {func(v *VirtualIP) { v.Spec.HealthCheck.HTTPS.InsecureSkipVerify = true }, ""},
		"good: equal":    {func(v *VirtualIP) { v.Spec.HealthCheck.Timeout = Duration{500 * time.Millisecond} }, ""},
	} {
		t.Run(name, func(t *testing.T) {
			v := validVIP()
			tt.change(v)
			record(t, "", v)
			if got := strings.TrimSuffix(texts(v.Validate()), "\n"); got != tt.want {
				t.Errorf("got\n%s\nwant\n%s", got, tt.want)
			}
		})
	}
}

func TestAddressRules(t *testing.T) {
	for text, want := range map[string]string{
		"10.0.0.200": "", "fd00::200": "", "169.254.1.1": "", "2001:db8::1": "",
		"10.0.0.300":      "is not an IP address",
		"010.0.0.1":       "is not an IP address",
		"":                "is not an IP address",
		"vip.example.net": "is not an IP address",
		"10.0.0.200/32":   "has a prefix length; write 10.0.0.200",
		"fd00::1/128":     "has a prefix length; write fd00::1",
		"fd00::1%eth0":    "has a zone, which a VIP cannot have",
		"fe80::1%eth0":    "has a zone, which a VIP cannot have",
		"fe80::1":         "is an IPv6 link-local address",
		"::ffff:10.0.0.1": "is an IPv4 address in IPv6 form; write 10.0.0.1",
		"0.0.0.0":         "is the unspecified address",
		"::":              "is the unspecified address",
		"127.0.0.1":       "is a loopback address",
		"::1":             "is a loopback address",
		"224.0.0.18":      "is a multicast address",
		"ff02::1":         "is a multicast address",
		"255.255.255.255": "is the broadcast address",
	} {
		v := validVIP()
		v.Spec.Addresses = []string{text}
		record(t, text, v)
		if _, got := parseVIP(text); got != want {
			t.Errorf("%q: %q, want %q", text, got, want)
		}
	}
	v := validVIP()
	v.Spec.Addresses = []string{"fd00::1", "fd00:0:0::1"}
	record(t, "twice", v)
	if got, want := texts(v.Validate()), `spec.addresses[1]: "fd00:0:0::1" is listed twice`+"\n"; got != want {
		t.Errorf("got %q, want %q", got, want)
	}
}

func TestInterfaceNames(t *testing.T) {
	for name, want := range map[string]bool{
		"eth0": true, "bond0.100": true, "enp3s0f1np1": true, "abcdefghijklmno": true, "-": true, "wg@home": true,
		"abcdefghijklmnop": false, "": false, ".": false, "..": false, "a/b": false, "eth 0": false, "eth0:1": false, "a\n": false,
	} {
		a := &L2Advertisement{TypeMeta{APIVersion, KindL2Advertisement}, ObjectMeta{Name: "lan"}, L2AdvertisementSpec{Interfaces: []string{name}}, nil}
		record(t, name, a)
		if got := isInterfaceName(name); got != want {
			t.Errorf("%q: %v, want %v", name, got, want)
		}
	}
}

func TestSplitPeer(t *testing.T) {
	for text, want := range map[string]string{
		"10.0.0.1": "10.0.0.1|0", "10.0.0.1:80": "10.0.0.1|80", "fd00::1": "fd00::1|0", "[fd00::1]": "fd00::1|0",
		"[fd00::1]:65535": "fd00::1|65535", "n1": "n1|0", "N1.example.net.:7": "N1.example.net.|7",
	} {
		host, port, err := SplitPeer(text)
		if got := host + "|" + itoa(port); err != nil || got != want {
			t.Errorf("%q: %q %v, want %q", text, got, err, want)
		}
	}
	for _, text := range []string{
		"", ":", ":80", "10.0.0.1:", "10.0.0.1:65536", "10.0.0.1:-1", "10.0.0.1:x", "[10.0.0.1]:80", "[fd00::1", "fd00::1]:80",
		"[]:80", "a b", "a_b", "10.0.0.300", "1", "a:b:80", "[fd00::1]x:80", "-a", "a..b",
	} {
		if host, port, err := SplitPeer(text); err == nil {
			t.Errorf("%q is accepted as %q %d", text, host, port)
		}
	}
}

func itoa(n uint16) string {
	b, _ := json.Marshal(n)
	return string(b)
}

func TestDuration(t *testing.T) {
	for text, want := range map[string]string{"500ms": "500ms", "60m": "1h", "90s": "1m30s", "3600s": "1h", "0s": "0s", "10m": "10m", "1h10m": "1h10m", "-1h": "-1h"} {
		var d Duration
		if err := json.Unmarshal([]byte(`"`+text+`"`), &d); err != nil || d.String() != want {
			t.Errorf("%s: %v %v, want %s", text, d, err, want)
		}
	}
	for _, text := range []string{`""`, `"0"`, `"5"`, `5`, `"5 s"`, `"1d"`, `"s"`, `"1e3s"`} {
		var d Duration
		if err := json.Unmarshal([]byte(text), &d); err == nil {
			t.Errorf("%s is accepted as %v", text, d)
		}
	}
}

func TestJSONRoundTrip(t *testing.T) {
	for _, in := range []any{validNode(), validVIP(), validPeer(), validProfile(), validCommunity(), &VirtualIP{}, &NodeConfiguration{}, &BGPPeer{}, &BFDProfile{}} {
		data, err := json.Marshal(in)
		if err != nil {
			t.Fatal(err)
		}
		out := reflect.New(reflect.TypeOf(in).Elem()).Interface()
		if err := json.Unmarshal(data, out); err != nil {
			t.Fatal(err)
		}
		if !reflect.DeepEqual(in, out) {
			t.Errorf("%s\ngot  %+v\nwant %+v", data, out, in)
		}
	}
	// What is unset stays away, or an explicit zero would come back.
	data, _ := json.Marshal(&HealthCheck{TCP: &TCPCheck{Port: 1}})
	if want := `{"tcp":{"port":1}}`; string(data) != want {
		t.Errorf("got %s, want %s", data, want)
	}
}

func TestFieldErrorIsOneLine(t *testing.T) {
	e := FieldError{Path: "nodeLabels[a\nb\x1b\xff]", Value: "x\ny", Rule: "is odd"}
	if got, want := e.Error(), `nodeLabels[a?b??]: "x\ny" is odd`; got != want {
		t.Errorf("got %s, want %s", got, want)
	}
}

// The default of the preferred page goes with that of the required one, and an object
// that an older API server has given the latter gets it, too.
func TestPreferredPathDefault(t *testing.T) {
	for _, tt := range []struct{ path, preferred, want string }{
		{"", "", "/livez"},
		{"/livez?exclude=etcd", "", "/livez"},
		{"", "/x", "/x"},
		{"/livez?exclude=etcd", "/livez?exclude=etcd", "/livez?exclude=etcd"},
		{"/readyz", "", ""},
		{"/readyz", "/x", "/x"},
	} {
		h := HealthCheck{HTTPS: &HTTPSCheck{Port: 6443, Path: tt.path, PreferredPath: tt.preferred}}
		h.Default()
		h.Default()
		if h.HTTPS.PreferredPath != tt.want {
			t.Errorf("path %q, preferredPath %q: %q, want %q", tt.path, tt.preferred, h.HTTPS.PreferredPath, tt.want)
		}
	}
	h := HealthCheck{HTTP: &HTTPCheck{Port: 80}}
	if h.Default(); h.HTTP.PreferredPath != "" {
		t.Errorf("http prefers %q", h.HTTP.PreferredPath)
	}
}

// cluster is a section about a cluster as Default leaves it.
func cluster() *KubernetesSpec { return &KubernetesSpec{LoadBalancerClass: DefaultLoadBalancerClass} }

// TestPageIsForTheHostItself: without a word about it the page is not shown to other hosts.
func TestPageIsForTheHostItself(t *testing.T) {
	for address, want := range map[string]bool{
		"": false, "off": false, ":7477": false, "0.0.0.0:7477": false, "10.0.0.11:7477": false, "[::]:7477": false,
		"127.0.0.1:7477": true, "127.1.2.3:80": true, "[::1]:7477": true,
	} {
		c := NodeConfiguration{HTTP: HTTPSpec{Address: &address}}
		c.Default()
		if c.HTTP.HasPage() != want {
			t.Errorf("address %q: page %v, want %v", address, !want, want)
		}
		for _, said := range []bool{true, false} {
			c := NodeConfiguration{HTTP: HTTPSpec{Address: &address, Page: &said}}
			if c.Default(); c.HTTP.HasPage() != said {
				t.Errorf("address %q: page %v, want %v, which is written", address, !said, said)
			}
		}
	}
	var c NodeConfiguration
	if c.Default(); !c.HTTP.HasPage() {
		t.Error("the default address is that of the host itself, and has no page")
	}
}
