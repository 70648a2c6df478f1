package agent

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"strings"
	"time"

	"k8s.io/apimachinery/pkg/types"

	"lbd.dev/lbd/internal/k8s"
	"lbd.dev/lbd/internal/k8s/lease"
)

const (
	// renewLook is how often the age of the token is looked at, and renewAgain how long one that was
	// renewed is waited for: the kubelet brings it into the file within minutes.
	renewLook  = time.Minute
	renewAgain = time.Hour
	// tokenKey is the key of the token in the Secret.
	tokenKey = "token"
)

// renewal renews the token for the hub from a third of its life on: the hub gives another one of the same
// life, which goes into the Secret that the token is mounted from.
type renewal struct {
	a      *Agent
	hub    *k8s.Client
	secret string
	again  time.Time // no sooner
	said   string    // the error that was logged last
}

// run looks until ctx ends.
func (r *renewal) run(ctx context.Context) {
	tick := time.NewTicker(renewLook)
	defer tick.Stop()
	for {
		r.look(ctx, time.Now())
		select {
		case <-ctx.Done():
			return
		case <-tick.C:
		}
	}
}

// look renews the token if it is time.
func (r *renewal) look(ctx context.Context, now time.Time) {
	t, err := r.token()
	if err == nil && (now.Before(r.again) || now.Before(t.Issued.Add(t.Ends.Sub(t.Issued)/3)) || !r.a.elector.Valid()) {
		return
	}
	if err == nil {
		err = r.renew(ctx, t)
	}
	result, text := "ok", ""
	if err != nil {
		result, text = "error", err.Error()
		if text != r.said {
			r.a.o.Logger.Warn("the token for the hub is not renewed", "secret", r.secret, "err", err)
		}
	} else {
		r.again = now.Add(renewAgain)
		r.a.o.Logger.Info("the token for the hub is renewed", "secret", r.secret)
	}
	r.said = text
	r.a.mu.Lock()
	r.a.stats.TokenRenewals[result]++
	r.a.mu.Unlock()
}

// token is what the token in use says of itself.
func (r *renewal) token() (k8s.Token, error) {
	cfg := r.hub.Config
	text := cfg.BearerToken
	if cfg.BearerTokenFile != "" {
		data, err := os.ReadFile(cfg.BearerTokenFile)
		if err != nil {
			return k8s.Token{}, err
		}
		text = string(data)
	}
	t, ok := k8s.ParseToken(strings.TrimSpace(text))
	if !ok || t.Issued.IsZero() || t.Ends.IsZero() || t.Account == "" {
		return t, errors.New("it is no token of a service account that ends")
	}
	return t, nil
}

// renew asks for a token and writes it into the Secret.
func (r *renewal) renew(ctx context.Context, t k8s.Token) error {
	ctx, cancel := context.WithTimeout(ctx, lease.RequestTimeout)
	defer cancel()
	token, err := r.hub.RequestToken(ctx, t.Namespace, t.Account, t.Ends.Sub(t.Issued))
	if err != nil {
		return fmt.Errorf("in the hub: %w", err)
	}
	body, err := json.Marshal(map[string]any{"data": map[string][]byte{tokenKey: []byte(token)}})
	if err != nil {
		return err
	}
	err = r.a.o.Tenant.Core.Patch(types.MergePatchType).Namespace(r.a.o.Namespace).Resource("secrets").Name(r.secret).
		Param("fieldManager", Manager).Body(body).Do(ctx).Error()
	if err != nil {
		return fmt.Errorf("write Secret %s: %w", r.secret, err)
	}
	return nil
}
