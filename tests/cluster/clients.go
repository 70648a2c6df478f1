package cluster

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"sync"
	"time"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	kube "k8s.io/client-go/kubernetes"
	"k8s.io/client-go/rest"

	"lbd.dev/lbd/tests/lab"
	"lbd.dev/lbd/tests/lab/measure"
)

// attemptLimit is how long one attempt may take before it counts as failed.
const attemptLimit = 3 * time.Second

// Clients are clients outside that try the same thing again and again, each by a new
// connection, as one kubectl after the other does.
type Clients struct {
	mu       sync.Mutex
	attempts []measure.Attempt
	stop     context.CancelFunc
	done     sync.WaitGroup
}

// Write starts to write a ConfigMap through the VIP, from the client, until Stop. No
// attempt waits for those before it.
func (c *Cluster) Write(ctx context.Context, every time.Duration) (*Clients, error) {
	config, err := c.Config()
	if err != nil {
		return nil, err
	}
	const name = "writes"
	if err := makeConfigMap(ctx, config, name); err != nil {
		return nil, err
	}
	return repeat(ctx, every, func(ctx context.Context, n int) error { return patchConfigMap(ctx, config, name, n) }), nil
}

// Get starts to ask for a page of HTTP, from the client, until Stop.
func (c *Cluster) Get(ctx context.Context, url string, every time.Duration) *Clients {
	client := &http.Client{Transport: &http.Transport{
		DisableKeepAlives: true,
		DialContext: func(ctx context.Context, network, address string) (net.Conn, error) {
			return lab.DialFrom(ctx, c.Client.NS, network, address)
		},
	}}
	return repeat(ctx, every, func(ctx context.Context, _ int) error {
		request, err := http.NewRequestWithContext(ctx, http.MethodGet, url, nil)
		if err != nil {
			return err
		}
		answer, err := client.Do(request)
		if err != nil {
			return err
		}
		_, err = io.Copy(io.Discard, answer.Body)
		if err == nil && answer.StatusCode != http.StatusOK {
			err = errors.New(answer.Status)
		}
		return errors.Join(err, answer.Body.Close())
	})
}

// repeat starts attempts, numbered from 1, until Stop.
func repeat(ctx context.Context, every time.Duration, try func(ctx context.Context, n int) error) *Clients {
	ctx, stop := context.WithCancel(ctx)
	c := &Clients{stop: stop}
	c.done.Go(func() {
		tick := time.NewTicker(every)
		defer tick.Stop()
		for n := 1; ; n++ {
			select {
			case <-ctx.Done():
				return
			case <-tick.C:
				c.done.Go(func() { c.attempt(ctx, func(ctx context.Context) error { return try(ctx, n) }) })
			}
		}
	})
	return c
}

func (c *Clients) attempt(ctx context.Context, try func(context.Context) error) {
	one, cancel := context.WithTimeout(ctx, attemptLimit)
	defer cancel()
	a := measure.Attempt{Start: measure.Now()}
	if err := try(one); err != nil {
		a.Err = measure.Cause(err)
	}
	a.End = measure.Now()
	if ctx.Err() != nil {
		return // cut off by Stop
	}
	c.mu.Lock()
	defer c.mu.Unlock()
	c.attempts = append(c.attempts, a)
}

// Attempts are all that have ended, in the order of their ends.
func (c *Clients) Attempts() []measure.Attempt {
	c.mu.Lock()
	defer c.mu.Unlock()
	return append([]measure.Attempt(nil), c.attempts...)
}

// Reach sums up the attempts that started in [from, to): how many failed and why, and
// the longest time from a success to the next that is followed by no failure for a
// second (Outage).
func (c *Clients) Reach(from, to measure.Time) measure.Reach {
	return measure.Reached(c.Attempts(), from, to)
}

// LongestGap is the longest time in [from, to) without the end of a successful attempt.
// An attempt that is slow, as while etcd elects a leader, makes a gap too.
func (c *Clients) LongestGap(from, to measure.Time) time.Duration {
	var ends []measure.Time
	for _, a := range c.Attempts() {
		if a.OK() {
			ends = append(ends, a.End)
		}
	}
	return longestGap(ends, from, to)
}

// Stop ends it and waits for what is under way.
func (c *Clients) Stop() {
	c.stop()
	c.done.Wait()
}

// longestGap is the longest time in [from, to) without any of the moments.
func longestGap(moments []measure.Time, from, to measure.Time) time.Duration {
	last, longest := from, time.Duration(0)
	for _, t := range append(sorted(moments), to) {
		if t <= from {
			continue
		}
		longest = max(longest, min(t, to).Sub(last))
		if last = t; t >= to {
			break
		}
	}
	return longest
}

// freshClient is a client whose connections nobody used before, or will after it: end
// closes them. A node keeps the VIP for a connection that is still open.
func freshClient(config *rest.Config) (client *kube.Clientset, end func(), err error) {
	config = rest.CopyConfig(config)
	var mu sync.Mutex
	var opened []net.Conn
	dial := config.Dial
	config.Dial = func(ctx context.Context, network, address string) (net.Conn, error) {
		conn, err := dial(ctx, network, address)
		if err == nil {
			mu.Lock()
			defer mu.Unlock()
			opened = append(opened, conn)
		}
		return conn, err
	}
	end = func() {
		mu.Lock()
		defer mu.Unlock()
		for _, conn := range opened {
			_ = conn.Close() // it may have ended
		}
	}
	transport, err := rest.HTTPClientFor(config)
	if err != nil {
		return nil, nil, fmt.Errorf("client: %w", err)
	}
	client, err = kube.NewForConfigAndClient(config, transport)
	return client, end, err
}

func makeConfigMap(ctx context.Context, config *rest.Config, name string) error {
	client, end, err := freshClient(config)
	if err != nil {
		return err
	}
	defer end()
	m := &corev1.ConfigMap{ObjectMeta: metav1.ObjectMeta{Namespace: metav1.NamespaceDefault, Name: name}}
	_, err = client.CoreV1().ConfigMaps(m.Namespace).Create(ctx, m, metav1.CreateOptions{})
	if err != nil && !apierrors.IsAlreadyExists(err) {
		return fmt.Errorf("writer: %w", err)
	}
	return nil
}

func patchConfigMap(ctx context.Context, config *rest.Config, name string, n int) error {
	client, end, err := freshClient(config)
	if err != nil {
		return err
	}
	defer end()
	change := fmt.Appendf(nil, `{"data":{"n":"%d"}}`, n)
	_, err = client.CoreV1().ConfigMaps(metav1.NamespaceDefault).Patch(ctx, name, types.MergePatchType, change, metav1.PatchOptions{})
	return err
}
