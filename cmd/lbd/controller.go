package main

import (
	"context"
	"crypto/rand"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"os"
	"strings"
	"sync"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/prometheus/client_golang/prometheus/collectors"
	"github.com/spf13/cobra"

	"lbd.dev/lbd/api/v1alpha1"
	"lbd.dev/lbd/internal/allocator"
	"lbd.dev/lbd/internal/control"
	"lbd.dev/lbd/internal/k8s"
	"lbd.dev/lbd/internal/k8s/controller"
	"lbd.dev/lbd/internal/logqueue"
)

const (
	// defaultNamespace is that of the manifests, for a process that is in no pod.
	defaultNamespace = "lbd-system"
	// The requests of a controller: a burst of Services is served at once, and 5000 of
	// them, which are one write each, within 20 s.
	controllerQPS   = 300
	controllerBurst = 500
)

// controllerFlags are what `lbd controller` is told.
type controllerFlags struct {
	kubeconfig, namespace, lease, class, http, level, format string
	classless, machines                                      bool
	quarantine, hookTimeout                                  time.Duration
	metrics                                                  v1alpha1.MetricsSpec
}

func newController() *cobra.Command {
	var f controllerFlags
	cmd := &cobra.Command{
		Use:   "controller",
		Short: "Give addresses to the Services of a cluster",
		Long: `Give addresses of IPAddressPools to Services of type LoadBalancer, until SIGTERM
or SIGINT. Several may run: a Lease says which one decides. What is in use is read
from the status of the Services; there is no other state.`,
		Args: noArgs,
		RunE: func(cmd *cobra.Command, _ []string) error {
			if err := f.check(); err != nil {
				return usageError{err}
			}
			return runController(cmd.Context(), f, cmd.ErrOrStderr())
		},
	}
	flags := cmd.Flags()
	flags.StringVar(&f.kubeconfig, "kubeconfig", "", "kubeconfig file (default: the service account of the pod)")
	flags.StringVar(&f.namespace, "namespace", leaseNamespace(), "namespace of the Lease")
	flags.StringVar(&f.lease, "lease-name", controller.Manager, "name of the Lease")
	flags.StringVar(&f.class, "load-balancer-class", "lbd.dev/lbd", "spec.loadBalancerClass of the Services that are served")
	flags.BoolVar(&f.classless, "classless", false, "serve Services without a class too")
	flags.DurationVar(&f.quarantine, "quarantine", time.Minute, "how long an address rests before another Service gets it unasked")
	flags.BoolVar(&f.machines, "machines", false, "serve MachineLoadBalancers: the cluster is a management cluster of Cluster API")
	flags.DurationVar(&f.hookTimeout, "hook-timeout", v1alpha1.DefaultHookTimeout, "how long the deletion of a Machine is held at most, with --machines")
	flags.StringVar(&f.http, "http", "127.0.0.1:7478", "address of /metrics, /healthz and /readyz; off: none")
	flags.StringVar(&f.metrics.Address, "metrics-address", "", "address of /metrics by HTTPS, for those whom the API server lets get it; then --http has none (default: none)")
	flags.StringVar(&f.metrics.CertFile, "metrics-cert-file", "", "certificate of --metrics-address, in PEM (default: one that is made at the start)")
	flags.StringVar(&f.metrics.KeyFile, "metrics-key-file", "", "key of --metrics-cert-file, in PEM")
	flags.StringVar(&f.level, "log-level", "info", "debug, info, warn or error")
	flags.StringVar(&f.format, "log-format", "text", "text or json")
	complete(cmd, "log-level", "debug", "info", "warn", "error")
	complete(cmd, "log-format", "text", "json")
	return cmd
}

// leaseNamespace is that of lbd: of the pod, else the one of the manifests.
func leaseNamespace() string {
	if text, err := os.ReadFile(podNamespace); err == nil && len(strings.TrimSpace(string(text))) > 0 {
		return strings.TrimSpace(string(text))
	}
	return defaultNamespace
}

func (f *controllerFlags) check() error {
	var level slog.Level
	switch {
	case f.namespace == "" || f.lease == "":
		return errors.New("--namespace and --lease-name must not be empty")
	case f.class == "" && !f.classless:
		return errors.New("--load-balancer-class may only be empty with --classless")
	case f.quarantine < 0:
		return errors.New("--quarantine must not be negative")
	case f.hookTimeout <= 0:
		return errors.New("--hook-timeout must be more than 0")
	case (f.metrics.CertFile == "") != (f.metrics.KeyFile == ""):
		return errors.New("--metrics-cert-file and --metrics-key-file need each other")
	case f.format != "text" && f.format != "json":
		return fmt.Errorf("--log-format %q: it is text or json", f.format)
	case level.UnmarshalText([]byte(f.level)) != nil:
		return fmt.Errorf("--log-level %q: it is debug, info, warn or error", f.level)
	}
	return nil
}

func (f *controllerFlags) logger(out io.Writer) *slog.Logger {
	var level slog.Level
	_ = level.UnmarshalText([]byte(f.level)) // checked
	o := &slog.HandlerOptions{Level: level}
	if f.format == "json" {
		return slog.New(slog.NewJSONHandler(out, o))
	}
	return slog.New(slog.NewTextHandler(out, o))
}

func runController(ctx context.Context, f controllerFlags, out io.Writer) error {
	lines := logqueue.New(out)
	defer lines.Close()
	log := f.logger(lines)
	lines.Logger = log
	client, err := k8s.New(k8s.Options{
		Logger: log, Kubeconfig: f.kubeconfig, UserAgent: controller.Manager + "/" + programVersion(), QPS: controllerQPS, Burst: controllerBurst,
	})
	if err != nil {
		return err
	}
	c, err := controller.New(controller.Options{
		Logger: log, Client: client, Namespace: f.namespace, LeaseName: f.lease, Identity: identity(),
		Machines: f.machines, HookTimeout: f.hookTimeout,
		Allocator: allocator.Options{Class: f.class, Classless: f.classless, Quarantine: f.quarantine},
	})
	if err != nil {
		return err
	}
	reg := prometheus.NewRegistry()
	reg.MustRegister(collectors.NewGoCollector(), collectors.NewProcessCollector(collectors.ProcessCollectorOpts{}),
		&controllerMetrics{controller: c, client: client, log: lines})
	part := log.With("part", "control")
	server := control.New(control.Options{
		Logger: part, HTTPAddress: f.http, Gatherer: reg, Backend: controllerBackend{c: c}, Metrics: secureMetrics(f.metrics, f.kubeconfig, part),
	})
	log.Info("lbd controller runs", "version", programVersion(), "class", f.class, "classless", f.classless)
	// Whoever looks must be able to until the end.
	work, cancel := context.WithCancel(context.WithoutCancel(ctx))
	var wg sync.WaitGroup
	wg.Go(func() { server.RunHTTP(work) })
	err = c.Run(ctx)
	cancel()
	wg.Wait()
	log.Info("lbd controller ends")
	return err
}

// identity is unique among processes: the host name, which is that of the pod, and
// something random.
func identity() string {
	host, err := os.Hostname()
	if err != nil {
		host = "unknown"
	}
	return host + "_" + strings.ToLower(rand.Text()[:8])
}

// controllerBackend is the controller as the HTTP server needs it.
type controllerBackend struct {
	control.Backend // for the socket, which there is none of
	c               *controller.Controller
}

// Healthy implements control.Backend.
func (b controllerBackend) Healthy() error { return b.c.Healthy() }

// Ready implements control.Backend.
func (b controllerBackend) Ready() error { return b.c.Ready() }
