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
