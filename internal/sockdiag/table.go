package sockdiag

import (
	"os"
	"path/filepath"
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
