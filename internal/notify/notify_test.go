package notify

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"log/slog"
	"net/netip"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"sync"
	"syscall"
	"testing"
	"testing/synctest"
	"time"

	"lbd.dev/lbd/api/v1alpha1"
	"lbd.dev/lbd/internal/model"
)

var (
	addr4 = netip.MustParseAddr("10.0.0.200")
	addr6 = netip.MustParseAddr("fd00::200")
	other = netip.MustParseAddr("10.0.0.201")
)

// long is what a test waits for at most.
const long = 30 * time.Second

// bed is a driver on m1 with programs, and the VIPs cp, of two addresses, and web.
type bed struct {
	t    *testing.T
	d    *Driver
	dir  string
	vips []model.VIP

	mu   sync.Mutex
	logs bytes.Buffer
}

func (b *bed) Write(p []byte) (int, error) {
	b.mu.Lock()
	defer b.mu.Unlock()
	return b.logs.Write(p)
}

func (b *bed) log() string {
	b.mu.Lock()
	defer b.mu.Unlock()
	return b.logs.String()
}

func newBed(t *testing.T, programs ...v1alpha1.NotifySpec) *bed {
	t.Helper()
	b := &bed{t: t, dir: t.TempDir(), vips: []model.VIP{{Addr: addr4, Name: "cp"}, {Addr: other, Name: "web"}, {Addr: addr6, Name: "cp"}}}
	b.d = New(Options{Logger: slog.New(slog.NewTextHandler(b, nil)), Node: "m1"})
	b.set(programs...)
	t.Cleanup(func() { _ = b.d.Close(context.Background()) })
	return b
}

// set gives the driver programs, whose scripts find the folder of the test in $DIR.
func (b *bed) set(programs ...v1alpha1.NotifySpec) {
	for i := range programs {
		c := programs[i].Command
		c[len(c)-1] = strings.ReplaceAll(c[len(c)-1], "$DIR", b.dir)
		if programs[i].Timeout.Duration == 0 {
			programs[i].Timeout.Duration = long
		}
	}
	b.d.SetPrograms(programs, b.vips)
}

// script is a program for all states.
func script(text string) v1alpha1.NotifySpec {
	return v1alpha1.NotifySpec{Command: []string{"sh", "-c", text}}
}

// says writes a line to the file out.
const says = `echo "$LBD_STATE $LBD_VIP $LBD_ADDRESS $LBD_REASON $LBD_NODE $LBD_OWNER $LBD_INTERFACE" >> $DIR/out`

func (b *bed) apply(list ...model.VIPStatus) {
	b.t.Helper()
	if _, err := b.d.Apply(b.t.Context(), &model.Desired{Synced: true, Status: list}); err != nil {
		b.t.Fatal(err)
	}
}

func owns(a netip.Addr) model.VIPStatus {
	return model.VIPStatus{VIP: model.VIP{Addr: a}, Owner: "m1", Reason: model.ReasonOwner, Standing: model.ReasonOwner, Announced: true, Interface: "eth0"}
}

func spare(a netip.Addr, owner model.NodeName) model.VIPStatus {
	return model.VIPStatus{VIP: model.VIP{Addr: a}, Owner: owner, Reason: model.ReasonStandby, Standing: model.ReasonStandby}
}

func fails(a netip.Addr) model.VIPStatus {
	return model.VIPStatus{VIP: model.VIP{Addr: a}, Reason: model.ReasonUnhealthy, Standing: model.ReasonUnhealthy}
}

// rest waits until no program runs or waits.
func (b *bed) rest() {
	b.t.Helper()
	ended := make(chan struct{})
	go func() { b.d.workers.Wait(); close(ended) }()
	select {
	case <-ended:
	case <-time.After(long):
		b.t.Fatalf("programs do not end:\n%s", b.log())
	}
}

// wants compares the lines of a file, each of which ends with a newline.
func (b *bed) wants(file string, lines ...string) {
	b.t.Helper()
	got, err := os.ReadFile(filepath.Join(b.dir, file))
	if err != nil && len(lines) > 0 {
		b.t.Fatal(err, b.log())
	}
	want := ""
	for _, l := range lines {
		want += l + "\n"
	}
	if string(got) != want {
		b.t.Errorf("%s has\n%swant\n%s", file, got, want)
	}
	_ = os.Remove(filepath.Join(b.dir, file))
}

// appears waits for a file.
func (b *bed) appears(file string) {
	b.t.Helper()
	for end := time.Now().Add(long); ; time.Sleep(5 * time.Millisecond) {
		if _, err := os.Stat(filepath.Join(b.dir, file)); err == nil {
			return
		}
		if time.Now().After(end) {
			b.t.Fatalf("no %s:\n%s", file, b.log())
		}
	}
}

// TestFacts: a program is told once what the node is to an address, and then each change.
func TestFacts(t *testing.T) {
	b := newBed(t, script(says))
	for range 2 {
		b.apply(spare(addr4, "m2"))
		b.rest()
	}
	b.wants("out", "standby cp 10.0.0.200 Standby m1 m2 ")
	for range 2 {
		b.apply(owns(addr4), spare(addr6, ""))
		b.rest()
	}
	if got, err := os.ReadFile(filepath.Join(b.dir, "out")); err != nil || strings.Count(string(got), "\n") != 2 ||
		!strings.Contains(string(got), "owner cp 10.0.0.200 Owner m1 m1 eth0\n") || !strings.Contains(string(got), "standby cp fd00::200 Standby m1  \n") {
		t.Errorf("%v\n%s", err, got)
	}
	b.wants("none")
	_ = os.Remove(filepath.Join(b.dir, "out"))
	b.apply(fails(addr4), spare(addr6, ""))
	b.rest()
	b.wants("out", "fault cp 10.0.0.200 Unhealthy m1  ")
	if n := b.d.Runs()[Result{"cp", true}]; n != 4 || len(b.d.Runs()) != 1 {
		t.Errorf("counted %v", b.d.Runs())
	}
	if s := b.log(); strings.Count(s, "msg=notified") != 4 || !strings.Contains(s, "vip=cp address=10.0.0.200 state=fault") {
		t.Errorf("logged\n%s", s)
	}
}

// TestOnlyOfFiles: what the decisions have besides the VIPs of files is of a cluster, and runs
// nothing. Nor is anything told before the sources have delivered.
func TestOnlyOfFiles(t *testing.T) {
	b := newBed(t, script(says))
	b.apply(owns(netip.MustParseAddr("10.0.0.7")))
	if _, err := b.d.Apply(t.Context(), &model.Desired{Status: []model.VIPStatus{owns(addr4)}}); err != nil {
		t.Fatal(err)
	}
	b.rest()
	b.wants("out")
}

// TestNewestStateCounts: the programs of an address run one after the other, and what passes
// while one runs is not told.
func TestNewestStateCounts(t *testing.T) {
	b := newBed(t, script(`echo "begin $LBD_STATE" >> $DIR/out; touch $DIR/began; until [ -e $DIR/go ]; do sleep 0.01; done; echo "end $LBD_STATE" >> $DIR/out`),
		v1alpha1.NotifySpec{Command: []string{"sh", "-c", `echo "second $LBD_STATE" >> $DIR/out`}, States: []v1alpha1.NotifyState{"standby"}})
	b.apply(spare(addr4, "m2"))
	b.appears("began")
	b.apply(owns(addr4))
	b.apply(spare(addr4, "m2"))
	b.apply(fails(addr4))
	if err := os.WriteFile(filepath.Join(b.dir, "go"), nil, 0o600); err != nil {
		t.Fatal(err)
	}
	b.rest()
	b.wants("out", "begin standby", "end standby", "begin fault", "end fault")
	b.apply(spare(addr4, "m2"))
	b.rest()
	b.wants("out", "begin standby", "end standby", "second standby")
}

// TestStatesOfAProgram: one that is for some states only is told each time that one of them
// comes back.
func TestStatesOfAProgram(t *testing.T) {
	of := func(text string, states ...v1alpha1.NotifyState) v1alpha1.NotifySpec {
		return v1alpha1.NotifySpec{Command: []string{"sh", "-c", `echo ` + text + ` $LBD_ADDRESS >> $DIR/out`}, States: states, VirtualIPs: []string{"web"}}
	}
	b := newBed(t, of("start", "owner"), of("stop", "standby", "fault"))
	for range 2 {
		for _, s := range []model.VIPStatus{fails(other), owns(other)} {
			b.apply(owns(addr4), s) // cp is not for them
			b.rest()
		}
	}
	b.wants("out", "stop 10.0.0.201", "start 10.0.0.201", "stop 10.0.0.201", "start 10.0.0.201")
}

// TestPrograms: a reload tells new programs the state, others nothing; an address that is
// taken out of the files is told as not here.
func TestPrograms(t *testing.T) {
	b := newBed(t, script(says))
	now := []model.VIPStatus{owns(addr4), spare(other, "m2"), owns(addr6)}
	b.apply(now...)
	b.rest()
	_ = os.Remove(filepath.Join(b.dir, "out"))
	added := script(`echo "$LBD_STATE" >> $DIR/added`)
	added.VirtualIPs = []string{"web"}
	b.set(script(says), added)
	<-b.d.Changed() // upon which the runner applies again
	b.apply(now...)
	b.rest()
	b.wants("out")
	b.wants("added", "standby")
	b.vips = b.vips[1:]
	b.set(script(says), added)
	b.rest()
	b.wants("out", "standby cp 10.0.0.200 Removed m1  ")
	b.apply(now...)
	b.rest()
	b.wants("out")
	b.set()
	b.apply()
	b.rest()
	b.wants("out")
	if len(b.d.targets) != 0 {
		t.Errorf("%d addresses are left", len(b.d.targets))
	}
}

// TestTimeout: a program that takes too long is killed with its children, and counted.
func TestTimeout(t *testing.T) {
	hangs := script(`sleep 300 & echo $! > $DIR/pid; mv $DIR/pid $DIR/child; echo busy; wait`)
	for timeout := 300 * time.Millisecond; ; timeout *= 4 { // on a busy machine it may not come that far
		hangs.Timeout.Duration = timeout
		b := newBed(t, hangs)
		b.apply(owns(other))
		b.rest()
		if _, err := os.Stat(filepath.Join(b.dir, "child")); err != nil && timeout < long {
			continue
		}
		gone(t, filepath.Join(b.dir, "child"))
		if n := b.d.Runs()[Result{"web", false}]; n != 1 {
			t.Errorf("counted %v", b.d.Runs())
		}
		if s := b.log(); !strings.Contains(s, "level=WARN") || !strings.Contains(s, `err="did not end in time and was killed" output="busy\n"`) {
			t.Errorf("logged\n%s", s)
		}
		return
	}
}

// gone waits until the process whose id is in a file has ended.
func gone(t *testing.T, file string) {
	t.Helper()
	content, err := os.ReadFile(file)
	if err != nil {
		t.Fatal(err)
	}
	pid, err := strconv.Atoi(strings.TrimSpace(string(content)))
	if err != nil {
		t.Fatal(err)
	}
	for end := time.Now().Add(long); ; time.Sleep(5 * time.Millisecond) {
		stat, err := os.ReadFile(fmt.Sprintf("/proc/%d/stat", pid))
		if errors.Is(err, os.ErrNotExist) || errors.Is(err, syscall.ESRCH) || strings.Contains(string(stat), ") Z ") {
			return
		}
		if time.Now().After(end) {
			t.Fatalf("process %d is alive", pid)
		}
	}
}

// TestFailure: a program that fails is counted and not run again.
func TestFailure(t *testing.T) {
	b := newBed(t, script(`echo run >> $DIR/out; echo no such service; exit 5`), v1alpha1.NotifySpec{Command: []string{"/lbd/no/such/program"}})
	for range 2 {
		b.apply(owns(addr4))
		b.rest()
	}
	b.wants("out", "run")
	if n := b.d.Runs()[Result{"cp", false}]; n != 2 {
		t.Errorf("counted %v", b.d.Runs())
	}
	if s := b.log(); !strings.Contains(s, `err="exit status 5" output="no such service\n"`) || !strings.Contains(s, `err="no such file or directory"`) {
		t.Errorf("logged\n%s", s)
	} else if !strings.Contains(s, "command=sh ") || strings.Contains(s, "echo run") {
		t.Errorf("the program is not named, or its arguments are, which may be secrets:\n%s", s)
	}
}

// TestUnreadableProgram: a program on a file system that hangs is never started, since all of
// the daemon could hang with it. A pipe that nobody writes to hangs as well.
func TestUnreadableProgram(t *testing.T) {
	pipe := filepath.Join(t.TempDir(), "program")
	if err := syscall.Mkfifo(pipe, 0o700); err != nil {
		t.Fatal(err)
	}
	b := newBed(t, v1alpha1.NotifySpec{Command: []string{pipe}, Timeout: v1alpha1.Duration{Duration: 100 * time.Millisecond}})
	b.apply(owns(addr4))
	b.rest()
	if s := b.log(); !strings.Contains(s, `err="the program cannot be read in time"`) {
		t.Errorf("logged\n%s", s)
	}
	f, err := os.OpenFile(pipe, os.O_WRONLY|syscall.O_NONBLOCK, 0) // lets the reader end
	if err != nil {
		t.Fatal(err)
	}
	_ = f.Close()
}

// TestEnd: when the daemon ends, an address that the node has becomes standby.
func TestEnd(t *testing.T) {
	b := newBed(t, script(says))
	last := []model.VIPStatus{owns(addr4), spare(other, "m2")}
	b.apply(last...)
	b.rest()
	_ = os.Remove(filepath.Join(b.dir, "out"))
	if _, err := b.d.Apply(t.Context(), &model.Desired{Synced: true, Status: last, Group: model.GroupState{Leave: true}}); err != nil {
		t.Fatal(err)
	}
	b.rest()
	if err := b.d.Close(t.Context()); err != nil {
		t.Fatal(err)
	}
	b.wants("out", "standby cp 10.0.0.200 Draining m1  ")
	b.set(script(says), script(`touch $DIR/late`))
	b.rest()
	b.wants("out")
}

// TestEndIsBounded: the end of the daemon waits for a program until it ends, but for StopWait at
// most, and without one not at all.
func TestEndIsBounded(t *testing.T) {
	for _, c := range []struct {
		takes, want time.Duration
		well        uint64 // programs that were not killed
	}{{0, 0, 0}, {StopWait / 2, StopWait / 2, 1}, {time.Minute, StopWait, 0}} {
		synctest.Test(t, func(t *testing.T) {
			began := time.Now()
			var ended time.Duration
			d := New(Options{Logger: slog.New(slog.DiscardHandler), Node: "m1", Run: func(ctx context.Context, _ []string, _ ...string) (string, error) {
				select {
				case <-time.After(c.takes):
				case <-ctx.Done():
				}
				ended = time.Since(began)
				return "", ctx.Err()
			}})
			d.SetPrograms([]v1alpha1.NotifySpec{{Command: []string{"x"}, Timeout: v1alpha1.Duration{Duration: 5 * time.Minute}}}, []model.VIP{{Addr: addr4, Name: "cp"}})
			if c.takes > 0 {
				_, _ = d.Apply(t.Context(), &model.Desired{Synced: true, Status: []model.VIPStatus{owns(addr4)}})
			}
			_ = d.Close(t.Context())
			if took := time.Since(began); took != c.want || ended != c.want || d.Runs()[Result{"cp", true}] != c.well {
				t.Errorf("a program of %v: the end took %v, the program %v, %v", c.takes, took, ended, d.Runs())
			}
		})
	}
}

// TestFewAtATime: hundreds of addresses that move at once do not have hundreds of programs run,
// and each is told its newest state.
func TestFewAtATime(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var mu sync.Mutex
		runs, peak, told := 0, 0, 0
		d := New(Options{Logger: slog.New(slog.DiscardHandler), Node: "m1", Run: func(_ context.Context, _ []string, variables ...string) (string, error) {
			mu.Lock()
			runs++
			peak = max(peak, runs)
			if variables[0] == "LBD_STATE=owner" {
				told++
			}
			mu.Unlock()
			time.Sleep(time.Second)
			mu.Lock()
			defer mu.Unlock()
			runs--
			return "", nil
		}})
		var vips []model.VIP
		var owned, lost []model.VIPStatus
		for a := netip.MustParseAddr("10.0.1.0"); len(vips) < 200; a = a.Next() {
			vips = append(vips, model.VIP{Addr: a, Name: "vip-" + a.String()})
			owned, lost = append(owned, owns(a)), append(lost, spare(a, "m2"))
		}
		d.SetPrograms([]v1alpha1.NotifySpec{{Command: []string{"x"}, Timeout: v1alpha1.Duration{Duration: time.Minute}}}, vips)
		for _, list := range [][]model.VIPStatus{lost, owned} {
			_, _ = d.Apply(t.Context(), &model.Desired{Synced: true, Status: list})
			synctest.Wait()
		}
		d.workers.Wait()
		if peak != most || told != len(vips) {
			t.Errorf("%d ran at once, %d of %d were told", peak, told, len(vips))
		}
		_ = d.Close(t.Context())
	})
}
