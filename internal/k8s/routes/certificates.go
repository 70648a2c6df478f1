package routes

import (
	"context"
	"slices"
	"strings"
	"sync"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/client-go/tools/cache"

	"lbd.dev/lbd/api/v1alpha1"
	"lbd.dev/lbd/internal/k8s"
	"lbd.dev/lbd/internal/model"
	"lbd.dev/lbd/internal/tenants"
	"lbd.dev/lbd/internal/tenants/routes"
)

// youngFor is how long a certificate is kept that no TenantRoute names yet.
const youngFor = time.Minute

var secretsResource = schema.GroupVersionResource{Version: "v1", Resource: "secrets"}

// certificates follows the Secrets that agents have written, in the namespaces of tenants that may. Nothing else
// is kept of them than the names in the certificates. One goroutine owns it.
type certificates struct {
	k       *Keeper
	running sync.WaitGroup
	watches map[string]*certificateWatch // by namespace
}

type certificateWatch struct {
	*k8s.Watch[certificate]
	stop context.CancelFunc
}

// certificate is what is kept of a Secret.
type certificate struct {
	uid, broken string
	names       []string
	created     time.Time
}

// follow watches the namespaces of tenants that may have Secrets, and no others.
func (c *certificates) follow(ctx context.Context, clusters map[string]tenants.Cluster) {
	if clusters == nil {
		return // nothing is known
	}
	for namespace, w := range c.watches {
		if !takes(clusters, namespace) {
			w.stop()
			delete(c.watches, namespace)
		}
	}
	for namespace := range clusters {
		if takes(clusters, namespace) && c.watches[namespace] == nil {
			c.watches[namespace] = c.watch(ctx, namespace)
		}
	}
}

func takes(clusters map[string]tenants.Cluster, namespace string) bool {
	t := clusters[namespace].Tenant
	return t != nil && t.Spec.Limits.TLSSecrets > 0 && t.Spec.IngressClass != ""
}

func (c *certificates) watch(ctx context.Context, namespace string) *certificateWatch {
	ctx, stop := context.WithCancel(ctx)
	client := c.k.o.Client.Core
	lists := cache.NewFilteredListWatchFromClient(client, "secrets", namespace, func(o *metav1.ListOptions) {
		o.LabelSelector = tenants.SecretLabel + "=" + tenants.SecretLabelValue
	})
	w := k8s.NewWatch(k8s.WatchOptions[certificate]{
		Name: "secrets of " + namespace, Object: &corev1.Secret{}, Convert: readCertificate,
		ListWatch: cache.ToListWatcherWithWatchListSemantics(lists, client),
		Same: func(a, b certificate) bool {
			return a.uid == b.uid && a.broken == b.broken && slices.Equal(a.names, b.names)
		},
		Changed: func([]model.Key) { c.k.wake() },
	})
	c.running.Go(func() { w.Run(ctx) })
	return &certificateWatch{Watch: w, stop: stop}
}

// readCertificate keeps of a Secret what is judged. One that its writer could still change is not looked into:
// what the engine shows is what was judged.
func readCertificate(obj runtime.Object) (certificate, bool) {
	o, ok := obj.(*corev1.Secret)
	if !ok || o.Labels[tenants.SecretLabel] != tenants.SecretLabelValue || !strings.HasPrefix(o.Name, v1alpha1.HubSecretPrefix) {
		return certificate{}, false
	}
	x := certificate{uid: string(o.UID), created: o.CreationTimestamp.Time}
	if o.Type != corev1.SecretTypeTLS || o.Immutable == nil || !*o.Immutable {
		x.broken = "the Secret is not immutable and of the type " + string(corev1.SecretTypeTLS)
		return x, true
	}
	names, err := tenants.ReadCertificate(o.Data[corev1.TLSCertKey], o.Data[corev1.TLSPrivateKeyKey])
	if err != nil {
		x.broken = err.Error()
	}
	x.names = names
	return x, true
}

// settled tells whether each namespace was read, or may not be read.
func (c *certificates) settled() bool {
	for _, w := range c.watches {
		if !w.Synced() && w.State().Err == nil {
			return false
		}
	}
	return true
}

// read is what there is, in the namespaces that are known.
func (c *certificates) read(now time.Time) map[string]map[string]*routes.Certificate {
	all := make(map[string]map[string]*routes.Certificate, len(c.watches))
	for namespace, w := range c.watches {
		if !w.Synced() {
			continue
		}
		all[namespace] = map[string]*routes.Certificate{}
		for key, x := range w.All() {
			all[namespace][key.Name] = &routes.Certificate{UID: x.uid, Names: x.names, Broken: x.broken, Old: now.Sub(x.created) > youngFor}
		}
	}
	return all
}
