package docs

import (
	"os"
	"path/filepath"
	"regexp"
	"strings"
	"testing"
)

// A block of commands has one of these on the line above it, or its page has the last one below
// its title.
var (
	runBy  = regexp.MustCompile(`^<!-- run by (tests/[a-z]+): (Test[A-Za-z0-9]+) -->$`)
	notRun = regexp.MustCompile(`^<!-- not run: \S.*\S -->$`)
	noneIs = regexp.MustCompile(`^# .*\n\n<!-- no command is run: \S.*\S -->\n`)
)

// unmarked returns what is wrong with the blocks of commands of a page: each must be run by a test,
// which reads it from the page, or say why none does. exists tells whether a folder has a test.
func unmarked(text string, exists func(folder, test string) bool) (wrong []string) {
	if noneIs.MatchString(text) {
		return nil
	}
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

// TestMarkedCommands: each command of a page is run by a test or says why not; and nobody who follows
// the README has a command before them that was not tried.
func TestMarkedCommands(t *testing.T) {
	run := map[string]int{}
	for _, p := range read(t) {
		for _, w := range unmarked(p.text, func(folder, test string) bool { return runs(p.path, folder, test) }) {
			t.Errorf("%s: %s", p.path, w)
		}
		run[p.path] = strings.Count(p.text, "\n<!-- run by ")
	}
	for name, least := range map[string]int{"README.md": 4, "docs/control-plane.md": 5, "docs/kubernetes.md": 7} {
		if run[name] < least {
			t.Errorf("%s: %d blocks are run, want %d", name, run[name], least)
		}
	}
}

// runs tells whether a folder has a test of that name, and takes commands from the page: those of
// the README by Marked, as the name of the test there shows.
func runs(page, folder, test string) bool {
	files, err := filepath.Glob(filepath.Join(root, filepath.FromSlash(folder), "*.go"))
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
		reads = reads || page != "README.md" && strings.Contains(string(b), `"`+page+`"`) || strings.Contains(string(b), `Marked(t.Context(), "README.md", "`+test+`")`) || strings.Contains(string(b), `Marked(t.Context(), readme, "`+test+`")`)
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
		{"# Title\n\n<!-- no command is run: they look -->\n\n```sh\na\n```\n", 0},
		{"# Title\n\nText.\n\n<!-- no command is run: they look -->\n\n```sh\na\n```\n", 1},
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
