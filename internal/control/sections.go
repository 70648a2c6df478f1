package control

import (
	"bytes"
	"fmt"
	"strconv"
	"strings"

	"lbd.dev/lbd/api/v1alpha1"
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
		if vip.Mode == modeBGP {
			owner = "all healthy"
		}
		reason := vip.Reason
		if vip.Detail != "" {
			reason += ": " + oneLine(vip.Detail)
		}
		t.addKind("", !isCalm(vip), vip.Address, vip.Name, owner, here(vip), vip.Standing, age(s, vip.Since), reason)
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
	t.add("BACKEND", "OF", "WEIGHT", "NEW", "HEALTH", "WHY")
	var vips []string
	for _, e := range list {
		for _, b := range e.Backends {
			health := b.State
			if health == "" {
				health = "not checked"
			}
			t.addKind("", b.Share == 0 && b.Weight > 0, b.Backend, e.Name, strconv.Itoa(b.Weight), Share(b), health, backendWhy(b))
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

// Clean keeps foreign text from moving the cursor of a terminal.
func Clean(text string) string { return clean(text) }
