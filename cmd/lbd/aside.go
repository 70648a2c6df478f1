package main

import (
	"context"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"net"
	"net/http"
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
	asideLook = time.Second
	// asideQuiet is how long the other daemon must have been there until the pod answers probes:
	// it opens its own HTTP listener meanwhile, if it has one at that address. Liveness probes of
	// the manifests kill a pod that has not answered for 30 s.
	asideQuiet = 5 * time.Second
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

// aside is a pod that stands aside.
type aside struct {
	node model.NodeName
	why  error
	// other tells the daemons of the host apart that follow each other; "" while there is none.
	other func() string
	// answer answers the probes of kubelet until it is stopped.
	answer func() (stop func())
	log    *slog.Logger
}

func newAside(cfg *config.Config, why error, log *slog.Logger) *aside {
	other := func() string {
		info, err := os.Stat(cfg.Node.Socket)
		if err != nil || !control.Listens(cfg.Node.Socket) {
			return ""
		}
		return info.ModTime().String() // each daemon makes a socket of its own
	}
	return &aside{cfg.Node.Name, why, other, func() func() { return answerProbes(cfg.Node.HTTPAddress, log) }, log}
}

// wait waits until the other daemon is gone, and then ends, so that kubelet starts the pod
// anew: systemd removes the directory of the socket with the unit, and a container keeps the
// removed one. It also ends with ctx.
func (a *aside) wait(ctx context.Context) error {
	port := !errors.Is(a.why, control.ErrRunning)
	what := "another lbd runs on this host"
	if port {
		what = "something on this host has the gossip port, such as another lbd"
	}
	a.log.Warn(fmt.Sprintf("%s, so this pod does nothing; if the host is to keep its own lbd, kubectl label node %s %s", what, a.node, hostLabel), "err", a.why)
	begin, seen := time.Now(), time.Now()
	var stop func() // nil: probes are not answered yet
	silent := func() {
		if stop != nil {
			stop()
			stop = nil
		}
	}
	defer silent()
	tick := time.NewTicker(asideLook)
	defer tick.Stop()
	for last, since := "", begin; ; {
		select {
		case <-ctx.Done():
			return nil
		case now := <-tick.C:
			who := "the port"
			if !port {
				who = a.other()
			}
			if who != last { // another one has to find the address of its HTTP listener free
				silent()
				last, since = who, now
			}
			switch {
			case port && now.Sub(begin) >= asidePort:
				return nil
			case who != "":
				seen = now
			case now.Sub(seen) >= asideGone:
				a.log.Info("the other lbd of this host is gone: this pod begins anew")
				return nil
			}
			if stop == nil && who != "" && now.Sub(since) >= asideQuiet {
				stop = a.answer()
			}
		}
	}
}

// answerProbes says at the HTTP address of a pod that it lives and is not ready, until it is
// stopped. Where the daemon of the host has that address it answers in place of the pod.
func answerProbes(address string, log *slog.Logger) (stop func()) {
	if address == "" {
		return func() {} // such a pod has no probes
	}
	l, err := net.Listen("tcp", address)
	if err != nil {
		log.Debug("probes are left to whoever has the address", "err", err)
		return func() {}
	}
	mux := http.NewServeMux()
	mux.HandleFunc("GET /healthz", func(w http.ResponseWriter, _ *http.Request) { _, _ = io.WriteString(w, "ok\n") })
	mux.HandleFunc("GET /readyz", func(w http.ResponseWriter, _ *http.Request) {
		http.Error(w, "this pod stands aside for another lbd of the host", http.StatusServiceUnavailable)
	})
	server := &http.Server{Handler: mux, ReadTimeout: asideLook, WriteTimeout: asideLook, ErrorLog: slog.NewLogLogger(log.Handler(), slog.LevelDebug)}
	go func() { _ = server.Serve(l) }()
	return func() { _ = server.Close() }
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
