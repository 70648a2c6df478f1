package sockdiag

import (
	"os"
	"path/filepath"
	"testing"
)

func TestTable(t *testing.T) {
	dir := t.TempDir()
	if _, _, ok := table(dir); ok {
		t.Error("a kernel without connection tracking has a table")
	}
	for name, text := range map[string]string{"nf_conntrack_count": "12\n", "nf_conntrack_max": "262144\n"} {
		if _, _, ok := table(dir); ok {
			t.Errorf("there is a table without %s", name)
		}
		if err := os.WriteFile(filepath.Join(dir, name), []byte(text), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	if entries, limit, ok := table(dir); entries != 12 || limit != 262144 || !ok {
		t.Error(entries, limit, ok)
	}
}

// TestDropped: of all processors, by the names of the columns.
func TestDropped(t *testing.T) {
	const two = "entries  clashres new insert_failed drop early_drop\n00000005  00000000 00000001 00000002 0000000a 00000007\n00000005  00000000 00000001 0000000c 00000010 00000007\n"
	if d, ok := dropped(two); !ok || d != (Drops{All: 26, Clashed: 14}) {
		t.Errorf("%+v, %v", d, ok)
	}
	for _, bad := range []string{"", "entries found\n1 2\n", "entries drop\n1 2\n", "insert_failed drop\n1\n", "insert_failed drop\n1 x\n"} {
		if d, ok := dropped(bad); ok {
			t.Errorf("%q: %+v", bad, d)
		}
	}
}
