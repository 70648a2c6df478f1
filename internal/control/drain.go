package control

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"strings"
	"time"

	"lbd.dev/lbd/api/v1alpha1"
	"lbd.dev/lbd/internal/model"
)

// Drain has the daemon hand over every VIP and returns when that is done: no VIP
// is owned or announced here, and none is kept bound for connections that are
// still open. Open connections do not make it fail: they are awaited for as long
// as the timeout lasts. So is the word of who has what was handed over: it may come after
// the successor has answered on the wire. What the node has let go because nothing here
// serves it is done: a drain brings no owner to it.
//
// A VIP that nobody can take stays where it is. If one is left when the timeout
// ends, or nobody has it, the error names each with the reason, and the node goes on
// draining.
// Progress, if not nil, is given a line for each change.
func (c *Client) Drain(ctx context.Context, timeout time.Duration, progress func(string)) error {
	if progress == nil {
		progress = func(string) {}
	}
	if err := c.setDraining(ctx, true); err != nil {
		return err
	}
	var (
		deadline = time.NewTimer(timeout)
		poll     = time.NewTicker(c.poll)
		watched  = drainWatch{progress: progress, said: map[string]string{}}
	)
	defer deadline.Stop()
	defer poll.Stop()
	for {
		status, err := c.Status(ctx)
		if err != nil {
			return fmt.Errorf("the drain has begun, its end is not known: %w", err)
		}
		if !status.Draining {
			return errors.New("somebody ended the drain before it was done; `lbd status` shows what is here")
		}
		left, lost, lingering := watched.look(status)
		if len(left)+len(lost)+lingering == 0 {
			return nil
		}
		select {
		case <-ctx.Done():
			return fmt.Errorf("interrupted; the node goes on draining, `lbd undrain` ends that: %w", ctx.Err())
		case <-poll.C:
			continue
		case <-deadline.C:
		}
		switch {
		case len(left) > 0:
			return leftError(left, status.Node, len(status.VIPs), timeout)
		case len(lost) > 0:
			return fmt.Errorf("%s: not here any more, and after %v no node is known to have it; `lbd explain` says more, the node goes on draining",
				named(lost), timeout)
		default:
			progress(fmt.Sprintf("%d VIPs were handed over but still have open connections here", lingering))
			return nil
		}
	}
}

// drainWatch turns status after status into lines about what has changed.
type drainWatch struct {
	progress func(string)
	said     map[string]string // by address and mode
}

// look returns the VIPs that are still announced here, the addresses of those that were handed
// over and whose new owner is not known, and how many are only kept for open connections.
func (d *drainWatch) look(status v1alpha1.NodeStatus) (left []v1alpha1.VIPStatus, lost []string, lingering int) {
	for _, vip := range status.VIPs {
		line := ""
		switch {
		case isHere(vip, status.Node):
			left = append(left, vip)
			line = whyHere(vip, status.Node)
		case vip.Bound:
			lingering++
			line = "handed over to " + cmp.Or(vip.Owner, "its successor") + ", waiting for open connections to end"
			if vip.Mode == modeBGP {
				line = "withdrawn from every BGP peer, waiting for open connections to end"
			}
		case d.said[vip.Address+vip.Mode] == "": // it was not here
		case vip.Mode == modeBGP:
			line = "done, withdrawn"
		case vip.Owner == "" && letGo(vip):
			line = "done, nobody is known to have it: " + whyHere(vip, status.Node)
		case vip.Owner == "":
			lost = append(lost, vip.Address)
			line = "gone from here, waiting to hear who has it"
		default:
			line = "done, now on " + vip.Owner
		}
		if line != "" && d.said[vip.Address+vip.Mode] != line {
			d.said[vip.Address+vip.Mode] = line
			d.progress(title(vip) + ": " + line)
		}
	}
	return left, lost, lingering
}

// modeBGP is VIPStatus.Mode of what BGP announces.
const modeBGP = "bgp"

// isHere tells whether clients of the VIP are still sent to this node.
func isHere(vip v1alpha1.VIPStatus, node string) bool {
	if vip.Owner == node || vip.Announced {
		return true
	}
	reason, known := model.ParseReason(vip.Reason)
	return known && reason == model.ReasonTakingOver
}

// letGo tells whether a VIP that is here no more has left without a handover.
func letGo(vip v1alpha1.VIPStatus) bool {
	reason, known := model.ParseReason(vip.Reason)
	return known && reason.LetsGo()
}

func leftError(left []v1alpha1.VIPStatus, node string, all int, timeout time.Duration) error {
	lines := make([]string, len(left))
	for i, vip := range left {
		lines[i] = title(vip) + ": " + whyHere(vip, node)
	}
	return fmt.Errorf("%d of %d VIPs are still here after %v: %s; they stay reachable here and the node goes on draining, `lbd undrain` ends that",
		len(left), all, timeout, strings.Join(lines, "; "))
}

func title(vip v1alpha1.VIPStatus) string { return fmt.Sprintf("%s (%s)", vip.Address, vip.Name) }
