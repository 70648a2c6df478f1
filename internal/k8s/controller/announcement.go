package controller

import (
	"cmp"
	"encoding/json"
	"fmt"
	"maps"
	"net/netip"
	"regexp"
	"slices"
	"strings"
	"unicode"

	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime"

	"lbd.dev/lbd/api/v1alpha1"
	"lbd.dev/lbd/internal/model"
	"lbd.dev/lbd/internal/services"
	"lbd.dev/lbd/internal/shortlist"
)

// The reasons of the condition Announced beside those of model.Reason.
const (
	reasonNoAddress = "NoAddress" // the Service has no address
	reasonNoNode    = "NoNode"    // no node that is ready tells anything
	reasonNotListed = "NotListed" // no node tells anything of the address
)

// mostNames bounds the nodes that a message names.
const mostNames = 5

// mostText bounds a message, in bytes: what nodes say goes into each Service.
const mostText = 1024

// reasonOf is what the API server takes as the reason of a condition.
var reasonOf = regexp.MustCompile(`^[A-Za-z][A-Za-z0-9]{0,63}$`)

// sight is what one node says of the addresses of Services.
type sight struct {
	// partial: the node knows more addresses than its status lists.
	partial bool
	vips    map[string][]seen // by namespace/name of the Service
}

// seen is one address as a node sees it, in one way to announce it.
type seen struct {
	addr      netip.Addr
	bgp       bool
	announced bool
	iface     string
	owner     string
	reason    string
	detail    string // while it is not announced
	epoch     uint64
}

// convertSight keeps of a NodeStatus what a condition is made of.
func convertSight(obj runtime.Object) (sight, bool) {
	u, ok := obj.(*unstructured.Unstructured)
	if !ok {
		return sight{}, false
	}
	var s struct {
		Summary struct {
			VIPs int `json:"vips"`
		} `json:"summary"`
		VIPs []v1alpha1.VIPStatus `json:"vips"`
	}
	data, err := json.Marshal(map[string]any{"summary": u.Object["summary"], "vips": u.Object["vips"]})
	if err != nil || json.Unmarshal(data, &s) != nil {
		return sight{}, false
	}
	x := sight{partial: s.Summary.VIPs > len(s.VIPs), vips: map[string][]seen{}}
	for i := range s.VIPs {
		v := &s.VIPs[i]
		addr, err := netip.ParseAddr(v.Address)
		if err != nil || v.Kind != services.KindService || !reasonOf.MatchString(v.Reason) {
			continue
		}
		one := seen{addr: addr, bgp: v.Mode == "bgp", announced: v.Announced, iface: v.Interface, owner: v.Owner, reason: v.Reason, epoch: v.Epoch}
		if !v.Announced {
			one.detail = v.Detail
		}
		x.vips[v.Name] = append(x.vips[v.Name], one)
	}
	return x, true
}

// teller is what one node says of one address.
type teller struct {
	node string
	seen
}

// tellings are what the nodes that count say, by Service.
type tellings struct {
	nodes int
	// partial are the nodes whose statuses do not list all addresses.
	partial map[string]bool
	of      map[string][]teller // by namespace/name, each in the order of the nodes' names
}

func newTellings(nodes map[string]sight) *tellings {
	t := &tellings{nodes: len(nodes), partial: map[string]bool{}, of: map[string][]teller{}}
	for _, node := range slices.Sorted(maps.Keys(nodes)) {
		if nodes[node].partial {
			t.partial[node] = true
		}
		for name, list := range nodes[node].vips {
			for _, s := range list {
				t.of[name] = append(t.of[name], teller{node, s})
			}
		}
	}
	return t
}

// announcement is the condition Announced of a Service with these addresses, by what the nodes say of
// it. silent is why no advertisement is for it; "" if one is.
func announcement(name string, addrs []netip.Addr, t *tellings, silent string) v1alpha1.Condition {
	c := v1alpha1.Condition{Type: conditionAnnounced, Status: v1alpha1.ConditionFalse}
	switch {
	case len(addrs) == 0:
		c.Reason, c.Message = reasonNoAddress, "the Service has no address; if it cannot have one, an event AllocationFailed says why"
		return c
	case t.nodes == 0 && silent == "":
		c.Reason, c.Message = reasonNoNode, "no node announces anything: there is no NodeStatus of a Node that is ready"
		return c
	}
	var words []string
	for _, addr := range addrs {
		status, reason, text := announced(addr, t.of[name], t.partial)
		words = append(words, text)
		// What is wrong with one address is what the condition says.
		if len(words) == 1 || worse(status, c.Status) {
			c.Status, c.Reason = status, reason
		}
	}
	c.Message = clipped(strings.Join(words, "; "))
	if silent != "" && c.Status != v1alpha1.ConditionTrue {
		c.Status, c.Reason, c.Message = v1alpha1.ConditionFalse, model.ReasonNotAnnounced.String(), silent
	}
	return c
}

// clipped is a text of bounded length, without what is no letter, sign or space.
func clipped(text string) string {
	text = strings.Map(func(r rune) rune {
		if !unicode.IsPrint(r) {
			return ' '
		}
		return r
	}, text)
	const more = " ..."
	if len(text) <= mostText {
		return text
	}
	return strings.ToValidUTF8(text[:mostText-len(more)], "") + more
}

// worse orders the statuses of a condition: an address that nobody announces counts more than one
// of which nobody tells.
func worse(a, b v1alpha1.ConditionStatus) bool {
	rank := map[v1alpha1.ConditionStatus]int{v1alpha1.ConditionTrue: 0, conditionUnknown: 1, v1alpha1.ConditionFalse: 2}
	return rank[a] > rank[b]
}

// announced says who announces one address of a Service, or why nobody does.
func announced(addr netip.Addr, all []teller, partial map[string]bool) (status v1alpha1.ConditionStatus, reason, text string) {
	var owner *teller // at layer 2
	var routers []string
	var others []teller
	for i := range all {
		switch s := &all[i]; {
		case s.addr != addr:
		case s.announced && s.bgp:
			routers = append(routers, s.node)
		// A node that died, or was cut off, has not said that it announces no more.
		case s.announced && (owner == nil || s.epoch > owner.epoch):
			owner = s
		default:
			others = append(others, *s)
		}
	}
	var words []string
	if owner != nil {
		reason = model.ReasonOwner.String()
		words = append(words, fmt.Sprintf("%s announces %s on %s", owner.node, addr, cmp.Or(owner.iface, "its LAN")))
	}
	if len(routers) > 0 {
		reason = cmp.Or(reason, model.ReasonAdvertised.String())
		words = append(words, advertise(routers, addr))
	}
	if len(words) == 0 {
		return nobody(addr, others, partial)
	}
	return v1alpha1.ConditionTrue, reason, strings.Join(words, ", and ")
}

// advertise is the sentence about an address that nodes advertise to routers.
func advertise(nodes []string, addr netip.Addr) string {
	switch n := len(nodes); {
	case n == 1:
		return fmt.Sprintf("%s advertises %s by BGP", nodes[0], addr)
	case n <= mostNames:
		return fmt.Sprintf("%s advertise %s by BGP", names(nodes), addr)
	default:
		return fmt.Sprintf("%d nodes advertise %s by BGP", n, addr)
	}
}

// nobody says why no node announces an address. The status of an owner with very many addresses may
// leave it out; then the others name it.
func nobody(addr netip.Addr, others []teller, partial map[string]bool) (status v1alpha1.ConditionStatus, reason, text string) {
	by := map[string][]string{} // reason: nodes
	detail := map[string]string{}
	for _, t := range others {
		if t.owner != t.node && partial[t.owner] && !t.bgp {
			return v1alpha1.ConditionTrue, model.ReasonOwner.String(), fmt.Sprintf("%s announces %s, as %s says", t.owner, addr, t.node)
		}
		by[t.reason] = append(by[t.reason], t.node)
		detail[t.reason] = cmp.Or(detail[t.reason], t.detail)
	}
	if len(by) == 0 {
		text = fmt.Sprintf("no node says anything of %s", addr)
		if len(partial) > 0 {
			text += fmt.Sprintf("; a status lists %d addresses at most", v1alpha1.MaxNodeStatusVIPs)
		}
		return conditionUnknown, reasonNotListed, text
	}
	// The reason of most nodes is first.
	reasons := slices.SortedFunc(maps.Keys(by), func(a, b string) int { return cmp.Or(len(by[b])-len(by[a]), strings.Compare(a, b)) })
	var words []string
	for _, r := range reasons {
		w := r + " on " + names(by[r])
		if detail[r] != "" {
			w += " (" + detail[r] + ")"
		}
		words = append(words, w)
	}
	return v1alpha1.ConditionFalse, reasons[0], fmt.Sprintf("nobody announces %s: %s", addr, strings.Join(words, ", "))
}

// names joins the names of nodes, of many only the first ones. A node may be there twice, since it
// may announce an address in two ways.
func names(nodes []string) string {
	nodes = slices.Compact(nodes)
	if len(nodes) > mostNames {
		return shortlist.Join(nodes, mostNames)
	}
	if n := len(nodes); n > 1 {
		return strings.Join(nodes[:n-1], ", ") + " and " + nodes[n-1]
	}
	return nodes[0]
}
