// Package review asks the API server who has a token, and whether they may get a URL: a
// TokenReview and then a SubjectAccessReview, as the components of Kubernetes do it.
package review

import (
	"context"
	"crypto/sha256"
	"errors"
	"fmt"
	"net/http"
	"sync"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/client-go/util/flowcontrol"

	"lbd.dev/lbd/internal/k8s"
)

const (
	// fresh is how long a yes holds before the API server is asked again.
	fresh = time.Minute
	// stale is how long a yes holds while the API server does not answer: what it is down
	// for must not take the metrics along that show it.
	stale = time.Hour
	// most is how many tokens are remembered.
	most = 32
	// Questions per second, and at once. What strangers ask counts too, so it bounds what
	// they can make of the API server.
	perSecond, burst = 5, 10
)

// QPS and Burst are what the client of a Reviewer needs: two requests for each question.
const (
	QPS   = 2 * perSecond
	Burst = 2 * burst
)

// Reviewer asks about one URL, and remembers each yes for a while.
type Reviewer struct {
	ask   func(ctx context.Context, token string) (int, error)
	limit flowcontrol.RateLimiter

	mu      sync.Mutex // guards all below
	allowed map[[sha256.Size]byte]time.Time
}

// New returns a Reviewer of who may get path. connect is called for the first question,
// and again until it succeeds; its client should be for this alone.
func New(connect func() (*k8s.Client, error), path string) *Reviewer {
	a := &api{connect: connect, path: path}
	return newReviewer(a.ask)
}

func newReviewer(ask func(context.Context, string) (int, error)) *Reviewer {
	return &Reviewer{
		ask: ask, limit: flowcontrol.NewTokenBucketRateLimiter(perSecond, burst), allowed: make(map[[sha256.Size]byte]time.Time),
	}
}

// Allow returns 200 if who has the token may get the path, and else 401, 403, or 503 when
// nobody can say, with the reason.
func (r *Reviewer) Allow(ctx context.Context, token string) (int, error) {
	key := sha256.Sum256([]byte(token))
	if r.since(key) < fresh {
		return http.StatusOK, nil
	}
	// What strangers ask must not keep the API server from being asked about a token that it knew.
	known := r.since(key) < stale
	if !known && !r.limit.TryAccept() {
		return http.StatusServiceUnavailable, errors.New("too many questions at once")
	}
	code, err := r.ask(ctx, token)
	if code == http.StatusServiceUnavailable && known {
		return http.StatusOK, nil
	}
	r.note(key, code)
	return code, err
}

// since is the age of the last yes about a token.
func (r *Reviewer) since(key [sha256.Size]byte) time.Duration {
	r.mu.Lock()
	defer r.mu.Unlock()
	at, ok := r.allowed[key]
	if !ok {
		return stale
	}
	return time.Since(at)
}

// note remembers a yes, and with a no forgets it. Where there are too many the oldest goes.
func (r *Reviewer) note(key [sha256.Size]byte, code int) {
	r.mu.Lock()
	defer r.mu.Unlock()
	if code != http.StatusOK {
		delete(r.allowed, key)
		return
	}
	r.allowed[key] = time.Now()
	if len(r.allowed) <= most {
		return
	}
	oldest := key
	for k, at := range r.allowed {
		if at.Before(r.allowed[oldest]) {
			oldest = k
		}
	}
	delete(r.allowed, oldest)
}

// api is the API server.
type api struct {
	connect func() (*k8s.Client, error)
	path    string

	mu     sync.Mutex // guards client
	client *k8s.Client
}

// Both are written by hand: their types would bring their groups with them.
var (
	tokenReviews  = schema.GroupVersionResource{Group: "authentication.k8s.io", Version: "v1", Resource: "tokenreviews"}
	accessReviews = schema.GroupVersionResource{Group: "authorization.k8s.io", Version: "v1", Resource: "subjectaccessreviews"}
)

func (a *api) ask(ctx context.Context, token string) (int, error) {
	who, err := a.create(ctx, tokenReviews, "TokenReview", map[string]any{"token": token})
	if err != nil {
		return http.StatusServiceUnavailable, err
	}
	if known, _, _ := unstructured.NestedBool(who.Object, "status", "authenticated"); !known {
		why, _, _ := unstructured.NestedString(who.Object, "status", "error")
		return http.StatusUnauthorized, fmt.Errorf("token is not valid: %s", why)
	}
	user, _, _ := unstructured.NestedMap(who.Object, "status", "user")
	name, _, _ := unstructured.NestedString(user, "username")
	spec := map[string]any{"user": name, "nonResourceAttributes": map[string]any{"path": a.path, "verb": "get"}}
	for _, field := range []string{"uid", "groups", "extra"} {
		if v, ok := user[field]; ok {
			spec[field] = v
		}
	}
	access, err := a.create(ctx, accessReviews, "SubjectAccessReview", spec)
	if err != nil {
		return http.StatusServiceUnavailable, err
	}
	if may, _, _ := unstructured.NestedBool(access.Object, "status", "allowed"); !may {
		why, _, _ := unstructured.NestedString(access.Object, "status", "reason")
		return http.StatusForbidden, fmt.Errorf("%q may not get %s: %s", name, a.path, why)
	}
	return http.StatusOK, nil
}

// create has the API server answer a review.
func (a *api) create(ctx context.Context, r schema.GroupVersionResource, kind string, spec map[string]any) (*unstructured.Unstructured, error) {
	client, err := a.connected()
	if err != nil {
		return nil, err
	}
	return client.Dynamic.Resource(r).Create(ctx, &unstructured.Unstructured{Object: map[string]any{
		"apiVersion": r.GroupVersion().String(), "kind": kind, "metadata": map[string]any{}, "spec": spec,
	}}, metav1.CreateOptions{})
}

func (a *api) connected() (*k8s.Client, error) {
	a.mu.Lock()
	defer a.mu.Unlock()
	if a.client != nil {
		return a.client, nil
	}
	var err error
	a.client, err = a.connect()
	return a.client, err
}
