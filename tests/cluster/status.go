package cluster

import (
	"context"
	"encoding/json"
	"fmt"
)

// Status is the part of `lbd status -o json` that tests look at.
type Status struct {
	Settled bool `json:"settled"`
	Members []struct {
		Name  string `json:"name"`
		State string `json:"state"`
	} `json:"members"`
	VIPs []struct {
		Name      string `json:"name"`
		Address   string `json:"address"`
		Owner     string `json:"owner"`
		Reason    string `json:"reason"`
		Healthy   bool   `json:"healthy"`
		Bound     bool   `json:"bound"`
		Announced bool   `json:"announced"`
	} `json:"vips"`
}

// Status is what the daemon of the machine says.
func (m *Machine) Status(ctx context.Context) (*Status, error) {
	out, err := m.Run(ctx, "lbd", "status", "-o", "json")
	if err != nil {
		return nil, err
	}
	var s Status
	if err := json.Unmarshal([]byte(out), &s); err != nil {
		return nil, fmt.Errorf("%s: status: %w", m.Name, err)
	}
	return &s, nil
}
