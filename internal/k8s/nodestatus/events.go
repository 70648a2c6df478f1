package nodestatus

import (
	"context"
	"fmt"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime/schema"

	"lbd.dev/lbd/api/v1alpha1"
	"lbd.dev/lbd/internal/k8s/objects"
	"lbd.dev/lbd/internal/model"
)

const (
	// reasonDuplicate is the reason of the event about a host that answers for a VIP beside
	// the owner.
	reasonDuplicate = "DuplicateAddress"
	// reasonAssigned is that of the event about a node that begins to announce a VIP. The word
	// is that of MetalLB.
	reasonAssigned = "nodeAssigned"
)

// mostDuplicates is of how many VIPs events tell after one write. Who has hundreds of addresses
// twice knows it from the first.
const mostDuplicates = 10

// tellDuplicates sends an event about each VIP of this node beside which a host answers that the
// status written before did not name. Only the owner does, so there is one event. Nobody
// waits for events: one that cannot be sent is forgotten.
func (w *Writer) tellDuplicates(ctx context.Context, before, s *v1alpha1.NodeStatus) {
	ctx, cancel := context.WithTimeout(ctx, Timeout)
	defer cancel()
	told := 0
	for i := range s.VIPs {
		v := &s.VIPs[i]
		if v.Duplicate == "" || v.Owner != s.Node || duplicateOf(before, v.Address) == v.Duplicate || told == mostDuplicates {
			continue
		}
		told++
		w.tell(ctx, s.Node, v.Kind, v.Name, objects.Event{Reason: reasonDuplicate, Warning: true,
			Message: fmt.Sprintf("%s answers for %s beside node %s, and some clients reach that host: remove the address there", v.Duplicate, v.Address, s.Node)})
	}
}

// tellAssigned sends an event about a VIP that this node has begun to announce at layer 2, if one
// is due.
func (w *Writer) tellAssigned(ctx context.Context, s *v1alpha1.NodeStatus) {
	v := w.assigned.next(model.NodeName(s.Node), s.Settled, w.o.VIPs(), time.Now())
	if v == nil {
		return
	}
	ctx, cancel := context.WithTimeout(ctx, Timeout)
	defer cancel()
	w.tell(ctx, s.Node, v.VIP.Kind, v.VIP.Name, objects.Event{Reason: reasonAssigned,
		Message: fmt.Sprintf("%s is announced from node %s by layer 2", v.VIP.Addr, s.Node)})
}

// tell sends an event about the VIP of an object.
func (w *Writer) tell(ctx context.Context, node, kind, name string, e objects.Event) {
	e.Of, e.Manager, e.Host = w.reference(ctx, node, kind, name), Manager, node
	_, err := w.o.Client.Resource(objects.Events).Namespace(e.Namespace()).Create(ctx, e.Object(time.Now()), metav1.CreateOptions{})
	if err != nil {
		w.o.Logger.Debug("event about an address", "reason", e.Reason, "kind", kind, "name", name, "err", err)
	}
}

// duplicateOf is the host that answers for an address by a status, which may be nil.
func duplicateOf(s *v1alpha1.NodeStatus, address string) string {
	if s == nil {
		return ""
	}
	for i := range s.VIPs {
		if s.VIPs[i].Address == address {
			return s.VIPs[i].Duplicate
		}
	}
	return ""
}

// reference is the object that a VIP comes from, or if that is not in the cluster, as a
// VirtualIP from a file is not, the NodeStatus.
func (w *Writer) reference(ctx context.Context, node, kind, name string) corev1.ObjectReference {
	status := corev1.ObjectReference{APIVersion: v1alpha1.APIVersion, Kind: v1alpha1.NodeStatusKind, Name: node}
	of, resource := status, objects.Resource(v1alpha1.NodeStatusKind)
	switch kind {
	case "Service":
		of, resource = corev1.ObjectReference{APIVersion: "v1", Kind: kind}, schema.GroupVersionResource{Version: "v1", Resource: "services"}
		k := model.ParseKey(name)
		of.Namespace, of.Name = k.Namespace, k.Name
	case v1alpha1.KindVirtualIP, v1alpha1.KindLoadBalancer:
		of.Kind, of.Name, resource = kind, name, objects.Resource(kind)
	}
	o, err := w.o.Client.Resource(resource).Namespace(of.Namespace).Get(ctx, of.Name, metav1.GetOptions{})
	if err != nil {
		return status
	}
	of.UID = o.GetUID()
	return of
}
