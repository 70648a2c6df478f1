package gossip

import (
	"encoding/json"
	"net/netip"
	"strings"
	"unicode/utf8"

	"lbd.dev/lbd/internal/model"
)

const (
	// maxDrains bounds the drains of one node; those that fit into one datagram are
	// told, which is some ten, see wireMachines.Partial.
	maxDrains = 64
	// maxOnly bounds the addresses of one drain.
	maxOnly = 16
	// maxMachine bounds "namespace/name", both at their longest.
	maxMachine = 63 + 1 + 253
	// maxDetail bounds the words about a signal.
	maxDetail = 128
)

// wireMachines is what a node tells of Machines. It has a version of its own: a head
// may be as long as a datagram.
type wireMachines struct {
	V uint64 `json:"v"`
	// Manager: the node reads a management API.
	Manager bool `json:"a,omitempty"`
	// Partial: not all drains had room. A node that is not listed knows nothing by it.
	Partial bool        `json:"p,omitempty"`
	Drains  []wireDrain `json:"d,omitempty"`
}

// wireDrain is one Machine that is to lose its traffic.
type wireDrain struct {
	Machine string `json:"m"`
	Node    string `json:"n"`
	Reason  string `json:"r,omitempty"`
	Detail  string `json:"x,omitempty"`
	// Only are the addresses that the node is to lose; empty: all. Nodes that do not
	// know the field drain the node.
	Only []netip.Addr `json:"f,omitempty"`
}

func (m *wireMachines) check() error {
	if !validNumber(m.V) || len(m.Drains) > maxDrains {
		return errInvalid
	}
	for i := range m.Drains {
		d := &m.Drains[i]
		if !validName(d.Node) || d.Machine == "" || !validWords(d.Machine, maxMachine) ||
			!validWords(d.Reason, maxWord) || len(d.Only) > maxOnly || !validWords(d.Detail, maxDetail) {
			return errInvalid
		}
	}
	return nil
}

// validWords are short, and have nothing that could break a line of a log.
func validWords(s string, limit int) bool {
	return len(s) <= limit && utf8.ValidString(s) && !strings.ContainsFunc(s, func(r rune) bool { return r < ' ' || r == 0x7f })
}

// encodeDrains takes as many drains, from the first on, as one datagram has room for.
func encodeDrains(node model.NodeName, manager bool, drains []model.MachineDrain) wireMachines {
	out := wireMachines{Manager: manager}
	room := maxPacket - len(encode(typeState, wireRecord{
		Name: string(node), From: strings.Repeat("f", maxName), Inc: maxNumber, Seq: maxNumber,
		Machines: &wireMachines{V: maxNumber, Manager: true, Partial: true},
	})) - len(`,"d":[]`)
	for i := range drains {
		d := wireDrain{
			Machine: drains[i].Machine, Node: string(drains[i].Node),
			Reason: clip(drains[i].Reason, maxWord), Detail: clip(drains[i].Detail, maxDetail), Only: drains[i].Only,
		}
		if len(d.Only) > maxOnly {
			d.Only, out.Partial = d.Only[:maxOnly], true
		}
		if !validName(d.Node) || d.Machine == "" || !validWords(d.Machine, maxMachine) {
			continue
		}
		size := d.size()
		if size > room && len(out.Drains) == 0 {
			d.Reason, d.Detail = "", "" // the names alone do what is needed
			size = d.size()
		}
		if size > room || len(out.Drains) == maxDrains {
			out.Partial = true
			break
		}
		room -= size
		out.Drains = append(out.Drains, d)
	}
	return out
}

// clip makes words fit to be told.
func clip(s string, limit int) string {
	if !validWords(s, len(s)) {
		return ""
	}
	for len(s) > limit {
		_, n := utf8.DecodeLastRuneInString(s)
		s = s[:len(s)-n]
	}
	return s
}

// size is the encoded length with a comma.
func (d *wireDrain) size() int {
	b, err := json.Marshal(d)
	if err != nil {
		return maxPacket
	}
	return len(b) + 1
}

// drains is what was told, as the View has it.
func (m *wireMachines) drains() []model.MachineDrain {
	if len(m.Drains) == 0 {
		return nil
	}
	out := make([]model.MachineDrain, len(m.Drains))
	for i, d := range m.Drains {
		out[i] = model.MachineDrain{Machine: d.Machine, Node: model.NodeName(d.Node), Reason: d.Reason, Detail: d.Detail, Only: d.Only}
	}
	return out
}
