// Package control is how people and programs look into a running daemon: a unix
// socket for the commands of lbd (status, explain, drain) and an HTTP listener
// for /metrics, /healthz and /readyz. It holds both ends of the socket, Server
// and Client, and the tables that the commands print.
package control

import (
	"context"
	"errors"
	"time"

	"lbd.dev/lbd/api/v1alpha1"
)

// Backend is the daemon as this package needs it. All methods are called
// concurrently and must return soon: they read a snapshot or post a wish.
type Backend interface {
	// Status is what the node sees at this moment.
	Status(ctx context.Context) (v1alpha1.NodeStatus, error)
	// Explain returns one explanation for each address that vip names: an address
	// or the name of an object. The error wraps ErrNotFound if there is none.
	Explain(ctx context.Context, vip, client string) ([]v1alpha1.Explanation, error)
	// Events returns what has changed: of the VIPs with this name or address, "" for all;
	// within since, 0 for any time; with a Seq above after. The error wraps ErrNotFound if
	// there is no such VIP.
	Events(ctx context.Context, vip string, since time.Duration, after uint64) (v1alpha1.NodeEvents, error)
	// SetDraining starts or ends a drain. It does not wait for its end. A Status
	// that is asked for after it returned says so in Draining.
	SetDraining(ctx context.Context, draining bool) error
	// Reload reads the configuration again, and returns why it is refused; nil if it is
	// in force.
	Reload(ctx context.Context) error
	// Restart has the process begin anew in its place once the answer was given. The
	// error is why it goes on as it is.
	Restart(ctx context.Context) error
	// Healthy returns nil while the daemon works at all; it is what /healthz says.
	Healthy() error
	// Ready returns nil while the daemon can take its part in the group; it is
	// what /readyz says.
	Ready() error
}

// ErrQuestion is wrapped by errors about a question that makes no sense.
var ErrQuestion = errors.New("invalid question")

// ErrNotFound is wrapped by errors about a VIP that does not exist.
var ErrNotFound = errors.New("not found")

// The paths of the API on the socket. Bodies are JSON. An error is a status of
// 400 or above with a problem.
const (
	pathStatus   = "/v1alpha1/status"   // GET: NodeStatus
	pathExplain  = "/v1alpha1/explain"  // GET ?vip=: explanations
	pathEvents   = "/v1alpha1/events"   // GET ?vip=&since=&after=: NodeEvents
	pathMetrics  = "/v1alpha1/metrics"  // GET: the metrics in the text format of Prometheus
	pathDraining = "/v1alpha1/draining" // PUT drainRequest: nothing
	pathReload   = "/v1alpha1/reload"   // POST nothing: nothing
	pathRestart  = "/v1alpha1/restart"  // POST nothing: nothing
)

type explanations struct {
	Explanations []v1alpha1.Explanation `json:"explanations"`
}

type drainRequest struct {
	Draining bool `json:"draining"`
}

// problem is the body of every answer that is not a success.
type problem struct {
	Error string `json:"error"`
}
