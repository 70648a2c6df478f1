package agent

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"net/http"
	"slices"
	"time"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/types"

	"lbd.dev/lbd/api/v1alpha1"
	"lbd.dev/lbd/internal/k8s/objects"
	"lbd.dev/lbd/internal/model"
	"lbd.dev/lbd/internal/services"
	"lbd.dev/lbd/internal/tenants/propagate"
)

// job is one write.
type job struct {
	id, side, what string
	// body is what it writes, by which the same is known again.
	body string
	// pause is how long after the last write of the object it waits, or after a refusal.
	pause time.Duration
	run   func(context.Context) error
	// refuses is the Service that is told why the hub does not take what it became; empty: none is.
	refuses model.Key
	// then is called in the loop once it is written.
	then func()

	done bool // it was tried
	err  error
}

// refusedObject tells whether an API server is there and does not take what was offered: others may
// fare better.
func refusedObject(err error) bool {
	var status apierrors.APIStatus
	if !errors.As(err, &status) {
		return false
	}
	switch code := status.Status().Code; code {
	case http.StatusUnauthorized, http.StatusRequestTimeout, http.StatusTooManyRequests:
		return false
	default:
		return code >= 400 && code < 500
	}
}

// jobs are the writes of a decision. What is deleted goes first: another Service may have its NodePort.
func (l *loop) jobs(in *propagate.Input, out *propagate.Output) []*job {
	var first, rest []*job
	for _, w := range out.Nodes {
		rest = append(rest, hubJob(l, v1alpha1.KindTenantNodes, w, nodesPause, model.Key{}))
	}
	byName := make(map[string]model.Key, len(in.Services))
	for k := range in.Services {
		byName[propagate.NameOf(k)] = k
	}
	for _, w := range out.Services {
		j := hubJob(l, v1alpha1.KindTenantService, w, servicePause, byName[w.Name])
		if w.Spec == nil {
			first = append(first, j)
		} else {
			rest = append(rest, j)
		}
	}
	for i := range out.Statuses {
		rest = append(rest, l.statusJob(in, &out.Statuses[i]))
	}
	return slices.Concat(first, rest)
}

// hubJob writes one object in the hub.
func hubJob[T any](l *loop, kind string, w propagate.Write[T], pause time.Duration, refuses model.Key) *job {
	r := l.a.o.Hub.Dynamic.Resource(objects.Resource(kind)).Namespace(l.a.o.HubNamespace)
	j := &job{id: kind + "/" + w.Name, side: SideHub, what: kind, pause: pause}
	switch {
	case w.Spec == nil:
		j.body, j.then = "delete "+w.UID, l.offerAgain
		j.run = func(ctx context.Context) error {
			err := r.Delete(ctx, w.Name, metav1.DeleteOptions{Preconditions: &metav1.Preconditions{UID: new(types.UID(w.UID))}})
			return gone(err)
		}
	case w.UID == "":
		spec := propagate.Patch(nil, w.Spec)
		j.body, j.refuses = "create "+text(spec), refuses
		j.run = func(ctx context.Context) error {
			_, err := r.Create(ctx, &unstructured.Unstructured{Object: map[string]any{
				"apiVersion": v1alpha1.APIVersion, "kind": kind, "metadata": map[string]any{"namespace": l.a.o.HubNamespace, "name": w.Name}, "spec": spec,
			}}, metav1.CreateOptions{FieldManager: Manager})
			if apierrors.IsAlreadyExists(err) { // the watch is about to tell
				return nil
			}
			return err
		}
	default:
		body := text(map[string]any{"metadata": map[string]any{"uid": w.UID}, "spec": propagate.Patch(w.Before, w.Spec)})
		j.body, j.refuses = body, refuses
		j.run = func(ctx context.Context) error {
			_, err := r.Patch(ctx, w.Name, types.MergePatchType, []byte(body), metav1.PatchOptions{FieldManager: Manager})
			return gone(err)
		}
	}
	return j
}

// gone passes over that an object is not there any more, or is another one: the watch is about to tell.
func gone(err error) error {
	if apierrors.IsNotFound(err) || apierrors.IsConflict(err) {
		return nil
	}
	return err
}

func text(v any) string {
	data, err := json.Marshal(v)
	if err != nil {
		return fmt.Sprint(err) // of maps of strings and numbers all can be encoded
	}
	return string(data)
}

// statusJob writes addresses and condition of one Service at once. Others that write conditions keep
// theirs: a strategic merge patch changes one of the list. A UID that is not that of the Service makes
// it fail.
func (l *loop) statusJob(in *propagate.Input, s *propagate.Status) *job {
	var before v1alpha1.Condition
	if has := in.Services[s.Service]; has != nil {
		before = has.Condition
	}
	j := &job{id: "Service/" + s.Service.String(), side: SideTenant, what: services.KindService, body: text(s), pause: servicePause}
	j.run = func(ctx context.Context) error {
		body := statusPatch(s, before, time.Now())
		return gone(l.a.o.Tenant.Core.Patch(types.StrategicMergePatchType).Namespace(s.Service.Namespace).Resource("services").Name(s.Service.Name).
			SubResource("status").Param("fieldManager", Manager).Body([]byte(body)).Do(ctx).Error())
	}
	j.then = func() {
		if s.Condition == nil {
			delete(l.had, s.Service)
		} else {
			l.had[s.Service] = s.UID
		}
		if s.Event != nil {
			of := corev1.ObjectReference{APIVersion: "v1", Kind: services.KindService, Namespace: s.Service.Namespace, Name: s.Service.Name, UID: types.UID(s.UID)}
			l.a.events.Send(objects.Event{Of: of, Reason: s.Event.Reason, Message: s.Event.Message, Warning: s.Event.Warning})
		}
	}
	return j
}

func statusPatch(s *propagate.Status, before v1alpha1.Condition, now time.Time) string {
	condition := map[string]any{"type": propagate.ConditionType, "$patch": "delete"}
	if c := s.Condition; c != nil {
		since := now
		if before.Status == c.Status {
			since = before.LastTransitionTime
		}
		condition = map[string]any{"type": c.Type, "status": c.Status, "reason": c.Reason, "message": c.Message,
			"lastTransitionTime": since.UTC().Format(time.RFC3339)}
	}
	status := map[string]any{"conditions": []any{condition}}
	if s.Ingress != nil {
		var list []any // null, if there are none
		for _, ip := range *s.Ingress {
			list = append(list, map[string]any{"ip": ip})
		}
		status["loadBalancer"] = map[string]any{"ingress": list}
	}
	return text(map[string]any{"metadata": map[string]any{"uid": s.UID}, "status": status})
}
