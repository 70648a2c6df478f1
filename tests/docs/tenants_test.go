package docs

import (
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"testing"
)

// requirements are how many rows the table of docs/tenants.md has.
const requirements = 51

// TestTenantRequirements: each requirement has a row with a state. One that is there, if in part, says
// where, and the tests that it names are there.
func TestTenantRequirements(t *testing.T) {
	var tests strings.Builder
	for _, dir := range []string{"cmd", "internal", "tests"} {
		err := filepath.WalkDir(filepath.Join(root, dir), func(path string, d os.DirEntry, err error) error {
			if err != nil || !strings.HasSuffix(path, "_test.go") {
				return err
			}
			b, err := os.ReadFile(path)
			tests.Write(b)
			return err
		})
		if err != nil {
			t.Fatal(err)
		}
	}
	rows := readPage(t, "docs/tenants.md").rows("What there is")
	if len(rows) != requirements {
		t.Fatalf("%d rows, want %d", len(rows), requirements)
	}
	test := regexp.MustCompile(`^Test[A-Z][A-Za-z0-9]*$`)
	for i, row := range rows {
		if len(row) != 4 || row[0] != strconv.Itoa(i+1) || !slices.Contains([]string{"done", "partly", "not yet", "no"}, row[2]) {
			t.Errorf("row %d: %q", i+1, row)
			continue
		}
		named := 0
		for _, code := range codes(row[3]) {
			if !test.MatchString(code) {
				continue
			}
			if named++; !strings.Contains(tests.String(), "func "+code+"(") {
				t.Errorf("row %s: there is no test %s", row[0], code)
			}
		}
		if row[2] == "done" && named == 0 || row[2] != "not yet" && row[3] == "" {
			t.Errorf("row %s is %s and says not where", row[0], row[2])
		}
	}
}
