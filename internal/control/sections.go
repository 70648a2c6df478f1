package control

import (
	"bytes"
	"cmp"
	"fmt"
	"strconv"
	"strings"

	"lbd.dev/lbd/api/v1alpha1"
	"lbd.dev/lbd/internal/model"
)

// Section is a table of a status for a program that lays it out by itself. Foreign text in it
// moves no cursor.
type Section struct {
	Columns []string
	Rows    []Row
}

// Row has as many cells as its section has columns.
type Row struct {
	Cells []string
	// Look: a person should.
	Look bool
	// VIP is the address that an explanation can be asked for; empty if there is none.
	VIP string
}

// Sections are the VIPs, members, health checks and BGP sessions of a status.
func Sections(s v1alpha1.NodeStatus) []Section {
	return []Section{vipSection(s), section("MEMBER", memberTable(s)), section("CHECK", healthTable(s)), section("BGP PEER", bgpTable(s))}
}

// section makes one of a table, whose first column is named anew.
func section(first string, t table) Section {
	columns := append([]string{first}, t.rows[0][1:]...)
	out := Section{Columns: columns}
	for i, cells := range t.rows[1:] {
		out.Rows = append(out.Rows, Row{Cells: cells, Look: t.kinds[i+1].look})
	}
	return out
}

func vipSection(s v1alpha1.NodeStatus) Section {
	var t table
	t.add("VIP", "NAME", "OWNER", "HERE", "STANDING", "SINCE", "REASON")
	for _, vip := range s.VIPs {
		owner := vip.Owner
		if Spread(vip) {
			owner = "all healthy"
		}
		reason := vip.Reason
		if vip.Detail != "" {
			reason += ": " + oneLine(vip.Detail)
		}
		t.addKind("", !Calm(vip), vip.Address, vip.Name, owner, Here(vip), vip.Standing, Age(s, vip.Since), reason)
	}
	out := section("VIP", t)
	for i := range out.Rows {
		out.Rows[i].VIP = s.VIPs[i].Address
	}
	return out
}

// BackendSection has the backends of the explanations of LoadBalancers.
func BackendSection(list []v1alpha1.Explanation) Section {
	var t table
	t.add("BACKEND", "OF", "STATE", "WEIGHT", "NEW", "HEALTH", "WHY")
	var vips []string
	for _, e := range list {
		for _, b := range e.Backends {
			t.addKind("", b.Reason != "", b.Backend, e.Name, b.State, strconv.Itoa(b.Weight), Share(b), healthOf(b), BackendWhy(b))
			vips = append(vips, e.Address)
		}
	}
	out := section("BACKEND", t)
	for i := range out.Rows {
		out.Rows[i].VIP = vips[i]
	}
	return out
}

// EventSection has events in their order.
func EventSection(list []v1alpha1.Event) Section {
	var t table
	t.add("EVENT", "KIND", "ABOUT", "WHAT")
	for i := range list {
		e := &list[i]
		t.add(e.Time.UTC().Format("15:04:05.000"), string(e.Kind), about(e), what(e))
	}
	return section("EVENT", t)
}

// Headline is the state of the node in a few words.
func Headline(s v1alpha1.NodeStatus) string {
	return clean(fmt.Sprintf("%s, lbd %s: %s", s.Node, s.Version, condense(s)))
}

// ExplainLines are explanations as RenderExplain writes them.
func ExplainLines(list []v1alpha1.Explanation) []string {
	var out bytes.Buffer
	_ = RenderExplain(&out, list) // a buffer takes everything
	return strings.Split(strings.TrimRight(out.String(), "\n"), "\n")
}

// masterTable has the machines that are connected to BGPListeners.
func masterTable(s v1alpha1.NodeStatus) table {
	var t table
	t.add("MASTER", "LISTENER", "AS", "STATE", "BFD", "ADVERTISES")
	for _, l := range s.Listeners {
		for _, m := range l.Masters {
			text := strconv.Itoa(len(m.Accepted)) + " prefixes"
			if len(m.Accepted) <= maxNamed {
				text = strings.Join(m.Accepted, " ")
			}
			no := cmp.Or(m.Error, refusedOf(&l, m.Address))
			if no != "" {
				text = strings.TrimSpace(text + " " + no)
			}
			t.addKind(m.State, m.State != established || no != "", m.Address, l.Name, strconv.FormatUint(uint64(m.ASN), 10), m.State, m.BFD, text)
		}
	}
	return t
}

// refusedOf is what is refused of a master, in words: the first prefixes, each with the reason.
func refusedOf(l *v1alpha1.ListenerStatus, master string) string {
	var words []string
	left := 0
	for _, r := range l.Refused {
		switch {
		case r.Master != master:
		case len(words) == maxNamed:
			left++
		default:
			words = append(words, r.Prefix+" refused: "+r.Why)
		}
	}
	if left > 0 {
		words = append(words, strconv.Itoa(left)+" more refused")
	}
	return strings.Join(words, "; ")
}

// routeTable has where packets go for what BGPListeners accept.
func routeTable(s v1alpha1.NodeStatus) table {
	var t table
	t.add("PREFIX", "LISTENER", "GROUP", "SINCE", "NEXT HOPS")
	for _, l := range s.Listeners {
		for _, r := range l.Routes {
			group := "multipath"
			if r.Resilient {
				group = "resilient"
			}
			text, kind := strings.Join(r.NextHops, " "), "routed"
			if len(r.NextHops) == 0 {
				text, kind, group = "unreachable", "unreachable", ""
			}
			if r.Error != "" {
				text += "; " + r.Error
			}
			t.addKind(kind, len(r.NextHops) == 0 || r.Error != "", r.Prefix, l.Name, group, Age(s, r.Since), text)
		}
	}
	return t
}

// balancerTable has the LoadBalancers, with how many backends get new connections.
func balancerTable(s v1alpha1.NodeStatus) table {
	var t table
	t.add("NAME", "BACKENDS IN", "PORTS")
	for _, lb := range s.LoadBalancers {
		var ports []string
		for _, p := range lb.Ports {
			ports = append(ports, portText(p))
		}
		if more := len(ports) - maxNamed; more > 0 {
			ports = append(ports[:maxNamed], fmt.Sprintf("and %d more", more))
		}
		in := 0
		for _, b := range lb.Backends {
			if b.State == model.ServerIn.String() {
				in++
			}
		}
		t.addKind("load balancers", in < len(lb.Backends), lb.Name, fmt.Sprintf("%d of %d", in, len(lb.Backends)), strings.Join(ports, ", "))
	}
	return t
}

// portText is a port as in "443/TCP to 6443".
func portText(p v1alpha1.BalancerPort) string {
	if p.TargetPort == 0 { // each backend has its own
		return fmt.Sprintf("%d/%s", p.Port, p.Protocol)
	}
	return fmt.Sprintf("%d/%s to %d", p.Port, p.Protocol, p.TargetPort)
}

func balancedTable(s v1alpha1.NodeStatus) table {
	var t table
	t.add("BACKEND", "OF", "STATE", "SINCE", "NEW", "OPEN", "WHY")
	for _, lb := range s.LoadBalancers {
		for _, b := range lb.Backends {
			t.addKind(b.State, b.Reason != "", b.Backend, lb.Name, b.State, Age(s, b.Since), Share(b), openOf(b), BackendWhy(b))
		}
	}
	return t
}

func backendTable(e v1alpha1.Explanation) *table {
	var t table
	t.add("BACKEND", "WEIGHT", "STATE", "SINCE", "NEW", "OPEN", "HEALTH", "WHY")
	for _, b := range e.Backends {
		t.add(b.Backend, strconv.Itoa(b.Weight), b.State, Age(v1alpha1.NodeStatus{Time: e.Time}, b.Since), Share(b), openOf(b), healthOf(b), BackendWhy(b))
	}
	return &t
}

// openOf is how many connections of a backend are open.
func openOf(b v1alpha1.BackendStatus) string {
	if b.Connections == nil {
		return "unknown"
	}
	return strconv.Itoa(*b.Connections)
}

func healthOf(b v1alpha1.BackendStatus) string { return cmp.Or(b.Health, "not checked") }
