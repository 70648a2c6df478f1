package election

import (
	"cmp"
	"math"

	"lbd.dev/lbd/internal/model"
)

// Candidate is a node in a ranking.
type Candidate struct {
	Node   model.NodeName
	Weight int // 0 counts as model.DefaultWeight
	// Preference goes before weight and hash: see model.VIP.Preference.
	Preference int
	// Degraded goes before all that: such a node comes after those that are up.
	Degraded bool
}

// Better tells whether a goes before b for the VIP object with this name: a node that is
// up before one that is degraded, then the preferred one, then by weighted rendezvous
// hashing (Thaler and Ravishankar 1998; the logarithmic weights are those of
// draft-ietf-bess-weighted-hrw): every
// node computes the same order, VIPs spread by weight, and a node that comes or
// goes moves only what it wins or loses. Both families of an object rank alike,
// since the name is hashed and not the address.
func Better(vip string, a, b Candidate) bool {
	r := rankingOf(vip)
	return r.score(a).better(r.score(b))
}

// ranking is the hash of the name of a VIP object, to which those of nodes are
// added.
type ranking uint64

// scored is a candidate in a ranking.
type scored struct {
	node       model.NodeName
	hash       uint64
	weight     int
	preference int
	degraded   bool
}

// FNV-1a.
const (
	offset = 14695981039346656037
	prime  = 1099511628211
)

func rankingOf(vip string) ranking {
	h := uint64(offset)
	for i := range len(vip) {
		h = (h ^ uint64(vip[i])) * prime
	}
	return ranking(h * prime) // a zero byte between the names
}

// hash is FNV-1a over both names, finished with the mixer of splitmix64 since
// FNV alone spreads short, similar names badly in its high bits.
func (r ranking) hash(node model.NodeName) uint64 {
	h := uint64(r)
	for i := range len(node) {
		h = (h ^ uint64(node[i])) * prime
	}
	h = (h ^ h>>30) * 0xbf58476d1ce4e5b9
	h = (h ^ h>>27) * 0x94d049bb133111eb
	return h ^ h>>31
}

func (r ranking) score(c Candidate) scored {
	w := c.Weight
	if w <= 0 {
		w = model.DefaultWeight
	}
	return scored{c.Node, r.hash(c.Node), w, c.Preference, c.Degraded}
}

// better orders candidates; names break ties.
func (a scored) better(b scored) bool {
	if a.degraded != b.degraded {
		return b.degraded
	}
	if a.preference != b.preference {
		return a.preference > b.preference
	}
	if a.weight != b.weight {
		if c := cmp.Compare(a.share(), b.share()); c != 0 {
			return c > 0
		}
	}
	if a.hash != b.hash {
		return a.hash > b.hash
	}
	return a.node < b.node
}

// share turns the hash into a value that is highest for node i with probability
// w_i / sum(w).
func (a scored) share() float64 {
	u := (float64(a.hash>>11) + 0.5) / (1 << 53) // in (0, 1)
	return -float64(a.weight) / math.Log(u)
}

// least is a hash below which no node that is as heavy as that, or lighter, goes before a for
// its weight and hash: no more nodes than those have to be looked at.
func (a scored) least(heaviest int) uint64 {
	if heaviest == a.weight {
		return a.hash
	}
	u := math.Exp(-float64(heaviest)/a.share()) * (1 - 1e-12) // not above it, however share is rounded
	return uint64(u*(1<<53)) << 11
}

// successors returns the first two nodes that would take the VIP, live ones
// first: a node that is cut off goes on sending heartbeats to those who most
// likely took over, so that a heal is noticed at once.
func (s *step) successors() []model.NodeName {
	order := rankingOf(s.in.VIP.Name)
	var live, gone top
	for _, e := range s.in.Eligible {
		m, known := s.in.Members[e]
		c := order.score(s.candidateOf(e, &m))
		if known && m.State != model.MemberAlive {
			gone.add(c)
		} else if e != s.in.Self {
			live.add(c)
		}
	}
	return append(live.nodes(), gone.nodes()[:min(2-live.n, gone.n)]...)
}

// top keeps the best two of many.
type top struct {
	best [2]scored
	n    int
}

func (t *top) add(c scored) {
	switch {
	case t.n == 0 || c.better(t.best[0]):
		t.best[0], t.best[1] = c, t.best[0]
	case t.n == 1 || c.better(t.best[1]):
		t.best[1] = c
	default:
		return
	}
	t.n = min(t.n+1, 2)
}

func (t *top) nodes() []model.NodeName {
	var out []model.NodeName
	for _, c := range t.best[:t.n] {
		out = append(out, c.node)
	}
	return out
}
