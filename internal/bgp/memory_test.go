package bgp

import (
	"bytes"
	"encoding/json"
	"net/netip"
	"os"
	"path/filepath"
	"slices"
	"testing"
	"time"

	"lbd.dev/lbd/internal/model"
)

func graceful(p *model.BGPPeer) { p.GracefulRestart, p.RestartTime = true, 10*time.Second }

// ran leaves the file of a process that advertised one path to a and b.
func ran(t *testing.T) string {
	t.Helper()
	file := filepath.Join(t.TempDir(), "bgp.json")
	b := newBed(t, file, peer("a", "10.0.0.1", graceful), peer("b", "10.0.0.2"))
	b.want.BGP.Paths = []model.BGPPath{path("203.0.113.1", "a", "b"), path("203.0.113.2", "b")}
	b.apply("start, set 203.0.113.1, set 203.0.113.2, add a, add b")
	if _, err := os.Stat(file); err == nil {
		t.Error("a record although no router has a path")
	}
	b.speaker.session("a", established)
	b.speaker.session("b", established)
	b.apply("")
	info, err := os.Stat(file)
	if err != nil {
		t.Fatal(err)
	}
	if info.Mode().Perm() != 0o600 {
		t.Errorf("mode %v", info.Mode())
	}
	return file
}

// edit changes the record.
func edit(t *testing.T, file string, change func(*record)) {
	t.Helper()
	b, err := os.ReadFile(file)
	if err != nil {
		t.Fatal(err)
	}
	var r record
	if err := json.Unmarshal(b, &r); err != nil {
		t.Fatal(err)
	}
	change(&r)
	if b, err = json.Marshal(r); err != nil {
		t.Fatal(err)
	}
	if err := os.WriteFile(file, b, 0o600); err != nil {
		t.Fatal(err)
	}
}

func TestRestartIsGraceful(t *testing.T) {
	file := ran(t)
	b := newBed(t, file, peer("a", "10.0.0.1", graceful), peer("b", "10.0.0.2"))
	yes, prefixes := b.Restarted()
	if !yes || !slices.Equal(prefixes, []netip.Prefix{host("203.0.113.1")}) {
		t.Errorf("restarted %v with %v", yes, prefixes)
	}
	// Sessions wait for what the router has kept.
	b.apply("start")
	b.want.BGP.Paths = []model.BGPPath{path("203.0.113.1", "a", "b")}
	b.apply("set 203.0.113.1, add a restarting, add b")
}

// TestRestartOfEarlierVersion: a file that has addresses counts as one with their
// prefixes.
func TestRestartOfEarlierVersion(t *testing.T) {
	file := ran(t)
	edit(t, file, func(r *record) {
		r.Prefixes, r.Addresses = nil, []netip.Addr{netip.MustParseAddr("203.0.113.1"), netip.MustParseAddr("2001:db8::1")}
	})
	b := newBed(t, file, peer("a", "10.0.0.1", graceful))
	if yes, prefixes := b.Restarted(); !yes || !slices.Equal(prefixes, []netip.Prefix{host("203.0.113.1"), host("2001:db8::1")}) {
		t.Errorf("restarted %v with %v", yes, prefixes)
	}
}

// TestRestartWaitsForAggregates: routers keep a prefix of several addresses too.
func TestRestartWaitsForAggregates(t *testing.T) {
	prefix := netip.MustParsePrefix("203.0.113.0/28")
	file := filepath.Join(t.TempDir(), "bgp.json")
	before := newBed(t, file, peer("a", "10.0.0.1", graceful))
	before.want.BGP.Paths = []model.BGPPath{path("203.0.113.99", "a"), {Prefix: prefix, To: []model.BGPAudience{{Peers: []string{"a"}}}}}
	before.apply("start, set 203.0.113.99, set 203.0.113.0/28, add a")
	before.speaker.session("a", established)
	before.apply("")
	if err := before.Close(t.Context()); err != nil {
		t.Fatal(err)
	}
	b := newBed(t, file, peer("a", "10.0.0.1", graceful))
	b.want.BGP.Paths = []model.BGPPath{path("203.0.113.99", "a")}
	b.apply("start, set 203.0.113.99")
	b.want.BGP.Paths = before.want.BGP.Paths
	b.apply("set 203.0.113.0/28, add a restarting")
}

func TestRestartDoesNotWaitForEver(t *testing.T) {
	b := newBed(t, ran(t), peer("a", "10.0.0.1", graceful))
	b.apply("start")
	b.memory.begun = b.memory.begun.Add(-restartWait)
	b.apply("add a restarting") // it is not wanted any more
}

func TestRestartTooLate(t *testing.T) {
	for name, change := range map[string]func(*record){
		"another boot": func(r *record) { r.Boot = "x" },
		"too old":      func(r *record) { r.At -= int64(10100 * time.Millisecond) },
		"future":       func(r *record) { r.At += int64(time.Hour) },
		"no peers":     func(r *record) { r.Peers = nil },
		"other address": func(r *record) {
			r.Peers[0].Address = netip.MustParseAddr("10.0.0.99")
			r.Prefixes = nil
		},
	} {
		t.Run(name, func(t *testing.T) {
			file := ran(t)
			edit(t, file, change)
			b := newBed(t, file, peer("a", "10.0.0.1", graceful))
			if yes, _ := b.Restarted(); yes != (name == "other address") {
				t.Errorf("restarted: %v", yes)
			}
			b.apply("start, add a")
		})
	}
	file := ran(t)
	if err := os.WriteFile(file, []byte("{"), 0o600); err != nil {
		t.Fatal(err)
	}
	b := newBed(t, file, peer("a", "10.0.0.1", graceful))
	b.apply("start, add a")
}

func TestRecordIsRenewedAndEmptied(t *testing.T) {
	file := filepath.Join(t.TempDir(), "bgp.json")
	b := newBed(t, file, peer("a", "10.0.0.1", graceful))
	b.want.BGP.Paths = []model.BGPPath{path("203.0.113.1", "a")}
	b.apply("start, set 203.0.113.1, add a")
	b.speaker.session("a", established)
	b.apply("")
	first, err := os.ReadFile(file)
	if err != nil {
		t.Fatal(err)
	}
	b.apply("")
	if again, _ := os.ReadFile(file); !bytes.Equal(first, again) {
		t.Error("written again at once")
	}
	b.memory.savedAt = b.memory.savedAt.Add(-refresh)
	b.apply("")
	if again, _ := os.ReadFile(file); bytes.Equal(first, again) {
		t.Error("not renewed")
	}
	b.want.BGP.Paths = nil
	b.apply("delete 203.0.113.1")
	next := newBed(t, file, peer("a", "10.0.0.1", graceful))
	if yes, _ := next.Restarted(); yes {
		t.Error("a path that was withdrawn is remembered")
	}
}
