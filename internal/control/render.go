package control

import (
	"bytes"
	"cmp"
	"fmt"
	"io"
	"math"
	"strconv"
	"strings"
	"time"

	"lbd.dev/lbd/api/v1alpha1"
	"lbd.dev/lbd/internal/model"
	"lbd.dev/lbd/internal/shortlist"
)

// maxNamed is how many addresses are named before the rest is only counted.
const maxNamed = 4

// RenderStatus writes a status as text for people: what is wrong first, then
// tables, then why each VIP is where it is. What fills more than a screen and is well is
// only counted, unless all is asked for.
func RenderStatus(w io.Writer, s v1alpha1.NodeStatus, all bool) error {
	var out bytes.Buffer
	most := screen
	if all {
		most = math.MaxInt
	}
	fmt.Fprintf(&out, "Node %s, lbd %s: %s\n", clean(s.Node), clean(s.Version), condense(s))
	fmt.Fprintf(&out, "Configuration %s\n", configLine(s))
	if m := s.Machines; m != nil && m.Drain != "" {
		hang(&out, "", "Draining with "+machineLine(m))
	}
	if line := ServicesLine(s.ServiceConnections); line != "" {
		hang(&out, "", line)
	}
	writeProblems(&out, problems(s), most)
	sections := []struct {
		title string
		table table
	}{
		{"MEMBERS", memberTable(s)},
		{"VIPS", vipTable(s)},
		{"HEALTH CHECKS", healthTable(s)},
		{"BGP", bgpTable(s)},
		{"MASTERS", masterTable(s)},
		{"LEARNED ROUTES", routeTable(s)},
		{"LOAD BALANCERS", balancerTable(s)},
		{"BACKENDS", balancedTable(s)},
	}
	for _, section := range sections {
		if len(section.table.rows) < 2 { // the header alone
			continue
		}
		fmt.Fprintf(&out, "\n%s\n", section.title)
		more := section.table.shorten(most)
		if err := section.table.write(&out, "  "); err != nil {
			return err
		}
		if more != "" {
			hang(&out, "  ", more)
		}
	}
	writeWhy(&out, s, most)
	_, err := w.Write(out.Bytes())
	return err
}

// screen is how many rows of a table, or sentences, are shown before the rest is counted.
const screen = 20

func writeProblems(out *bytes.Buffer, list []string, most int) {
	for _, problem := range list[:min(len(list), most)] {
		hang(out, "! ", problem)
	}
	if more := len(list) - most; more > 0 {
		hang(out, "! ", fmt.Sprintf("and %d more such lines; `lbd status --all` shows them", more))
	}
}

// condense is the state of the node in a few words.
func condense(s v1alpha1.NodeStatus) string {
	alive := 1
	for _, m := range s.Members {
		if m.State == "alive" {
			alive++
		}
	}
	here := 0
	for _, vip := range s.VIPs {
		if vip.Owner == s.Node {
			here++
		}
	}
	settled := "settled"
	if !s.Settled {
		settled = "not settled yet"
	}
	if s.Draining {
		settled += ", draining"
	}
	return fmt.Sprintf("%s; %d of %d nodes alive; %d of %d VIPs here", settled, alive, len(s.Members)+1, here, len(s.VIPs))
}

func configLine(s v1alpha1.NodeStatus) string {
	line := fmt.Sprintf("%s, generation %d", clean(s.Config.Path), s.Config.Generation)
	if !s.Config.LoadedAt.IsZero() {
		line += ", loaded " + s.Config.LoadedAt.UTC().Format(time.RFC3339)
	}
	return line
}

// machineLine says why the node drains with its Machine, and how far it is.
func machineLine(m *v1alpha1.MachinesStatus) string {
	if m.Drained {
		return oneLine(m.Drain) + "; everything is handed over"
	}
	return oneLine(m.Drain)
}

func memberTable(s v1alpha1.NodeStatus) table {
	var t table
	t.add("NODE", "ADDRESS", "STATE", "VERSION", "NOTE")
	for _, m := range s.Members {
		var notes []string
		if m.Draining {
			notes = append(notes, "draining")
		}
		if !m.Settled && m.State == "alive" {
			notes = append(notes, "not settled yet")
		}
		if m.Late != "" && m.State == "alive" {
			notes = append(notes, "heartbeats overdue for "+m.Late)
		}
		t.addKind(m.State, len(notes) > 0 || m.State == "dead", m.Name, m.Address, m.State, m.Version, strings.Join(notes, ", "))
	}
	return t
}

func vipTable(s v1alpha1.NodeStatus) table {
	var t table
	t.add("ADDRESS", "NAME", "OWNER", "INTERFACE", "HERE", "SINCE", "REASON")
	for _, vip := range s.VIPs {
		owner, kind := vip.Owner, "owned by "+vip.Owner
		if Spread(vip) {
			owner, kind = "all healthy", vip.Reason
		}
		look := !Calm(vip)
		if look {
			kind = vip.Reason
		}
		reason := vip.Reason
		if vip.Tenant != "" { // with the whole name, which the column before cuts
			reason += fmt.Sprintf(" (tenant %s, %s)", vip.Tenant, vip.Name)
		}
		t.addKind(kind, look, vip.Address, vip.Name, owner, vip.Interface, Here(vip), Age(s, vip.Since), reason)
	}
	return t
}

// Spread tells whether every healthy node announces a VIP, and none owns it. The address of a
// MachineLoadBalancer has an owner without being bound if its connections are forwarded.
func Spread(vip v1alpha1.VIPStatus) bool {
	switch {
	case vip.Mode != modeBGP, vip.Kind == model.KindLoadBalancer, vip.Kind == model.KindTenantService:
		return false
	}
	return vip.Kind != model.KindMachineLoadBalancer || vip.Bound || vip.Owner == ""
}

// Calm tells whether a VIP is where it belongs, as far as the node knows.
func Calm(vip v1alpha1.VIPStatus) bool {
	reason, known := model.ParseReason(vip.Reason)
	return reason == model.ReasonAdvertised ||
		known && reason.Class() == model.ClassMayServe && vip.Owner != "" && vip.Standing != model.ReasonDegraded.String()
}

// Here says what the node does with a VIP: announced, silent, advertised, bound or no.
func Here(vip v1alpha1.VIPStatus) string {
	switch {
	case vip.Announced && vip.Mode == modeBGP:
		return "advertised"
	case vip.Bound && vip.Mode == modeBGP:
		return "bound"
	case vip.Announced:
		return "announced"
	case vip.Bound:
		return "silent"
	}
	return "no"
}

func healthTable(s v1alpha1.NodeStatus) table {
	var t table
	t.add("CHECK", "STATE", "SINCE", "TOOK", "DETAIL")
	for _, h := range s.Health {
		t.addKind(h.State, h.State != "up", h.Name, h.State, Age(s, h.Since), h.LastDuration, h.Detail)
	}
	return t
}

func bgpTable(s v1alpha1.NodeStatus) table {
	var t table
	t.add("PEER", "ADDRESS", "STATE", "SINCE", "BFD", "ADVERTISED")
	for _, b := range s.BGP {
		text := strconv.Itoa(len(b.Advertised)) + " paths"
		if len(b.Advertised) <= maxNamed {
			text = strings.Join(b.Advertised, " ")
		}
		if b.Error != "" && b.State != established {
			text = b.Error
		}
		t.addKind(b.State, b.State != established, b.Peer, b.Address, b.State, Age(s, b.Since), b.BFD, text)
	}
	return t
}

// established is the state of a session that works (RFC 4271 section 8.2.2).
const established = "Established"

// RenderBGP writes every session with its timers and what the peer is told.
func RenderBGP(w io.Writer, s v1alpha1.NodeStatus) error {
	var out bytes.Buffer
	if len(s.BGP) == 0 {
		fmt.Fprintf(&out, "Node %s has no BGP peer.\n", clean(s.Node))
	}
	for i, b := range s.BGP {
		if i > 0 {
			out.WriteString("\n")
		}
		renderPeer(&out, s, b)
		var t table
		t.add("PREFIX", "LOCALPREF", "MED", "PREPEND", "COMMUNITIES")
		for _, p := range b.Paths {
			t.add(p.Prefix, number(p.LocalPref), number(p.MED), strconv.Itoa(p.Prepend), communities(p))
		}
		if len(b.Paths) == 0 {
			continue
		}
		out.WriteString("\n")
		if err := t.write(&out, "  "); err != nil {
			return err
		}
	}
	_, err := w.Write(out.Bytes())
	return err
}

func renderPeer(out *bytes.Buffer, s v1alpha1.NodeStatus, b v1alpha1.BGPStatus) {
	fmt.Fprintf(out, "%s, %s, %s from AS %d: %s", clean(b.Peer), clean(b.Address), peerAS(b), b.LocalASN, clean(b.State))
	if !b.Since.IsZero() {
		fmt.Fprintf(out, " for %s", Age(s, b.Since))
	}
	out.WriteString("\n")
	if b.State == established {
		hang(out, "  ", fmt.Sprintf("Hold time %s; families %s; %d prefixes received and ignored; lost %d times before",
			b.HoldTime, strings.Join(b.Families, " and "), b.Received, b.Flaps))
	} else if b.HoldTime != "" {
		hang(out, "  ", fmt.Sprintf("Configured hold time %s; lost %d times before", b.HoldTime, b.Flaps))
	}
	if b.BFD != "" {
		line := "BFD " + b.BFD
		switch {
		case b.BFDDetect != "":
			line += fmt.Sprintf(": sends every %s, expects every %s, detects in %s", b.BFDTransmit, b.BFDReceive, b.BFDDetect)
		case b.BFDTransmit != "":
			line += fmt.Sprintf(": configured to send every %s and expect every %s", b.BFDTransmit, b.BFDReceive)
		}
		hang(out, "  ", line)
	}
	if b.Error != "" {
		when := ""
		if !b.LastErrorAt.IsZero() && !s.Time.IsZero() {
			when = " " + Age(s, b.LastErrorAt) + " ago"
		}
		hang(out, "  ", "Last error"+when+": "+oneLine(b.Error))
	}
}

func communities(p v1alpha1.BGPPathStatus) string {
	text := strings.Join(p.Communities, " ")
	if p.GracefulShutdown {
		text += " (graceful shutdown)"
	}
	return text
}

func number(n *uint32) string {
	if n == nil {
		return ""
	}
	return strconv.FormatUint(uint64(*n), 10)
}

// writeWhy writes a sentence for each VIP, once for VIPs that share it. For more than fill
// a screen it leaves out who would take each next.
func writeWhy(out *bytes.Buffer, s v1alpha1.NodeStatus, most int) {
	if len(s.VIPs) == 0 {
		out.WriteString("\nThe configuration has no VIP.\n")
		return
	}
	look, calm := group{}, group{}
	for _, vip := range s.VIPs {
		why := whyHere(vip, s.Node)
		if next := vip.Successors; len(next) > 0 && len(s.VIPs) <= most {
			why += "; " + strings.Join(next, ", then ") + " would take it next"
		}
		if len(s.VIPs) <= most || Calm(vip) {
			calm.add(why, vip.Address)
		} else {
			look.add(why, vip.Address)
		}
	}
	out.WriteString("\nWHY\n")
	lines := append(look.lines(), calm.lines()...)
	for _, line := range lines[:min(len(lines), most)] {
		hang(out, "  ", line+".")
	}
	if more := len(lines) - most; more > 0 {
		hang(out, "  ", fmt.Sprintf("And %d more such sentences; `lbd status --all` shows them.", more))
	}
}

// named lists the first addresses and counts the others.
func named(addresses []string) string { return shortlist.Join(addresses, maxNamed) }

// RenderExplain writes explanations as text for people: who owns the VIP, every
// candidate with the reason why it does or does not, and what happened.
func RenderExplain(w io.Writer, list []v1alpha1.Explanation) error {
	var out bytes.Buffer
	for i, e := range list {
		if i > 0 {
			out.WriteString("\n")
		}
		if err := renderExplanation(&out, e); err != nil {
			return err
		}
	}
	_, err := w.Write(out.Bytes())
	return err
}

func renderExplanation(out *bytes.Buffer, e v1alpha1.Explanation) error {
	fmt.Fprintf(out, "%s (%s), as %s sees it\n", clean(e.Address), clean(e.Name), clean(e.Node))
	if e.Mode == modeBGP {
		out.WriteString("  By BGP: no owner, every healthy node advertises it\n")
	} else if e.Owner == "" {
		out.WriteString("  Owner: none\n")
	} else {
		fmt.Fprintf(out, "  Owner: %s, by a claim of epoch %d%s\n", clean(e.Owner), e.Epoch, ownerLate(e))
	}
	hang(out, "  ", "Why: "+sentence(e.Reason, e.Node, e.Owner, e.Detail)+".")
	if e.Tenant != nil {
		hang(out, "  ", "Tenant: "+TenantText(e.Tenant)+".")
	}
	if e.Duplicate != "" {
		hang(out, "  ", "Duplicate: "+duplicateProblem(e.Owner, e.Duplicate)+".")
	}
	if e.Ring != "" {
		hang(out, "  ", "Connections: "+ringProblem(e.Ring)+".")
	}
	if len(e.Candidates) > 0 {
		out.WriteString("\n")
		if err := candidateTable(e).write(out, "  "); err != nil {
			return err
		}
	}
	if len(e.Backends) > 0 {
		out.WriteString("\n")
		if err := backendTable(e).write(out, "  "); err != nil {
			return err
		}
	}
	if len(e.Story) > 0 {
		out.WriteString("\n")
	}
	for _, line := range e.Story {
		hang(out, "  - ", line)
	}
	return nil
}

// ownerLate warns that the owner may be one no more.
func ownerLate(e v1alpha1.Explanation) string {
	for _, c := range e.Candidates {
		if c.Node == e.Owner && c.Late != "" {
			return ", but its heartbeats are overdue for " + c.Late
		}
	}
	return ""
}

func candidateTable(e v1alpha1.Explanation) *table {
	var t table
	if e.Mode == modeBGP {
		t.add("NODE", "ALIVE", "HEALTHY", "WHY")
		for _, c := range e.Candidates {
			t.add(c.Node, Reached(c), yes(c.Eligible), advertiserWhy(c))
		}
		return &t
	}
	t.add("RANK", "NODE", "ALIVE", "MAY OWN", "CLAIM", "WEIGHT", "WHY")
	for _, c := range e.Candidates {
		claim := ""
		if c.ClaimEpoch > 0 {
			claim = strconv.FormatUint(c.ClaimEpoch, 10)
		}
		t.add(strconv.Itoa(c.Rank), c.Node, Reached(c), yes(c.Eligible), claim, strconv.Itoa(c.Weight), candidateWhy(c, e.Owner))
	}
	return &t
}

// candidateWhy says why a node is or is not the owner. What a node that is gone
// said last is of no use.
func candidateWhy(c v1alpha1.Candidate, owner string) string {
	switch {
	case c.Alive && c.Late != "":
		return c.Node + " is not heard: " + c.Note
	case c.Alive && c.Reason == model.ReasonOwner.String() && c.Node != owner:
		return "the last word of " + c.Node + " is that it owns the VIP, but " + cmp.Or(owner, "nobody known") + " does"
	case c.Alive:
		return sentence(c.Reason, c.Node, owner, c.Note)
	case c.Note != "":
		return c.Node + " cannot be reached: " + c.Note
	}
	return c.Node + " cannot be reached"
}

// advertiserWhy says why a node does or does not advertise a VIP by BGP.
func advertiserWhy(c v1alpha1.Candidate) string {
	switch known, _ := model.ParseReason(c.Reason); {
	case !c.Alive || c.Late != "":
		return candidateWhy(c, "")
	case known == model.ReasonOwner:
		return c.Node + " advertises it"
	case known == model.ReasonStandby:
		return c.Node + " may advertise it, but none of its peers has the path yet"
	}
	return candidateWhy(c, "")
}

// Reached says whether a node is alive as far as is known: yes, no or late.
func Reached(c v1alpha1.Candidate) string {
	if c.Alive && c.Late != "" {
		return "late"
	}
	return yes(c.Alive)
}

func yes(b bool) string {
	if b {
		return "yes"
	}
	return "no"
}

// Age is how long ago a moment was when the status was taken, such as "3m"; without that time the
// moment itself, and empty for no moment.
func Age(s v1alpha1.NodeStatus, at time.Time) string {
	switch {
	case at.IsZero():
		return ""
	case s.Time.IsZero():
		return at.UTC().Format(time.RFC3339)
	}
	d := max(s.Time.Sub(at), 0)
	switch {
	case d < 2*time.Minute:
		return fmt.Sprintf("%ds", d/time.Second)
	case d < 2*time.Hour:
		return fmt.Sprintf("%dm", d/time.Minute)
	case d < 48*time.Hour:
		return fmt.Sprintf("%dh", d/time.Hour)
	}
	return fmt.Sprintf("%dd", d/(24*time.Hour))
}

func oneLine(text string) string {
	return strings.Join(strings.FieldsFunc(text, func(r rune) bool { return r == '\n' }), "; ")
}

// hang writes text wrapped, the first line after the prefix and the others
// indented further.
func hang(out *bytes.Buffer, prefix, text string) {
	indent := len(prefix) + 2
	for i, line := range wrap(clean(text), maxWidth-indent) {
		if i > 0 {
			prefix = strings.Repeat(" ", indent)
		}
		out.WriteString(prefix + line + "\n")
	}
}
