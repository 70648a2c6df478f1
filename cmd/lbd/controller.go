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
	"lbd.dev/lbd/internal/k8s/agent"
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
	logFlags
	kubeconfig, namespace, lease, class, http string
	classless, machines                       bool
	quarantine, hookTimeout                   time.Duration
	metrics                                   v1alpha1.MetricsSpec
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
	f.logFlags.add(cmd)
	return cmd
}

// leaseNamespace is that of lbd: of the pod, else the one of the manifests.
func leaseNamespace() string { return namespaceOr(defaultNamespace) }

// namespaceOr is the namespace of the pod; of a process that is in none it is other.
func namespaceOr(other string) string {
	if text, err := os.ReadFile(podNamespace); err == nil && len(strings.TrimSpace(string(text))) > 0 {
		return strings.TrimSpace(string(text))
	}
	return other
}

func (f *controllerFlags) check() error {
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
	}
	return f.logFlags.check()
}

// logFlags are how a process without a configuration is told what to log.
type logFlags struct{ level, format string }

func (f *logFlags) add(cmd *cobra.Command) {
	cmd.Flags().StringVar(&f.level, "log-level", "info", "debug, info, warn or error")
	cmd.Flags().StringVar(&f.format, "log-format", "text", "text or json")
	complete(cmd, "log-level", "debug", "info", "warn", "error")
	complete(cmd, "log-format", "text", "json")
}

func (f *logFlags) check() error {
	var level slog.Level
	switch {
	case f.format != "text" && f.format != "json":
		return fmt.Errorf("--log-format %q: it is text or json", f.format)
	case level.UnmarshalText([]byte(f.level)) != nil:
		return fmt.Errorf("--log-level %q: it is debug, info, warn or error", f.level)
	}
	return nil
}

func (f *logFlags) logger(out io.Writer) *slog.Logger {
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
	part := log.With("part", "control")
	log.Info("lbd controller runs", "version", programVersion(), "class", f.class, "classless", f.classless)
	err = runElected(ctx, c, &controllerMetrics{controller: c, client: client, log: lines},
		control.Options{Logger: part, HTTPAddress: f.http, Metrics: secureMetrics(f.metrics, f.kubeconfig, part)})
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

// elected is a controller or an agent, which work while they have a Lease.
type elected interface {
	Run(ctx context.Context) error
	Healthy() error
	Ready() error
}

// electedBackend is one as the HTTP server needs it.
type electedBackend struct {
	control.Backend // for the socket, which there is none of
	elected         elected
}

func (b electedBackend) Healthy() error { return b.elected.Healthy() }

func (b electedBackend) Ready() error { return b.elected.Ready() }

// runElected runs a process that is no daemon until ctx ends. Whoever looks at its metrics and
// probes must be able to until the end.
func runElected(ctx context.Context, e elected, counts prometheus.Collector, o control.Options) error {
	reg := prometheus.NewRegistry()
	reg.MustRegister(collectors.NewGoCollector(), collectors.NewProcessCollector(collectors.ProcessCollectorOpts{}), counts)
	o.Gatherer, o.Backend = reg, electedBackend{elected: e}
	server := control.New(o)
	work, cancel := context.WithCancel(context.WithoutCancel(ctx))
	var wg sync.WaitGroup
	wg.Go(func() { server.RunHTTP(work) })
	err := e.Run(ctx)
	cancel()
	wg.Wait()
	return err
}

const (
	// agentNamespace is that of the manifest of the agent, for a process that is in no pod.
	agentNamespace = "lbd-agent"
	// hubKubeconfig is where that manifest has the kubeconfig file for the hub.
	hubKubeconfig = "/etc/lbd/hub/kubeconfig"
	// hubClass is the class of the Services that a hub serves.
	hubClass = "lbd.dev/hub"
	// The requests of an agent to each of the clusters.
	agentQPS   = 50
	agentBurst = 100
)

// agentFlags are what `lbd agent` is told.
type agentFlags struct {
	logFlags
	kubeconfig, namespace, lease, class, http string
	hubKubeconfig, hubNamespace, hubSecret    string
	classless, cordonDrains, ingress, gateway bool
	tlsNamespaces                             []string
}

func newAgent() *cobra.Command {
	var f agentFlags
	cmd := &cobra.Command{
		Use:   "agent",
		Short: "Get load balancers for the Services of this cluster from another one, the hub",
		Long: `Write the Services of type LoadBalancer and the Nodes of this cluster into a namespace
of another cluster, the hub, and the addresses that the hub gives into the status of
the Services, until SIGTERM or SIGINT. Several may run: a Lease in this cluster says
which one writes. lbd tenant join prints what to install.`,
		Args: noArgs,
		RunE: func(cmd *cobra.Command, _ []string) error {
			if err := f.check(); err != nil {
				return usageError{err}
			}
			return runAgent(cmd.Context(), f, cmd.ErrOrStderr())
		},
	}
	flags := cmd.Flags()
	flags.StringVar(&f.kubeconfig, "kubeconfig", "", "kubeconfig file of this cluster (default: the service account of the pod)")
	flags.StringVar(&f.namespace, "namespace", namespaceOr(agentNamespace), "namespace of the Lease and of --hub-secret")
	flags.StringVar(&f.lease, "lease-name", agent.Manager, "name of the Lease")
	flags.StringVar(&f.hubKubeconfig, "hub-kubeconfig", hubKubeconfig, "kubeconfig file of the hub")
	flags.StringVar(&f.hubNamespace, "hub-namespace", "", "namespace of this cluster in the hub (default: the one that --hub-kubeconfig names)")
	flags.StringVar(&f.hubSecret, "hub-secret", "", "Secret that the token of --hub-kubeconfig is mounted from, in which it is renewed (default: it is not renewed)")
	flags.StringVar(&f.class, "load-balancer-class", hubClass, "spec.loadBalancerClass of the Services that the hub is to serve")
	flags.BoolVar(&f.classless, "classless", false, "have the hub serve Services without a class too")
	flags.BoolVar(&f.cordonDrains, "cordon-drains", false, "send nothing new to Nodes that are cordoned")
	flags.BoolVar(&f.ingress, "ingress", false, "have the hub serve Ingresses of the class "+agent.IngressClass+", too")
	flags.BoolVar(&f.gateway, "gateway", false, "have the hub serve HTTPRoutes and GRPCRoutes of Gateways of the class "+agent.GatewayClass+", too")
	flags.StringSliceVar(&f.tlsNamespaces, "tls-namespace", nil, "namespace with Secrets that may be copied into the hub, if Ingresses there name them for TLS; may be repeated; with --ingress")
	flags.StringVar(&f.http, "http", "127.0.0.1:7478", "address of /metrics, /healthz and /readyz; off: none")
	f.logFlags.add(cmd)
	return cmd
}

func (f *agentFlags) check() error {
	switch {
	case f.namespace == "" || f.lease == "":
		return errors.New("--namespace and --lease-name must not be empty")
	case f.hubKubeconfig == "":
		return errors.New("--hub-kubeconfig must not be empty")
	case f.class == "" && !f.classless:
		return errors.New("--load-balancer-class may only be empty with --classless")
	}
	if err := checkTLSNamespaces(f.tlsNamespaces, f.ingress); err != nil {
		return err
	}
	return f.logFlags.check()
}

func runAgent(ctx context.Context, f agentFlags, out io.Writer) error {
	lines := logqueue.New(out)
	defer lines.Close()
	log := f.logger(lines)
	lines.Logger = log
	o := k8s.Options{Logger: log, Kubeconfig: f.kubeconfig, UserAgent: agent.Manager + "/" + programVersion(), QPS: agentQPS, Burst: agentBurst}
	tenant, err := k8s.New(o)
	if err != nil {
		return err
	}
	o.Kubeconfig = f.hubKubeconfig
	hub, err := k8s.New(o)
	if err != nil {
		return fmt.Errorf("hub: %w", err)
	}
	if f.hubNamespace == "" {
		if f.hubNamespace = k8s.NamespaceOf(f.hubKubeconfig); f.hubNamespace == "" {
			return fmt.Errorf("%s names no namespace: set --hub-namespace", f.hubKubeconfig)
		}
	}
	a, err := agent.New(agent.Options{
		Logger: log, Tenant: tenant, Hub: hub, HubNamespace: f.hubNamespace, Class: f.class, Classless: f.classless, CordonDrains: f.cordonDrains, Ingress: f.ingress, Gateway: f.gateway,
		TLSNamespaces: f.tlsNamespaces,
		Namespace:     f.namespace, LeaseName: f.lease, Identity: identity(), Secret: f.hubSecret,
	})
	if err != nil {
		return err
	}
	log.Info("lbd agent runs", "version", programVersion(), "class", f.class, "classless", f.classless, "namespace", f.hubNamespace)
	err = runElected(ctx, a, &agentMetrics{agent: a, tenant: tenant, hub: hub, kubeconfig: f.hubKubeconfig, log: lines},
		control.Options{Logger: log.With("part", "control"), HTTPAddress: f.http})
	log.Info("lbd agent ends")
	return err
}
