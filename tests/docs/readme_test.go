package docs

import (
	"os"
	"path/filepath"
	"regexp"
	"strings"
	"testing"
)

// A block of commands of the README has one of these on the line above it.
var (
	runBy  = regexp.MustCompile(`^<!-- run by (tests/[a-z]+): (Test[A-Za-z0-9]+) -->$`)
	notRun = regexp.MustCompile(`^<!-- not run: \S.*\S -->$`)
)

// unmarked returns what is wrong with the blocks of commands of a page: each must be run by a test,
// which reads it from the page, or say why none does. exists tells whether a folder has a test.
func unmarked(text string, exists func(folder, test string) bool) (wrong []string) {
	lines := strings.Split(text, "\n")
	inside := false
	for i, line := range lines {
		lang, fence := strings.CutPrefix(strings.TrimSpace(line), "```")
		if !fence {
			continue
		}
		inside = !inside
		if !inside || !shell[lang] {
			continue
		}
		above := ""
		if i > 0 {
			above = lines[i-1]
		}
		m := runBy.FindStringSubmatch(above)
		switch {
		case notRun.MatchString(above):
		case m == nil:
			wrong = append(wrong, "the block that begins with "+lines[i+1]+" names no test and does not say why it is not run")
		case line != "```sh" || !exists(m[1], m[2]):
			wrong = append(wrong, "no test "+m[2]+" in "+m[1]+" runs the block that begins with "+lines[i+1])
		}
	}
	return wrong
}

// shell are the languages of blocks of commands.
var shell = map[string]bool{"sh": true, "bash": true, "shell": true, "console": true}

// TestReadmeCommands: somebody who follows the README has no command before them that nobody tried.
func TestReadmeCommands(t *testing.T) {
	text := readPage(t, "README.md").text
	for _, w := range unmarked(text, runs) {
		t.Error(w)
	}
	if n := strings.Count(text, "\n<!-- run by "); n < 4 {
		t.Errorf("%d blocks are run, want the two installations, hosts and Services", n)
	}
}

// runs tells whether a folder has a test of that name, which has its commands from the README: by
// Marked, as its name in the folder's tests shows.
func runs(folder, test string) bool {
	files, err := filepath.Glob(filepath.Join(root, filepath.FromSlash(folder), "*_test.go"))
	if err != nil {
		return false
	}
	has, reads := false, false
	for _, f := range files {
		b, err := os.ReadFile(f)
		if err != nil {
			return false
		}
		has = has || strings.Contains(string(b), "\nfunc "+test+"(t *testing.T)")
		reads = reads || strings.Contains(string(b), `Marked(t.Context(), "README.md", "`+test+`")`) || strings.Contains(string(b), `Marked(t.Context(), readme, "`+test+`")`)
	}
	return has && reads
}

func TestUnmarked(t *testing.T) {
	only := func(folder, test string) bool { return folder == "tests/x" && test == "TestX" }
	for _, c := range []struct {
		text string
		want int
	}{
		{"<!-- run by tests/x: TestX -->\n```sh\na\n```\n", 0},
		{"<!-- not run: it takes a day -->\n```sh\na\n```\n", 0},
		{"```yaml\na\n```\n", 0},
		{"```sh\na\n```\n", 1},
		{"  ```bash\n  a\n  ```\n", 1},
		{"<!-- not run: -->\n```sh\na\n```\n", 1},
		{"<!-- run by tests/x: TestX -->\n\n```sh\na\n```\n", 1},
		{"<!-- run by tests/x: TestY -->\n```sh\na\n```\n", 1},
		{"<!-- run by tests/y: TestX -->\n```sh\na\n```\n", 1},
		{"<!-- run by tests/x: TestX -->\n```console\na\n```\n", 1}, // Marked would not find it
		{"<!-- run by tests/x: TestX -->\n```sh\na\n```\n```sh\nb\n```\n", 1},
	} {
		if got := unmarked(c.text, only); len(got) != c.want {
			t.Errorf("%q: %q, want %d", c.text, got, c.want)
		}
	}
}
