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

// Drops are packets that connection tracking of this network namespace has dropped.
type Drops struct {
	// All of them. Since the table was full are those that are not among Clashed.
	All uint64
	// Clashed are first packets of connections that would have looked to the server as another
	// connection does: no port was left for their source, or two of one flow came at a time.
	Clashed uint64
}

// Dropped returns what was dropped; false if the kernel does not tell.
func Dropped() (d Drops, ok bool) {
	text, err := os.ReadFile("/proc/thread-self/net/stat/nf_conntrack")
	if err != nil {
		return Drops{}, false
	}
	return dropped(string(text))
}

// dropped adds up two columns of all processors, which are hexadecimal.
func dropped(text string) (d Drops, ok bool) {
	head, rest, _ := strings.Cut(text, "\n")
	names := strings.Fields(head)
	for column, sum := range map[int]*uint64{slices.Index(names, "drop"): &d.All, slices.Index(names, "insert_failed"): &d.Clashed} {
		if column < 0 {
			return Drops{}, false
		}
		for line := range strings.Lines(rest) {
			fields := strings.Fields(line)
			if len(fields) <= column {
				return Drops{}, false
			}
			n, err := strconv.ParseUint(fields[column], 16, 64)
			if err != nil {
				return Drops{}, false
			}
			*sum += n
		}
	}
	return d, true
}
