package agent

import (
	"context"
	"encoding/base64"
	"strings"
	"sync"
	"time"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/fields"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/client-go/tools/cache"

	"lbd.dev/lbd/internal/k8s"
	"lbd.dev/lbd/internal/model"
	"lbd.dev/lbd/internal/tenants"
	"lbd.dev/lbd/internal/tenants/propagate"
)

const (
	// kindSecret is that of writes.
	kindSecret = "Secret"
	// secretPause is between two copies of one Secret: each change makes one more, and the hub keeps them for a
	// while and has room for so many of a cluster.
	secretPause = 5 * time.Second
	// secretBody is what the body of a job for a copy begins with; its name follows.
	secretBody = "create "
)

var secretKind = schema.GroupVersionResource{Version: "v1", Resource: "secrets"}

// secrets follows the Secrets with certificates that Ingresses name, in the namespaces of which they may be read.
// Each has a watch of its own, of one name, so that no other is ever asked for.
type secrets struct {
	a       *Agent
	running sync.WaitGroup
	watches map[model.Key]*secretWatch
	over    map[model.Key]bool
	// written are the copies that this process has written in the hub.
	written map[string]bool
}

// secretWatch is the watch of one Secret.
type secretWatch struct {
	*k8s.Watch[*propagate.Secret]
	stop context.CancelFunc
}

func newSecrets(a *Agent) *secrets {
	return &secrets{a: a, watches: map[model.Key]*secretWatch{}, written: map[string]bool{}}
}

// follow watches the Secrets that Ingresses name, and no others.
func (s *secrets) follow(ctx context.Context, ingresses map[model.Key]*propagate.Ingress) {
	if len(s.a.o.TLSNamespaces) == 0 {
		return
	}
	var wanted map[model.Key]bool
	wanted, s.over = propagate.SecretsOf(ingresses, IngressClass, s.a.o.TLSNamespaces)
	for key, w := range s.watches {
		if !wanted[key] {
			w.stop()
			delete(s.watches, key)
		}
	}
	for key := range wanted {
		if s.watches[key] == nil {
			s.watches[key] = s.watch(ctx, key)
		}
	}
}

// watch begins to watch one Secret.
func (s *secrets) watch(ctx context.Context, key model.Key) *secretWatch {
	ctx, stop := context.WithCancel(ctx)
	client := s.a.o.Tenant.Core
	lists := cache.NewFilteredListWatchFromClient(client, "secrets", key.Namespace, func(o *metav1.ListOptions) {
		o.FieldSelector = fields.OneTermEqualSelector(metav1.ObjectNameField, key.Name).String()
	})
	w := k8s.NewWatch(k8s.WatchOptions[*propagate.Secret]{
		Name: "secret " + key.String(), Object: &corev1.Secret{}, Convert: readSecret(key),
		ListWatch: cache.ToListWatcherWithWatchListSemantics(lists, client),
		Same:      func(a, b *propagate.Secret) bool { return a.Copy == b.Copy && a.Lacks == b.Lacks },
		Changed:   func([]model.Key) { s.a.wake() },
	})
	s.running.Go(func() { w.Run(ctx) })
	return &secretWatch{Watch: w, stop: stop}
}

// readSecret keeps of a Secret the certificate and its key, if an engine can use them.
func readSecret(key model.Key) func(runtime.Object) (*propagate.Secret, bool) {
	return func(obj runtime.Object) (*propagate.Secret, bool) {
		o, ok := obj.(*corev1.Secret)
		if !ok || o.Namespace != key.Namespace || o.Name != key.Name {
			return nil, false
		}
		if o.Type != corev1.SecretTypeTLS {
			return &propagate.Secret{Lacks: "its type is not " + string(corev1.SecretTypeTLS)}, true
		}
		s := new(propagate.Secret)
		s.Certificate, s.Key = tenants.Canonical(o.Data[corev1.TLSCertKey], o.Data[corev1.TLSPrivateKeyKey])
		if _, err := tenants.ReadCertificate(s.Certificate, s.Key); err != nil {
			return &propagate.Secret{Lacks: err.Error()}, true
		}
		s.Copy = tenants.HubSecretName(key.Namespace, key.Name, s.Certificate, s.Key)
		return s, true
	}
}

// read is what is known of each Secret.
func (s *secrets) read() map[model.Key]*propagate.Secret {
	all := make(map[model.Key]*propagate.Secret, len(s.watches))
	for key := range s.over {
		all[key] = &propagate.Secret{Lacks: "the Ingresses of the cluster name too many Secrets"}
	}
	for key, w := range s.watches {
		known, ok := w.Get(key)
		switch st := w.State(); {
		case ok:
			all[key] = known
		case !w.Synced() && apierrors.IsForbidden(st.Err):
			all[key] = &propagate.Secret{Unread: true, Lacks: "the agent may not read it: see --tls-namespace of lbd tenant join"}
		case !w.Synced() || !st.Connected:
			all[key] = &propagate.Secret{Unread: true}
		default:
			all[key] = &propagate.Secret{Lacks: "there is none of the name"}
		}
	}
	for name := range s.written {
		if !named(all, name) {
			delete(s.written, name)
		}
	}
	return all
}

func named(all map[model.Key]*propagate.Secret, copied string) bool {
	for _, x := range all {
		if x.Copy == copied {
			return true
		}
	}
	return false
}

// refusedSecrets is why the API server of the hub did not take a copy, by its name.
func (l *loop) refusedSecrets() map[string]string {
	all := map[string]string{}
	for id, p := range l.past {
		if strings.HasPrefix(id, kindSecret+"/") && p.body != "" && p.err != nil && refusedObject(p.err) {
			all[strings.TrimPrefix(p.body, secretBody)] = p.err.Error()
		}
	}
	return all
}

// secretJob makes a copy. It needs no right but to create: one of this name that is there has the same content,
// and can be changed by nobody.
func (l *loop) secretJob(c propagate.SecretCopy, from *propagate.Secret) *job {
	encode := base64.StdEncoding.EncodeToString
	j := &job{id: kindSecret + "/" + c.Secret.String(), side: SideHub, what: kindSecret, body: secretBody + c.Name, pause: secretPause}
	j.run = func(ctx context.Context) error {
		_, err := l.a.o.Hub.Dynamic.Resource(secretKind).Namespace(l.a.o.HubNamespace).Create(ctx, &unstructured.Unstructured{Object: map[string]any{
			"apiVersion": "v1", "kind": kindSecret, "type": string(corev1.SecretTypeTLS), "immutable": true,
			"metadata": map[string]any{"namespace": l.a.o.HubNamespace, "name": c.Name, "labels": map[string]any{tenants.SecretLabel: tenants.SecretLabelValue}},
			"data":     map[string]any{corev1.TLSCertKey: encode(from.Certificate), corev1.TLSPrivateKeyKey: encode(from.Key)},
		}}, metav1.CreateOptions{FieldManager: Manager})
		if apierrors.IsAlreadyExists(err) {
			return nil
		}
		return err
	}
	j.then = func() {
		l.secrets.written[c.Name] = true
		l.a.wake()
	}
	return j
}
