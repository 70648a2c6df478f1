package beat

import (
	"time"

	"lbd.dev/lbd/internal/gossip/record"
)

// Reader reads heartbeats, and knows those that bring nothing. Reading JSON is most of what
// a heartbeat costs, and to merge the claims of thousands of VIPs, thirty in each, the rest.
// It is not safe for concurrent use.
type Reader struct {
	// read has heartbeats without their numbers, by how they begin. Those of one stream
	// differ only in the numbers at their end: a message that begins like an earlier valid
	// one and ends with just the numbers is valid, too, and says the same.
	read map[string]record.Beat
	// merged has the claims of read that brought nothing, by their first.
	merged map[*record.Entry]mergedClaims
}

type mergedClaims struct {
	state record.State // what they brought nothing to
	until time.Time
}

const (
	// maxRead bounds each map: a few messages for each of many owners.
	maxRead = 512
	// MergedFor is how long the claims of a heartbeat are not merged again: what they
	// mention is to be remembered as mentioned.
	MergedFor = 30 * time.Second
)

// NewReader returns a Reader that has read nothing.
func NewReader() *Reader {
	return &Reader{read: map[string]record.Beat{}, merged: map[*record.Entry]mergedClaims{}}
}

// Read reads the body of a heartbeat. The entries are shared and must not be changed.
func (r *Reader) Read(body []byte) (record.Beat, error) {
	start, seq, lease, ok := record.SplitBeat(body)
	if !ok {
		return record.DecodeBeat(body)
	}
	b, known := r.read[string(start)]
	if !known {
		full, err := record.DecodeBeat(body)
		if err != nil {
			return full, err
		}
		if b, err = record.DecodeStart(start); err != nil {
			return full, nil // valid only as a whole: no lbd sends this
		}
		if len(r.read) >= maxRead {
			clear(r.read)
		}
		r.read[string(start)] = b
	}
	b.Seq = seq
	if lease >= 0 {
		b.Lease = lease
	}
	return b, nil
}

// Known tells whether these claims, merged a while ago, brought nothing and asked for no
// answer, and nothing has changed since. Those of a few VIPs are merged each time.
func (r *Reader) Known(claims []record.Entry, s record.State, now time.Time) bool {
	if len(claims) <= record.FewEntries {
		return false
	}
	was, ok := r.merged[&claims[0]]
	return ok && was.state == s && now.Before(was.until)
}

// Merged notes claims that brought nothing.
func (r *Reader) Merged(claims []record.Entry, s record.State, now time.Time) {
	if len(claims) <= record.FewEntries {
		return
	}
	if len(r.merged) >= maxRead {
		clear(r.merged)
	}
	r.merged[&claims[0]] = mergedClaims{s, now.Add(MergedFor)}
}
