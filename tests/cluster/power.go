package cluster

import (
	"context"
	"errors"
	"fmt"
	"syscall"
	"time"
)

// PowerCut takes the power away: the machine is gone from the wire at once, and nothing
// of its kernel's state is left. What its programs had written is still on its disk.
func (m *Machine) PowerCut(ctx context.Context) error {
	if !m.On() {
		return fmt.Errorf("%s: power cut: it is off", m.Name)
	}
	cut := m.CutLink(ctx)
	_ = syscall.Kill(m.init, syscall.SIGKILL) // the kernel kills all others with it
	return errors.Join(cut, m.off(ctx))
}

// PowerOff has systemd stop everything in order.
func (m *Machine) PowerOff(ctx context.Context) error {
	return errors.Join(m.end(ctx, "poweroff"), m.off(ctx))
}

// Reboot has systemd stop everything in order, and starts the machine again.
func (m *Machine) Reboot(ctx context.Context) error {
	if err := errors.Join(m.end(ctx, "reboot"), m.off(ctx)); err != nil {
		return err
	}
	return m.Start(ctx)
}

// stopLimit is how long systemd may take to stop everything, containers included.
const stopLimit = 2 * time.Minute

func (m *Machine) end(ctx context.Context, how string) error {
	if !m.On() {
		return fmt.Errorf("%s: %s: it is off", m.Name, how)
	}
	if _, err := m.Run(ctx, "systemctl", how, "--no-block"); err != nil {
		return err
	}
	select {
	case <-m.ended:
		return nil
	case <-ctx.Done():
		return fmt.Errorf("%s: %s: %w", m.Name, how, ctx.Err())
	case <-time.After(stopLimit):
		return fmt.Errorf("%s: %s: it still runs after %v", m.Name, how, stopLimit)
	}
}

// off removes what is left of a machine that has ended, or ends it.
func (m *Machine) off(ctx context.Context) error {
	err := removeGroup(ctx, m.group())
	select {
	case <-m.ended:
	case <-time.After(10 * time.Second):
		err = errors.Join(err, fmt.Errorf("%s: it does not end", m.Name))
	}
	m.nspawn, m.init = nil, 0
	return errors.Join(err, m.cluster.disconnect(ctx, m.Name))
}

// Freeze stops all programs of the machine at once, as a host does that suspends a
// virtual machine; unlike there its kernel goes on: addresses expire, connections are
// kept open.
func (m *Machine) Freeze() error { return freeze(m.group(), true) }

// Thaw lets them run again.
func (m *Machine) Thaw() error { return freeze(m.group(), false) }
