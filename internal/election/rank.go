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
}

// Better tells whether a goes before b for the VIP object with this name, by
// weighted rendezvous hashing (Thaler and Ravishankar 1998; the logarithmic
// weights are those of draft-ietf-bess-weighted-hrw): every node computes the
// same order, VIPs spread by weight, and a node that comes or goes moves only
// what it wins or loses. Both families of an object rank alike, since the name
// is hashed and not the address.
func Better(vip string, a, b Candidate) bool {
	ha, hb := hash(vip, a.Node), hash(vip, b.Node)
	wa, wb := weight(a), weight(b)
	if wa != wb {
		if c := cmp.Compare(score(ha, wa), score(hb, wb)); c != 0 {
			return c > 0
		}
	}
	if ha != hb {
		return ha > hb
	}
	return a.Node < b.Node
}

func weight(c Candidate) int {
	if c.Weight <= 0 {
		return model.DefaultWeight
	}
	return c.Weight
}

// score turns a hash into a value that is highest for node i with probability
// w_i / sum(w).
func score(h uint64, w int) float64 {
	u := (float64(h>>11) + 0.5) / (1 << 53) // in (0, 1)
	return -float64(w) / math.Log(u)
}

// hash is FNV-1a over both names, finished with the mixer of splitmix64 since
// FNV alone spreads short, similar names badly in its high bits.
func hash(vip string, node model.NodeName) uint64 {
	const prime = 1099511628211
	h := uint64(14695981039346656037)
	for i := range len(vip) {
		h = (h ^ uint64(vip[i])) * prime
	}
	h *= prime // a zero byte between the names
	for i := range len(node) {
		h = (h ^ uint64(node[i])) * prime
	}
	h = (h ^ h>>30) * 0xbf58476d1ce4e5b9
	h = (h ^ h>>27) * 0x94d049bb133111eb
	return h ^ h>>31
}
