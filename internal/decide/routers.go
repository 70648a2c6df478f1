package decide

// lack is in words who of the peers has no path although the others have it. VIPs
// whose lists of peers are the same ones share the words.
type lack struct {
	peers, advertised []string
	words             string
}

func (l *lack) is(peers, advertised []string) bool {
	return len(l.peers) > 0 && identical(l.peers, peers) && identical(l.advertised, advertised)
}

// identical tells whether two lists are one, or both empty.
func identical[T any](a, b []T) bool {
	return len(a) == len(b) && (len(a) == 0 || &a[0] == &b[0])
}
