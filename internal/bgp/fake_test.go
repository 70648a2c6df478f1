package bgp

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"maps"
	"net/netip"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"lbd.dev/lbd/internal/bgp/bfd"
	"lbd.dev/lbd/internal/model"
)

// speaker is a Speaker that notes what it is asked.
type speaker struct {
	mu       sync.Mutex
	changed  func()
	calls    []string
	global   Global
	peers    map[string]Peer
	paths    map[netip.Prefix]model.BGPPath
	sessions map[string]Session
	masters  []Master
	learned  []model.LearnedPath
	startErr error
	pathErr  map[netip.Prefix]error
}

func (s *speaker) note(format string, args ...any) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.calls = append(s.calls, fmt.Sprintf(format, args...))
}

// took returns the calls since the last time.
func (s *speaker) took() string {
	s.mu.Lock()
	defer s.mu.Unlock()
	out := strings.Join(s.calls, ", ")
	s.calls = nil
	return out
}

func (s *speaker) Start(g Global) error {
	s.note("start")
	s.global = g
	return s.startErr
}

func (s *speaker) AddPeer(p Peer) error {
	suffix := ""
	if p.Restarting {
		suffix += " restarting"
	}
	if p.Held != "" {
		suffix += " held"
	}
	s.note("add %s%s", p.Name, suffix)
	s.mu.Lock()
	defer s.mu.Unlock()
	s.peers[p.Name] = p
	s.sessions[p.Name] = Session{State: Active}
	return nil
}

func (s *speaker) RemovePeer(name, words string) {
	s.note("remove %s %q", name, words)
	s.mu.Lock()
	defer s.mu.Unlock()
	delete(s.peers, name)
	delete(s.sessions, name)
}

func (s *speaker) Reset(name, reason string) { s.note("reset %s %q", name, reason) }
func (s *speaker) SetRestartTime(name string, d time.Duration) {
	s.note("restart time of %s %v", name, d)
}
func (s *speaker) Hold(name, reason string) { s.note("hold %s %q", name, reason) }
func (s *speaker) Release(name string)      { s.note("release %s", name) }
func (s *speaker) Close(words string)       { s.note("close %q", words) }

func (s *speaker) SetPath(p model.BGPPath) error {
	s.note("set %s", short(p.Prefix))
	s.mu.Lock()
	defer s.mu.Unlock()
	if err := s.pathErr[p.Prefix]; err != nil {
		return err
	}
	s.paths[p.Prefix] = p
	return nil
}

func (s *speaker) DeletePath(a netip.Prefix) error {
	s.note("delete %s", short(a))
	s.mu.Lock()
	defer s.mu.Unlock()
	delete(s.paths, a)
	return s.pathErr[a]
}

func (s *speaker) Sessions() map[string]Session {
	s.mu.Lock()
	defer s.mu.Unlock()
	return maps.Clone(s.sessions)
}

func (s *speaker) SetListeners(all []model.BGPListener) error {
	var names []string
	for _, l := range all {
		names = append(names, l.Name)
	}
	s.note("listen %v", names)
	return s.startErr
}

func (s *speaker) Masters() []Master {
	s.mu.Lock()
	defer s.mu.Unlock()
	return slices.Clone(s.masters)
}

func (s *speaker) Learned() []model.LearnedPath {
	s.mu.Lock()
	defer s.mu.Unlock()
	return slices.Clone(s.learned)
}

func (s *speaker) EndMaster(addr netip.Addr, reason string) { s.note("end %s %q", addr, reason) }

// connected changes what Masters says.
func (s *speaker) connected(all ...Master) {
	s.mu.Lock()
	s.masters = all
	s.mu.Unlock()
	s.changed()
}

// session changes what Sessions says.
func (s *speaker) session(name string, now Session) {
	s.mu.Lock()
	s.sessions[name] = now
	s.mu.Unlock()
	s.changed()
}

var established = Session{State: Established, IPv4: true, IPv6: true, HoldTime: 9 * time.Second}

// fakeBFD has the sessions that it is given, in states that a test sets.
type fakeBFD struct {
	mu      sync.Mutex
	changed func()
	want    []bfd.Session
	status  map[netip.Addr]bfd.Status
	closed  bool
}

func (b *fakeBFD) Apply(want []bfd.Session) error {
	b.mu.Lock()
	defer b.mu.Unlock()
	b.want = slices.Clone(want)
	return nil
}

func (b *fakeBFD) Status() []bfd.Status {
	b.mu.Lock()
	defer b.mu.Unlock()
	var out []bfd.Status
	for _, w := range b.want {
		s := b.status[w.Peer]
		if s.State == 0 {
			s.State = bfd.Down
		}
		s.Key = bfd.Key{Peer: w.Peer, Local: w.Local, Interface: w.Interface, Multihop: w.Multihop}
		out = append(out, s)
	}
	return out
}

func (b *fakeBFD) Close(context.Context) error {
	b.mu.Lock()
	defer b.mu.Unlock()
	b.closed = true
	return nil
}

func (b *fakeBFD) set(peer string, s bfd.Status) {
	b.mu.Lock()
	b.status[netip.MustParseAddr(peer)] = s
	b.mu.Unlock()
	b.changed()
}

// bed is a driver under test.
type bed struct {
	*Driver
	t       *testing.T
	speaker *speaker
	bfd     *fakeBFD
	log     strings.Builder
	logMu   sync.Mutex
	want    model.Desired
}

func (b *bed) Write(p []byte) (int, error) {
	b.logMu.Lock()
	defer b.logMu.Unlock()
	return b.log.Write(p)
}

func (b *bed) logged() string {
	b.logMu.Lock()
	defer b.logMu.Unlock()
	return b.log.String()
}

func newBed(t *testing.T, file string, peers ...model.BGPPeer) *bed {
	t.Helper()
	b := &bed{
		t:       t,
		speaker: &speaker{peers: map[string]Peer{}, paths: map[netip.Prefix]model.BGPPath{}, sessions: map[string]Session{}, pathErr: map[netip.Prefix]error{}},
		bfd:     &fakeBFD{status: map[netip.Addr]bfd.Status{}},
	}
	b.Driver = New(Options{
		Logger: slog.New(slog.NewTextHandler(b, nil)), StateFile: file,
		Speaker: func(changed func()) Speaker { b.speaker.changed = changed; return b.speaker },
		BFD:     func(changed func()) BFD { b.bfd.changed = changed; return b.bfd },
	})
	b.want.BGP = model.BGPState{RouterID: netip.MustParseAddr("10.0.0.11"), Peers: peers, Ready: true}
	t.Cleanup(func() { _ = b.Close(context.Background()) })
	return b
}

func peer(name, addr string, change ...func(*model.BGPPeer)) model.BGPPeer {
	p := model.BGPPeer{
		Name: name, LocalASN: 64512, PeerASN: 64513, Address: netip.MustParseAddr(addr), Port: 179,
		HoldTime: 9 * time.Second, KeepaliveTime: 3 * time.Second, ConnectTime: time.Second,
		IPv4: true, IPv6: true, MaxPrefixes: 1000,
	}
	for _, c := range change {
		c(&p)
	}
	return p
}

func path(addr string, peers ...string) model.BGPPath {
	return model.BGPPath{Prefix: host(addr), To: []model.BGPAudience{{Peers: peers}}}
}

// host is the prefix of one address.
func host(addr string) netip.Prefix { return model.PrefixOf(netip.MustParseAddr(addr), 0) }

// short names the prefix of one address without its length.
func short(p netip.Prefix) string {
	if p.IsSingleIP() {
		return p.Addr().String()
	}
	return p.String()
}

// apply applies and tells what the speaker was asked.
func (b *bed) apply(calls string) model.Applied {
	b.t.Helper()
	got, err := b.Apply(b.t.Context(), &b.want)
	if err != nil {
		b.t.Errorf("Apply: %v", err)
	}
	b.took(calls)
	return got
}

func (b *bed) took(calls string) {
	b.t.Helper()
	if got := b.speaker.took(); got != calls {
		b.t.Errorf("the speaker was asked\n  %s\nwant\n  %s", got, calls)
	}
}

var errRefused = errors.New("refused")
