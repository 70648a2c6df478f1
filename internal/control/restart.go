package control

import (
	"context"
	"fmt"
	"net/http"
	"time"

	"lbd.dev/lbd/api/v1alpha1"
)

// restartTimeout is how long a daemon that begins anew may take to settle.
const restartTimeout = 10 * time.Second

// Reload has the daemon read its configuration again. The error is why it is refused.
func (c *Client) Reload(ctx context.Context) error {
	return c.do(ctx, http.MethodPost, pathReload, nil, &struct{}{})
}

// Restart has the daemon begin anew in its place, and returns what it says when it has
// settled, or when it runs and has not settled in 10 s. A configuration that the new one
// would refuse is an error, and the daemon goes on.
func (c *Client) Restart(ctx context.Context) (v1alpha1.NodeStatus, error) {
	before, err := c.Status(ctx)
	if err != nil {
		return before, err
	}
	if err := c.do(ctx, http.MethodPost, pathRestart, nil, &struct{}{}); err != nil {
		return before, err
	}
	ctx, cancel := context.WithTimeout(ctx, restartTimeout)
	defer cancel()
	poll := time.NewTicker(c.poll)
	defer poll.Stop()
	var last v1alpha1.NodeStatus
	for {
		// Until it is replaced, the old one may answer still.
		status, problem := c.Status(ctx)
		if problem == nil && status.Config.LoadedAt.After(before.Config.LoadedAt) {
			last = status
		}
		if last.Settled {
			return last, nil
		}
		if problem != nil && ctx.Err() == nil {
			err = problem
		}
		select {
		case <-poll.C:
			continue
		case <-ctx.Done():
		}
		if last.Node == "" {
			return last, fmt.Errorf("the daemon has not been heard since it was told to restart; its log says why: %w", err)
		}
		return last, nil
	}
}
