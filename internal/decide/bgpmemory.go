package decide

import "lbd.dev/lbd/internal/model"

// bgpMemory is the map of BGP memories, copied only when one changes.
type bgpMemory struct {
	old, next map[addr]model.BGPMemory
}

// heldBGP tells whether there is anything to let go of a VIP that BGP does not
// advertise any more.
func (f *facts) heldBGP(a addr, m *bgpMemory) bool {
	_, was := m.old[a]
	return was || f.address.Loopback[a].Bound
}

func (m *bgpMemory) copy() {
	if m.next == nil {
		m.next = make(map[addr]model.BGPMemory, len(m.old)+1)
		for k, v := range m.old {
			m.next[k] = v
		}
	}
}

func (m *bgpMemory) set(a addr, n model.BGPMemory) {
	m.copy()
	m.next[a] = n
}

func (m *bgpMemory) drop(a addr) {
	if _, had := m.old[a]; had {
		m.copy()
		delete(m.next, a)
	}
}

func (m *bgpMemory) result() map[addr]model.BGPMemory {
	if m.next != nil {
		return m.next
	}
	return m.old
}
