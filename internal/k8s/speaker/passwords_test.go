package speaker

import (
	"bytes"
	"fmt"
	"log/slog"
	"net/http"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"lbd.dev/lbd/internal/k8s"
	"lbd.dev/lbd/internal/k8s/apitest"
	"lbd.dev/lbd/internal/model"
)

const resSecrets = "v1/secrets"

// buffer is a log that is read while it is written.
type buffer struct {
	mu sync.Mutex
	b  bytes.Buffer
}

func (b *buffer) Write(p []byte) (int, error) {
	b.mu.Lock()
	defer b.mu.Unlock()
	return b.b.Write(p)
}

func (b *buffer) String() string {
	b.mu.Lock()
	defer b.mu.Unlock()
	return b.b.String()
}

// secret is one for BGP.
func secret(name, key string) *corev1.Secret {
	return &corev1.Secret{
		ObjectMeta: metav1.ObjectMeta{Namespace: "lbd-system", Name: name}, Type: corev1.SecretTypeBasicAuth,
		Data: map[string][]byte{corev1.BasicAuthPasswordKey: []byte(key)},
	}
}

// withSecret is a BGPPeer with a password from a Secret.
func withSecret(name, addr, secret string, more map[string]any) any {
	spec := map[string]any{"myASN": 64512, "peerASN": 64513, "peerAddress": addr, "passwordSecret": map[string]any{"name": secret}}
	for k, v := range more {
		spec[k] = v
	}
	return custom(name, spec)
}

// peer says how a peer is published: its password, or in brackets what it lacks.
func (b *bed) peer(name string) string {
	b.mu.Lock()
	defer b.mu.Unlock()
	for _, p := range b.view.Peers {
		if p.Name == name && p.Lacks != "" {
			return "(" + p.Lacks + ")"
		}
		if p.Name == name {
			return p.Password
		}
	}
	return "no peer"
}

// read waits until what was read is in the status and in the view, which are told one after the other.
func (b *bed) read() {
	b.t.Helper()
	b.eventually("read", func() bool {
		synced := b.Status().Synced
		b.lock(func() { synced = synced && b.view.Synced[model.SourceKube] })
		return synced
	})
}

// secrets runs a Source with a cluster that has Secrets, and gives what it logged.
func secrets(t *testing.T, api *apitest.Server) (*bed, *buffer) {
	t.Helper()
	log := new(buffer)
	return run(t, api, func(o *Options) {
		o.Namespace, o.Logger = "lbd-system", slog.New(slog.NewTextHandler(log, &slog.HandlerOptions{Level: slog.LevelDebug}))
	}), log
}

// TestPasswordSecrets: a session waits for its Secret, follows it, and ends with it. A Secret
// that is no good says why, and leaves other peers alone. Nothing shows a password.
func TestPasswordSecrets(t *testing.T) {
	api := cluster(t)
	api.Serve(resSecrets, "Secret")
	api.Put(resSecrets, secret("other", "sesame-other"))
	api.Put(resPeers, withSecret("r", "10.0.0.254", "tor", nil))
	api.Put(resPeers, withSecret("s", "10.0.0.253", "other", nil))
	b, log := secrets(t, api)
	is := func(want string) {
		t.Helper()
		b.eventually("peer "+want, func() bool { return strings.Contains(b.peer("r"), want) })
		if got := b.peer("s"); got != "sesame-other" {
			t.Errorf("the other peer: %s", got)
		}
	}
	is(`(spec.passwordSecret: Secret "tor" in namespace "lbd-system" does not exist)`)
	b.eventually("the problem", func() bool {
		p := b.Status().Problems
		return len(p) == 1 && strings.HasSuffix(p[0].Text, "does not exist: there is no session")
	})
	for _, key := range []string{"sesame-one", "sesame-two\n", "sesame-three"} {
		api.Put(resSecrets, secret("tor", key))
		b.eventually(key, func() bool { return b.peer("r") == strings.TrimSpace(key) })
	}
	if p := b.Status().Problems; len(p) != 0 {
		t.Error(p)
	}
	for want, change := range map[string]func(*corev1.Secret){
		`has the type "Opaque" and must have "kubernetes.io/basic-auth"`: func(s *corev1.Secret) { s.Type = corev1.SecretTypeOpaque },
		`has no entry "password"`:                                                  func(s *corev1.Secret) { s.Data = map[string][]byte{"passwd": []byte("sesame")} },
		`has an entry "password" that is no password: it is empty`:                 func(s *corev1.Secret) { s.Data["password"] = nil },
		`that is no password: it has 81 bytes; TCP MD5 takes at most 80`:           func(s *corev1.Secret) { s.Data["password"] = bytes.Repeat([]byte("s"), 81) },
		`has an entry "password" that is no password: it must be one line of text`: func(s *corev1.Secret) { s.Data["password"] = []byte("sesame\nsesame") },
	} {
		s := secret("tor", "sesame-bad")
		change(s)
		api.Put(resSecrets, s)
		is(want)
	}
	api.Put(resSecrets, secret("tor", "sesame-four"))
	is("sesame-four")

	// The API server goes away: what was known stays. A Secret that is gone then is missing.
	api.Stop()
	time.Sleep(300 * time.Millisecond)
	is("sesame-four")
	api.Start()
	api.Delete(resSecrets, "lbd-system", "tor")
	is("does not exist")
	if text := fmt.Sprintf("%s%+v", log, b.Status()); strings.Contains(text, "sesame") || !strings.Contains(text, "does not exist") {
		t.Errorf("a password is shown, or nothing is:\n%s", text)
	}
}

// TestForbiddenSecret: without the right the session is down and the others are up, and nothing
// waits; the right may come later. One that is taken away counts after a while.
func TestForbiddenSecret(t *testing.T) {
	t.Parallel() // it waits for k8s.AbsentAfter
	api := cluster(t)
	api.Serve(resSecrets, "Secret")
	api.Put(resSecrets, secret("tor", "sesame"))
	api.Put(resPeers, withSecret("r", "10.0.0.254", "tor", nil))
	api.Put(resPeers, custom("open", map[string]any{"myASN": 64512, "peerASN": 64513, "peerAddress": "10.0.0.253"}))
	var forbidden atomic.Bool
	forbidden.Store(true)
	api.Gate(func(r *http.Request) int {
		if forbidden.Load() && strings.Contains(r.URL.Path, "/secrets") {
			return http.StatusForbidden
		}
		return 0
	})
	b, _ := secrets(t, api)
	b.eventually("forbidden", func() bool {
		return strings.Contains(b.peer("r"), `Secret "tor" in namespace "lbd-system" may not be read by lbd`)
	})
	if got := b.peer("open"); got != "" {
		t.Errorf("the other peer: %s", got)
	}
	if st := b.Status(); !st.Connected || !st.Synced {
		t.Errorf("%+v", st)
	}
	forbidden.Store(false)
	b.eventually("allowed", func() bool { return b.peer("r") == "sesame" })

	forbidden.Store(true)
	api.Stop()
	api.Start()
	time.Sleep(k8s.AbsentAfter / 2)
	if got := b.peer("r"); got != "sesame" {
		t.Errorf("after half of the time: %s", got)
	}
	time.Sleep(k8s.AbsentAfter / 2)
	b.eventually("forbidden again", func() bool { return strings.Contains(b.peer("r"), "may not be read by lbd") })
	api.Stop()
	time.Sleep(3 * time.Second)
	if got := b.peer("r"); !strings.Contains(got, "may not be read by lbd") {
		t.Errorf("the API server is away, and what was taken away counts again: %s", got)
	}
}

// TestSecretsOfThisNode: nobody asks for a Secret that no peer of this node names, nor for a list
// of them, and a node whose labels change follows.
func TestSecretsOfThisNode(t *testing.T) {
	api := cluster(t)
	api.Serve(resSecrets, "Secret")
	api.Put(resSecrets, secret("tor", "sesame"))
	edge := map[string]any{"nodeSelectors": []any{map[string]any{"matchLabels": map[string]any{"role": "edge"}}}}
	api.Put(resPeers, withSecret("r", "10.0.0.254", "tor", edge))
	api.Put(resPeers, custom("other", map[string]any{"myASN": 64512, "peerASN": 64513, "peerAddress": "10.0.0.253",
		"passwordSecret": map[string]any{"name": "theirs", "namespace": "metallb-system"}}))
	b, _ := secrets(t, api)
	b.read()
	asked := func() (out []string) {
		for _, r := range api.Requests() {
			if strings.Contains(r, "/secrets") {
				out = append(out, r)
			}
		}
		return out
	}
	if got := asked(); len(got) != 0 || b.peer("r") != "(its Secret is read only on nodes that spec.nodeSelectors match)" {
		t.Errorf("%s; asked for %q", b.peer("r"), got)
	}
	if got := b.peer("other"); got != `(spec.passwordSecret.namespace "metallb-system" is not that of lbd, "lbd-system")` {
		t.Error(got)
	}
	api.Put(resNodes, node1("n1", map[string]string{"role": "edge"}, "10.0.0.1"))
	b.eventually("the password", func() bool { return b.peer("r") == "sesame" })
	for _, r := range asked() {
		if !strings.Contains(r, "/namespaces/lbd-system/secrets?") || !strings.Contains(r, "fieldSelector=metadata.name%3Dtor") {
			t.Errorf("asked for %s", r)
		}
	}
	if len(asked()) == 0 {
		t.Error("nothing was asked for")
	}
	api.Put(resNodes, node1("n1", nil, "10.0.0.1"))
	b.eventually("no password", func() bool { return strings.HasPrefix(b.peer("r"), "(its Secret is read only") })
	if l := slices.Clone(b.Status().Problems); len(l) != 1 || !strings.Contains(fmt.Sprint(l), "metallb-system") {
		t.Error(l)
	}
}

// TestSecretThatNobodyNames: it is watched no longer, and its password is forgotten.
func TestSecretThatNobodyNames(t *testing.T) {
	stopped := false
	p := &passwords{watches: map[string]*secretWatch{"tor": {stop: func() { stopped = true }}}}
	p.follow(t.Context(), nil, nil)
	if !stopped || len(p.watches) != 0 {
		t.Errorf("stopped: %v, %d watches", stopped, len(p.watches))
	}
}
