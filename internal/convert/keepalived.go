package convert

import (
	"cmp"
	"fmt"
	"net/netip"
	"slices"
	"strconv"
	"strings"
	"time"

	"lbd.dev/lbd/api/v1alpha1"
)

// keepalived is what becomes of configurations of keepalived.
type keepalived struct {
	file string // the first: what is about all of them is said of it
	out  Result

	node    v1alpha1.NodeConfiguration
	scripts map[string]*directive
	vips    []*v1alpha1.VirtualIP
	notify  []hook
	// servers are the virtual_servers by address, and addresses their order.
	servers   map[netip.Addr][]*directive
	addresses []netip.Addr
	// interfaces are those of addresses in vrrp_instances.
	interfaces map[netip.Addr]string
}

// Keepalived converts configurations of keepalived: each vrrp_instance into a VirtualIP, the
// virtual_servers of an address into a LoadBalancer, and what they say of other nodes into a
// NodeConfiguration. It does not follow include.
func Keepalived(files []File) Result {
	k := &keepalived{
		scripts: make(map[string]*directive), servers: make(map[netip.Addr][]*directive), interfaces: make(map[netip.Addr]string),
		node: v1alpha1.NodeConfiguration{
			TypeMeta: typeMeta(v1alpha1.KindNodeConfiguration), Gossip: v1alpha1.GossipSpec{KeyFile: "/etc/lbd/gossip.key"},
		},
	}
	if len(files) > 0 {
		k.file = files[0].Name
	}
	var all []directive
	for i, f := range files {
		r := kaReader{file: f.Name, order: i, text: string(f.Data), line: 1, err: func(line int, rule string) {
			k.out.Errors = append(k.out.Errors, Note{File: f.Name, Line: line, Field: v1alpha1.FieldError{Path: "keepalived", Rule: rule}, order: i})
		}}
		all = append(all, r.read(0)...)
	}
	for i := range all { // scripts first: instances name them
		if d := &all[i]; d.words[0] == "vrrp_script" {
			k.scripts[d.word(1)] = d
		}
	}
	for i := range all {
		k.top(&all[i])
	}
	if len(k.out.Errors) > 0 {
		return k.out
	}
	k.assemble()
	sortNotes(k.out.Notes)
	return k.out
}

// note says what is not carried over.
func (k *keepalived) note(object string, d *directive, format string, args ...any) {
	k.out.Notes = append(k.out.Notes, Note{
		File: d.file, Line: d.line, Object: object, order: d.order,
		Field: v1alpha1.FieldError{Path: d.words[0], Rule: fmt.Sprintf(format, args...)},
	})
}

// keep says how a directive is carried over that looks otherwise.
func (k *keepalived) keep(object string, d *directive, format string, args ...any) {
	k.note(object, d, format, args...)
	k.out.Notes[len(k.out.Notes)-1].Kept = true
}

// top converts a block of the highest level.
func (k *keepalived) top(d *directive) {
	switch d.words[0] {
	case "global_defs":
		for i := range d.block {
			if g := &d.block[i]; strings.HasPrefix(g.words[0], "notification") || strings.HasPrefix(g.words[0], "smtp") {
				k.note("", g, "is left out: lbd sends no mail; alert on lbd_vip_owner of its metrics")
			}
		}
	case "vrrp_script":
	case "vrrp_instance":
		k.instance(d)
	case "virtual_server":
		k.virtualServer(d)
	case "vrrp_sync_group":
		k.note("", d, "is left out: each address moves by itself; those of one VirtualIP share its health check, and so leave a node together")
	case "include":
		k.note("", d, "is not followed: name the file %q on the command line as well", d.word(1))
	default:
		k.note("", d, "has no equal, and is left out")
	}
}

// silent are settings of vrrp_instances that lbd needs none of: it does the same, or better.
var silent = []string{
	"state", "interface", "virtual_router_id", "advert_int", "nopreempt", "version", "track_script", "virtual_ipaddress",
	"virtual_ipaddress_excluded", "unicast_src_ip", "unicast_peer", "mcast_src_ip", "mcast_group_ip", "mcast_group_ip4", "dont_track_primary",
	"garp_master_delay", "garp_master_repeat", "garp_master_refresh", "garp_master_refresh_repeat", "garp_lower_prio_delay",
	"garp_lower_prio_repeat", "debug", "strict_mode", "preempt_delay", "checksum_compatibility", "accept", "no_accept",
}

func (k *keepalived) instance(d *directive) {
	title := fmt.Sprintf("vrrp_instance %q", cut(d.word(1)))
	vip := &v1alpha1.VirtualIP{TypeMeta: typeMeta(v1alpha1.KindVirtualIP), Metadata: v1alpha1.ObjectMeta{Name: objectName(d.word(1))}}
	if dev := d.value("interface"); dev != "" {
		vip.Spec.Advertise = &v1alpha1.Advertise{L2: &v1alpha1.L2Advertise{Interfaces: []string{dev}}}
	}
	for _, block := range []string{"virtual_ipaddress", "virtual_ipaddress_excluded"} {
		if list := d.get(block); list != nil {
			for i := range list.block {
				k.address(title, vip, &list.block[i], d.value("interface"))
			}
		}
	}
	k.peers(title, d)
	k.track(title, vip, d)
	k.hooks(title, vip, d)
	if d.get("nopreempt") == nil && d.get("priority") != nil {
		k.note(title, d.get("priority"), "%s is left out: lbd leaves an address where it is while its owner is well. To prefer a node give it a higher weight in its NodeConfiguration, and the VirtualIP preempt: true", d.value("priority"))
	}
	for i := range d.block {
		x := &d.block[i]
		switch name := x.words[0]; {
		case slices.Contains(silent, name), name == "priority":
		case name == "authentication":
			k.note(title, x, "is left out: gossip is encrypted and authenticated by keyFile; `lbd keygen` makes a key, the same one for all nodes")
		case strings.HasPrefix(name, "notify"):
		case name == "smtp_alert":
			k.note(title, x, "is left out: lbd sends no mail; alert on lbd_vip_owner of its metrics")
		case name == "track_interface":
			k.note(title, x, "is left out: lbd follows the interface of an address by itself, and no other one")
		case strings.HasPrefix(name, "use_vmac"):
			k.note(title, x, "is left out: addresses keep the hardware address of the node that has them")
		default:
			k.note(title, x, "has no equal, and is left out")
		}
	}
	k.vips = append(k.vips, vip)
}

// address adds one line of virtual_ipaddress.
func (k *keepalived) address(title string, vip *v1alpha1.VirtualIP, d *directive, dev string) {
	text, _, _ := strings.Cut(d.words[0], "/")
	a, err := netip.ParseAddr(text)
	if err != nil {
		k.note(title, d, "is no address, and is left out")
		return
	}
	for i, w := range d.words[1:] {
		if w == "dev" {
			dev = d.word(i + 2)
			if l2 := vip.Spec.Advertise; l2 == nil {
				vip.Spec.Advertise = &v1alpha1.Advertise{L2: &v1alpha1.L2Advertise{Interfaces: []string{dev}}}
			} else if !slices.Contains(l2.L2.Interfaces, dev) {
				l2.L2.Interfaces = append(l2.L2.Interfaces, dev)
			}
		}
	}
	k.interfaces[a] = dev
	vip.Spec.Addresses = append(vip.Spec.Addresses, a.String())
}

// peers takes the addresses of nodes.
func (k *keepalived) peers(title string, d *directive) {
	g := &k.node.Gossip
	add := func(text string) {
		if a, err := netip.ParseAddr(text); err == nil && !slices.Contains(g.Peers, a.String()) {
			g.Peers = append(g.Peers, a.String())
		}
	}
	if own := d.value("unicast_src_ip"); own != "" {
		g.BindAddress = cmp.Or(g.BindAddress, own)
		if g.BindAddress != own {
			k.note(title, d.get("unicast_src_ip"), "%s is left out with its unicast_peer: a daemon has one address for gossip, %s", own, g.BindAddress)
			return
		}
		add(own)
	}
	if list := d.get("unicast_peer"); list != nil {
		for i := range list.block {
			add(list.block[i].words[0])
		}
	}
}

// track turns the script of an instance into its health check.
func (k *keepalived) track(title string, vip *v1alpha1.VirtualIP, d *directive) {
	list := d.get("track_script")
	if list == nil {
		return
	}
	for i := range list.block {
		x := &list.block[i]
		script := k.scripts[x.words[0]]
		switch {
		case script == nil:
			k.note(title, x, "is no vrrp_script of these files, and is left out")
			continue
		case vip.Spec.HealthCheck != nil:
			k.note(title, x, "is left out: a VirtualIP has one health check; have one program ask for both")
			continue
		}
		vip.Spec.HealthCheck = k.check(title, script)
		if x.word(1) == "weight" || script.value("weight") != "" && script.value("weight") != "0" {
			k.note(title, x, "its weight is left out: a node that fails the check does not have the address, whatever the others do")
		}
	}
}

// check is that of a vrrp_script.
func (k *keepalived) check(title string, d *directive) *v1alpha1.HealthCheck {
	h := &v1alpha1.HealthCheck{
		Exec: &v1alpha1.ExecCheck{Command: command(d.value("script"))}, Interval: v1alpha1.Duration{Duration: time.Second},
		Fall: count(d.value("fall"), 1), Rise: count(d.value("rise"), 1),
	}
	if s, err := seconds(d.value("interval")); err == nil {
		h.Interval.Duration = s
	}
	if s, err := seconds(d.value("timeout")); err == nil {
		h.Timeout.Duration = min(s, h.Interval.Duration)
	}
	if h.Fall > 1 {
		k.note(title, d.get("fall"), "counts attempts 50 ms apart and not intervals: %d is about %s here, and %s with keepalived", h.Fall, time.Duration(h.Fall-1)*50*time.Millisecond, time.Duration(h.Fall)*h.Interval.Duration)
	}
	k.keep(title, d, "is run by the daemon as its own user, which can do little: killall -0, pidof and pgrep find no process of another user. For kube-apiserver use healthCheck.https instead, which asks on one connection and notices at once that it ends")
	return h
}

// virtualServer notes one for its address.
func (k *keepalived) virtualServer(d *directive) {
	a, err := netip.ParseAddr(d.word(1))
	if err != nil {
		k.note("", d, "%q is left out: lbd balances addresses, neither groups nor firewall marks", cut(d.word(1)))
		return
	}
	if k.servers[a] == nil {
		k.addresses = append(k.addresses, a)
	}
	k.servers[a] = append(k.servers[a], d)
}

func (k *keepalived) assemble() {
	if len(k.vips)+len(k.servers) == 0 {
		k.out.Errors = append(k.out.Errors, Note{File: k.file,
			Field: v1alpha1.FieldError{Path: "keepalived", Rule: "has neither a vrrp_instance nor a virtual_server"}})
		return
	}
	if rule := peersMissing(&k.node.Gossip); rule != "" {
		k.out.Notes = append(k.out.Notes, Note{File: k.file, Object: v1alpha1.KindNodeConfiguration, Field: v1alpha1.FieldError{
			Path: "gossip.peers", Rule: rule}})
	}
	slices.Sort(k.node.Gossip.Peers)
	k.out.Objects = append(k.out.Objects, &k.node)
	for _, a := range k.addresses { // the LoadBalancer has the address then
		for _, v := range k.vips {
			v.Spec.Addresses = slices.DeleteFunc(v.Spec.Addresses, func(text string) bool { return text == a.String() })
		}
	}
	for _, v := range k.vips {
		if len(v.Spec.Addresses) > 0 {
			k.out.Objects = append(k.out.Objects, v)
			k.validate(v, check(*v))
		}
	}
	for _, a := range k.addresses {
		if lb := k.balancer(a, k.servers[a]); lb != nil {
			k.out.Objects = append(k.out.Objects, lb)
			k.validate(lb, check(*lb))
		}
	}
	k.notified()
}

// peersMissing says why the peers have to be filled in by hand; "": the files name another node.
func peersMissing(g *v1alpha1.GossipSpec) string {
	if len(g.Peers) == 0 {
		return "is to be filled in: keepalived finds the other nodes by multicast, lbd by their addresses"
	}
	if own, err := netip.ParseAddr(g.BindAddress); err == nil && len(g.Peers) == 1 && g.Peers[0] == own.String() {
		return "has only this node: add the addresses of the others, which lbd does not find by multicast"
	}
	return ""
}

// validate notes what lbd refuses in what came out.
func (k *keepalived) validate(object any, errs []v1alpha1.FieldError) {
	title := ""
	switch o := object.(type) {
	case *v1alpha1.VirtualIP:
		title = fmt.Sprintf("%s %q", o.Kind, o.Metadata.Name)
	case *v1alpha1.LoadBalancer:
		title = fmt.Sprintf("%s %q", o.Kind, o.Metadata.Name)
	}
	for _, e := range errs {
		e.Rule += "; lbd refuses the object until that is mended"
		k.out.Notes = append(k.out.Notes, Note{File: k.file, Object: title, Field: e})
	}
}

// count is a number of at least 1.
func count(text string, none int32) int32 {
	n, err := strconv.ParseInt(text, 10, 32)
	if err != nil || n < 1 {
		return none
	}
	return int32(n)
}

// seconds is a time as keepalived writes it, such as 1 or 0.5.
func seconds(text string) (time.Duration, error) {
	s, err := strconv.ParseFloat(text, 64)
	if err == nil && (s <= 0 || s > 3600) {
		err = fmt.Errorf("%q is out of range", text)
	}
	return time.Duration(s * float64(time.Second)).Round(time.Millisecond), err
}

// objectName is a name as objects have them: VI_1 becomes vi-1.
func objectName(name string) string {
	out := strings.Map(func(r rune) rune {
		switch {
		case 'a' <= r && r <= 'z', '0' <= r && r <= '9', r == '.':
			return r
		case 'A' <= r && r <= 'Z':
			return r - 'A' + 'a'
		}
		return '-'
	}, name)
	return cmp.Or(strings.Trim(out[:min(len(out), 63)], "-."), "vip")
}
