package lab

import (
	"context"
	"encoding/json"
	"fmt"
	"time"
)

// Floor is what the least that an owner must do takes of a core here, on the first
// node: a datagram to each of two other nodes every 50 ms. It shows what the machine
// asks for being woken, on a virtual one that halts when it is idle several times as
// much as on bare metal.
func (l *Lab) Floor(ctx context.Context, during time.Duration) (float64, error) {
	argv := []string{l.Bin.Agent, "duty", "-for", during.String()}
	for _, n := range l.Nodes[1:min(3, len(l.Nodes))] {
		argv = append(argv, n.IP4.String())
	}
	said, err := l.Exec(ctx, &l.Nodes[0].Host, argv...)
	if err != nil {
		return 0, err
	}
	var got struct{ CPU float64 }
	if err := json.Unmarshal([]byte(said), &got); err != nil {
		return 0, fmt.Errorf("duty said %q: %w", said, err)
	}
	return got.CPU, nil
}
