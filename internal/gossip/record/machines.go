package record

import (
	"unicode/utf8"

	"lbd.dev/lbd/internal/model"
)

// encodeDrains takes as many drains, from the first on, as one datagram has room for.
func encodeDrains(node model.NodeName, manager bool, drains []model.MachineDrain) Machines {
	out := Machines{Manager: manager}
	room := roomForDrains(node)
	for i := range drains {
		d := Drain{
			Machine: drains[i].Machine, Node: string(drains[i].Node),
			Reason: clip(drains[i].Reason, maxWord), Detail: clip(drains[i].Detail, maxDetail), Only: drains[i].Only,
		}
		if len(d.Only) > maxOnly {
			d.Only, out.Partial = d.Only[:maxOnly], true
		}
		if !ValidName(d.Node) || d.Machine == "" || !validWords(d.Machine, maxMachine) {
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

// drains is what was told, as the View has it.
func (m *Machines) drains() []model.MachineDrain {
	if len(m.Drains) == 0 {
		return nil
	}
	out := make([]model.MachineDrain, len(m.Drains))
	for i, d := range m.Drains {
		out[i] = model.MachineDrain{Machine: d.Machine, Node: model.NodeName(d.Node), Reason: d.Reason, Detail: d.Detail, Only: d.Only}
	}
	return out
}
