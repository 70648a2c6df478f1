package main

import (
	"context"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"os"
	"syscall"
	"time"

	"lbd.dev/lbd/internal/config"
	"lbd.dev/lbd/internal/control"
	"lbd.dev/lbd/internal/model"
)

// A pod of the DaemonSet on a host that runs lbd already stands aside: it waits, and says once
// what to do. If it ended instead, kubelet would start it again and again, and in the moment in
// which the daemon of the host restarts it would take the place of that one, without its VIPs.
const (
	// asideLook is the time between two looks for the other daemon.
	asideLook = 5 * time.Second
	// asideGone is how long the other daemon must not be there until the pod begins anew.
	// It is longer than a restart of the host's daemon takes.
	asideGone = time.Minute
	// asidePort is how long a pod waits that found nothing but the gossip port taken. It does
	// not look in between: to try the port is to take it for a moment.
	asidePort = 5 * time.Minute
)

// hostLabel keeps the DaemonSet away from a Node.
const hostLabel = "lbd.dev/daemon=host"

// serviceHostVariable is set by kubelet in each container.
const serviceHostVariable = "KUBERNETES_SERVICE_HOST"

// inDaemonSet tells whether this process runs in a pod of the DaemonSet, and not as a unit or in
// a static pod.
func inDaemonSet() bool {
	return os.Getenv(config.NodeNameVariable) != "" && os.Getenv(serviceHostVariable) != ""
}

// another tells whether a daemon cannot start because another one runs on the host.
func another(err error) bool {
	return errors.Is(err, control.ErrRunning) || errors.Is(err, syscall.EADDRINUSE)
}

// standAside waits until the other daemon is gone, and then ends, so that kubelet starts the pod
// anew: systemd removes the directory of the socket with the unit, and a container keeps the
// removed one. It also ends with ctx.
func standAside(ctx context.Context, node model.NodeName, why error, there func() bool, log *slog.Logger) error {
	port := !errors.Is(why, control.ErrRunning)
	what := "another lbd runs on this host"
	if port {
		what = "something on this host has the gossip port, such as another lbd"
	}
	log.Warn(fmt.Sprintf("%s, so this pod does nothing; if the host is to keep its own lbd, kubectl label node %s %s", what, node, hostLabel), "err", why)
	begin, seen := time.Now(), time.Now()
	tick := time.NewTicker(asideLook)
	defer tick.Stop()
	for {
		select {
		case <-ctx.Done():
			return nil
		case now := <-tick.C:
			switch {
			case port && now.Sub(begin) >= asidePort:
				return nil
			case port:
			case there():
				seen = now
			case now.Sub(seen) >= asideGone:
				log.Info("the other lbd of this host is gone: this pod begins anew")
				return nil
			}
		}
	}
}

// noteHost says on the host of a daemon what to do before the DaemonSet comes. Whether the Node
// has the label already is not known here.
func noteHost(out io.Writer, socket string) {
	if !control.Listens(socket) || inDaemonSet() {
		return
	}
	fmt.Fprintf(out, "%s: this host runs lbd already; before you apply the DaemonSet, give the cluster the gossip key of the hosts, "+
		"and label each Node whose host runs lbd: kubectl label node NODE %s\n", levelNote, hostLabel)
}
