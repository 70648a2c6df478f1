// Package bundle makes the archive that goes with a bug report: what the daemon says, the
// configuration and the facts of the kernel, without secrets. Each part is bounded in time and
// size, and one that cannot be had leaves a file that says why.
package bundle

import (
	"archive/tar"
	"bytes"
	"cmp"
	"compress/gzip"
	"context"
	"errors"
	"fmt"
	"io"
	"path"
	"slices"
	"strings"
	"sync"
	"time"
)

const (
	// folder is where all files of an archive are.
	folder = "lbd-bundle"
	// mostBytes bounds a file, and mostFiles how many a part may have.
	mostBytes = 4 << 20
	mostFiles = 128
	// mostTotal bounds all files together, before compression.
	mostTotal = 32 << 20
)

// Part collects some files of a bundle.
type Part struct {
	// Names are the files that it makes if all goes well. It may make others.
	Names []string
	// Limit is how long it may take. What it has made until then counts.
	Limit time.Duration
	// Collect makes them. It may be left behind when the time is over.
	Collect func(ctx context.Context, to *Sink) error
}

// Sink takes the files of one part.
type Sink struct {
	mu     sync.Mutex
	files  []*file
	left   int  // files for which there was no room
	closed bool // the time is over
}

// file is one that grows.
type file struct {
	name string
	data bytes.Buffer
	lost int // bytes that were too many
}

// Add adds a file. Its name is a path below the folder of the archive.
func (s *Sink) Add(name string, data []byte) { _, _ = s.Writer(name).Write(data) }

// Writer returns what appends to a file. It never fails, but keeps no more than a file may have.
func (s *Sink) Writer(name string) io.Writer {
	s.mu.Lock()
	defer s.mu.Unlock()
	f := &file{name: name}
	switch {
	case s.closed:
	case len(s.files) >= mostFiles:
		s.left++
	default:
		s.files = append(s.files, f)
	}
	return &appender{s, f}
}

type appender struct {
	to *Sink
	f  *file
}

// Write keeps twice what a file may have: secrets are looked for before it is cut, so that none
// is cut in two.
func (a *appender) Write(p []byte) (int, error) {
	a.to.mu.Lock()
	defer a.to.mu.Unlock()
	room := 2*mostBytes - a.f.data.Len()
	if a.to.closed {
		room = 0
	}
	kept := p[:min(len(p), max(room, 0))]
	a.f.data.Write(kept)
	a.f.lost += len(p) - len(kept)
	return len(p), nil
}

// result is what a part has made.
type result struct {
	files []*file
	left  int
	err   error
}

// run collects a part. It returns when the time is over, whether or not the part does.
func run(ctx context.Context, p *Part) result {
	ctx, cancel := context.WithTimeout(ctx, p.Limit)
	defer cancel()
	var to Sink
	done := make(chan error, 1)
	go func() {
		defer func() {
			if r := recover(); r != nil { // a fault of one part costs that part only
				done <- fmt.Errorf("this part of lbd is broken: %v", r)
			}
		}()
		done <- p.Collect(ctx, &to)
	}()
	var err error
	select {
	case err = <-done:
	case <-ctx.Done():
		err = ctx.Err()
	}
	if errors.Is(err, context.DeadlineExceeded) {
		err = fmt.Errorf("it took longer than %s", p.Limit)
	}
	to.mu.Lock()
	defer to.mu.Unlock()
	to.closed = true
	return result{to.files, to.left, err}
}

// Options are what Write needs besides the parts.
type Options struct {
	// About is the head of the README: of what and when the bundle is.
	About string
	// Secrets are looked for in all files, besides what looks like a secret.
	Secrets []string
	// Notes are lines of the README about what was blanked elsewhere.
	Notes []string
	// Time is that of all files.
	Time time.Time
}

// Missing is a part of which something is not in the archive.
type Missing struct {
	Name string // of its first file
	Why  error
}

// Write collects all parts at once and writes the archive, a gzipped tar. Only a failure to write
// is an error, and the end of ctx.
func Write(ctx context.Context, w io.Writer, parts []Part, o Options) ([]Missing, error) {
	results := make([]result, len(parts))
	var wg sync.WaitGroup
	for i := range parts {
		wg.Go(func() { results[i] = run(ctx, &parts[i]) })
	}
	wg.Wait()
	if err := ctx.Err(); err != nil {
		return nil, err
	}
	s := newScrubber(o.Secrets)
	entries := assemble(parts, results, s)
	var missing []Missing
	for i, r := range results {
		if r.err != nil {
			missing = append(missing, Missing{parts[i].Names[0], r.err})
		}
	}
	readme := entry{name: "README.txt", data: s.scrub(readme(entries, missing, o))}
	return missing, archive(w, append([]entry{readme}, entries...), o.Time)
}

// entry is a file as the archive has it.
type entry struct {
	name    string
	data    []byte
	blanked int
	note    string
}

// assemble makes of what the parts gave what may be shown, sorted by name.
func assemble(parts []Part, results []result, s *scrubber) []entry {
	var all []entry
	total := 0
	used := make(map[string]bool)
	add := func(name string, data []byte, lost int) {
		e := entry{name: unique(used, clean(name))}
		data = s.scrub(data)
		lost += max(len(data)-mostBytes, 0)
		data = data[:min(len(data), mostBytes)]
		if total+len(data) > mostTotal {
			data, e.note = nil, "left out: the bundle is full"
		}
		if lost > 0 {
			e.note = fmt.Sprintf("cut: %d bytes more", lost)
		}
		total += len(data)
		e.data, e.blanked = data, bytes.Count(data, []byte(Blank))
		all = append(all, e)
	}
	for i, r := range results {
		made := make(map[string]bool)
		for _, f := range r.files {
			made[f.name] = true
			add(f.name, f.data.Bytes(), f.lost)
		}
		why := cmp.Or(r.err, errors.New("nothing was found"))
		for _, name := range parts[i].Names {
			if !made[name] {
				add(name+".missing.txt", []byte("not there: "+why.Error()+"\n"), 0)
			}
		}
		if complete := !slices.ContainsFunc(parts[i].Names, func(n string) bool { return !made[n] }); r.err != nil && complete {
			add(parts[i].Names[0]+".incomplete.txt", []byte("not all of it is there: "+r.err.Error()+"\n"), 0)
		}
		if r.left > 0 {
			add(parts[i].Names[0]+".more.txt", fmt.Appendf(nil, "%d more files are left out\n", r.left), 0)
		}
	}
	slices.SortStableFunc(all, func(a, b entry) int { return strings.Compare(a.name, b.name) })
	return all
}

// clean makes of a name a path that stays in the folder, whatever is in it.
func clean(name string) string {
	var steps []string
	for step := range strings.SplitSeq(name, "/") {
		if step = Word(step); step != "" {
			steps = append(steps, step)
		}
	}
	return cmp.Or(path.Join(steps...), "_")
}

// Word makes of a text one step of a path: letters, digits, dots and dashes, not too many, and
// no dot first.
func Word(text string) string {
	word := strings.Map(func(r rune) rune {
		switch {
		case r >= 'a' && r <= 'z', r >= 'A' && r <= 'Z', r >= '0' && r <= '9', r == '.', r == '-', r == '_':
			return r
		}
		return '_'
	}, text)
	word = strings.TrimLeft(strings.ReplaceAll(word, "..", "_"), ".-")
	return word[:min(len(word), 80)]
}

// unique is a name that is used once.
func unique(used map[string]bool, name string) string {
	for n, base := 2, name; used[strings.ToLower(name)]; n++ {
		name = fmt.Sprintf("%s.%d", base, n)
	}
	used[strings.ToLower(name)] = true
	return name
}

// readme lists what is in the archive.
func readme(entries []entry, missing []Missing, o Options) []byte {
	var b strings.Builder
	b.WriteString(o.About)
	b.WriteString("\nLook through the files before you give them away: names of hosts, addresses and\nlog lines are in them.\n\n")
	b.WriteString("Left out: the contents of keyrings, of files with passwords and keys, of kubeconfigs and\ncertificates; comments of the configuration; arguments of programs.\n")
	fmt.Fprintf(&b, "Blanked, as %s: passwords and what an unknown field holds; private keys, keys of\n44 letters, tokens, passwords in URLs and what is assigned to such a word, in all files.\n", Blank)
	for _, n := range o.Notes {
		b.WriteString(n + "\n")
	}
	for _, m := range missing {
		fmt.Fprintf(&b, "\nNot there, or not all of it: %s: %v\n", m.Name, m.Why)
	}
	b.WriteString("\n   BYTES  BLANKED  FILE\n")
	for _, e := range entries {
		note := ""
		if e.note != "" {
			note = "  (" + e.note + ")"
		}
		fmt.Fprintf(&b, "%8d %8d  %s%s\n", len(e.data), e.blanked, e.name, note)
	}
	return []byte(b.String())
}

// archive writes the files in their order.
func archive(w io.Writer, entries []entry, at time.Time) error {
	zip := gzip.NewWriter(w)
	out := tar.NewWriter(zip)
	for _, e := range entries {
		header := &tar.Header{Name: folder + "/" + e.name, Mode: 0o600, Size: int64(len(e.data)), ModTime: at.Truncate(time.Second), Typeflag: tar.TypeReg}
		if err := out.WriteHeader(header); err != nil {
			return err
		}
		if _, err := out.Write(e.data); err != nil {
			return err
		}
	}
	return errors.Join(out.Close(), zip.Close())
}
