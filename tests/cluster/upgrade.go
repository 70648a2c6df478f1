package cluster

import (
	"context"
	"fmt"
	"time"

	"lbd.dev/lbd/tests/lab"
)

const operationsPage = "docs/operations.md"

// Upgrade gives the machine another lbd, newer or older, by the commands of
// docs/operations.md, and waits until the daemon is settled.
func (m *Machine) Upgrade(ctx context.Context, lbd string) error {
	block, err := oneBlock(ctx, operationsPage, "Versions and upgrades", "sh", "systemctl restart lbd")
	if err != nil {
		return err
	}
	if err := m.upload(lbd, workFolder+"/bin/lbd"); err != nil {
		return err
	}
	for _, l := range lines(block) {
		if l.command == "lbd status" {
			err = m.waitSettled(ctx, time.Minute)
		} else {
			_, err = m.Shell(ctx, l.command)
		}
		if err != nil {
			return err
		}
	}
	return nil
}

// waitSettled waits until the daemon takes part in elections.
func (m *Machine) waitSettled(ctx context.Context, limit time.Duration) error {
	ctx, cancel := context.WithTimeout(ctx, limit)
	defer cancel()
	for {
		s, err := m.Status(ctx)
		if err == nil && s.Settled {
			return nil
		}
		lab.Pause(ctx, 100*time.Millisecond)
		if ctx.Err() != nil {
			return fmt.Errorf("%s: not settled within %v: %w", m.Name, limit, err)
		}
	}
}
