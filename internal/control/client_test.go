package control

import (
	"context"
	"errors"
	"net"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"lbd.dev/lbd/api/v1alpha1"
)

func TestClientSaysWhatToDo(t *testing.T) {
	dir := filepath.Dir(filepath.Dir(testOptions(t, nil).Socket))
	missing := filepath.Join(dir, "missing.sock")
	_, err := NewClient(missing).Status(t.Context())
	want := "daemon is not running: dial unix " + missing + ": no such file; start the unit with `systemctl start lbd`, " +
		"or see with `crictl ps -a` why kubelet does not run the pod; another socket is given by --socket"
	if err == nil || err.Error() != want {
		t.Errorf("missing socket:\n got %v\nwant %s", err, want)
	}

	_, err = NewClient(missing).Guessed("a.yaml:3: is broken").Status(t.Context())
	if want += "; that socket is a guess, since a.yaml:3: is broken"; err == nil || err.Error() != want {
		t.Errorf("guessed socket:\n got %v\nwant %s", err, want)
	}

	stale := filepath.Join(dir, "stale.sock")
	listener, err := net.ListenUnix("unix", &net.UnixAddr{Name: stale})
	if err != nil {
		t.Fatal(err)
	}
	listener.SetUnlinkOnClose(false)
	_ = listener.Close()
	if _, err := NewClient(stale).Status(t.Context()); err == nil || !strings.Contains(err.Error(), "daemon is not running: dial unix "+stale+": connection refused") {
		t.Errorf("stale socket: %v", err)
	}

	frozen := filepath.Join(dir, "frozen.sock")
	silent, err := net.Listen("unix", frozen)
	if err != nil {
		t.Fatal(err)
	}
	defer silent.Close()
	client := NewClient(frozen)
	client.http.Timeout = 50 * time.Millisecond
	if _, err := client.Status(t.Context()); err == nil || !strings.Contains(err.Error(), "does not answer") {
		t.Errorf("frozen daemon: %v", err)
	}

	if os.Geteuid() != 0 {
		closed := filepath.Join(dir, "closed")
		if err := os.Mkdir(closed, 0); err != nil {
			t.Fatal(err)
		}
		if _, err := NewClient(filepath.Join(closed, "s")).Status(t.Context()); err == nil || !strings.Contains(err.Error(), "as root") {
			t.Errorf("no permission: %v", err)
		}
	}
}

func TestExplainUnknownVIP(t *testing.T) {
	opts := testOptions(t, &fakeBackend{})
	start(t, opts)
	_, err := NewClient(opts.Socket).Explain(t.Context(), "nope & more", "")
	if !errors.Is(err, ErrNotFound) || err.Error() != `VIP "nope & more": not found` {
		t.Errorf("Explain = %v, want ErrNotFound with the words of the daemon", err)
	}
}

// drainBench starts a daemon with three VIPs here; step moves it on.
func drainBench(t *testing.T, step func(s *v1alpha1.NodeStatus)) (*fakeBackend, *Client) {
	t.Helper()
	status := v1alpha1.NodeStatus{Node: "m1"}
	for _, address := range []string{"10.0.0.1", "10.0.0.2", "10.0.0.3"} {
		status.VIPs = append(status.VIPs, v1alpha1.VIPStatus{
			Name: "web", Address: address, Owner: "m1", Reason: "Owner", Bound: true, Announced: true,
		})
	}
	status.VIPs = append(status.VIPs, v1alpha1.VIPStatus{Name: "db", Address: "10.0.0.4", Owner: "m3", Reason: "Draining"})
	backend := &fakeBackend{status: status, step: step}
	opts := testOptions(t, backend)
	start(t, opts)
	client := NewClient(opts.Socket)
	client.poll = time.Millisecond
	return backend, client
}

func set(vip *v1alpha1.VIPStatus, owner, reason, detail string, bound, announced bool) {
	vip.Owner, vip.Reason, vip.Detail, vip.Bound, vip.Announced = owner, reason, detail, bound, announced
}

func TestDrain(t *testing.T) {
	stage := 0
	_, client := drainBench(t, func(s *v1alpha1.NodeStatus) {
		stage++
		// A snapshot that was handed out must not change.
		s.VIPs = slices.Clone(s.VIPs)
		for i := range 3 {
			switch {
			case stage >= 40+i:
				set(&s.VIPs[i], "m2", "Draining", "", false, false)
			case stage >= 20+i:
				set(&s.VIPs[i], "m2", "Releasing", "", true, false)
			case stage >= 10+i:
				set(&s.VIPs[i], "m1", "HandingOver", "to m2", true, true)
			}
		}
	})
	var said []string
	if err := client.Drain(t.Context(), 10*time.Second, func(line string) { said = append(said, line) }); err != nil {
		t.Fatal(err)
	}
	if stage < 42 {
		t.Errorf("Drain returned at stage %d, before the last connection had ended", stage)
	}
	story := strings.Join(said, "\n")
	for _, want := range []string{
		"10.0.0.1 (web): this node owns the VIP and announces it",
		"10.0.0.2 (web): this node still owns the VIP while its successor is getting ready: to m2",
		"10.0.0.3 (web): handed over to m2, waiting for open connections to end",
		"10.0.0.3 (web): done, now on m2",
	} {
		if !strings.Contains(story, want) {
			t.Errorf("progress lacks %q:\n%s", want, story)
		}
	}
	if strings.Contains(story, "10.0.0.4") || len(said) != 12 {
		t.Errorf("progress has %d lines, want four for each VIP that was here:\n%s", len(said), story)
	}
}

func TestDrainTimeoutNamesWhatIsLeft(t *testing.T) {
	backend, client := drainBench(t, func(s *v1alpha1.NodeStatus) {
		s.VIPs = slices.Clone(s.VIPs)
		set(&s.VIPs[0], "m2", "Draining", "", false, false)
		set(&s.VIPs[1], "m1", "NoSuccessor", "m2 is unhealthy, m3 is dead", true, true)
		set(&s.VIPs[2], "m1", "HandingOver", "", true, true)
	})
	err := client.Drain(t.Context(), time.Second, nil)
	want := "2 of 4 VIPs are still here after 1s: " +
		"10.0.0.2 (web): this node should give the VIP up but keeps it, since no other node can take it: m2 is unhealthy, m3 is dead; " +
		"10.0.0.3 (web): this node still owns the VIP while its successor is getting ready; " +
		"they stay reachable here and the node goes on draining, `lbd undrain` ends that"
	if err == nil || err.Error() != want {
		t.Errorf("Drain:\n got %v\nwant %s", err, want)
	}
	if !backend.status.Draining {
		t.Error("the node does not drain any more")
	}
	if err := client.Undrain(t.Context()); err != nil {
		t.Fatal(err)
	}
	if status, err := client.Status(t.Context()); err != nil || status.Draining {
		t.Errorf("after Undrain: draining %v, %v", status.Draining, err)
	}
}

func TestDrainSucceedsWithOpenConnections(t *testing.T) {
	_, client := drainBench(t, func(s *v1alpha1.NodeStatus) {
		s.VIPs = slices.Clone(s.VIPs)
		for i := range 3 {
			set(&s.VIPs[i], "m2", "Releasing", "", true, false)
		}
	})
	var last string
	if err := client.Drain(t.Context(), time.Second, func(line string) { last = line }); err != nil {
		t.Errorf("Drain = %v, want nil: only open connections are left", err)
	}
	if last != "3 VIPs were handed over but still have open connections here" {
		t.Errorf("last line = %q", last)
	}
}

// TestDrainWaitsForTheWord: the successor has answered on the wire, and its claim comes by
// gossip a moment later.
func TestDrainWaitsForTheWord(t *testing.T) {
	stage := 0
	_, client := drainBench(t, func(s *v1alpha1.NodeStatus) {
		if stage++; stage < 5 {
			return
		}
		s.VIPs = slices.Clone(s.VIPs)
		for i := range 3 {
			owner := ""
			if stage >= 10+i {
				owner = "m2"
			}
			set(&s.VIPs[i], owner, "Draining", "", false, false)
		}
	})
	var said []string
	if err := client.Drain(t.Context(), 10*time.Second, func(line string) { said = append(said, line) }); err != nil {
		t.Fatal(err)
	}
	story := strings.Join(said, "\n")
	for _, want := range []string{"10.0.0.3 (web): gone from here, waiting to hear who has it", "10.0.0.3 (web): done, now on m2"} {
		if !strings.Contains(story, want) {
			t.Errorf("progress lacks %q", want)
		}
	}
	if stage < 12 || strings.Contains(story, "no node") {
		t.Errorf("at stage %d:\n%s", stage, story)
	}
}

// TestDrainSaysThatNobodyHasIt: what was handed over is nowhere, as far as is known.
func TestDrainSaysThatNobodyHasIt(t *testing.T) {
	stage := 0
	_, client := drainBench(t, func(s *v1alpha1.NodeStatus) {
		if stage++; stage == 5 {
			s.VIPs = slices.Clone(s.VIPs)
			for i, owner := range []string{"m2", "", "m2"} {
				set(&s.VIPs[i], owner, "Draining", "", false, false)
			}
		}
	})
	err := client.Drain(t.Context(), time.Second, nil) // in which it asks far more than five times
	want := "10.0.0.2: not here any more, and after 1s no node is known to have it; `lbd explain` says more, the node goes on draining"
	if err == nil || err.Error() != want {
		t.Errorf("Drain:\n got %v\nwant %s", err, want)
	}
}

// TestDrainIsDoneWithWhatNothingServes: the check of a VIP fails on every node, the last
// endpoint of a Service goes, an object is deleted. No time brings an owner to these.
func TestDrainIsDoneWithWhatNothingServes(t *testing.T) {
	stage := 0
	_, client := drainBench(t, func(s *v1alpha1.NodeStatus) {
		if stage++; stage == 5 {
			s.VIPs = slices.Clone(s.VIPs)
			for i, reason := range []string{"Unhealthy", "NoEndpoint", "Removed"} {
				set(&s.VIPs[i], "", reason, "", false, false)
			}
		}
	})
	var said []string
	err := client.Drain(t.Context(), 2*time.Second, func(line string) { said = append(said, line) })
	if err != nil {
		t.Errorf("Drain = %v, want nil", err)
	}
	if stage > 100 {
		t.Errorf("Drain returned at stage %d, as if there were something to wait for", stage)
	}
	want := "10.0.0.2 (web): done, nobody is known to have it: no endpoint of the Service is ready for what arrives on this node"
	if !slices.Contains(said, want) {
		t.Errorf("progress lacks %q:\n%s", want, strings.Join(said, "\n"))
	}
}

func TestDrainEndsEarly(t *testing.T) {
	t.Run("undrained by somebody", func(t *testing.T) {
		_, client := drainBench(t, func(s *v1alpha1.NodeStatus) { s.Draining = false })
		if err := client.Drain(t.Context(), time.Minute, nil); err == nil || !strings.Contains(err.Error(), "somebody ended the drain") {
			t.Errorf("Drain = %v", err)
		}
	})
	t.Run("interrupted", func(t *testing.T) {
		_, client := drainBench(t, nil)
		ctx, cancel := context.WithTimeout(t.Context(), 50*time.Millisecond)
		defer cancel()
		if err := client.Drain(ctx, time.Minute, nil); !errors.Is(err, context.DeadlineExceeded) {
			t.Errorf("Drain = %v, want the error of its context", err)
		}
	})
	t.Run("refused", func(t *testing.T) {
		backend, client := drainBench(t, nil)
		backend.setError = errors.New("this node is stopping")
		if err := client.Drain(t.Context(), time.Minute, nil); err == nil || err.Error() != "this node is stopping" {
			t.Errorf("Drain = %v, want the words of the daemon", err)
		}
	})
}
