package control

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"net"
	"net/http"
	"net/url"
	"os"
	"syscall"
	"time"

	"lbd.dev/lbd/api/v1alpha1"
)

// requestTimeout bounds one request of a Client. It is longer than the server
// waits for its backend, so that a busy daemon can say that it is busy.
const requestTimeout = backendTimeout + time.Second

// Client talks to the daemon over its control socket. Its errors are made for
// the user of a command: they say what to do.
type Client struct {
	socket string
	guess  string // see Guessed
	http   http.Client
	poll   time.Duration // between looks at the status during a drain
}

// NewClient returns a client of the daemon that listens at socket. It does not
// connect yet.
func NewClient(socket string) *Client {
	return &Client{
		socket: socket,
		poll:   100 * time.Millisecond,
		http: http.Client{
			Timeout: requestTimeout,
			Transport: &http.Transport{
				DialContext: func(ctx context.Context, _, _ string) (net.Conn, error) {
					var dialer net.Dialer
					return dialer.DialContext(ctx, "unix", socket)
				},
				DisableKeepAlives: true, // a drain must notice a daemon that was replaced
			},
		},
	}
}

// Guessed notes why the socket is only a guess; the errors of a daemon that is not
// reached then say so.
func (c *Client) Guessed(why string) *Client {
	c.guess = why
	return c
}

// Status returns what the node sees.
func (c *Client) Status(ctx context.Context) (v1alpha1.NodeStatus, error) {
	var status v1alpha1.NodeStatus
	err := c.do(ctx, http.MethodGet, pathStatus, nil, &status)
	return status, err
}

// Explain returns why each address that vip names is where it is; vip is an
// address or the name of an object. An unknown one wraps ErrNotFound. That of a LoadBalancer may
// have a port, and client be one whose connection is asked about; "": none.
func (c *Client) Explain(ctx context.Context, vip, client string) ([]v1alpha1.Explanation, error) {
	var found explanations
	err := c.do(ctx, http.MethodGet, pathExplain+"?"+url.Values{"vip": {vip}, "client": {client}}.Encode(), nil, &found)
	return found.Explanations, err
}

// Undrain lets the node take VIPs again. It does not wait for any.
func (c *Client) Undrain(ctx context.Context) error { return c.setDraining(ctx, false) }

func (c *Client) setDraining(ctx context.Context, draining bool) error {
	return c.do(ctx, http.MethodPut, pathDraining, drainRequest{Draining: draining}, &drainRequest{})
}

// maxMetrics bounds what Metrics returns, in bytes.
const maxMetrics = 16 << 20

// Metrics returns the metrics of the daemon in the text format of Prometheus, at most 16 MiB. It
// works also where no HTTP listener serves them, or only to those with a token.
func (c *Client) Metrics(ctx context.Context) ([]byte, error) {
	response, err := c.send(ctx, http.MethodGet, pathMetrics, nil)
	if err != nil {
		return nil, err
	}
	defer response.Body.Close()
	return io.ReadAll(io.LimitReader(response.Body, maxMetrics))
}

// do sends a request and decodes the answer into out.
func (c *Client) do(ctx context.Context, method, path string, in, out any) error {
	response, err := c.send(ctx, method, path, in)
	if err != nil {
		return err
	}
	defer response.Body.Close()
	if err := json.NewDecoder(response.Body).Decode(out); err != nil {
		return fmt.Errorf("daemon gave an answer that this command does not understand: %w", err)
	}
	return nil
}

// send sends a request and returns the answer, whose body is to be closed, unless the daemon
// refused it.
func (c *Client) send(ctx context.Context, method, path string, in any) (*http.Response, error) {
	var body bytes.Buffer
	if in != nil {
		if err := json.NewEncoder(&body).Encode(in); err != nil {
			return nil, err
		}
	}
	request, err := http.NewRequestWithContext(ctx, method, "http://lbd"+path, &body)
	if err != nil {
		return nil, err
	}
	response, err := c.http.Do(request)
	if err != nil {
		err = c.unreachable(ctx, err)
		if c.guess != "" && ctx.Err() == nil {
			err = fmt.Errorf("%w; that socket is a guess, since %s", err, c.guess)
		}
		return nil, err
	}
	if response.StatusCode < http.StatusBadRequest {
		return response, nil
	}
	defer response.Body.Close()
	var refused problem
	if err := json.NewDecoder(response.Body).Decode(&refused); err != nil || refused.Error == "" {
		return nil, fmt.Errorf("daemon refused %s %s: status %d", method, path, response.StatusCode)
	}
	if response.StatusCode == http.StatusNotFound {
		return nil, notFound{text: refused.Error}
	}
	return nil, errors.New(refused.Error)
}

// notFound keeps the words of the daemon and is ErrNotFound all the same.
type notFound struct{ text string }

func (e notFound) Error() string   { return e.text }
func (e notFound) Is(t error) bool { return t == ErrNotFound }

// unreachable says what to do about a daemon that gave no answer.
func (c *Client) unreachable(ctx context.Context, err error) error {
	const start = "; start the unit with `systemctl start lbd`, or see with `crictl ps -a` why kubelet does not run the pod; another socket is given by --socket"
	const look = "; see `systemctl status lbd`, or `crictl ps -a` if it is a pod"
	dial := "dial unix " + c.socket + ": "
	switch {
	case ctx.Err() != nil:
		return ctx.Err()
	case errors.Is(err, fs.ErrNotExist):
		return fmt.Errorf("daemon is not running: %sno such file%s", dial, start)
	case errors.Is(err, syscall.ECONNREFUSED):
		return fmt.Errorf("daemon is not running: %sconnection refused, the socket was left by one that died%s", dial, start)
	case errors.Is(err, fs.ErrPermission):
		return fmt.Errorf("daemon cannot be reached: %spermission denied; run this command as root", dial)
	case errors.Is(err, os.ErrDeadlineExceeded), os.IsTimeout(err):
		return fmt.Errorf("daemon does not answer within %v on %s: it may be stopped or frozen%s", requestTimeout, c.socket, look)
	}
	var wrapped *url.Error
	if errors.As(err, &wrapped) {
		err = wrapped.Err
	}
	return fmt.Errorf("daemon cannot be reached on %s: %w%s", c.socket, err, look)
}
