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
	"os/signal"
	"runtime"
	"runtime/debug"
	"sync"
	"syscall"
	"time"

	"github.com/coreos/go-systemd/v22/daemon"
	"github.com/spf13/cobra"
	"golang.org/x/sys/unix"

	"lbd.dev/lbd/api/v1alpha1"
	"lbd.dev/lbd/internal/config"
	"lbd.dev/lbd/internal/control"
	"lbd.dev/lbd/internal/logqueue"
	"lbd.dev/lbd/internal/model"
)

// defaultConfig is where the packages put the configuration.
const defaultConfig = "/etc/lbd"

func newRun() *cobra.Command {
	var path string
	cmd := &cobra.Command{
		Use:   "run",
		Short: "Run the daemon of this node",
		Long: `Run the daemon of this node until SIGTERM or SIGINT, which hand every VIP over
before the process ends. SIGHUP reads the configuration again; changed files are
noticed without it too.`,
		Args: noArgs,
		RunE: func(cmd *cobra.Command, _ []string) error {
			return runDaemon(cmd.Context(), path, cmd.ErrOrStderr())
		},
	}
	cmd.Flags().StringVar(&path, "config", defaultConfig, "file, or directory of *.yaml files")
	return cmd
}

// runDaemon loads the configuration, puts the parts together and runs them.
func runDaemon(ctx context.Context, path string, out io.Writer) error {
	reapInherited()
	tuneTimers()
	cfg, err := config.Load(path)
	if err != nil {
		return err
	}
	level := new(slog.LevelVar)
	lines := logqueue.New(out)
	defer lines.Close()
	log := newLogger(cfg, level, lines)
	lines.Logger = log
	tuneProcs(len(cfg.Peers) > 0, log)
	tuneMemory(len(cfg.VIPs), 0)
	systemd := newSupervisor(log)
	parts, err := compose(cfg, path, level, lines, systemd)
	if err != nil && inDaemonSet() && another(err) {
		return newAside(cfg, err, log).wait(ctx)
	}
	if err != nil {
		return err
	}
	// Whoever reads the log may go away; that must not take the VIPs along.
	signal.Ignore(syscall.SIGPIPE)
	work, cancel := context.WithCancel(context.WithoutCancel(ctx))
	defer cancel()
	var wg sync.WaitGroup
	ctx, stop := context.WithCancel(ctx)
	defer stop()
	wg.Go(func() { parts.restart.serve(work, parts, lines, log, stop) })
	wg.Go(func() { reloadOnHangup(work, parts, log) })
	wg.Go(func() { parts.forward.Watch(work) })
	log.Info("lbd runs", "version", programVersion(), "node", string(cfg.Node.Name), "vips", len(cfg.VIPs))
	systemd.notify(daemon.SdNotifyReady)
	context.AfterFunc(ctx, func() { systemd.notify(daemon.SdNotifyStopping) })
	err = parts.daemon.Run(ctx)
	cancel()
	wg.Wait()
	log.Info("lbd ends")
	return err
}

func reloadOnHangup(ctx context.Context, p *parts, log *slog.Logger) {
	hup := make(chan os.Signal, 1)
	signal.Notify(hup, syscall.SIGHUP)
	defer signal.Stop(hup)
	for {
		select {
		case <-ctx.Done():
			return
		case <-hup:
			log.Info("reading the configuration again")
			_ = p.config.Reload(ctx) // what is wrong is logged
		}
	}
}

// newLogger returns a logger whose level a reload may change.
func newLogger(cfg *config.Config, level *slog.LevelVar, out io.Writer) *slog.Logger {
	level.Set(cfg.Node.LogLevel)
	o := &slog.HandlerOptions{Level: level}
	if cfg.Node.LogFormat == v1alpha1.LogJSON {
		return slog.New(slog.NewJSONHandler(out, o))
	}
	return slog.New(slog.NewTextHandler(out, o))
}

// supervisor tells systemd how the daemon is, if it asked to be told. A systemd that
// hangs does not read its socket, so that is done in the background.
type supervisor struct {
	states chan string
}

func newSupervisor(log *slog.Logger) *supervisor {
	s := &supervisor{states: make(chan string, 8)}
	go func() { // ends with the process
		for state := range s.states {
			if _, err := daemon.SdNotify(false, state); err != nil {
				log.Warn("systemd notification", "err", err)
			}
		}
	}()
	return s
}

// notify never waits. What there is no room for systemd would not read in time.
func (s *supervisor) notify(state string) {
	select {
	case s.states <- state:
	default:
	}
}

// watchdog feeds systemd's watchdog from the loop itself, at a quarter of the interval
// that systemd asks for.
func (s *supervisor) watchdog() func() {
	every, err := daemon.SdWatchdogEnabled(false)
	if err != nil || every <= 0 {
		return nil
	}
	var last time.Time
	return func() {
		if now := time.Now(); now.Sub(last) >= every/4 {
			last = now
			s.notify(daemon.SdNotifyWatchdog)
		}
	}
}

const (
	// timerSlack is by how much the kernel may be late with a timer of the daemon.
	// With its default of 50 microseconds the monitor thread of the Go runtime wakes
	// several times for every packet, since it sleeps in steps of 20 microseconds
	// while anything runs; that is most of what an idle daemon costs. Nothing here
	// needs a timer to be exact to a millisecond but BFD, which sets its own thread.
	timerSlack = time.Millisecond
	// tuned marks a process that has been started again with timerSlack.
	tuned = "LBD_TUNED"
)

// tuneTimers gives every thread of the process the timer slack. Threads inherit it
// and the runtime has started some before main, so the program is executed again,
// as the same process and with the same files. It returns if there is no need, or
// if it cannot be done: then the daemon works as well and costs a little more.
func tuneTimers() {
	if os.Getenv(tuned) != "" {
		_ = os.Unsetenv(tuned) // not for the programs of exec checks
		return
	}
	runtime.LockOSThread() // the slack is that of the thread that executes
	defer runtime.UnlockOSThread()
	now, err := unix.PrctlRetInt(unix.PR_GET_TIMERSLACK, 0, 0, 0, 0)
	if err != nil || time.Duration(now) >= timerSlack {
		return // systemd may have set it: TimerSlackNSec=
	}
	if unix.Prctl(unix.PR_SET_TIMERSLACK, uintptr(timerSlack), 0, 0, 0) != nil {
		return
	}
	path, err := os.Executable() // not /proc/self/exe, by which nobody finds the process
	if err != nil {
		return
	}
	_ = syscall.Exec(path, os.Args, append(os.Environ(), tuned+"=1"))
}

// tuneProcs bounds how many threads run Go code at a time. One is enough for layer
// 2, and idle threads that look for work cost more than they help; BGP gets a
// second one. Who sets GOMAXPROCS knows better.
func tuneProcs(bgp bool, log *slog.Logger) {
	if os.Getenv("GOMAXPROCS") != "" {
		return
	}
	n := 1
	if bgp {
		n = min(2, runtime.NumCPU())
	}
	if was := runtime.GOMAXPROCS(n); was != n {
		log.Debug("threads", "gomaxprocs", n, "was", was)
	}
}

// manyVIPs is from how many on the collector of garbage runs three times as often: the
// heap is as large as all the rest of the daemon then.
const manyVIPs = 1000

// tuneMemory lets the heap grow less between two collections where it is large. An
// idle daemon with a few VIPs has 3 MB and would only spend processor time; and one
// with the Services of a cluster, most of whose VIPs it does not have, would spend
// more of it on them than on all else. Who sets GOGC knows better.
func tuneMemory(files, cluster int) {
	if os.Getenv("GOGC") != "" {
		return
	}
	percent := 100
	if files >= manyVIPs && files > cluster {
		percent = 30
	}
	debug.SetGCPercent(percent)
}

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
