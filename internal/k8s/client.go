package k8s

import (
	"cmp"
	"context"
	"fmt"
	"log/slog"
	"net"
	"os"
	"time"

	corev1 "k8s.io/api/core/v1"
	discoveryv1 "k8s.io/api/discovery/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/runtime/serializer"
	"k8s.io/client-go/dynamic"
	"k8s.io/client-go/rest"
	"k8s.io/client-go/tools/clientcmd"
	"k8s.io/client-go/util/flowcontrol"

	"lbd.dev/lbd/internal/fileaccess"
	"lbd.dev/lbd/internal/wake"
)

// The defaults of Options.
const (
	DefaultQPS   = 10
	DefaultBurst = 30
)

// Options are what a Client needs.
type Options struct {
	Logger *slog.Logger
	// Kubeconfig is the path of a kubeconfig file; empty: the service account of the
	// pod.
	Kubeconfig string
	// UserAgent names the program in the API server's log and audit: "lbd-speaker".
	UserAgent string
	// QPS and Burst bound the requests of this process, watches included.
	QPS   float32
	Burst int
}

// Client speaks with the API server. Nothing is sent until it is used.
type Client struct {
	// Config is for clients of other groups; they share the rate limit.
	Config *rest.Config
	// Core and Discovery are for v1 and discovery.k8s.io/v1, in protobuf.
	Core, Discovery rest.Interface
	// Dynamic is for custom resources.
	Dynamic dynamic.Interface

	requests *counter
}

// Scheme has the types of Core and Discovery, and those of meta/v1.
var Scheme = newScheme()

func newScheme() *runtime.Scheme {
	s := runtime.NewScheme()
	metav1.AddToGroupVersion(s, schema.GroupVersion{Version: "v1"})
	for _, add := range []func(*runtime.Scheme) error{corev1.AddToScheme, discoveryv1.AddToScheme} {
		if err := add(s); err != nil {
			panic(err) // two types of one name, which no input can cause
		}
	}
	return s
}

// New reads the kubeconfig, or the service account, and makes a Client of it.
func New(o Options) (*Client, error) {
	cfg, err := load(o.Kubeconfig)
	if err != nil {
		return nil, err
	}
	return NewFor(cfg, o)
}

func load(path string) (*rest.Config, error) {
	if path == "" {
		cfg, err := rest.InClusterConfig()
		if err != nil {
			return nil, fmt.Errorf("no service account of a pod: %w", err)
		}
		return cfg, nil
	}
	file, err := os.Open(path)
	if err != nil {
		return nil, fmt.Errorf("kubeconfig %s: %w", path, fileaccess.Explain(err))
	}
	_ = file.Close()
	cfg, err := clientcmd.BuildConfigFromFlags("", path)
	if err != nil {
		return nil, fmt.Errorf("kubeconfig %s: %w", path, err)
	}
	return cfg, nil
}

// Await makes the client, however long that takes: it tries again and again. failed is told of each
// error that is not the one before. It returns nil when ctx has ended.
func Await(ctx context.Context, connect func() (*Client, error), every time.Duration, failed func(error)) *Client {
	said := ""
	for ctx.Err() == nil {
		c, err := connect()
		if err == nil {
			return c
		}
		if said != err.Error() {
			said = err.Error()
			failed(err)
		}
		wake.Sleep(ctx, every)
	}
	return nil
}

// NamespaceOf is the namespace that the context of a kubeconfig file names; empty: none.
func NamespaceOf(kubeconfig string) string {
	cfg, err := clientcmd.LoadFromFile(kubeconfig)
	if err != nil || cfg.Contexts[cfg.CurrentContext] == nil {
		return ""
	}
	return cfg.Contexts[cfg.CurrentContext].Namespace
}

// NewFor makes a Client for an API server that the caller knows.
func NewFor(cfg *rest.Config, o Options) (*Client, error) {
	o.Logger = cmp.Or(o.Logger, slog.New(slog.DiscardHandler))
	routeLog(o.Logger)
	var err error
	c := &Client{Config: rest.CopyConfig(cfg), requests: &counter{n: make(map[Request]uint64)}}
	c.Config.UserAgent = o.UserAgent
	c.Config.QPS, c.Config.Burst = o.QPS, o.Burst
	if c.Config.QPS == 0 {
		c.Config.QPS, c.Config.Burst = DefaultQPS, DefaultBurst
	}
	// One bucket for all clients made of this configuration.
	c.Config.RateLimiter = flowcontrol.NewTokenBucketRateLimiter(c.Config.QPS, c.Config.Burst)
	c.Config.WarningHandler = rest.NoWarnings{}
	c.Config.Wrap(c.requests.wrap)
	if c.Config.Dial == nil {
		// An API server behind an address that moved to another node does not say that
		// a connection is dead; without data of our own only probes find out.
		d := &net.Dialer{Timeout: 5 * time.Second, KeepAliveConfig: net.KeepAliveConfig{
			Enable: true, Idle: 10 * time.Second, Interval: 5 * time.Second, Count: 3,
		}}
		c.Config.Dial = d.DialContext
	}
	if c.Core, err = restClient(c.Config, corev1.SchemeGroupVersion, "/api"); err != nil {
		return nil, err
	}
	if c.Discovery, err = restClient(c.Config, discoveryv1.SchemeGroupVersion, "/apis"); err != nil {
		return nil, err
	}
	if c.Dynamic, err = dynamic.NewForConfig(c.Config); err != nil {
		return nil, fmt.Errorf("client: %w", err)
	}
	return c, nil
}

// restClient is a typed client of one group. The typed clients of client-go would
// bring the types of all groups with them.
func restClient(cfg *rest.Config, gv schema.GroupVersion, root string) (rest.Interface, error) {
	cfg = rest.CopyConfig(cfg)
	cfg.GroupVersion = &gv
	cfg.APIPath = root
	cfg.ContentType = runtime.ContentTypeProtobuf
	cfg.AcceptContentTypes = runtime.ContentTypeProtobuf + "," + runtime.ContentTypeJSON
	cfg.NegotiatedSerializer = serializer.NewCodecFactory(Scheme).WithoutConversion()
	c, err := rest.RESTClientFor(cfg)
	if err != nil {
		return nil, fmt.Errorf("client of %s: %w", gv, err)
	}
	return c, nil
}

// Requests returns how many requests this client has sent, by method and result.
func (c *Client) Requests() map[Request]uint64 { return c.requests.all() }
