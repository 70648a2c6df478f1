package gossip

import (
	"bytes"
	"time"
)

// beatCache remembers how heartbeats were read. Those of one stream differ only
// in the numbers at their end, and reading JSON is most of what one costs. A
// message that begins like an earlier valid one and ends with just the numbers
// is valid, too, and says the same.
type beatCache map[string]wireBeat

// beatCacheSize bounds the cache: a few messages for each of many owners.
const beatCacheSize = 512

// beatsFor is how long the claims of a heartbeat are not merged again: what they
// mention is to be remembered as mentioned.
const beatsFor = 30 * time.Second

var beatSeq = []byte(`,"q":`)

// decode reads the body of a heartbeat. The entries are shared and must not be
// changed.
func (c beatCache) decode(body []byte) (wireBeat, error) {
	i := bytes.LastIndex(body, beatSeq)
	if i < 0 {
		return decodeBeat(body)
	}
	seq, lease, ok := beatNumbers(body[i+len(beatSeq):])
	if !ok {
		return decodeBeat(body)
	}
	b, known := c[string(body[:i])]
	if !known {
		full, err := decodeBeat(body)
		if err != nil {
			return full, err
		}
		if b, err = decodeBeat(append(bytes.Clone(body[:i]), '}')); err != nil {
			return full, nil // valid only as a whole: no lbd sends this
		}
		if len(c) >= beatCacheSize {
			clear(c)
		}
		c[string(body[:i])] = b
	}
	b.Seq = seq
	if lease >= 0 {
		b.Lease = lease
	}
	return b, nil
}

// beatNumbers reads `7}` or `7,"r":3000}` and nothing else; lease is -1 in the
// first case. Values that decodeBeat would refuse are left to it.
func beatNumbers(b []byte) (seq uint64, lease int64, ok bool) {
	seq, b, ok = number(b)
	if !ok || !validNumber(seq) {
		return 0, 0, false
	}
	lease = -1
	if rest, found := bytes.CutPrefix(b, []byte(`,"r":`)); found {
		var r uint64
		if r, b, ok = number(rest); !ok || r > maxLease {
			return 0, 0, false
		}
		lease = int64(r)
	}
	return seq, lease, len(b) == 1 && b[0] == '}'
}

// number reads digits as JSON has them.
func number(b []byte) (n uint64, rest []byte, ok bool) {
	i := 0
	for ; i < len(b) && i < 19 && '0' <= b[i] && b[i] <= '9'; i++ {
		n = 10*n + uint64(b[i]-'0')
	}
	return n, b[i:], i == 1 || i > 1 && b[0] != '0'
}

// beatsMerged knows the claims of heartbeats of late, by where beatCache has them.
// Thirty of them come with each heartbeat of an owner of thousands of VIPs, time and
// again the same, and to merge them is most of what the heartbeat costs. Those of a
// few VIPs are merged each time.
type beatsMerged map[*wireEntry]repeat

// known tells whether these claims, merged a while ago, brought nothing and asked for
// no answer, and nothing has changed since.
func (m beatsMerged) known(claims []wireEntry, s state, now time.Time) bool {
	if len(claims) <= fewEntries {
		return false
	}
	was, ok := m[&claims[0]]
	return ok && was.state == s && now.Before(was.until)
}

// merged notes claims that brought nothing.
func (m beatsMerged) merged(claims []wireEntry, s state, now time.Time) {
	if len(claims) <= fewEntries {
		return
	}
	if len(m) >= beatCacheSize {
		clear(m)
	}
	m[&claims[0]] = repeat{state: s, until: now.Add(beatsFor)}
}
