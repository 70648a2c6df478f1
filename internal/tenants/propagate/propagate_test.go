package propagate

import (
	"encoding/json"
	"fmt"
	"maps"
	"slices"
	"strings"
	"testing"

	"lbd.dev/lbd/api/v1alpha1"
	"lbd.dev/lbd/internal/model"
	"lbd.dev/lbd/internal/tenants"
)

var key = model.Key{Namespace: "default", Name: "web"}

// TestSpecs: what a Service becomes in the hub, or why it becomes nothing.
func TestSpecs(t *testing.T) {
	many := make([]Port, 101)
	for i := range many {
		many[i] = Port{Protocol: "TCP", Port: int32(i + 1), NodePort: int32(30000 + i)}
	}
	for name, c := range map[string]struct {
		change func(*Service)
		want   string // the spec, as JSON, or reason and message of the condition
	}{
		"plain": {func(*Service) {}, `{"ports":[{"port":80,"nodePort":30080,"protocol":"TCP"}],"families":["ipv4"],"affinity":"connection","source":"vip"}`},
		"all": {func(s *Service) {
			s.Families = []v1alpha1.AddressFamily{v1alpha1.FamilyIPv6, v1alpha1.FamilyIPv4}
			s.Ports = append(s.Ports, Port{Protocol: "UDP", Port: 53, NodePort: 30053})
			s.Local, s.HealthCheckNodePort, s.ClientIP = true, 31999, true
			s.SourceRanges = []string{"192.0.2.7/24", "192.0.2.0/24", " 10.0.0.0/8 "}
			s.Annotations = map[string]string{AnnotationAddresses: "198.51.100.7, 2001:db8::7", AnnotationPool: "public", AnnotationSource: "client"}
		}, `{"ports":[{"port":80,"nodePort":30080,"protocol":"TCP"},{"port":53,"nodePort":30053,"protocol":"UDP"}],"families":["ipv6","ipv4"],` +
			`"addresses":["198.51.100.7","2001:db8::7"],"pool":"public","local":{"healthCheckNodePort":31999,"nodes":[{"name":"a","endpoints":2}]},` +
			`"affinity":"client","source":"client","allowedSources":["10.0.0.0/8","192.0.2.0/24"]}`},
		"the address of the field": {func(s *Service) { s.LoadBalancerIP = "198.51.100.7" },
			`{"ports":[{"port":80,"nodePort":30080,"protocol":"TCP"}],"families":["ipv4"],"addresses":["198.51.100.7"],"affinity":"connection","source":"vip"}`},
		"no NodePort": {func(s *Service) { s.Ports[0].NodePort = 0 },
			"NoNodePort: port 80 has no NodePort, by which a hub reaches the nodes: set spec.allocateLoadBalancerNodePorts to true"},
		"no port of checks": {func(s *Service) { s.Local = true }, "NoNodePort: the Service has externalTrafficPolicy Local and no healthCheckNodePort"},
		"SCTP":              {func(s *Service) { s.Ports[0].Protocol = "SCTP" }, "ProtocolNotSupported: port 80 has the protocol SCTP; a hub serves TCP and UDP"},
		"too many ports":    {func(s *Service) { s.Ports = many }, "TooMuch: the Service has 101 ports; a hub serves 100 at most"},
		"no address": {func(s *Service) { s.Annotations = map[string]string{AnnotationAddresses: "198.51.100.7,web"} },
			`InvalidService: annotation lbd.dev/loadBalancerIPs: "web" is not an IP address; several are separated by commas`},
		"no source": {func(s *Service) { s.Annotations = map[string]string{AnnotationSource: "keep"} },
			`InvalidService: annotation lbd.dev/source: "keep" is neither vip nor client`},
		"no prefix": {func(s *Service) { s.SourceRanges = []string{"10.0.0.0"} }, `InvalidService: spec.loadBalancerSourceRanges: "10.0.0.0" is not a prefix`},
		"two of a family": {func(s *Service) { s.LoadBalancerIP = "198.51.100.7,198.51.100.8" },
			`InvalidService: spec.addresses[1]: "198.51.100.8" is the second of its family`},
		"a global name": {func(s *Service) { s.Annotations = map[string]string{AnnotationGlobal: " shop ", AnnotationWeight: "0"} },
			`{"ports":[{"port":80,"nodePort":30080,"protocol":"TCP"}],"families":["ipv4"],"affinity":"connection","source":"vip","globalName":"shop","weight":0}`},
		"a weight alone": {func(s *Service) { s.Annotations = map[string]string{AnnotationWeight: "half"} },
			`{"ports":[{"port":80,"nodePort":30080,"protocol":"TCP"}],"families":["ipv4"],"affinity":"connection","source":"vip"}`},
		"no weight": {func(s *Service) { s.Annotations = map[string]string{AnnotationGlobal: "shop", AnnotationWeight: "101"} },
			`InvalidService: annotation lbd.dev/weight: "101" is no number from 0 to 100`},
		"no global name":    {func(s *Service) { s.Annotations = map[string]string{AnnotationGlobal: "a.b"} }, "InvalidService: spec.globalName: "},
		"no name of a pool": {func(s *Service) { s.Annotations = map[string]string{AnnotationPool: "a b"} }, "InvalidService: spec.pool: "},
	} {
		t.Run(name, func(t *testing.T) {
			w := newWorld()
			s := web()
			c.change(s)
			w.Services[key] = s
			w.Endpoints[key] = []v1alpha1.TenantEndpoints{{Name: "a", Endpoints: 2}}
			w.settle(t)
			h, made := w.HubServices["default.web"]
			got := s.Condition.Reason + ": " + s.Condition.Message
			if made {
				data, _ := json.Marshal(h.Spec)
				got = string(data)
			}
			if got != c.want && !(strings.HasSuffix(c.want, ": ") && strings.HasPrefix(got, c.want)) {
				t.Errorf("got  %s\nwant %s", got, c.want)
			}
		})
	}
}

// TestClasses: which Services are propagated, and what remains of one that is not any more.
func TestClasses(t *testing.T) {
	w := newWorld()
	for name, class := range map[string]string{"ours": "lbd.dev/hub", "other": "lbd.dev/lbd", "none": ""} {
		s := web()
		s.Class = class
		w.Services[model.Key{Namespace: "default", Name: name}] = s
	}
	w.settle(t)
	names := func() string { return fmt.Sprint(slices.Sorted(maps.Keys(w.HubServices))) }
	if got := names(); got != "[default.ours]" {
		t.Errorf("propagated %s", got)
	}
	w.Classless = true
	w.settle(t)
	if got := names(); got != "[default.none default.ours]" {
		t.Errorf("with --classless %s", got)
	}
	w.judge("default.none", []string{"198.51.100.1"}, accepted("True", "Accepted", "served"))
	w.settle(t)
	none := w.Services[model.Key{Namespace: "default", Name: "none"}]
	if fmt.Sprintf("%v %s", none.Ingress, none.Condition.Status) != "[198.51.100.1] True" {
		t.Errorf("served: %+v", none)
	}
	w.Classless = false
	w.settle(t)
	if len(none.Ingress) > 0 || none.Condition.Type != "" || names() != "[default.ours]" {
		t.Errorf("without --classless it has %v, %+v, and the hub %s", none.Ingress, none.Condition, names())
	}
	// One that is of another type now is in no list of Services any more.
	w.Had = map[model.Key]string{key: "u9"}
	if out := Step(&w.Input); len(out.Statuses) != 1 || out.Statuses[0].UID != "u9" || out.Statuses[0].Condition != nil || out.Statuses[0].Ingress != nil {
		t.Errorf("%+v", out.Statuses)
	}
}

// TestGivesUpItsOwn: of a Service that is not ours any more goes what this hub gave it, and nothing that
// another controller, or the agent of another hub, wrote.
func TestGivesUpItsOwn(t *testing.T) {
	given := HubService{UID: "h", Addresses: []string{"192.0.2.1"}}
	for name, c := range map[string]struct {
		hub       *HubService
		had       string
		ingress   string
		condition string // its reason
		want      string // the status, and then what is deleted in the hub
	}{
		"its own":                    {&given, "u1", "192.0.2.1", "Accepted", "[] -; "},
		"its own, written elsewhere": {&given, "u1", "203.0.113.1", "Accepted", "stays -; h"},
		"refused until now":          {&HubService{UID: "h"}, "u1", "203.0.113.1", "TenantLimit", "stays -; h"},
		"the hub has lost it":        {nil, "u1", "192.0.2.1", "Accepted", "stays -; "},
		"of another hub":             {nil, "", "203.0.113.1", "Accepted", "; "},
		"made anew for another hub":  {nil, "u0", "203.0.113.1", "Accepted", "; "},
		"without a condition":        {&given, "", "203.0.113.1", "", "; h"},
	} {
		t.Run(name, func(t *testing.T) {
			w := newWorld()
			s := web()
			s.Class, s.Ingress = "other", []string{c.ingress}
			if c.condition != "" {
				s.Condition = condition("True", c.condition, "x")
			}
			w.Services[key] = s
			if c.hub != nil {
				w.HubServices["default.web"] = *c.hub
			}
			if c.had != "" {
				w.Had = map[model.Key]string{key: c.had}
			}
			out, got := Step(&w.Input), ""
			for _, st := range out.Statuses {
				got = "stays"
				if st.Ingress != nil {
					got = fmt.Sprint(*st.Ingress)
				}
				if st.Condition == nil {
					got += " -"
				}
			}
			got += "; "
			for _, x := range out.Services {
				got += x.UID
			}
			if got != c.want {
				t.Errorf("got %q, want %q", got, c.want)
			}
			w.Had = nil
			w.settle(t)
			if len(w.HubServices) > 0 {
				t.Error("the hub keeps the object")
			}
		})
	}
}

// TestStatus: what the hub says of a Service, in the tenant, and which of it is an event.
func TestStatus(t *testing.T) {
	limit := accepted("False", "TenantLimit", "with it the Tenant shop has 4 addresses of 3 that it may have")
	ok := accepted("True", "Accepted", "the hub serves it")
	stale := limit
	stale.ObservedGeneration = 7
	for name, c := range map[string]struct {
		ingress   []string
		condition v1alpha1.Condition // before
		addresses []string
		said      []v1alpha1.Condition
		want      string // ingress, condition, event
	}{
		"not judged yet":         {[]string{"192.0.2.1"}, v1alpha1.Condition{}, nil, nil, "[192.0.2.1]; : ; <nil>"},
		"accepted":               {nil, v1alpha1.Condition{}, []string{"192.0.2.1"}, []v1alpha1.Condition{ok}, "[192.0.2.1]; Accepted: the hub serves it; &{HubAccepted the hub serves the Service: 192.0.2.1 false}"},
		"without conditions":     {nil, v1alpha1.Condition{}, []string{"192.0.2.1"}, nil, "[192.0.2.1]; Accepted: the hub serves the Service; &{HubAccepted the hub serves the Service: 192.0.2.1 false}"},
		"refused":                {nil, v1alpha1.Condition{}, nil, []v1alpha1.Condition{limit}, "[]; TenantLimit: " + limit.Message + "; &{HubRefused TenantLimit: " + limit.Message + " true}"},
		"refused, as before":     {nil, no("TenantLimit", limit.Message), nil, []v1alpha1.Condition{limit}, "[]; TenantLimit: " + limit.Message + "; <nil>"},
		"refused, in new words":  {nil, no("TenantLimit", "with it the Tenant shop has 5 addresses"), nil, []v1alpha1.Condition{limit}, "[]; TenantLimit: " + limit.Message + "; <nil>"},
		"refused, served once":   {[]string{"192.0.2.1"}, condition("True", "Accepted", "x"), nil, []v1alpha1.Condition{limit}, "[]; TenantLimit: " + limit.Message + "; &{HubRefused TenantLimit: " + limit.Message + " true}"},
		"about an older one":     {[]string{"192.0.2.1"}, condition("True", "Accepted", "x"), []string{"192.0.2.1"}, []v1alpha1.Condition{stale}, "[192.0.2.1]; Accepted: x; <nil>"},
		"no message":             {nil, v1alpha1.Condition{}, []string{"192.0.2.1"}, []v1alpha1.Condition{accepted("True", "Accepted", "")}, "[192.0.2.1]; Accepted: the hub serves the Service; &{HubAccepted the hub serves the Service: 192.0.2.1 false}"},
		"the pool is full":       {nil, v1alpha1.Condition{}, nil, []v1alpha1.Condition{accepted("True", "Accepted", ""), {Type: "AddressAssigned", Status: "False", Reason: "AddressPending", Message: "no free address"}}, "[]; AddressPending: no free address; &{HubRefused AddressPending: no free address true}"},
		"not accepted":           {nil, v1alpha1.Condition{}, nil, []v1alpha1.Condition{{Type: "AddressAssigned", Status: "False", Reason: "NotAccepted", Message: "see"}, limit}, "[]; TenantLimit: " + limit.Message + "; &{HubRefused TenantLimit: " + limit.Message + " true}"},
		"served but for one":     {[]string{"192.0.2.1"}, condition("True", "Accepted", "x"), []string{"192.0.2.1"}, []v1alpha1.Condition{ok, {Type: "Ready", Status: "False", Reason: "NoNode", Message: "none"}}, "[192.0.2.1]; NoNode: none; &{HubRefused NoNode: none true}"},
		"somebody wrote it":      {[]string{"203.0.113.9"}, condition("True", "Accepted", "the hub serves it"), []string{"192.0.2.1"}, []v1alpha1.Condition{ok}, "[192.0.2.1]; Accepted: the hub serves it; <nil>"},
		"accepted, in new words": {nil, condition("True", "Accepted", "x"), nil, []v1alpha1.Condition{ok}, "[]; Accepted: the hub serves it; <nil>"},
	} {
		t.Run(name, func(t *testing.T) {
			w := newWorld()
			s := web()
			w.Services[key] = s
			w.settle(t)
			s.Ingress, s.Condition = c.ingress, c.condition
			w.judge("default.web", c.addresses, c.said...)
			out := w.settle(t)
			var event *Event
			if len(out.Statuses) > 0 {
				event = out.Statuses[0].Event
			}
			if out.Counts.Served+out.Counts.Refused+out.Counts.Waiting != 1 || out.Counts.Served != min(len(s.Ingress), 1) && len(c.said) > 0 {
				t.Errorf("counts %+v", out.Counts)
			}
			if got := fmt.Sprintf("%v; %s: %s; %v", s.Ingress, s.Condition.Reason, s.Condition.Message, event); got != c.want {
				t.Errorf("got  %s\nwant %s", got, c.want)
			}
		})
	}
}

// TestBadInputKeepsTheAddress: what cannot be read any more costs a Service neither its address nor the
// ranges that may reach it, and what else has changed counts.
func TestBadInputKeepsTheAddress(t *testing.T) {
	w := newWorld()
	s := web()
	s.SourceRanges = []string{"10.0.0.0/8"}
	s.Annotations = map[string]string{AnnotationPool: "public", AnnotationGlobal: "shop", AnnotationWeight: "30"}
	w.Services[key] = s
	w.settle(t)
	w.judge("default.web", []string{"192.0.2.1"}, accepted("True", "Accepted", "x"))
	w.settle(t)
	s.SourceRanges, s.Ports[0].NodePort = []string{"nowhere"}, 30081
	s.Annotations = map[string]string{AnnotationPool: "public", AnnotationGlobal: "shop", AnnotationWeight: "all"}
	w.settle(t)
	spec := w.HubServices["default.web"].Spec
	if spec == nil || fmt.Sprintf("%v %s %d %s %d", spec.AllowedSources, spec.Pool, spec.Ports[0].NodePort, spec.GlobalName, *spec.Weight) != "[10.0.0.0/8] public 30081 shop 30" {
		t.Errorf("the hub has %+v", spec)
	}
	if s.Condition.Reason != ReasonInvalid || fmt.Sprint(s.Ingress) != "[192.0.2.1]" {
		t.Errorf("the Service has %v, %+v", s.Ingress, s.Condition)
	}
	// So it is with what can be read and breaks a rule.
	s.SourceRanges, s.Ports[0].NodePort, s.Annotations = nil, 30082, map[string]string{AnnotationPool: "a b"}
	w.settle(t)
	spec = w.HubServices["default.web"].Spec
	if fmt.Sprintf("%v %s %d", spec.AllowedSources, spec.Pool, spec.Ports[0].NodePort) != "[10.0.0.0/8] public 30082" || s.Condition.Reason != ReasonInvalid {
		t.Errorf("the hub has %+v, the Service %+v", spec, s.Condition)
	}
	// Without a NodePort the hub would lead clients to a port that any other Service may get.
	s.Ports[0].NodePort = 0
	w.settle(t)
	if len(w.HubServices) != 0 || len(s.Ingress) != 0 {
		t.Errorf("the hub has %v, the Service %v", w.HubServices, s.Ingress)
	}
}

// TestRefusedByTheServer: a TenantService that the API server of the hub does not take, or not as it is to
// be, is no silence and costs no address.
func TestRefusedByTheServer(t *testing.T) {
	for name, c := range map[string]struct {
		hub     *HubService
		ingress []string
		want    string // what the Service has then
		counts  Counts
	}{
		"new":                       {nil, nil, "[]", Counts{Refused: 1}},
		"gone with its namespace":   {nil, []string{"192.0.2.1"}, "[192.0.2.1]", Counts{Served: 1}},
		"a change":                  {&HubService{UID: "h", Addresses: []string{"192.0.2.1"}}, []string{"192.0.2.1"}, "[192.0.2.1]", Counts{Served: 1}},
		"a change, not judged":      {&HubService{UID: "h"}, []string{"192.0.2.1"}, "[192.0.2.1]", Counts{Served: 1}},
		"a change, addressed since": {&HubService{UID: "h", Addresses: []string{"192.0.2.1"}}, nil, "[192.0.2.1]", Counts{Served: 1}},
	} {
		t.Run(name, func(t *testing.T) {
			w := newWorld()
			s := web()
			s.Ingress = c.ingress
			w.Services[key] = s
			if c.hub != nil {
				w.HubServices["default.web"] = *c.hub
			}
			w.Refused = map[model.Key]string{key: "exceeded quota"}
			out := Step(&w.Input)
			if len(out.Services) != 1 || len(out.Statuses) != 1 || out.Statuses[0].Condition.Reason != ReasonHubRefused || out.Statuses[0].Event == nil {
				t.Fatalf("%s", shown(out))
			}
			out.Services = nil // it is refused
			w.apply(t, out)
			if got := fmt.Sprint(s.Ingress); got != c.want || out.Counts != c.counts {
				t.Errorf("it has %s, %+v; want %s, %+v", got, out.Counts, c.want, c.counts)
			}
			if again := Step(&w.Input); len(again.Statuses) > 0 {
				t.Errorf("told again: %s", shown(again))
			}
		})
	}
}

// TestToldOfAddressesInVain: the hub has accepted the Service and given an address, which nothing is forwarded for,
// or nobody announces.
func TestToldOfAddressesInVain(t *testing.T) {
	for _, reason := range []tenants.Reason{tenants.ReasonNoRoom, tenants.ReasonNotAnnounced} {
		h := &HubService{Generation: 1, Conditions: []v1alpha1.Condition{
			{Type: v1alpha1.ConditionAccepted, Status: v1alpha1.ConditionTrue, Reason: string(reason), Message: "why", ObservedGeneration: 1},
			{Type: v1alpha1.ConditionAddressAssigned, Status: v1alpha1.ConditionTrue, Reason: "Assigned", ObservedGeneration: 1},
		}}
		if c, ok := told(h); !ok || c.Status != v1alpha1.ConditionFalse || c.Reason != string(reason) || c.Message != "why" {
			t.Errorf("%+v, %t", c, ok)
		}
	}
}
