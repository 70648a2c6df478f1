package convert

import (
	"bytes"
	"errors"
	"fmt"
	"io"
	"net/netip"
	"slices"
	"strconv"
	"strings"

	"go.yaml.in/yaml/v3"

	"lbd.dev/lbd/api/v1alpha1"
)

// kubeVIP is what becomes of manifests of kube-vip.
type kubeVIP struct {
	file  File
	order int
	out   Result
	found bool
}

// KubeVIP converts manifests of kube-vip, a static pod or a DaemonSet: the address of the
// control plane into a VirtualIP, its BGP peers into BGPPeers.
func KubeVIP(files []File) Result {
	k := &kubeVIP{}
	for i, f := range files {
		k.file, k.order = f, i
		k.read()
	}
	if !k.found && len(k.out.Errors) == 0 {
		k.fail("", 0, "has no container of kube-vip, which is one with cp_enable, svc_enable, vip_interface or bgp_enable in its env")
	}
	if len(k.out.Errors) > 0 {
		k.out.Objects = nil
	}
	sortNotes(k.out.Notes)
	return k.out
}

func (k *kubeVIP) fail(path string, line int, rule string) {
	k.out.Errors = append(k.out.Errors, Note{File: k.file.Name, Line: line, order: k.order, Field: v1alpha1.FieldError{Path: path, Rule: rule}})
}

func (k *kubeVIP) note(object string, e *variable, format string, args ...any) {
	k.out.Notes = append(k.out.Notes, Note{File: k.file.Name, Line: e.line, Object: object, order: k.order,
		Field: v1alpha1.FieldError{Path: e.Name, Rule: fmt.Sprintf(format, args...)}})
}

// manifest is what counts of a Pod or a DaemonSet.
type manifest struct {
	Spec struct {
		Containers []container `yaml:"containers"`
		Template   struct {
			Spec struct {
				Containers []container `yaml:"containers"`
			} `yaml:"spec"`
		} `yaml:"template"`
	} `yaml:"spec"`
}

type container struct {
	Args []string    `yaml:"args"`
	Env  []yaml.Node `yaml:"env"`
}

// variable is one of the environment.
type variable struct {
	Name  string `yaml:"name"`
	Value string `yaml:"value"`
	line  int
}

// environment is that of a container by name, and names their order.
type environment struct {
	names []string
	all   map[string]*variable
}

func (e *environment) value(name string) string {
	if v := e.all[name]; v != nil {
		return v.Value
	}
	return ""
}

func (e *environment) on(name string) bool {
	on, _ := strconv.ParseBool(e.value(name))
	return on
}

// read converts the documents of a file.
func (k *kubeVIP) read() {
	dec := yaml.NewDecoder(bytes.NewReader(k.file.Data))
	for {
		var m manifest
		err := dec.Decode(&m)
		var wrong *yaml.TypeError
		switch {
		case errors.Is(err, io.EOF):
			return
		case errors.As(err, &wrong):
			continue // another object
		case err != nil:
			line, rule := syntaxOf(err)
			k.fail("", line, rule)
			return
		}
		for _, c := range append(m.Spec.Containers, m.Spec.Template.Spec.Containers...) {
			k.container(&c)
		}
	}
}

// container converts one, if it is of kube-vip.
func (k *kubeVIP) container(c *container) {
	e := environment{all: make(map[string]*variable)}
	for i := range c.Env {
		v := &variable{line: c.Env[i].Line}
		if c.Env[i].Decode(v) != nil || v.Name == "" {
			continue
		}
		e.names, e.all[v.Name] = append(e.names, v.Name), v
	}
	if !slices.ContainsFunc([]string{"cp_enable", "svc_enable", "vip_interface", "bgp_enable"}, func(n string) bool { return e.all[n] != nil }) {
		return
	}
	k.found = true
	first := e.all[e.names[0]]
	node := &v1alpha1.NodeConfiguration{TypeMeta: typeMeta(v1alpha1.KindNodeConfiguration), Gossip: v1alpha1.GossipSpec{KeyFile: "/etc/lbd/gossip.key"}}
	k.note(v1alpha1.KindNodeConfiguration, &variable{Name: "gossip.peers", line: first.line},
		"is to be filled in with the addresses of the nodes: kube-vip elects by a Lease, and so not before there is an API server; the daemons of lbd talk to each other")
	k.out.Objects = append(k.out.Objects, node)
	var peers []any
	if e.on("bgp_enable") {
		node.BGP.RouterID = e.value("bgp_routerid")
		peers = k.peers(&e)
	}
	if vip := k.virtualIP(&e, len(peers) > 0); vip != nil {
		k.out.Objects = append(k.out.Objects, vip)
		for _, err := range check(*vip) {
			k.note(`VirtualIP "control-plane"`, &variable{Name: err.Path, line: first.line}, "%s; lbd refuses the object until that is mended", err.Rule)
		}
	}
	k.out.Objects = append(k.out.Objects, peers...)
	if slices.ContainsFunc(c.Args, func(a string) bool { return strings.HasPrefix(a, "--") }) {
		k.note("", &variable{Name: "args", line: first.line}, "are not read: write flags as variables of env, which they are named after")
	}
	k.rest(&e)
}

// virtualIP is that of the control plane, nil if there is none.
func (k *kubeVIP) virtualIP(e *environment, bgp bool) *v1alpha1.VirtualIP {
	address := e.all["address"]
	if address == nil || address.Value == "" {
		address = e.all["vip_address"]
	}
	if address == nil || address.Value == "" || e.all["cp_enable"] != nil && !e.on("cp_enable") {
		return nil
	}
	vip := &v1alpha1.VirtualIP{TypeMeta: typeMeta(v1alpha1.KindVirtualIP), Metadata: v1alpha1.ObjectMeta{Name: "control-plane"}}
	for text := range strings.SplitSeq(address.Value, ",") {
		a, err := netip.ParseAddr(strings.TrimSpace(text))
		if err != nil {
			k.note(`VirtualIP "control-plane"`, address, "%q is no address, and is left out: lbd looks no names up for it", cut(text))
			continue
		}
		vip.Spec.Addresses = append(vip.Spec.Addresses, a.String())
	}
	port := count(e.value("port"), 6443)
	vip.Spec.HealthCheck = &v1alpha1.HealthCheck{HTTPS: &v1alpha1.HTTPSCheck{Port: port, CAFile: "/etc/kubernetes/pki/ca.crt"}}
	advertise := &v1alpha1.Advertise{}
	if dev := e.value("vip_interface"); !bgp || e.on("vip_arp") {
		advertise.L2 = &v1alpha1.L2Advertise{}
		if dev != "" && dev != "lo" {
			advertise.L2.Interfaces = []string{dev}
		}
	}
	if bgp {
		advertise.BGP = &v1alpha1.BGPAdvertise{}
	}
	vip.Spec.Advertise = advertise
	return vip
}

func (k *kubeVIP) peers(e *environment) (out []any) {
	number := func(text string) uint32 {
		n, err := strconv.ParseUint(text, 10, 32)
		if err != nil {
			return 65000 // the default of kube-vip
		}
		return uint32(n)
	}
	add := func(from *variable, address, as, password, multihop string) {
		a, err := netip.ParseAddr(strings.Trim(address, "[]"))
		if err != nil {
			k.note("", from, "%q is no address of a peer, and is left out", cut(address))
			return
		}
		p := &v1alpha1.BGPPeer{TypeMeta: typeMeta(v1alpha1.KindBGPPeer), Metadata: v1alpha1.ObjectMeta{Name: objectName("peer-" + strings.ReplaceAll(a.String(), ":", "-"))}}
		p.Spec.MyASN, p.Spec.PeerASN, p.Spec.PeerAddress = number(e.value("bgp_as")), number(as), a.String()
		p.Spec.EBGPMultiHop, _ = strconv.ParseBool(multihop)
		title := fmt.Sprintf("BGPPeer %q", p.Metadata.Name)
		if password != "" {
			p.Spec.PasswordFile = "/etc/lbd/" + p.Metadata.Name + ".password"
			k.note(title, from, "has a password, which is not printed: put it into %s on each node", p.Spec.PasswordFile)
		}
		for _, err := range check(*p) {
			k.note(title, &variable{Name: err.Path, line: from.line}, "%s; lbd refuses the object until that is mended", err.Rule)
		}
		out = append(out, p)
	}
	if v := e.all["bgp_peeraddress"]; v != nil && v.Value != "" {
		add(v, v.Value, e.value("bgp_peeras"), e.value("bgp_peerpass"), e.value("bgp_multihop"))
	}
	if v := e.all["bgp_peers"]; v != nil {
		for text := range strings.SplitSeq(v.Value, ",") {
			if text = strings.TrimSpace(text); text == "" {
				continue
			}
			address, rest, _ := strings.Cut(text, ":")
			if strings.HasPrefix(text, "[") {
				address, rest, _ = strings.Cut(text, "]:")
			}
			parts := append(strings.Split(rest, ":"), "", "", "")
			add(v, address, parts[0], parts[1], parts[2])
		}
	}
	if len(out) == 0 {
		k.note("", e.all["bgp_enable"], "has no peers: write a BGPPeer for each router")
	}
	return out
}

// known are the variables that are converted, or that lbd needs none of.
var known = []string{
	"address", "vip_address", "port", "vip_interface", "vip_arp", "cp_enable", "bgp_enable", "bgp_routerid", "bgp_as", "bgp_peeraddress", "bgp_peeras",
	"bgp_peerpass", "bgp_multihop", "bgp_peers", "vip_cidr", "vip_subnet", "cp_namespace", "svc_namespace", "vip_leaderelection", "vip_leasename",
	"vip_leaseduration", "vip_renewdeadline", "vip_retryperiod", "vip_nodename", "plndr_cp_lock", "vip_startleader", "vip_singlenode",
	"vip_loglevel", "dns_mode", "svc_leasename", "svc_election", "k8s_config_file", "lb_port", "lb_fwdmethod",
}

// rest says what has no equal.
func (k *kubeVIP) rest(e *environment) {
	for _, name := range e.names {
		v := e.all[name]
		switch {
		case slices.Contains(known, name), v.Value == "", v.Value == "false":
		case name == "svc_enable":
			k.note("", v, "is another part of lbd: addresses come from IPAddressPools, and a DaemonSet announces them, see docs/kubernetes.md")
		case name == "lb_enable":
			k.note("", v, "is left out: advertise.l2.mode balanced has all nodes serve connections to the address, and keeps them when it moves")
		case name == "prometheus_server":
			k.note("", v, "is http.address of the NodeConfiguration, by default 127.0.0.1:7477")
		default:
			k.note("", v, "has no equal, and is left out")
		}
	}
}
