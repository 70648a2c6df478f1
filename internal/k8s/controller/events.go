package controller

import (
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/types"

	"lbd.dev/lbd/api/v1alpha1"
	"lbd.dev/lbd/internal/allocator"
	"lbd.dev/lbd/internal/k8s/objects"
	"lbd.dev/lbd/internal/services"
)

// events tells what the allocator, and what judges objects, says of them.
type events struct{ *objects.Recorder }

func (e events) send(x allocator.Event) {
	of := corev1.ObjectReference{Kind: x.Kind, Namespace: x.Object.Namespace, Name: x.Object.Name, UID: types.UID(x.UID), APIVersion: v1alpha1.APIVersion}
	if x.Kind == services.KindService {
		of.APIVersion = "v1"
	}
	e.Send(objects.Event{Of: of, Reason: x.Reason, Message: x.Message, Warning: x.Warning})
}
