package interop_test

import (
	"encoding/json"
	"fmt"
	"maps"
	"slices"
	"strconv"
	"strings"
	"testing"
	"time"

	"lbd.dev/lbd/internal/k8s/apitest"
	"lbd.dev/lbd/tests/interop"
)

const ours = "lbd.dev/v1alpha1/"

type object = map[string]any

func named(namespace, name string, spec object) object {
	meta := object{"name": name}
	if namespace != "" {
		meta["namespace"] = namespace
	}
	return object{"metadata": meta, "spec": spec}
}

// cluster is an API server with one node and what it advertises.
type cluster struct {
	*apitest.Server
	node string
}

func newCluster(t *testing.T, node, address string) *cluster {
	c := &cluster{node: node, Server: apitest.New(t, map[string]string{
		"v1/services": "Service", "v1/nodes": "Node", "discovery.k8s.io/v1/endpointslices": "EndpointSlice",
		ours + "ipaddresspools": "IPAddressPool", ours + "l2advertisements": "L2Advertisement", ours + "bgpadvertisements": "BGPAdvertisement",
		ours + "bgppeers": "BGPPeer", ours + "bfdprofiles": "BFDProfile", ours + "communities": "Community", ours + "virtualips": "VirtualIP",
	})}
	n := named("", node, object{})
	n["status"] = object{
		"conditions": []object{{"type": "Ready", "status": "True"}}, "addresses": []object{{"type": "InternalIP", "address": address}},
	}
	c.Put("v1/nodes", n)
	return c
}

// service has a load balancer address, and an endpoint that is ready or not.
func (c *cluster) service(name, address string, ready bool) {
	s := named("default", name, object{"type": "LoadBalancer", "loadBalancerClass": "lbd.dev/lbd"})
	s["status"] = object{"loadBalancer": object{"ingress": []object{{"ip": address}}}}
	c.Put("v1/services", s)
	e := named("default", name+"-1", nil)
	e["metadata"].(object)["labels"] = object{"kubernetes.io/service-name": name}
	e["addressType"] = "IPv4"
	e["endpoints"] = []object{{"addresses": []string{"10.1.0.1"}, "nodeName": c.node, "conditions": object{"ready": ready, "serving": ready}}}
	c.Put("discovery.k8s.io/v1/endpointslices", e)
}

// nodeASN is the AS_PATH of what a router has from a node itself.
var nodeASN = strconv.Itoa(interop.NodeASN)

// told are the prefixes that a router has, each with its communities.
func told(t *testing.T, r *interop.FRR) (string, error) {
	text, err := r.Show(t.Context(), "show bgp ipv4 unicast json")
	if err != nil {
		return "", err
	}
	var table struct {
		Routes map[string][]struct {
			Valid bool   `json:"valid"`
			Path  string `json:"path"`
		} `json:"routes"`
	}
	if err := json.Unmarshal([]byte(text), &table); err != nil {
		return "", fmt.Errorf("%w in %q", err, text)
	}
	var out []string
	for _, p := range slices.Sorted(maps.Keys(table.Routes)) {
		// The other router tells of it too, by way of the core; which comes first in the
		// list is chance.
		direct := false
		for _, r := range table.Routes[p] {
			direct = direct || r.Path == nodeASN
		}
		if !strings.HasPrefix(p, "10.99.") || !direct {
			continue
		}
		text, err := r.Show(t.Context(), "show bgp ipv4 unicast "+p+" json")
		if err != nil {
			return "", err
		}
		var route struct {
			Paths []struct {
				ASPath struct {
					String string `json:"string"`
				} `json:"aspath"`
				Community struct {
					String string `json:"string"`
				} `json:"community"`
				LargeCommunity struct {
					String string `json:"string"`
				} `json:"largeCommunity"`
			} `json:"paths"`
		}
		if err := json.Unmarshal([]byte(text), &route); err != nil {
			return "", fmt.Errorf("%w in %q", err, text)
		}
		for _, r := range route.Paths {
			if r.ASPath.String == nodeASN {
				out = append(out, strings.TrimSpace(p+" "+r.Community.String+" "+r.LargeCommunity.String))
			}
		}
	}
	return strings.Join(out, ", "), nil
}

// TestAdverts: two advertisements tell two routers different communities of one
// address, and one prefix stands for two addresses until both have left.
func TestAdverts(t *testing.T) {
	t.Parallel()
	need(t)
	n, err := interop.NewTwin(t.Context(), bin, 1)
	if err != nil {
		t.Fatal(err)
	}
	c := newCluster(t, n.Nodes[0].Name, n.Nodes[0].IP4.String())
	for i, tor := range n.ToRs {
		c.Put(ours+"bgppeers", named("", fmt.Sprintf("tor%d", i+1), object{"myASN": interop.NodeASN, "peerASN": interop.ToRASN + i, "peerAddress": tor.IP4.String(), "families": []string{"ipv4"}}))
	}
	c.Put(ours+"ipaddresspools", named("", "hosts", object{"addresses": []string{"10.99.0.0/28"}}))
	c.Put(ours+"ipaddresspools", named("", "prefix", object{"addresses": []string{"10.99.0.192/27"}}))
	advert := func(name, pool string, spec object) {
		spec["ipAddressPools"] = []string{pool}
		c.Put(ours+"bgpadvertisements", named("", name, spec))
	}
	advert("one", "hosts", object{"peers": []string{"tor1"}, "communities": []string{"64512:1", "large:64512:7:1"}})
	advert("two", "hosts", object{"peers": []string{"tor2"}, "communities": []string{"64512:2"}})
	advert("both", "hosts", object{"communities": []string{"64512:9"}})
	advert("prefix", "prefix", object{"aggregationLength": 28, "communities": []string{"64512:3"}})
	c.service("web", "10.99.0.1", true)
	c.service("a", "10.99.0.193", true)
	c.service("b", "10.99.0.194", true)
	c.service("other", "10.99.0.210", false) // in another prefix, without an endpoint

	f, err := interop.StartCluster(t.Context(), n, strings.TrimPrefix(c.Config().Host, "http://"))
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		keepLogs(t, n, f.Logs)
		if err := f.Close(); err != nil {
			t.Error(err)
		}
	})
	const web1, web2, prefix = "10.99.0.1/32 64512:1 64512:9 64512:7:1", "10.99.0.1/32 64512:2 64512:9", ", 10.99.0.192/28 64512:3"
	expect := func(what string, want ...string) {
		t.Helper()
		for i, r := range f.ToRFRR {
			if err := interop.Eventually(t.Context(), time.Minute, what, func() error {
				got, err := told(t, r)
				if err == nil && got != want[i] {
					err = fmt.Errorf("tor%d was told %q, want %q", i+1, got, want[i])
				}
				return err
			}); err != nil {
				t.Fatal(err)
			}
		}
	}
	expect("all", web1+prefix, web2+prefix)
	c.service("a", "10.99.0.193", false)
	interop.Pause(t.Context(), 2*time.Second)
	expect("one of two is left", web1+prefix, web2+prefix)
	c.service("b", "10.99.0.194", false)
	expect("none of two is left", web1, web2)
	c.service("a", "10.99.0.193", true)
	expect("one is back", web1+prefix, web2+prefix)
	advert("two", "hosts", object{"peers": []string{"tor2"}, "communities": []string{"64512:4"}})
	expect("another community", web1+prefix, "10.99.0.1/32 64512:4 64512:9"+prefix)
	c.Delete(ours+"bgpadvertisements", "", "both")
	expect("one advertisement less", "10.99.0.1/32 64512:1 64512:7:1"+prefix, "10.99.0.1/32 64512:4"+prefix)
}
