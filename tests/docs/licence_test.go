package docs

import (
	"bytes"
	"os"
	"strings"
	"testing"
)

// TestLicence: programs that look for SPDX identifiers find that of the licence which people read.
func TestLicence(t *testing.T) {
	read := func(path string) []byte {
		text, err := os.ReadFile("../../" + path)
		if err != nil {
			t.Fatal(err)
		}
		return text
	}
	if !bytes.Equal(read("LICENSE"), read("LICENSES/Apache-2.0.txt")) {
		t.Error("LICENSE and LICENSES/Apache-2.0.txt differ")
	}
	if text := string(read("REUSE.toml")); !strings.Contains(text, `path = "**"`) || !strings.Contains(text, `SPDX-License-Identifier = "Apache-2.0"`) {
		t.Errorf("REUSE.toml does not put all files under Apache-2.0:\n%s", text)
	}
}
