package sockdiag

import (
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
)

// Table returns how many connections connection tracking knows, and how many it can; false
// without connection tracking. The first is that of this network namespace.
func Table() (entries, limit uint64, ok bool) { return table("/proc/sys/net/netfilter") }

func table(dir string) (entries, limit uint64, ok bool) {
	entries, known := number(filepath.Join(dir, "nf_conntrack_count"))
	limit, bounded := number(filepath.Join(dir, "nf_conntrack_max"))
	return entries, limit, known && bounded
}

func number(file string) (uint64, bool) {
	text, err := os.ReadFile(file)
	if err != nil {
		return 0, false
	}
	n, err := strconv.ParseUint(strings.TrimSpace(string(text)), 10, 64)
	return n, err == nil
}

// Dropped returns how many packets connection tracking of this network namespace has dropped, most
// of them since its table was full; false if the kernel does not tell.
func Dropped() (packets uint64, ok bool) {
	text, err := os.ReadFile("/proc/net/stat/nf_conntrack")
	if err != nil {
		return 0, false
	}
	return dropped(string(text))
}

// dropped adds up the column "drop" of all processors, which is hexadecimal.
func dropped(text string) (packets uint64, ok bool) {
	head, rest, _ := strings.Cut(text, "\n")
	column := slices.Index(strings.Fields(head), "drop")
	if column < 0 {
		return 0, false
	}
	for line := range strings.Lines(rest) {
		fields := strings.Fields(line)
		if len(fields) <= column {
			return 0, false
		}
		n, err := strconv.ParseUint(fields[column], 16, 64)
		if err != nil {
			return 0, false
		}
		packets += n
	}
	return packets, true
}
