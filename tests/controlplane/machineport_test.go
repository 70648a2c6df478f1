package controlplane_test

import (
	"bufio"
	"context"
	"fmt"
	"net"
	"net/netip"
	"slices"
	"strings"
	"testing"
	"time"

	"lbd.dev/lbd/tests/controlplane"
	"lbd.dev/lbd/tests/lab"
	"lbd.dev/lbd/tests/lab/measure"
)

// portManifest is a MachineLoadBalancer whose Machines listen on another port.
const portManifest = `apiVersion: lbd.dev/v1alpha1
kind: MachineLoadBalancer
metadata: {name: prod, namespace: default}
spec:
  clusterRef: {name: %s}
  addresses: [%s]
  port: {port: 443, machinePort: 6443}
  drain: {timeout: 10s}
`

// portVIP and portVIP6 are where clients connect.
var portVIP, portVIP6 = netip.MustParseAddrPort("10.77.0.210:443"), netip.MustParseAddrPort("[fd77::210]:443")

// noneFailed fails the test if an attempt that began in [from, to) failed, or if there was none.
func noneFailed(t *testing.T, a *controlplane.Asker, from, to measure.Time) {
	t.Helper()
	time.Sleep(time.Second) // what has begun ends
	r := a.Reach(from, to)
	t.Logf("%d of %d new connections failed %v; answered by %v", r.Failed, r.Attempts, r.Errors, a.Servers(from, to))
	if r.Failed > 0 || r.Attempts == 0 {
		t.Errorf("%d of %d new connections failed: %v", r.Failed, r.Attempts, r.Errors)
	}
}

// TestMachinePort: two hosts that are no Machines forward connections to Machines that run no lbd,
// and listen on another port than clients connect to. Routers are told of the address too, once that is
// asked for. The endpoint is there before any Machine. A
// Machine that is deleted is drained, held meanwhile, and loses no client; one that dies is out.
func TestMachinePort(t *testing.T) {
	m := newMachines(t, controlplane.MachineOptions{Nodes: 2, Managers: 2, Strangers: true, Section: "balancer: true"})
	must(t, m.AddBackends(t.Context(), 3), m.StartSteward(t.Context()))
	must(t, m.CP.Apply(t.Context(), fmt.Sprintf(portManifest, m.Machines.Name, portVIP.Addr().String()+`, "`+portVIP6.Addr().String()+`"`)))
	statusIs(t, m, "default", "prod", ".status.url", "https://"+portVIP.String())
	statusIs(t, m, "default", "prod", `.status.conditions[?(@.type=="Ready")].status`, "False")
	told(t, m.Machines, portVIP.Addr().String())
	for _, n := range m.Backends {
		must(t, m.Machines.Create(t.Context(), controlplane.OfNode(n, true)), m.Machines.SetAddresses(t.Context(), controlplane.MachineOf(n), n.IP4, n.IP6))
	}
	took := statusIs(t, m, "default", "prod", `.status.conditions[?(@.type=="Ready")].status`, "True")
	statusIs(t, m, "default", "prod", ".status.status", "3 of 3 members healthy")
	t.Logf("ready %v after the Machines were there", took.Round(10*time.Millisecond))
	statusIs(t, m, "default", "prod", `.status.conditions[?(@.type=="Reachable")].status`, "True") // both addresses
	asker, six := m.Ask(t.Context(), m.Client, portVIP), m.Ask(t.Context(), m.Client, portVIP6)
	t.Cleanup(asker.Stop)
	t.Cleanup(six.Stop)
	must(t, controlplane.Eventually(t.Context(), time.Minute, "each Machine answers", func() error {
		if got, at6 := asker.Servers(0, measure.Now()), six.Servers(0, measure.Now()); len(got) != 3 || len(at6) != 3 {
			return fmt.Errorf("these do: %v, %v", got, at6)
		}
		return nil
	}))
	from := measure.Now()
	t.Run("owner", func(t *testing.T) { movesBalancer(t, m, asker) })
	t.Run("bgp", func(t *testing.T) { routersFollow(t, m, asker) })
	t.Run("deleted", func(t *testing.T) { deletesServer(t, m, asker, m.Backends[0]) })
	noneFailed(t, six, from, measure.Now())
	t.Run("dies", func(t *testing.T) { losesServer(t, m, m.Backends[1], asker, six) })
	from = measure.Now()
	t.Run("gone", func(t *testing.T) {
		name := controlplane.MachineOf(m.Backends[1])
		must(t, m.Machines.Annotate(t.Context(), name, controlplane.DrainHook, nil), m.Machines.Delete(t.Context(), name), m.Machines.Finish(t.Context(), name))
		statusIs(t, m, "default", "prod", ".status.status", "1 of 1 members healthy")
	})
	noneFailed(t, six, from, measure.Now())
}

// movesBalancer drains the host that has the address.
func movesBalancer(t *testing.T, m *controlplane.MachineLab, a *controlplane.Asker) {
	owner := portOwner(t, m, nil)
	from := measure.Now()
	must(t, m.System.Drain(t.Context(), m.Lab, owner))
	if now := portOwner(t, m, owner); now == owner {
		t.Errorf("%s still has the address", owner.Name)
	}
	must(t, m.System.Undrain(t.Context(), m.Lab, owner))
	statusIs(t, m, "default", "prod", ".status.status", "3 of 3 members healthy")
	noneFailed(t, a, from, measure.Now())
}

// routersFollow has the address advertised by BGP too: routers lead to the host that has it, and to no other.
func routersFollow(t *testing.T, m *controlplane.MachineLab, a *controlplane.Asker) {
	router, err := controlplane.NewRouter(t.Context(), m.Lab)
	must(t, err)
	for _, n := range m.Nodes {
		must(t, m.AddObjects(n, router.Peer()))
	}
	_, err = m.CP.Kubectl(t.Context(), "patch", "machineloadbalancer", "prod", "--type=merge", "-p", `{"spec":{"advertise":{"l2":{},"bgp":{}}}}`)
	must(t, err)
	owner := portOwner(t, m, nil)
	must(t, router.Leads(t.Context(), portVIP.Addr(), owner))
	routed := m.Ask(t.Context(), router.Host, portVIP)
	t.Cleanup(routed.Stop)
	from := measure.Now()
	must(t, m.System.Drain(t.Context(), m.Lab, owner))
	must(t, router.Leads(t.Context(), portVIP.Addr(), portOwner(t, m, owner)))
	must(t, m.System.Undrain(t.Context(), m.Lab, owner))
	statusIs(t, m, "default", "prod", ".status.status", "3 of 3 members healthy")
	statusIs(t, m, "default", "prod", `.status.conditions[?(@.type=="Reachable")].status`, "True")
	noneFailed(t, a, from, measure.Now())
	noneFailed(t, routed, from, measure.Now())
}

// portOwner waits until a host has the address, another one than that if it is given.
func portOwner(t *testing.T, m *controlplane.MachineLab, not *lab.Node) (owner *lab.Node) {
	t.Helper()
	must(t, controlplane.Eventually(t.Context(), time.Minute, "one host has "+portVIP.String(), func() error {
		var names []string
		for _, n := range m.Nodes {
			st, err := m.System.Status(t.Context(), m.Lab, n)
			if err != nil {
				return err
			}
			for _, v := range st.VIPs {
				if v.Address == portVIP.Addr() && v.Reason == "Owner" {
					names, owner = append(names, n.Name), n
				}
			}
		}
		if len(names) != 1 || owner == not {
			return fmt.Errorf("it is on %v", names)
		}
		return nil
	}))
	return owner
}

// deletesServer deletes a Machine, which is drained and held, and comes to its end.
func deletesServer(t *testing.T, m *controlplane.MachineLab, a *controlplane.Asker, n *lab.Node) {
	ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
	defer cancel()
	name := controlplane.MachineOf(n)
	open, err := m.Dial(ctx, m.Client, "tcp", portVIP.String()) // whoever has it
	must(t, err)
	defer open.Close()
	from := measure.Now()
	must(t, m.Machines.Delete(ctx, name), a.Leaves(ctx, n.Name))
	statusIs(t, m, "default", "prod", `.status.members[?(@.machine=="`+name+`")].state`, "Draining")
	must(t, m.Machines.Released(ctx, name))
	noneFailed(t, a, from, measure.Now())
	events, err := m.CP.Kubectl(ctx, "get", "events", "-o", "jsonpath={range .items[*]}{.reason} {.involvedObject.name}{\"\\n\"}{end}")
	must(t, err)
	if want := "LoadBalancerDrained " + name; !strings.Contains(events, want+"\n") {
		t.Errorf("no event %q among:\n%s", want, events)
	}
	must(t, n.Service.Kill(), m.Machines.Finish(ctx, name))
	statusIs(t, m, "default", "prod", ".status.status", "2 of 2 members healthy")
	noneFailed(t, a, from, measure.Now())
}

// losesServer has the host of a Machine lose its link: it is out after 2.5 seconds.
func losesServer(t *testing.T, m *controlplane.MachineLab, n *lab.Node, askers ...*controlplane.Asker) {
	const out = 2500 * time.Millisecond
	stood := measure.Standstill()
	from := measure.Now()
	must(t, m.LinkDown(t.Context(), &n.Host))
	statusIs(t, m, "default", "prod", ".status.status", "1 of 2 members healthy")
	time.Sleep(out + 3*time.Second)
	still, end := stood(), measure.Now()
	for _, a := range askers {
		last := a.Slow(from, 900*time.Millisecond)
		r, at := a.Reach(from.Add(out+still), end.Add(-time.Second)), a.Reach(from, from.Add(out+still))
		t.Logf("the last slow connection began %v after the fault; the machine stood still for %v; %d of %d failed %v, before %d of %d %v",
			last.Sub(from), still, r.Failed, r.Attempts, r.Errors, at.Failed, at.Attempts, at.Errors)
		if r.Failed > 0 || r.Attempts == 0 || last != 0 && last.Sub(from) > out+still {
			t.Errorf("after %v %d of %d new connections failed %v, and the last slow one began after %v", out+still, r.Failed, r.Attempts, r.Errors, last.Sub(from))
		}
		if got := a.Servers(from.Add(out+still), end); got[n.Name] > 0 {
			t.Errorf("who is away answered: %v", got)
		}
	}
}

// TestMachinePortOfHosts: the Machines run lbd, so that each is a server and may have the address.
// The owner is one of both, and the Machine that is deleted is both too.
func TestMachinePortOfHosts(t *testing.T) {
	m := newMachines(t, controlplane.MachineOptions{Nodes: 3, Managers: 3, Hook: true})
	must(t, m.AddBackends(t.Context(), 0), m.StartSteward(t.Context())) // the hosts forward
	must(t, m.CP.Apply(t.Context(), fmt.Sprintf(portManifest, m.Machines.Name, portVIP.Addr())))
	statusIs(t, m, "default", "prod", `.status.conditions[?(@.type=="Ready")].status`, "True")
	statusIs(t, m, "default", "prod", ".status.status", "3 of 3 members healthy")
	asker := m.Ask(t.Context(), m.Client, portVIP)
	t.Cleanup(asker.Stop)
	portOwner(t, m, nil)
	must(t, controlplane.Eventually(t.Context(), time.Minute, "each Machine answers, the owner too", func() error {
		if got := asker.Servers(0, measure.Now()); len(got) != 3 {
			return fmt.Errorf("these do: %v", got)
		}
		return nil
	}))
	t.Run("open connections", func(t *testing.T) { keepsOpen(t, m) })
	owner := portOwner(t, m, nil)
	own := m.Ask(t.Context(), &owner.Host, portVIP)
	t.Cleanup(own.Stop)
	from := measure.Now()
	must(t, m.Machines.Delete(t.Context(), controlplane.MachineOf(owner)), asker.Leaves(t.Context(), owner.Name))
	next := portOwner(t, m, owner)
	ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
	defer cancel()
	must(t, m.Machines.Released(ctx, controlplane.MachineOf(owner)), asker.Leaves(t.Context(), owner.Name))
	noneFailed(t, asker, from, measure.Now())
	noneFailed(t, own, from, measure.Now())
	if !slices.Contains(m.Others(owner), next) {
		t.Errorf("%s has the address", next.Name)
	}
}

// keepsOpen drains the owner: connections to all Machines go on, those to the old and the
// new owner itself too.
func keepsOpen(t *testing.T, m *controlplane.MachineLab) {
	const echoes = 30
	must(t, m.CP.Apply(t.Context(), fmt.Sprintf(echoManifest, m.Machines.Name)))
	statusIs(t, m, "default", "echo", `.status.conditions[?(@.type=="Ready")].status`, "True")
	vip := netip.MustParseAddr("10.77.0.211")
	var open []*echo
	servers := map[string]int{}
	for range echoes {
		c, err := m.Dial(t.Context(), m.Client, "tcp", netip.AddrPortFrom(vip, 4433).String())
		must(t, err)
		defer c.Close()
		e := &echo{c, bufio.NewReader(c)}
		name, err := e.r.ReadString('\n')
		must(t, err, e.ask())
		servers[strings.TrimSpace(name)]++
		open = append(open, e)
	}
	owner := ownerOf(t, m, vip, nil)
	must(t, m.System.Drain(t.Context(), m.Lab, owner))
	must(t, controlplane.Eventually(t.Context(), time.Minute, "the address has moved", func() error {
		if n := ownerOf(t, m, vip, nil); n == owner {
			return fmt.Errorf("it is on %s", n.Name)
		}
		return nil
	}))
	kept := 0
	for range 3 {
		kept = 0
		for _, c := range open {
			if err := c.ask(); err != nil {
				t.Log(err)
				continue
			}
			kept++
		}
		time.Sleep(time.Second)
	}
	t.Logf("%d of %d open connections went on, to %v, when %s was drained", kept, echoes, servers, owner.Name)
	if kept != echoes {
		t.Errorf("%d of %d open connections went on", kept, echoes)
	}
	must(t, m.System.Undrain(t.Context(), m.Lab, owner))
}

// echoManifest leads to the echo servers of the hosts.
const echoManifest = `apiVersion: lbd.dev/v1alpha1
kind: MachineLoadBalancer
metadata: {name: echo, namespace: default}
spec:
  clusterName: %s
  address: 10.77.0.211
  port: {port: 4433, machinePort: 7000}
  healthCheck:
    https: {port: 6443, insecureSkipVerify: true}
`

// echo is a connection to a server that sends back what it gets.
type echo struct {
	net.Conn
	r *bufio.Reader
}

// ask sends a line and waits for it.
func (e *echo) ask() error {
	if err := e.SetDeadline(time.Now().Add(5 * time.Second)); err != nil {
		return err
	}
	if _, err := e.Write([]byte("hello\n")); err != nil {
		return err
	}
	_, err := e.r.ReadString('\n')
	return err
}
