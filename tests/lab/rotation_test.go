package lab_test

import (
	"errors"
	"fmt"
	"path/filepath"
	"testing"
	"time"

	"lbd.dev/lbd/tests/lab"
)

// rotation is a group whose gossip key is in a Secret that kubelet mounts.
type rotation struct {
	*lab.Cluster
	lbd    *lab.LBD
	mounts map[string]*lab.Mount
}

func newRotation(t *testing.T, key string) *rotation {
	t.Helper()
	need(t)
	r := &rotation{lbd: &lab.LBD{}, mounts: map[string]*lab.Mount{}}
	var err error
	if r.Cluster, err = lab.NewIdle(t.Context(), bin, r.lbd, 3); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { closeCluster(t, r.Cluster) })
	for _, n := range r.Nodes {
		m := &lab.Mount{Dir: filepath.Join(n.Dir, "secret")}
		r.mounts[n.Name] = m
		err := errors.Join(m.Write(map[string]string{"gossip.key": key}), r.lbd.WriteConfigWithSecret(r.Lab, n, m))
		if err != nil {
			t.Fatal(err)
		}
	}
	for _, n := range r.Nodes {
		if err := r.lbd.Start(t.Context(), r.Lab, n); err != nil {
			t.Fatal(err)
		}
	}
	if err := r.Stable(t.Context()); err != nil {
		t.Fatal(err)
	}
	return r
}

// write changes the Secret of one node and waits until its daemon has read it.
func (r *rotation) write(t *testing.T, n *lab.Node, keys string) {
	t.Helper()
	before, err := r.lbd.Status(t.Context(), r.Lab, n)
	if err != nil {
		t.Fatal(err)
	}
	if err := r.mounts[n.Name].Write(map[string]string{"gossip.key": keys}); err != nil {
		t.Fatal(err)
	}
	for end := time.Now().Add(30 * time.Second); ; time.Sleep(100 * time.Millisecond) {
		now, err := r.lbd.Status(t.Context(), r.Lab, n)
		if err == nil && now.Config.Generation > before.Config.Generation {
			return
		}
		if time.Now().After(end) {
			t.Fatalf("%s has not read its new keys: %v", n.Name, err)
		}
	}
}

// held is, for each VIP, its owner and the epoch of the claim, as a node says; an error
// if it misses a member, or cannot read what one says.
func (r *rotation) held(t *testing.T, n *lab.Node) (map[string]string, error) {
	t.Helper()
	st, err := r.lbd.Status(t.Context(), r.Lab, n)
	if err != nil {
		return nil, err
	}
	alive := 0
	for _, m := range st.Members {
		if m.State == "alive" && m.Name != n.Name {
			alive++
		}
	}
	if alive != len(r.Nodes)-1 || st.Gossip.KeyMismatches > 0 {
		return nil, fmt.Errorf("%s: %d others are alive, %d packets were not understood", n.Name, alive, st.Gossip.KeyMismatches)
	}
	out := map[string]string{}
	for _, v := range st.VIPs {
		out[v.Address.String()] = fmt.Sprintf("%s, epoch %d", v.Owner, v.Epoch)
	}
	return out, nil
}

// same wants all nodes to say what was said before.
func (r *rotation) same(t *testing.T, when string, want map[string]string) {
	t.Helper()
	for _, n := range r.Nodes {
		got, err := r.held(t, n)
		if err != nil {
			t.Fatalf("%s: %v", when, err)
		}
		for vip, owner := range want {
			if got[vip] != owner {
				t.Fatalf("%s: %s says that %s is with %s, it was with %s", when, n.Name, vip, got[vip], owner)
			}
		}
	}
}

// TestKeyRotationInSecret rotates the gossip key as docs/kubernetes.md has it: two
// keys, then one, while kubelet brings each to one node after the other. No member is
// lost, nothing moves, and in the end a daemon that knows the new key alone is let in.
func TestKeyRotationInSecret(t *testing.T) {
	t.Parallel()
	old, next := lab.NewKey()+"\n", lab.NewKey()+"\n"
	r := newRotation(t, old)
	want, err := r.held(t, r.Nodes[0])
	if err != nil {
		t.Fatal(err)
	}
	for step, keys := range []string{next + old, next} {
		for _, n := range r.Nodes {
			r.write(t, n, keys)
			r.same(t, fmt.Sprintf("step %d, read by %s", step+1, n.Name), want)
		}
	}
	owner := ownerOf(t, r.Cluster, lab.VIP4())
	standby := r.Others(owner)[0]
	if err := standby.Terminate(20 * time.Second); err != nil {
		t.Fatal(err)
	}
	if err := r.lbd.Start(t.Context(), r.Lab, standby); err != nil {
		t.Fatal(err)
	}
	if err := r.Stable(t.Context()); err != nil {
		t.Fatal(err)
	}
	if now := ownerOf(t, r.Cluster, lab.VIP4()); now != owner {
		t.Errorf("%s is with %s now; it was with %s", lab.VIP4(), now.Name, owner.Name)
	}
}
