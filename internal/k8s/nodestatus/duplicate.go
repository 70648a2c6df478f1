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

// reasonDuplicate is the reason of the event about a host that answers for a VIP beside the
// owner.
const reasonDuplicate = "DuplicateAddress"

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
		e := objects.Event{
			Of: w.reference(ctx, s.Node, v), Reason: reasonDuplicate, Warning: true, Manager: Manager, Host: s.Node,
			Message: fmt.Sprintf("%s answers for %s beside node %s, and some clients reach that host: remove the address there", v.Duplicate, v.Address, s.Node),
		}
		_, err := w.o.Client.Resource(objects.Events).Namespace(e.Namespace()).Create(ctx, e.Object(time.Now()), metav1.CreateOptions{})
		if err != nil {
			w.o.Logger.Debug("event about an address that another host has", "address", v.Address, "err", err)
		}
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
	case v1alpha1.KindVirtualIP:
		of.Kind, of.Name, resource = v.Kind, v.Name, objects.Resource(v.Kind)
	}
	o, err := w.o.Client.Resource(resource).Namespace(of.Namespace).Get(ctx, of.Name, metav1.GetOptions{})
	if err != nil {
		return status
	}
	of.UID = o.GetUID()
	return of
}
