package bundle

import (
	"archive/tar"
	"bytes"
	"compress/gzip"
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"lbd.dev/lbd/internal/testnet"
)

func TestMain(m *testing.M) { testnet.Main(m) }

// part makes the files that are given.
func part(names []string, files map[string]string, err error) Part {
	return Part{Names: names, Limit: time.Minute, Collect: func(_ context.Context, to *Sink) error {
		for name, text := range files {
			to.Add(name, []byte(text))
		}
		return err
	}}
}

// unpack returns the files of an archive by their names, which it checks.
func unpack(t *testing.T, archive []byte) map[string]string {
	t.Helper()
	zip, err := gzip.NewReader(bytes.NewReader(archive))
	if err != nil {
		t.Fatal(err)
	}
	files := make(map[string]string)
	in := tar.NewReader(zip)
	for {
		h, err := in.Next()
		if errors.Is(err, io.EOF) {
			return files
		}
		data, bad := io.ReadAll(in)
		if err := errors.Join(err, bad); err != nil {
			t.Fatal(err)
		}
		name, inside := strings.CutPrefix(h.Name, "lbd-bundle/")
		if _, again := files[name]; !inside || again || !filepath.IsLocal(h.Name) || filepath.Clean(h.Name) != h.Name || h.Mode != 0o600 || h.Typeflag != tar.TypeReg {
			t.Errorf("%q with mode %o of type %c", h.Name, h.Mode, h.Typeflag)
		}
		files[name] = string(data)
	}
}

// pack returns the files of a bundle of parts.
func pack(t *testing.T, o Options, parts ...Part) (map[string]string, []Missing) {
	t.Helper()
	var out bytes.Buffer
	missing, err := Write(t.Context(), &out, parts, o)
	if err != nil {
		t.Fatal(err)
	}
	return unpack(t, out.Bytes()), missing
}

// TestNoSecretInTheArchive, whatever the part, and the README has the list.
func TestNoSecretInTheArchive(t *testing.T) {
	files, _ := pack(t, Options{About: "Of node m1.\n", Secrets: []string{"5ecret0"}, Notes: []string{"Blanked of 5ecret0: lines [1]."}},
		part([]string{"a"}, map[string]string{"a": "x 5ecret0", "b": "# " + key + "\n" + pem}, errors.New("not with 5ecret0")),
		part([]string{"5ecret0/c"}, nil, errors.New("5ecret0")))
	all := fmt.Sprint(files)
	for _, secret := range []string{"5ecret0\n", "x 5ecret0", "with 5ecret0", key, "MHcCAQ"} {
		if strings.Contains(all, secret) {
			t.Errorf("%q is in\n%s", secret, all)
		}
	}
	readme := files["README.txt"]
	for _, want := range []string{"Of node m1.", "       2  b\n", "       1  a\n", "Blanked of (blanked): lines [1]."} {
		if !strings.Contains(readme, want) {
			t.Errorf("%q is not in\n%s", want, readme)
		}
	}
}

// TestWhatIsNotThereIsSaid: in the file that it would have been, and by the way without the rest.
func TestWhatIsNotThereIsSaid(t *testing.T) {
	broken := Part{Names: []string{"broken"}, Limit: time.Minute, Collect: func(context.Context, *Sink) error { panic("oh") }}
	files, missing := pack(t, Options{},
		part([]string{"a", "b"}, map[string]string{"a": "A"}, errors.New("no more")),
		part([]string{"c"}, map[string]string{"c": "C"}, errors.New("not all")),
		part([]string{"d"}, nil, nil),
		part([]string{"e"}, map[string]string{"e": "E"}, nil), broken)
	want := map[string]string{
		"a": "A", "b.missing.txt": "not there: no more\n", "c": "C", "c.incomplete.txt": "not all of it is there: not all\n",
		"d.missing.txt": "not there: nothing was found\n", "e": "E", "broken.missing.txt": "not there: this part of lbd is broken: oh\n",
	}
	for name, text := range want {
		if files[name] != text {
			t.Errorf("%s: %q, want %q", name, files[name], text)
		}
		if !strings.Contains(files["README.txt"], "  "+name+"\n") {
			t.Errorf("%s is not in\n%s", name, files["README.txt"])
		}
	}
	if len(files) != len(want)+1 || len(missing) != 3 || missing[0].Name != "a" || missing[0].Why.Error() != "no more" {
		t.Errorf("%d files, %v", len(files), missing)
	}
}

// TestNamesStayInTheFolder, whatever a VIP or a file is called.
func TestNamesStayInTheFolder(t *testing.T) {
	hostile := []string{"../../etc/cron.d/x", "/etc/passwd", "..", ".", "", "a/../../b", "a\x00b", "a\nb", `..\..\x`, "控制", "//", "-rf", "A", "a", "CON/../x", strings.Repeat("x", 300)}
	files := make(map[string]string)
	for _, name := range hostile {
		files[name] = "x"
	}
	got, _ := pack(t, Options{}, part([]string{"a"}, files, nil)) // unpack checks the names
	if len(got) != len(hostile)+1 {
		t.Errorf("%d files of %d: %q", len(got)-1, len(hostile), got)
	}
	for name := range got {
		if strings.ContainsAny(name, "\x00\n\\") || strings.Contains(name, "..") || len(name) > 200 {
			t.Errorf("%q", name)
		}
	}
}

// TestPartsAreBounded in time, size and number.
func TestPartsAreBounded(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		began := time.Now()
		hang := make(chan struct{})
		files, missing := pack(t, Options{},
			Part{Names: []string{"slow", "never"}, Limit: 10 * time.Second, Collect: func(_ context.Context, to *Sink) error {
				to.Add("slow", []byte("so far"))
				<-hang
				to.Add("late", []byte("x"))
				return nil
			}},
			Part{Names: []string{"big"}, Limit: time.Second, Collect: func(_ context.Context, to *Sink) error {
				w := to.Writer("big")
				for range 3*mostBytes>>20 + 1 {
					_, _ = w.Write(make([]byte, 1<<20))
				}
				return nil
			}},
			Part{Names: []string{"many"}, Limit: time.Second, Collect: func(_ context.Context, to *Sink) error {
				for i := range mostFiles + 5 {
					to.Add(fmt.Sprintf("many/%d", i), nil)
				}
				return nil
			}})
		close(hang)
		if took := time.Since(began); took != 10*time.Second {
			t.Errorf("it took %s", took)
		}
		if files["slow"] != "so far" || !strings.Contains(files["never.missing.txt"], "longer than 10s") || files["late"] != "" || len(missing) != 1 {
			t.Errorf("%q, %v", files["never.missing.txt"], missing)
		}
		if len(files["big"]) != mostBytes || !strings.Contains(files["README.txt"], fmt.Sprintf("big  (cut: %d bytes more)\n", 2*mostBytes+1<<20)) {
			t.Errorf("%d bytes,\n%.2000s", len(files["big"]), files["README.txt"])
		}
		if files["many.more.txt"] != "5 more files are left out\n" {
			t.Errorf("%q", files["many.more.txt"])
		}
	})
}

// TestAllIsBounded: many files that are not too large are, together.
func TestAllIsBounded(t *testing.T) {
	text := strings.Repeat("x\n", mostBytes/2)
	many := make(map[string]string)
	for i := range mostTotal/mostBytes + 2 {
		many[fmt.Sprint(i)] = text
	}
	files, _ := pack(t, Options{}, part([]string{"0"}, many, nil))
	total := 0
	for _, text := range files {
		total += len(text)
	}
	if total > mostTotal+1<<16 || strings.Count(files["README.txt"], "the bundle is full") != 2 {
		t.Errorf("%d bytes\n%s", total, files["README.txt"])
	}
}

// TestSecretsAreFoundBeforeAFileIsCut: no half of one is left.
func TestSecretsAreFoundBeforeAFileIsCut(t *testing.T) {
	files, _ := pack(t, Options{}, part([]string{"a"}, map[string]string{"a": strings.Repeat("\n", mostBytes-20) + key + " more"}, nil))
	if strings.Contains(files["a"], key[:8]) || !strings.HasSuffix(files["a"], "(blanked) more") {
		t.Errorf("%q", files["a"][mostBytes-30:])
	}
}

// TestSame: what is collected alike gives the same bytes.
func TestSame(t *testing.T) {
	var a, b bytes.Buffer
	o := Options{Time: time.Date(2026, 11, 21, 10, 0, 0, 5, time.UTC)}
	for _, out := range []*bytes.Buffer{&a, &b} {
		if _, err := Write(t.Context(), out, []Part{part([]string{"x"}, map[string]string{"x": "1", "y/z": "2", "w": "3"}, nil)}, o); err != nil {
			t.Fatal(err)
		}
	}
	if !bytes.Equal(a.Bytes(), b.Bytes()) {
		t.Error("two archives differ")
	}
}

// TestInterrupted: the end of the context is an error, and nothing is written.
func TestInterrupted(t *testing.T) {
	ctx, cancel := context.WithCancel(t.Context())
	p := Part{Names: []string{"a"}, Limit: time.Hour, Collect: func(ctx context.Context, _ *Sink) error {
		cancel()
		<-ctx.Done()
		return ctx.Err()
	}}
	var out bytes.Buffer
	if _, err := Write(ctx, &out, []Part{p}, Options{}); !errors.Is(err, context.Canceled) || out.Len() > 0 {
		t.Errorf("%v, %d bytes", err, out.Len())
	}
}

// TestSave: the file is there as a whole and only for its owner, or nothing is.
func TestSave(t *testing.T) {
	dir := t.TempDir()
	name := filepath.Join(dir, "b.tar.gz")
	left := func() (names []string) {
		entries, err := os.ReadDir(dir)
		if err != nil {
			t.Fatal(err)
		}
		for _, e := range entries {
			names = append(names, e.Name())
		}
		return names
	}
	err := Save(name, func(w io.Writer) error {
		_, _ = io.WriteString(w, "half")
		if _, err := os.Stat(name); err == nil {
			t.Error("it is there before its time")
		}
		return errors.New("full")
	})
	if err == nil || len(left()) > 0 {
		t.Errorf("%v, left: %q", err, left())
	}
	if err := os.WriteFile(name, []byte("old"), 0o644); err != nil {
		t.Fatal(err)
	}
	if err := Save(name, func(w io.Writer) error { _, err := io.WriteString(w, "whole"); return err }); err != nil {
		t.Fatal(err)
	}
	info, err := os.Stat(name)
	if err != nil || info.Mode() != 0o600 || !slices.Equal(left(), []string{"b.tar.gz"}) {
		t.Errorf("%v, %v, %q", err, info, left())
	}
	for bad, want := range map[string]string{filepath.Join(dir, "no", "b"): "no such file", filepath.Join(name, "b"): "is no directory", dir: "no regular file"} {
		if err := Savable(bad); err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("%s: %v", bad, err)
		}
	}
	if err := Savable(name); err != nil {
		t.Error(err)
	}
}
