package agent

import (
	"context"
	"encoding/json"
	"fmt"
	"time"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"

	"lbd.dev/lbd/internal/k8s/lease"
	"lbd.dev/lbd/internal/tenants"
)

// pulse tells the hub now and then that the agent is there and sees both clusters.
type pulse struct {
	a     *Agent
	every time.Duration
	said  string // the error that was logged last
}

// run tells it until ctx ends.
func (p *pulse) run(ctx context.Context) {
	tick := time.NewTicker(p.every)
	defer tick.Stop()
	for {
		p.beat(ctx, time.Now())
		select {
		case <-ctx.Done():
			return
		case <-tick.C:
		}
	}
}

// beat tells it once, if it is true.
func (p *pulse) beat(ctx context.Context, now time.Time) {
	if p.a.lost(SideHub, lostAfter) != nil || p.a.lost(SideTenant, lostAfter) != nil || !p.a.elector.Valid() {
		return
	}
	text := ""
	err := p.send(ctx, now)
	switch {
	case ctx.Err() != nil:
		return
	case apierrors.IsForbidden(err) || apierrors.IsNotFound(err):
		text = "the hub takes no sign of life: apply there what `lbd tenant create` of this version prints"
	case err != nil:
		text = "the hub has no sign of life of this agent"
	}
	if text != "" && text != p.said {
		p.a.o.Logger.Warn(text, "lease", tenants.PulseName, "namespace", p.a.o.HubNamespace, "err", err)
	}
	p.said = text
}

func (p *pulse) send(ctx context.Context, now time.Time) error {
	ctx, cancel := context.WithTimeout(ctx, lease.RequestTimeout)
	defer cancel()
	body, err := json.Marshal(map[string]any{"spec": map[string]any{"holderIdentity": p.a.o.Identity, "renewTime": now.UTC().Format(metav1.RFC3339Micro)}})
	if err != nil {
		return err
	}
	_, err = p.a.o.Hub.Dynamic.Resource(lease.Resource).Namespace(p.a.o.HubNamespace).
		Patch(ctx, tenants.PulseName, types.MergePatchType, body, metav1.PatchOptions{FieldManager: Manager})
	if err != nil {
		return fmt.Errorf("lease %s: %w", tenants.PulseName, err)
	}
	return nil
}
