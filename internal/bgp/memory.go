package bgp

import (
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"log/slog"
	"net/netip"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"time"

	"golang.org/x/sys/unix"

	"lbd.dev/lbd/internal/model"
)

// refresh is how old the record on disk may get while it is true.
const refresh = time.Second

// memory is what survives the process: which routers with graceful restart had
// which paths, and when that was last true. A process that begins soon after, on
// the same boot, tells them that it has restarted.
type memory struct {
	file  string
	boot  string
	log   *slog.Logger
	begun time.Time // this process

	// Of the earlier process; empty if there was none, or too long ago.
	peers    map[string]remembered
	prefixes []netip.Prefix
	until    time.Time // the record on disk is not replaced by an empty one before

	last    record
	savedAt time.Time
}

// record is the file.
type record struct {
	Boot     string         `json:"boot"`
	At       int64          `json:"at"` // CLOCK_BOOTTIME in nanoseconds
	Peers    []remembered   `json:"peers"`
	Prefixes []netip.Prefix `json:"prefixes"`
	// Addresses is what was there in place of Prefixes before a path could be to more
	// than one address.
	Addresses []netip.Addr `json:"addresses,omitempty"`
}

type remembered struct {
	Name    string     `json:"name"`
	Address netip.Addr `json:"address"`
	// Restart is how long the router keeps the paths, in seconds.
	Restart int `json:"restart"`
}

// recall reads what an earlier process left. What cannot be read is as if it was
// not there: the routers then learn all anew.
func recall(file string, log *slog.Logger) *memory {
	m := &memory{file: file, log: log, begun: time.Now()}
	if file == "" {
		return m
	}
	boot, err := os.ReadFile("/proc/sys/kernel/random/boot_id")
	if err != nil {
		log.Warn("no graceful restart of BGP: boot not known", "err", err)
		m.file = ""
		return m
	}
	m.boot = strings.TrimSpace(string(boot))
	b, err := os.ReadFile(file)
	if errors.Is(err, fs.ErrNotExist) {
		return m
	}
	var r record
	if err == nil {
		err = json.Unmarshal(b, &r)
	}
	if err != nil {
		log.Warn("what BGP advertised before cannot be read", "file", file, "err", err)
		return m
	}
	age := time.Duration(bootTime() - r.At)
	if r.Boot != m.boot || age < 0 {
		return m
	}
	m.peers = make(map[string]remembered)
	for _, p := range r.Peers {
		if keeps := time.Duration(p.Restart) * time.Second; age <= keeps {
			m.peers[p.Name] = p
			if until := time.Now().Add(keeps - age); until.After(m.until) {
				m.until = until
			}
		}
	}
	if len(m.peers) > 0 {
		m.prefixes = r.Prefixes
		for _, a := range r.Addresses {
			m.prefixes = append(m.prefixes, model.PrefixOf(a, 0))
		}
		log.Info("BGP restarts gracefully", "peers", len(m.peers), "paths", len(m.prefixes), "age", age.Round(time.Millisecond))
	}
	return m
}

// bootTime is CLOCK_BOOTTIME in nanoseconds, which no one sets and which goes on
// while the machine is suspended.
func bootTime() int64 {
	var t unix.Timespec
	_ = unix.ClockGettime(unix.CLOCK_BOOTTIME, &t) // never fails
	return t.Nano()
}

// restarting tells whether the router keeps paths of the earlier process.
func (m *memory) restarting(p *model.BGPPeer) bool {
	r, ok := m.peers[p.Name]
	return ok && p.GracefulRestart && r.Address == p.Address && time.Now().Before(m.until)
}

// remember writes down what routers with graceful restart have.
func (d *Driver) remember(w *model.BGPState, paths map[netip.Prefix][]string) error {
	m := d.memory
	if m.file == "" {
		return nil
	}
	var now record
	graceful := make(map[string]bool)
	for i := range w.Peers {
		if p := &w.Peers[i]; p.GracefulRestart {
			graceful[p.Name] = true
			now.Peers = append(now.Peers, remembered{p.Name, p.Address, int(p.RestartTime / time.Second)})
		}
	}
	if len(graceful) > 0 {
		for prefix, peers := range paths {
			if slices.ContainsFunc(peers, func(name string) bool { return graceful[name] }) {
				now.Prefixes = append(now.Prefixes, prefix)
			}
		}
		slices.SortFunc(now.Prefixes, model.ComparePaths)
	}
	if len(now.Prefixes) == 0 {
		now.Peers = nil
		if time.Now().Before(m.until) {
			return nil // the record of the earlier process still holds
		}
	}
	same := slices.Equal(now.Peers, m.last.Peers) && slices.Equal(now.Prefixes, m.last.Prefixes)
	m.last = now
	return m.save(!same)
}

// save writes the record if it is due.
func (m *memory) save(due bool) error {
	if len(m.last.Prefixes) > 0 {
		due = due || time.Since(m.savedAt) >= refresh
	}
	if m.file == "" || !due {
		return nil
	}
	m.last.Boot, m.last.At = m.boot, bootTime()
	b, err := json.Marshal(m.last)
	if err == nil {
		err = replace(m.file, b)
	}
	if err != nil {
		return fmt.Errorf("write down what BGP advertises: %w", err)
	}
	m.savedAt = time.Now()
	return nil
}

// replace writes a file in one step.
func replace(file string, b []byte) error {
	f, err := os.CreateTemp(filepath.Dir(file), filepath.Base(file)+".*") // mode 0600
	if err != nil {
		return err
	}
	_, err = f.Write(b)
	err = errors.Join(err, f.Close())
	if err == nil {
		err = os.Rename(f.Name(), file)
	}
	if err != nil {
		_ = os.Remove(f.Name())
	}
	return err
}
