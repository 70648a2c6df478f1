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

// mostAssigned is of how many VIPs events tell after one look. When a node dies that had a
// thousand, the others need some minutes to say so, and the API server is left alone.
const mostAssigned = 5

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
		w.tell(ctx, s.Node, v, objects.Event{Reason: reasonDuplicate, Warning: true,
			Message: fmt.Sprintf("%s answers for %s beside node %s, and some clients reach that host: remove the address there", v.Duplicate, v.Address, s.Node)})
	}
}

// tellAssigned sends an event about each VIP that this node has begun to announce at layer 2,
// a few at a time. Those that it has when it first looks are no news: the daemon was restarted.
// By BGP all nodes announce, so nothing is assigned.
func (w *Writer) tellAssigned(ctx context.Context, s *v1alpha1.NodeStatus) {
	first := w.assigned == nil
	if first {
		w.assigned = make(map[string]uint64)
	}
	ctx, cancel := context.WithTimeout(ctx, Timeout)
	defer cancel()
	told := 0
	for i := range s.VIPs {
		v := &s.VIPs[i]
		if v.Mode != "l2" {
			continue
		}
		if v.Owner != s.Node {
			delete(w.assigned, v.Address)
			continue
		}
		if epoch, known := w.assigned[v.Address]; known && epoch == v.Epoch || !v.Announced {
			continue
		}
		if !first {
			if told == mostAssigned {
				continue
			}
			told++
			w.tell(ctx, s.Node, v, objects.Event{Reason: reasonAssigned, Message: fmt.Sprintf("%s is announced from node %s by layer 2", v.Address, s.Node)})
		}
		w.assigned[v.Address] = v.Epoch
	}
}

// tell sends an event about a VIP.
func (w *Writer) tell(ctx context.Context, node string, v *v1alpha1.VIPStatus, e objects.Event) {
	e.Of, e.Manager, e.Host = w.reference(ctx, node, v), Manager, node
	_, err := w.o.Client.Resource(objects.Events).Namespace(e.Namespace()).Create(ctx, e.Object(time.Now()), metav1.CreateOptions{})
	if err != nil {
		w.o.Logger.Debug("event about an address", "reason", e.Reason, "address", v.Address, "err", err)
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
func (w *Writer) reference(ctx context.Context, node string, v *v1alpha1.VIPStatus) corev1.ObjectReference {
	status := corev1.ObjectReference{APIVersion: v1alpha1.APIVersion, Kind: v1alpha1.NodeStatusKind, Name: node}
	of, resource := status, objects.Resource(v1alpha1.NodeStatusKind)
	switch v.Kind {
	case "Service":
		of, resource = corev1.ObjectReference{APIVersion: "v1", Kind: v.Kind}, schema.GroupVersionResource{Version: "v1", Resource: "services"}
		k := model.ParseKey(v.Name)
		of.Namespace, of.Name = k.Namespace, k.Name
	case v1alpha1.KindVirtualIP, v1alpha1.KindLoadBalancer:
		of.Kind, of.Name, resource = v.Kind, v.Name, objects.Resource(v.Kind)
	}
	o, err := w.o.Client.Resource(resource).Namespace(of.Namespace).Get(ctx, of.Name, metav1.GetOptions{})
	if err != nil {
		return status
	}
	of.UID = o.GetUID()
	return of
}
