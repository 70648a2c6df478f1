package config

import (
	"slices"
	"strings"
)

// nearest returns the candidate that word is a misspelling of, or "".
func nearest(word string, candidates []string) string {
	const longest = 64 // a longer word is no misspelling and costs time
	if len(word) > longest {
		return ""
	}
	best, bestDistance := "", 3
	for _, c := range slices.Sorted(slices.Values(candidates)) {
		if strings.EqualFold(word, c) {
			return c
		}
		limit := min(bestDistance, 1+len(c)/3)
		if d := distance(strings.ToLower(word), strings.ToLower(c)); d < limit {
			best, bestDistance = c, d
		}
	}
	return best
}

// distance counts the bytes to insert, delete, replace or swap with their
// neighbour to get from a to b (optimal string alignment).
func distance(a, b string) int {
	var before []int
	last := make([]int, len(b)+1)
	for j := range last {
		last[j] = j
	}
	for i := range len(a) {
		row := make([]int, len(b)+1)
		row[0] = i + 1
		for j := range len(b) {
			cost := 1
			if a[i] == b[j] {
				cost = 0
			}
			row[j+1] = min(last[j+1]+1, row[j]+1, last[j]+cost)
			if i > 0 && j > 0 && a[i] == b[j-1] && a[i-1] == b[j] {
				row[j+1] = min(row[j+1], before[j-1]+1)
			}
		}
		before, last = last, row
	}
	return last[len(b)]
}
