package docs

import (
	"bytes"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"sync"
	"testing"
)

// command is what the help of one command says.
type command struct {
	path  string // "lbd manifest config"
	flags []string
	subs  []string
}

var (
	helpSub  = regexp.MustCompile(`^  ([a-z-]+)\s{2,}`)
	helpFlag = regexp.MustCompile(`^\s+(?:-[a-zA-Z], )?--([a-z-]+)`)
)

// folder is where the program is.
var folder string

func TestMain(m *testing.M) {
	var err error
	if folder, err = os.MkdirTemp("", "lbd-docs-"); err != nil {
		fmt.Fprintln(os.Stderr, err)
		os.Exit(1)
	}
	code := m.Run()
	_ = os.RemoveAll(folder)
	os.Exit(code)
}

// program is lbd, for all tests together: to link it takes longer than most of them. The flags are those
// of `make build`, so that what that has compiled is not compiled again.
func program(t *testing.T) string {
	t.Helper()
	at, err := build()
	if err != nil {
		t.Fatal(err)
	}
	return at
}

var build = sync.OnceValues(func() (string, error) {
	at := filepath.Join(folder, "lbd")
	cmd := exec.Command("go", "build", "-tags", "grpcnotrace", "-trimpath", "-buildvcs=false", "-ldflags=-s -w", "-o", at, "./cmd/lbd")
	cmd.Dir = root
	cmd.Env = append(os.Environ(), "CGO_ENABLED=0")
	if out, err := cmd.CombinedOutput(); err != nil {
		return "", fmt.Errorf("build: %w\n%s", err, out)
	}
	return at, nil
})

// TestUnusedMethodsAreLeftOut of the program. Where methods may be called by names that nobody knows before the program
// runs, the linker keeps all of them, which made the program a fifth larger. The engine of templates is the usual cause.
func TestUnusedMethodsAreLeftOut(t *testing.T) {
	image, err := os.ReadFile(program(t))
	if err != nil {
		t.Fatal(err)
	}
	if !bytes.Contains(image, []byte("reflect.Value.Call")) {
		t.Fatal("the program does not have the names of its functions")
	}
	for _, name := range []string{"text/template.(*state).evalField", "reflect.(*rtype).Methods"} {
		if bytes.Contains(image, []byte(name)) {
			t.Errorf("%s is in the program", name)
		}
	}
}

// commands walks the help of every command of the program.
func commands(t *testing.T) []command {
	t.Helper()
	bin := program(t)
	var all []command
	var walk func(args []string)
	walk = func(args []string) {
		out, err := exec.CommandContext(t.Context(), bin, append(args, "--help")...).Output()
		if err != nil {
			t.Fatalf("lbd %v --help: %v", args, err)
		}
		c := parseHelp(strings.Join(append([]string{"lbd"}, args...), " "), string(out))
		all = append(all, c)
		for _, s := range c.subs {
			if s != "help" {
				walk(append(slices.Clone(args), s))
			}
		}
	}
	walk(nil)
	if len(all) < 12 {
		t.Fatalf("only %d commands found", len(all))
	}
	return all
}

func parseHelp(path, text string) command {
	c := command{path: path}
	section := ""
	for line := range strings.Lines(text) {
		line = strings.TrimRight(line, "\n")
		switch {
		case strings.HasSuffix(line, ":") && !strings.HasPrefix(line, " "):
			section = line
		case section == "Available Commands:":
			if m := helpSub.FindStringSubmatch(line); m != nil {
				c.subs = append(c.subs, m[1])
			}
		case section == "Flags:":
			if m := helpFlag.FindStringSubmatch(line); m != nil && m[1] != "help" {
				c.flags = append(c.flags, m[1])
			}
		}
	}
	return c
}

// shared are the flags that docs/commands.md explains once.
var shared = []string{"socket", "config"}

func TestCommands(t *testing.T) {
	all := commands(t)
	t.Run("table", func(t *testing.T) { checkTable(t, all) })
	t.Run("pages", func(t *testing.T) { checkCalls(t, all) })
}

// checkTable wants a row for every command, with its flags, and no others.
func checkTable(t *testing.T, all []command) {
	p := readPage(t, "docs/commands.md")
	for _, c := range all {
		switch {
		case c.path == "lbd", c.path == "lbd manifest", c.path == "lbd tenant", c.path == "lbd convert", c.path == "lbd completion":
			continue // only their parts do something
		}
		row := rowOf(p, c.path)
		if row == nil {
			t.Errorf("docs/commands.md lacks %s", c.path)
			continue
		}
		for _, f := range c.flags {
			own := slices.Contains(codes(row[1]), "--"+f) || strings.Contains(row[1], "`--"+f+" ")
			if !own && !(slices.Contains(shared, f) && sharesFlags(p, c.path)) {
				t.Errorf("docs/commands.md: %s lacks --%s", c.path, f)
			}
		}
	}
	exits := p.rows("Exit codes")
	for _, c := range all {
		told := slices.ContainsFunc(exits, func(row []string) bool {
			return slices.ContainsFunc(codes(row[0]), func(name string) bool { return name == c.path || strings.HasPrefix(c.path, name+" ") })
		})
		if !told && c.path != "lbd" {
			t.Errorf("docs/commands.md does not say with what %s ends", c.path)
		}
	}
	for _, row := range exits {
		for _, name := range codes(row[0]) {
			if !slices.ContainsFunc(all, func(c command) bool { return c.path == name }) {
				t.Errorf("docs/commands.md says with what %s ends, which does not exist", name)
			}
		}
	}
	for _, row := range p.rows("") {
		for _, code := range codes(strings.Join(row, " ")) {
			if f, ok := strings.CutPrefix(code, "--"); ok && !hasFlag(all, strings.Fields(f)[0]) {
				t.Errorf("docs/commands.md: --%s does not exist", f)
			}
		}
	}
}

// rowOf finds the row of a command; the shells share one.
func rowOf(p page, path string) []string {
	for _, row := range p.rows("") {
		names := codes(row[0])
		if len(names) == 0 {
			continue
		}
		first := names[0]
		if first == path || strings.HasPrefix(first, path+" ") && strings.ToUpper(first[len(path):]) == first[len(path):] {
			return row
		}
		if shell, ok := strings.CutPrefix(path, "lbd completion "); ok && strings.HasPrefix(first, "lbd completion ") &&
			(slices.Contains(names, shell) || first == path) {
			return row
		}
	}
	return nil
}

// sharesFlags tells whether the sentence about shared flags names the command.
func sharesFlags(p page, path string) bool {
	name := strings.TrimPrefix(path, "lbd ")
	for para := range strings.SplitSeq(p.prose(), "\n\n") {
		if strings.HasPrefix(para, "Commands that talk to the daemon") {
			return slices.Contains(codes(para), name)
		}
	}
	return false
}

func hasFlag(all []command, flag string) bool {
	return flag == "help" || slices.ContainsFunc(all, func(c command) bool { return slices.Contains(c.flags, flag) })
}

// call is a command with its arguments at the start of a line of a block, after a
// prompt or && there, or in backquotes.
var (
	callInBlock = regexp.MustCompile(`(?m)(?:^|^\S*[#$] |&& )lbd ([a-z][a-z-]*)((?:[ \t]+[^\s|>&;]+)*)`)
	callInProse = regexp.MustCompile("`lbd ([a-z][a-z-]*)((?: [^\\s`]+)*)`")
)

// checkCalls finds commands and flags in any page that do not exist.
func checkCalls(t *testing.T, all []command) {
	known := map[string]command{}
	for _, c := range all {
		known[c.path] = c
	}
	calls := 0
	for _, p := range read(t) {
		found := callInProse.FindAllStringSubmatch(p.prose(), -1)
		for _, b := range p.blocks() {
			if b.lang == "" || b.lang == "sh" {
				found = append(found, callInBlock.FindAllStringSubmatch(b.text, -1)...)
			}
		}
		for _, m := range found {
			calls++
			if bad := wrong(known, m[1], strings.Fields(m[2])); bad != "" {
				t.Errorf("%s: %s", p.path, bad)
			}
		}
	}
	if calls < 30 {
		t.Errorf("only %d calls found", calls)
	}
}

// wrong says what is wrong with a call, if anything.
func wrong(known map[string]command, name string, args []string) string {
	c, ok := known["lbd "+name]
	if !ok {
		if name == "help" {
			return ""
		}
		return "there is no command `lbd " + name + "`"
	}
	if len(args) > 0 {
		if sub, ok := known[c.path+" "+args[0]]; ok {
			c = sub
		}
	}
	for _, a := range args {
		flag, long := strings.CutPrefix(a, "--")
		if long && flag != "help" && !slices.Contains(c.flags, flag) {
			return "`" + c.path + "` has no flag --" + flag
		}
	}
	return ""
}
