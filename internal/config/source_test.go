package config

import (
	"context"
	"fmt"
	"log/slog"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"lbd.dev/lbd/internal/model"
)

// spoken is what a source has said.
type spoken struct {
	view    model.View
	pubs    int       // calls of publish
	changes []*Config // calls of OnChange
	told    []string  // calls of OnStatus: generation and error
	log     string
}

// running is a source at work in a bubble.
type running struct {
	*Source
	spoken // as of the last call of after
	t      *testing.T
	dir    string

	mu  sync.Mutex // guards now
	now spoken
}

// say changes what was said, on the goroutine of the source.
func (r *running) say(f func(s *spoken)) {
	r.mu.Lock()
	defer r.mu.Unlock()
	f(&r.now)
}

// Write takes lines of the log.
func (r *running) Write(line []byte) (int, error) {
	r.say(func(s *spoken) { s.log += string(line) })
	return len(line), nil
}

// bubble runs a source on a directory in fake time. The files are real.
func bubble(t *testing.T, files map[string]string, f func(r *running)) {
	t.Helper()
	dir := write(t, files)
	bubbleAt(t, dir, dir, f)
}

func bubbleAt(t *testing.T, dir, path string, f func(r *running)) {
	t.Helper()
	synctest.Test(t, func(t *testing.T) {
		cfg, err := Load(path)
		if err != nil {
			t.Fatal(err)
		}
		r := &running{t: t, dir: dir}
		r.Source = NewSource(SourceOptions{
			Config: cfg, Path: path, Logger: slog.New(slog.NewTextHandler(r, nil)),
			OnStatus: func(st Status) {
				r.say(func(s *spoken) {
					s.told = append(s.told, strings.TrimSpace(fmt.Sprintf("%d %s", st.Generation, strings.ReplaceAll(st.Err, r.dir+"/", ""))))
				})
			},
			OnChange: func(c *Config) { r.say(func(s *spoken) { s.changes = append(s.changes, c) }) },
		})
		ctx, cancel := context.WithCancel(t.Context())
		var wg sync.WaitGroup
		wg.Go(func() {
			err := r.Run(ctx, func(change func(*model.View)) {
				r.say(func(s *spoken) { s.pubs++; change(&s.view) })
			})
			if err != nil {
				t.Error(err)
			}
		})
		synctest.Wait()
		f(r)
		cancel()
		wg.Wait()
	})
}

// put replaces a file of the directory. Fake time is fast: two writes to one
// file could have the same size and, by the clock of the kernel, the same time.
func (r *running) put(name, content string) {
	r.t.Helper()
	tmp := filepath.Join(r.dir, ".tmp")
	put(r.t, tmp, content)
	if err := os.Rename(tmp, filepath.Join(r.dir, name)); err != nil {
		r.t.Fatal(err)
	}
}

// after lets time pass and checks how often the source has spoken since the
// start.
func (r *running) after(d time.Duration, pubs, changes int) {
	r.t.Helper()
	time.Sleep(d)
	synctest.Wait()
	r.say(func(s *spoken) { r.spoken = *s })
	if r.pubs != pubs || len(r.changes) != changes {
		r.t.Errorf("%d published and %d changes, want %d and %d; status %+v", r.pubs, len(r.changes), pubs, changes, r.Status())
	}
}

func TestSourcePublishes(t *testing.T) {
	bubble(t, map[string]string{"a.yaml": goodNode + "weight: 7\nnodeLabels: {a: b}\n---\n" + goodVIP}, func(r *running) {
		r.after(time.Minute, 1, 0)
		v := r.view
		if len(v.VIPs) != 1 || v.Weight != 7 || v.Labels["a"] != "b" || v.DrainTimeout != 30*time.Second || !v.Synced[model.SourceConfig] {
			t.Errorf("%+v", v)
		}
		if st := r.Status(); st.Generation != 1 || st.Err != "" || st.Path != r.dir || st.Loaded.IsZero() || len(st.Warnings) != 1 {
			t.Errorf("%+v", st)
		}
	})
}

func TestSourceReloads(t *testing.T) {
	bubble(t, map[string]string{"a.yaml": goodNode, "b.yaml": goodVIP}, func(r *running) {
		r.put("b.yaml", strings.ReplaceAll(goodVIP, "10.0.0.200", "10.0.0.201"))
		r.after(3*time.Second, 2, 1)
		if got := r.view.VIPs[0].Addr.String(); got != "10.0.0.201" {
			t.Errorf("VIP %s", got)
		}
		if st := r.Status(); st.Generation != 2 || st.Err != "" {
			t.Errorf("%+v", st)
		}

		// A mistake changes nothing, and is said once.
		good := r.Config()
		r.put("b.yaml", strings.ReplaceAll(goodVIP, "10.0.0.200", "10.0.0.300"))
		r.after(time.Minute, 2, 1)
		st := r.Status()
		if strings.ReplaceAll(st.Err, r.dir+"/", "") != `b.yaml:4: VirtualIP "a": spec.addresses[0]: "10.0.0.300" is not an IP address` || st.Generation != 2 || r.Config() != good {
			t.Errorf("%+v", st)
		}
		if err := r.Reload(context.Background()); err == nil || err.Error() != st.Err {
			t.Errorf("Reload: %v, want what the status says", err)
		}
		r.after(time.Second, 2, 1)
		if n := strings.Count(r.log, "configuration refused"); n != 1 {
			t.Errorf("logged %d times:\n%s", n, r.log)
		}

		// Put back: good again, without a new generation.
		r.put("b.yaml", strings.ReplaceAll(goodVIP, "10.0.0.200", "10.0.0.201")+"\n# again\n")
		r.after(time.Minute, 2, 1)
		if st := r.Status(); st.Err != "" || st.Generation != 2 {
			t.Errorf("%+v", st)
		}

		// A comment, or a check alone, is nothing to decide on.
		r.put("b.yaml", strings.ReplaceAll(goodVIP, "10.0.0.200", "10.0.0.201, 10.0.0.202"))
		r.after(time.Minute, 3, 2)
		if err := os.Remove(filepath.Join(r.dir, "b.yaml")); err != nil {
			t.Fatal(err)
		}
		r.after(time.Minute, 4, 3)
		if len(r.view.VIPs) != 0 {
			t.Errorf("%+v", r.view.VIPs)
		}
	})
}

// TestSourceTellsItsStatus: each configuration that was read or refused once, also one of
// which nothing is published.
func TestSourceTellsItsStatus(t *testing.T) {
	check := "  healthCheck: {tcp: {port: 80}, fall: FALL}\n"
	vip := headVIP + "metadata: {name: a}\nspec:\n  addresses: [10.0.0.200]\n" + check
	with := func(fall string) string { return strings.ReplaceAll(vip, "FALL", fall) }
	bubble(t, map[string]string{"a.yaml": goodNode, "b.yaml": with("2")}, func(r *running) {
		wrong := `b.yaml:6: VirtualIP "a": spec.healthCheck.fall: -1 must be from 1 to 100`
		for _, step := range []struct {
			content string
			told    []string
		}{
			{with("2") + "# again\n", []string{"1"}},
			{with("3"), []string{"1", "2"}},
			{with("-1"), []string{"1", "2", "2 " + wrong}},
			{with("-1") + "# again\n", []string{"1", "2", "2 " + wrong}},
			{with("3") + "# back\n", []string{"1", "2", "2 " + wrong, "2"}},
		} {
			r.put("b.yaml", step.content)
			time.Sleep(time.Minute)
			synctest.Wait()
			r.say(func(s *spoken) { r.spoken = *s })
			if !slices.Equal(r.told, step.told) {
				t.Errorf("after %q:\n got %q\nwant %q", step.content, r.told, step.told)
			}
		}
	})
}

func TestSourceReloadsAtOnce(t *testing.T) {
	bubble(t, map[string]string{"a.yaml": goodNode}, func(r *running) {
		r.put("b.yaml", goodVIP)
		if err := r.Reload(context.Background()); err != nil {
			t.Error(err)
		}
		r.after(0, 2, 1)
		for range 2 {
			if err := r.Reload(context.Background()); err != nil {
				t.Error(err)
			}
		}
		r.after(time.Minute, 2, 1)

		// What cannot change while lbd runs is refused with the way to do it.
		r.put("a.yaml", goodNode+"kubernetes: {}\n")
		if err := r.Reload(context.Background()); err == nil || !strings.Contains(err.Error(), "kubernetes: cannot change while lbd runs, which uses no cluster; `lbd restart` takes it, or put it back") {
			t.Errorf("Reload: %v", err)
		}
	})
}

func TestSourceWaitsForTheWriter(t *testing.T) {
	bubble(t, map[string]string{"a.yaml": goodNode, "b.yaml": goodVIP}, func(r *running) {
		r.after(10*time.Second, 1, 0)
		// An editor truncates the file, then takes its time. At 2.0 s the source sees
		// an empty file; at 2.25 s it looks again before it believes it.
		time.Sleep(1900 * time.Millisecond)
		r.put("b.yaml", "")
		time.Sleep(450 * time.Millisecond)
		r.put("b.yaml", strings.ReplaceAll(goodVIP, "name: a", "name: b"))
		r.after(time.Minute, 2, 1)
		if len(r.changes) != 1 || r.changes[0].VIPs[0].Name != "b" {
			t.Errorf("%+v", r.changes)
		}
	})
}

func TestSourceHandsOverChecksAndKeys(t *testing.T) {
	key := filepath.Join(t.TempDir(), "key")
	put(t, key, NewKey()+"\n")
	check := "  healthCheck: {tcp: {port: 80}, fall: FALL}\n"
	vip := headVIP + "metadata: {name: a}\nspec:\n  addresses: [10.0.0.200]\n" + check
	bubble(t, map[string]string{"a.yaml": headNode + "nodeName: m1\ngossip: {keyFile: " + key + "}\n",
		"b.yaml": strings.ReplaceAll(vip, "FALL", "2")}, func(r *running) {
		r.put("b.yaml", strings.ReplaceAll(vip, "FALL", "3"))
		r.after(3*time.Second, 1, 1) // no fact has changed
		if got := r.changes[0].Checks["a"].Fall; got != 3 {
			t.Errorf("fall %d", got)
		}
		if err := RotateKey(key); err != nil {
			t.Fatal(err)
		}
		r.after(3*time.Second, 1, 2)
		if got := len(r.changes[1].Node.Gossip.Keys); got != 2 {
			t.Errorf("%d keys", got)
		}
		put(t, key, "rubbish\n") // shorter
		r.after(3*time.Second, 1, 2)
		if got := strings.ReplaceAll(r.Status().Err, r.dir+"/", ""); got != key+`:1: the key is not base64 (gossip.keyFile of NodeConfiguration "m1", a.yaml:4)` {
			t.Errorf("%s", got)
		}
		if got := len(r.Config().Node.Gossip.Keys); got != 2 {
			t.Errorf("%d keys", got)
		}
	})
}

// A refused configuration may name a keyring that comes later.
func TestSourceNoticesALateKey(t *testing.T) {
	dir := t.TempDir()
	old, late := filepath.Join(dir, "old"), filepath.Join(dir, "late")
	put(t, old, NewKey())
	node := headNode + "nodeName: m1\ngossip: {keyFile: FILE}\n"
	bubble(t, map[string]string{"a.yaml": strings.ReplaceAll(node, "FILE", old)}, func(r *running) {
		r.put("a.yaml", strings.ReplaceAll(node, "FILE", late))
		r.after(time.Minute, 1, 0)
		if !strings.Contains(r.Status().Err, "no such file") {
			t.Errorf("%+v", r.Status())
		}
		put(t, late, NewKey())
		r.after(3*time.Second, 1, 1)
	})
}

func TestSourceRefusesWhatNeedsARestart(t *testing.T) {
	const rest = " cannot change while lbd runs, which uses "
	const end = "; `lbd restart` takes it, or put it back"
	base := headNode + "nodeName: m1\ngossip: {insecure: true}\n"
	key := filepath.Join(t.TempDir(), "key")
	put(t, key, NewKey())
	for change, want := range map[string]string{
		headNode + "nodeName: m2\ngossip: {insecure: true}\n":                               `:3: NodeConfiguration "m2": nodeName: "m2"` + rest + `m1`,
		headNode + "nodeName: m1\ngossip: {insecure: true, port: 7948}\n":                   `:4: NodeConfiguration "m1": gossip.port: 7948` + rest + `7947`,
		base + "socket: /run/x.sock\n":                                                      `:5: NodeConfiguration "m1": socket: "/run/x.sock"` + rest + `/run/lbd/lbd.sock`,
		base + "http:\n  address: off\n":                                                    `:6: NodeConfiguration "m1": http.address: "off"` + rest + `127.0.0.1:7477`,
		base + "http: {pprof: true}\n":                                                      `:5: NodeConfiguration "m1": http.pprof: true` + rest + `false`,
		base + "http: {page: false}\n":                                                      `:5: NodeConfiguration "m1": http.page: false` + rest + `true`,
		base + "http: {address: ':7477'}\n":                                                 `:5: NodeConfiguration "m1": http.address: ":7477"` + rest + `127.0.0.1:7477`,
		base + "metrics:\n  certFile: /a\n  keyFile: /b\n":                                  `:6: NodeConfiguration "m1": metrics.certFile: "/a"` + rest + `none` + end + "\n" + `a.yaml:7: NodeConfiguration "m1": metrics.keyFile: "/b"` + rest + `none`,
		base + "kubernetes: {}\n":                                                           `:5: NodeConfiguration "m1": kubernetes:` + rest + `no cluster`,
		base + "log: {format: json}\n":                                                      `:5: NodeConfiguration "m1": log.format: "json"` + rest + `text`,
		headNode + "nodeName: m1\ngossip:\n  insecure: true\n  bindAddress: 10.0.0.1\n":     `:6: NodeConfiguration "m1": gossip.bindAddress: "10.0.0.1"` + rest + `the default`,
		headNode + "nodeName: m1\ngossip:\n  insecure: true\n  label: x\n":                  `:6: NodeConfiguration "m1": gossip.label: "x"` + rest + `lbd`,
		headNode + "nodeName: m1\ngossip:\n  insecure: true\n  detection: fast\n":           `:6: NodeConfiguration "m1": gossip.detection: "fast"` + rest + `lan`,
		headNode + "nodeName: m1\ngossip:\n  keyFile: " + key + "\n":                        `:4: NodeConfiguration "m1": gossip.insecure: false` + rest + `true`,
		headNode + "nodeName: m1\nweight: 9\ngossip: {insecure: true, peers: [10.0.0.1]}\n": "",
	} {
		dir := write(t, map[string]string{"a.yaml": base})
		bubbleAt(t, dir, dir, func(r *running) {
			r.put("a.yaml", change+"---\n"+goodVIP) // the VIP must not come either
			if want == "" {
				r.after(3*time.Second, 2, 1)
				return
			}
			r.after(3*time.Second, 1, 0)
			if got := strings.ReplaceAll(r.Status().Err, r.dir+"/", ""); got != "a.yaml"+want+end {
				t.Errorf("got  %s\nwant %s", got, "a.yaml"+want+end)
			}
			if len(r.view.VIPs) != 0 {
				t.Errorf("VIPs %+v", r.view.VIPs)
			}
		})
	}
}

// Kubernetes mounts a ConfigMap as links to a directory that it swaps.
func TestSourceFollowsConfigMaps(t *testing.T) {
	dir := t.TempDir()
	mount := func(stamp, content string) {
		if err := os.Mkdir(filepath.Join(dir, stamp), 0o700); err != nil {
			t.Fatal(err)
		}
		put(t, filepath.Join(dir, stamp, "lbd.yaml"), content)
		tmp := filepath.Join(dir, "..data_tmp")
		if err := os.Symlink(stamp, tmp); err != nil {
			t.Fatal(err)
		}
		if err := os.Rename(tmp, filepath.Join(dir, "..data")); err != nil {
			t.Fatal(err)
		}
	}
	mount("..1", goodNode)
	if err := os.Symlink("..data/lbd.yaml", filepath.Join(dir, "lbd.yaml")); err != nil {
		t.Fatal(err)
	}
	for _, path := range []string{dir, filepath.Join(dir, "lbd.yaml")} {
		bubbleAt(t, dir, path, func(r *running) {
			if path == dir {
				mount("..2", goodNode+"---\n"+goodVIP)
			} else {
				mount("..3", goodNode)
			}
			r.after(3*time.Second, 2, 1)
		})
	}
}

// While nothing changes, nothing is parsed.
func TestFingerprintIsStable(t *testing.T) {
	dir := write(t, map[string]string{"a.yaml": goodNode, "x.txt": "a"})
	key := filepath.Join(dir, "key")
	put(t, key, "a")
	one := fingerprint(dir, key)
	put(t, filepath.Join(dir, "x.txt"), "bb")
	if fingerprint(dir, key) != one {
		t.Error("another file counts")
	}
	steps := []struct {
		name string
		do   func() error
	}{
		{"content", func() error { return os.WriteFile(filepath.Join(dir, "a.yaml"), []byte("longer"+goodNode), 0o600) }},
		{"mode", func() error { return os.Chmod(filepath.Join(dir, "a.yaml"), 0) }},
		{"new", func() error { return os.WriteFile(filepath.Join(dir, "b.yml"), nil, 0o600) }},
		{"rename", func() error { return os.Rename(filepath.Join(dir, "b.yml"), filepath.Join(dir, "c.yml")) }},
		{"key", func() error { return os.WriteFile(key, []byte("bb"), 0o600) }},
		{"key gone", func() error { return os.Remove(key) }},
		{"all gone", func() error { return os.RemoveAll(dir) }},
	}
	for _, step := range steps {
		before := fingerprint(dir, key)
		if err := step.do(); err != nil {
			t.Fatal(err)
		}
		if fingerprint(dir, key) == before {
			t.Errorf("%s: not noticed", step.name)
		}
	}
}
