package speaker

import (
	"context"
	"fmt"
	"maps"
	"strings"
	"sync"
	"time"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/fields"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/client-go/rest"
	"k8s.io/client-go/tools/cache"

	"lbd.dev/lbd/api/v1alpha1"
	"lbd.dev/lbd/internal/agree"
	"lbd.dev/lbd/internal/k8s"
	"lbd.dev/lbd/internal/model"
	"lbd.dev/lbd/internal/services"
)

// passwords follows the Secrets that BGPPeers of this node name. Each has a watch of its
// own, of one name: a right to a list cannot be bounded to some Secrets, one to a
// name can.
type passwords struct {
	client    rest.Interface
	namespace string
	changed   func()
	running   *sync.WaitGroup
	watches   map[string]*secretWatch
}

// secretWatch is the watch of one Secret.
type secretWatch struct {
	*k8s.Watch[services.Password]
	stop context.CancelFunc
	// forbidden is since when the API server has refused to be asked; zero if it does not.
	forbidden time.Time
	// revoked: that lasted, so what was read before counts no more until the API server allows it.
	revoked bool
}

// follow watches the Secrets that peers of a Node with these labels name, and no others.
func (p *passwords) follow(ctx context.Context, peers []*v1alpha1.BGPPeer, labels map[string]string) {
	wanted := make(map[string]bool)
	for _, o := range peers {
		ref := o.Spec.PasswordSecret
		if ref != nil && (ref.Namespace == "" || ref.Namespace == p.namespace) && agree.Selects(o.Spec.NodeSelectors, labels) {
			wanted[ref.Name] = true
		}
	}
	for name, w := range p.watches {
		if !wanted[name] {
			w.stop()
			delete(p.watches, name)
		}
	}
	for name := range wanted {
		if p.watches[name] == nil {
			p.watches[name] = p.watch(ctx, name)
		}
	}
}

// watch begins to watch one Secret.
func (p *passwords) watch(ctx context.Context, name string) *secretWatch {
	ctx, stop := context.WithCancel(ctx)
	lists := cache.NewFilteredListWatchFromClient(p.client, "secrets", p.namespace, func(o *metav1.ListOptions) {
		o.FieldSelector = fields.OneTermEqualSelector(metav1.ObjectNameField, name).String()
	})
	w := k8s.NewWatch(k8s.WatchOptions[services.Password]{
		Name: "secret " + name, Object: &corev1.Secret{}, Convert: readPassword(name),
		ListWatch: cache.ToListWatcherWithWatchListSemantics(lists, p.client),
		Changed:   func([]model.Key) { p.changed() },
	})
	p.running.Go(func() { w.Run(ctx) })
	return &secretWatch{Watch: w, stop: stop}
}

// readPassword keeps of the Secret with a name what counts.
func readPassword(name string) func(runtime.Object) (services.Password, bool) {
	return func(obj runtime.Object) (services.Password, bool) {
		o, ok := obj.(*corev1.Secret)
		if !ok || o.Name != name {
			return services.Password{}, false
		}
		if o.Type != corev1.SecretTypeBasicAuth {
			return services.Password{Lacks: fmt.Sprintf("has the type %q and must have %q", o.Type, corev1.SecretTypeBasicAuth)}, true
		}
		data, ok := o.Data[corev1.BasicAuthPasswordKey]
		if !ok {
			return services.Password{Lacks: fmt.Sprintf("has no entry %q", corev1.BasicAuthPasswordKey)}, true
		}
		key := strings.TrimSuffix(string(data), "\n")
		if rule := v1alpha1.MD5KeyRule(key); rule != "" {
			return services.Password{Lacks: fmt.Sprintf("has an entry %q that is no password: it %s", corev1.BasicAuthPasswordKey, rule)}, true
		}
		return services.Password{Key: key}, true
	}
}

// told tells whether the API server has answered for each Secret, if only by a refusal.
func (p *passwords) told() bool {
	for _, w := range p.watches {
		if !w.Synced() && w.State().Err == nil {
			return false
		}
	}
	return true
}

// read returns what is known of each Secret.
func (p *passwords) read() map[string]services.Password {
	all := make(map[string]services.Password, len(p.watches))
	for name, w := range p.watches {
		all[name] = w.read(model.Key{Namespace: p.namespace, Name: name})
	}
	return all
}

// read returns what is known of the Secret. While the API server is away that is what it
// said last. One that was read and may not be read any more stays in use for a while:
// an API server that has just started refuses what it will allow.
func (w *secretWatch) read(key model.Key) services.Password {
	st := w.State()
	if st.Connected || !apierrors.IsForbidden(st.Err) {
		w.forbidden = time.Time{}
	} else if w.forbidden.IsZero() {
		w.forbidden = time.Now()
	}
	w.revoked = !st.Connected && (w.revoked || !w.forbidden.IsZero() && time.Since(w.forbidden) >= k8s.AbsentAfter)
	known, ok := w.Get(key)
	switch {
	case w.revoked, !w.forbidden.IsZero() && !ok:
		return services.Password{Lacks: "may not be read by lbd: name it in bgp.passwordSecrets of the chart, or in the Role lbd-passwords"}
	case ok:
		return known
	case w.Synced():
		return services.Password{Lacks: "does not exist"}
	case st.Err != nil:
		return services.Password{Lacks: "cannot be read: " + st.Err.Error()}
	}
	return services.Password{Lacks: "is not read yet"}
}

// followPasswords watches what the objects and the labels of this node ask for now.
func (l *loop) followPasswords(ctx context.Context) {
	var labels map[string]string
	if self, ok := l.w.nodes.Get(model.Key{Name: string(l.s.o.Services.Self)}); ok {
		labels = self.Labels
	}
	l.passwords.follow(ctx, l.all.Peers, labels)
}

// readPasswords takes over what is known of the Secrets, and tells whether that has
// changed.
func (l *loop) readPasswords() bool {
	read := l.passwords.read()
	changed := !maps.Equal(read, l.keys)
	l.keys = read
	return changed
}

// look reads what changes by itself: files with passwords, and for how long a Secret may
// not be read.
func (l *loop) look() {
	l.connection()
	files := len(l.secretFiles()) > 0 && l.readSecrets()
	if secrets := l.readPasswords(); files || secrets {
		l.setObjects()
		if l.synced {
			l.build()
		}
	}
	if !l.synced {
		l.s.wake() // a Secret that may not be read keeps nothing waiting
	}
}
