package control

import (
	"errors"
	"strings"
	"testing"
	"time"

	"lbd.dev/lbd/api/v1alpha1"
)

func TestReload(t *testing.T) {
	backend := &fakeBackend{}
	opts := testOptions(t, backend)
	start(t, opts)
	if err := NewClient(opts.Socket).Reload(t.Context()); err != nil {
		t.Errorf("a good configuration: %v", err)
	}
	backend.refused = errors.New("/etc/lbd/lbd.yaml:3: gossip.port: 0 is no port")
	if err := NewClient(opts.Socket).Reload(t.Context()); err == nil || err.Error() != backend.refused.Error() {
		t.Errorf("got %v, want the words of the daemon", err)
	}
}

// TestRestart: the command returns with the status of the new daemon, once that has
// settled, although the old one may answer for a while and then nobody does.
func TestRestart(t *testing.T) {
	old := v1alpha1.NodeStatus{Node: "m1", Settled: true, Config: v1alpha1.ConfigStatus{LoadedAt: time.Now()}}
	backend := &fakeBackend{status: old}
	opts := testOptions(t, backend)
	_, stop := start(t, opts)
	asked := make(chan struct{}, 1)
	backend.restart = func() { asked <- struct{}{} }
	again := make(chan struct{})
	go func() {
		defer close(again)
		<-asked
		time.Sleep(20 * time.Millisecond) // the old one answers
		stop()
		time.Sleep(20 * time.Millisecond) // nobody does
		fresh := &fakeBackend{status: v1alpha1.NodeStatus{Node: "m1", Version: "new", Config: v1alpha1.ConfigStatus{LoadedAt: old.Config.LoadedAt.Add(time.Second)}}}
		o := opts
		o.Backend = fresh
		start(t, o)
		time.Sleep(20 * time.Millisecond)
		fresh.mu.Lock()
		defer fresh.mu.Unlock()
		fresh.status.Settled = true
	}()
	client := NewClient(opts.Socket)
	client.poll = time.Millisecond
	got, err := client.Restart(t.Context())
	if err != nil || got.Version != "new" || !got.Settled {
		t.Errorf("Restart = %q, settled %v, %v", got.Version, got.Settled, err)
	}
	<-again
}

func TestRestartRefused(t *testing.T) {
	backend := &fakeBackend{refused: errors.New("lbd.yaml:3: bad"), restart: func() { t.Error("restarted") }}
	opts := testOptions(t, backend)
	start(t, opts)
	if _, err := NewClient(opts.Socket).Restart(t.Context()); err == nil || !strings.Contains(err.Error(), "lbd.yaml:3: bad") {
		t.Errorf("got %v, want the words of the daemon", err)
	}
}
