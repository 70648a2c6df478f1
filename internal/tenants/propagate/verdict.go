package propagate

import (
	"encoding/json"
	"strings"
	"unicode/utf8"

	"lbd.dev/lbd/api/v1alpha1"
	"lbd.dev/lbd/internal/tenants"
)

// The reasons of the condition that the agent has by itself; all others are those of the hub.
const (
	// ReasonNoNodePort: a port has no NodePort, so that nothing outside the cluster reaches it.
	ReasonNoNodePort = "NoNodePort"
	// ReasonProtocol: a port is of another protocol than TCP and UDP.
	ReasonProtocol = "ProtocolNotSupported"
	// ReasonTooMuch: the Service has more ports or source ranges than a TenantService may have.
	ReasonTooMuch = "TooMuch"
	// ReasonInvalid: an annotation or a field cannot be read. What the hub has of it stays.
	ReasonInvalid = "InvalidService"
	// ReasonHubRefused: the API server of the hub does not take the TenantService.
	ReasonHubRefused = "HubRefused"
	// ReasonClusterMismatch: another cluster has given signs of life by the credentials of this one, first.
	ReasonClusterMismatch = "ClusterMismatch"
)

const mismatch = "the hub knows another cluster by the credentials of this one, so nothing is written there; `lbd tenant rebind` in the hub lets this one take its place"

// The reasons of events.
const (
	eventRefused  = "HubRefused"
	eventAccepted = "HubAccepted"
)

// maxMessage bounds the message of a condition or an event, in bytes.
const maxMessage = 1024

// told is what the hub says of a Service: the first condition that is False, that of acceptance first,
// else that it is accepted. false: it has not said anything about what the object says now.
func told(h *HubService) (v1alpha1.Condition, bool) {
	accepted, found := v1alpha1.Condition{}, false
	var bad *v1alpha1.Condition
	for i := range h.Conditions {
		c := &h.Conditions[i]
		if c.ObservedGeneration != 0 && c.ObservedGeneration != h.Generation {
			continue
		}
		if c.Type == v1alpha1.ConditionAccepted {
			accepted, found = *c, true
		}
		if c.Status == v1alpha1.ConditionFalse && (bad == nil || c.Type == v1alpha1.ConditionAccepted) {
			bad = c
		}
	}
	switch {
	case bad != nil:
		return condition(v1alpha1.ConditionFalse, bad.Reason, bad.Message), true
	case found && (accepted.Reason == string(tenants.ReasonNoRoom) || accepted.Reason == string(tenants.ReasonNotAnnounced)): // it has addresses that lead nowhere
		return no(accepted.Reason, accepted.Message), true
	case found:
		if accepted.Message == "" {
			accepted.Message = served
		}
		return condition(accepted.Status, accepted.Reason, accepted.Message), true
	case len(h.Addresses) > 0 && len(h.Conditions) == 0:
		return condition(v1alpha1.ConditionTrue, string(tenants.ReasonAccepted), served), true
	}
	return v1alpha1.Condition{}, false
}

// served is what is said of a Service of which the hub says no more.
const served = "the hub serves the Service"

func condition(status v1alpha1.ConditionStatus, reason, message string) v1alpha1.Condition {
	return v1alpha1.Condition{Type: ConditionType, Status: status, Reason: reason, Message: clipped(message)}
}

// no is a condition that says why a Service is not served as it is written.
func no(reason, message string) v1alpha1.Condition {
	return condition(v1alpha1.ConditionFalse, reason, message)
}

// clipped is a text that the API server takes as a message.
func clipped(text string) string {
	text = strings.ToValidUTF8(text, "")
	if len(text) <= maxMessage {
		return text
	}
	end := maxMessage
	for !utf8.RuneStart(text[end]) {
		end--
	}
	return text[:end]
}

// alike tells whether two conditions say the same, whenever they began to.
func alike(a, b v1alpha1.Condition) bool {
	return a.Type == b.Type && a.Status == b.Status && a.Reason == b.Reason && a.Message == b.Message
}

// waits tells whether a Service is refused only until it has an address.
func waits(c v1alpha1.Condition) bool { return c.Reason == string(tenants.ReasonNoAddress) }

// eventOf is what people are told when the condition becomes another one: why a Service is refused, and
// that it is not any more. Other words for the same reason are no event: they may have counts in them.
func eventOf(before, now v1alpha1.Condition, addresses []string) *Event {
	switch {
	case before.Type == now.Type && before.Status == now.Status && before.Reason == now.Reason:
		return nil
	case now.Status != v1alpha1.ConditionTrue:
		return &Event{Reason: eventRefused, Message: clipped(now.Reason + ": " + now.Message), Warning: true}
	case before.Status != v1alpha1.ConditionTrue:
		return &Event{Reason: eventAccepted, Message: clipped(served + ": " + strings.Join(addresses, ", "))}
	}
	return nil
}

// complaint is what the hub says against a TenantNodes object; empty: nothing.
func (h *HubNodes) complaint() string {
	for _, c := range h.Conditions {
		if c.Status == v1alpha1.ConditionFalse && (c.ObservedGeneration == 0 || c.ObservedGeneration == h.Generation) {
			return clipped(c.Reason + ": " + c.Message)
		}
	}
	return ""
}

// encode is a spec as the API server is told it: what is unset or empty is not there.
func encode(spec any) []byte {
	data, err := json.Marshal(spec)
	if err != nil {
		return nil // of our own types all can be encoded
	}
	return data
}
