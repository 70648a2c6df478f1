package controlplane

import (
	"bufio"
	"context"
	"fmt"
	"net/netip"
	"strings"
	"time"

	corev1 "k8s.io/api/core/v1"
	discoveryv1 "k8s.io/api/discovery/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/util/intstr"
	"k8s.io/client-go/kubernetes"

	"lbd.dev/lbd/tests/lab"
)

// ServicePort is the port of the Services that LoadBalancer makes.
const ServicePort = 80

// LoadBalancer is a Service of that type, to be created, without selector: its
// EndpointSlices are those of SetEndpoints.
func (c *ControlPlane) LoadBalancer(name string) *corev1.Service {
	var families []corev1.IPFamily
	for _, f := range c.families {
		families = append(families, corev1.IPFamily(f))
	}
	policy, no := corev1.IPFamilyPolicyPreferDualStack, false
	return &corev1.Service{
		ObjectMeta: metav1.ObjectMeta{Namespace: metav1.NamespaceDefault, Name: name},
		Spec: corev1.ServiceSpec{
			Type: corev1.ServiceTypeLoadBalancer, IPFamilies: families, IPFamilyPolicy: &policy, AllocateLoadBalancerNodePorts: &no,
			Ports: []corev1.ServicePort{{Name: "echo", Port: ServicePort, TargetPort: intstr.FromInt32(ServerPort)}},
		},
	}
}

// SetAddresses writes status.loadBalancer, as a load balancer does.
func (c *ControlPlane) SetAddresses(ctx context.Context, k kubernetes.Interface, name string, vips ...netip.Addr) error {
	s, err := k.CoreV1().Services(metav1.NamespaceDefault).Get(ctx, name, metav1.GetOptions{})
	if err != nil {
		return fmt.Errorf("service %q: %w", name, err)
	}
	s.Status.LoadBalancer.Ingress = nil
	for _, v := range vips {
		s.Status.LoadBalancer.Ingress = append(s.Status.LoadBalancer.Ingress, corev1.LoadBalancerIngress{IP: v.String()})
	}
	if _, err = k.CoreV1().Services(metav1.NamespaceDefault).UpdateStatus(ctx, s, metav1.UpdateOptions{}); err != nil {
		return fmt.Errorf("service %q: status: %w", name, err)
	}
	return nil
}

// SetEndpoints makes the Pods the ready endpoints of a Service, in place of those
// that were, in one EndpointSlice for each family.
func (c *ControlPlane) SetEndpoints(ctx context.Context, k kubernetes.Interface, service string, pods ...*Pod) error {
	return c.setEndpoints(ctx, k, service, pods, nil)
}

// setEndpoints is SetEndpoints for a Service with more ports.
func (c *ControlPlane) setEndpoints(ctx context.Context, k kubernetes.Interface, service string, pods []*Pod, more []discoveryv1.EndpointPort) error {
	slices := k.DiscoveryV1().EndpointSlices(metav1.NamespaceDefault)
	for _, f := range c.families {
		s := c.endpointSlice(service, f, pods)
		s.Ports = append(s.Ports, more...)
		_, err := slices.Update(ctx, s, metav1.UpdateOptions{})
		if apierrors.IsNotFound(err) {
			_, err = slices.Create(ctx, s, metav1.CreateOptions{})
		}
		if err != nil {
			return fmt.Errorf("endpoints of %q: %w", service, err)
		}
	}
	return nil
}

func (c *ControlPlane) endpointSlice(service string, f Family, pods []*Pod) *discoveryv1.EndpointSlice {
	name, port, proto, yes := "echo", int32(ServerPort), corev1.ProtocolTCP, true
	s := &discoveryv1.EndpointSlice{
		ObjectMeta: metav1.ObjectMeta{
			Namespace: metav1.NamespaceDefault, Name: service + "-" + strings.ToLower(string(f)),
			Labels: map[string]string{discoveryv1.LabelServiceName: service, discoveryv1.LabelManagedBy: "lab.lbd.dev"},
		},
		AddressType: discoveryv1.AddressType(f),
		Ports:       []discoveryv1.EndpointPort{{Name: &name, Port: &port, Protocol: &proto}},
	}
	for _, p := range pods {
		node := p.Node.Name
		s.Endpoints = append(s.Endpoints, discoveryv1.Endpoint{
			Addresses: []string{ip(f, &p.Host).String()}, NodeName: &node,
			Conditions: discoveryv1.EndpointConditions{Ready: &yes, Serving: &yes},
		})
	}
	return s
}

// Ask connects from a host and returns the name of the Pod that answers.
func Ask(ctx context.Context, l *lab.Lab, from *lab.Host, to netip.AddrPort) (string, error) {
	ctx, cancel := context.WithTimeout(ctx, time.Second)
	defer cancel()
	conn, err := l.Dial(ctx, from, "tcp", to.String())
	if err != nil {
		return "", err
	}
	defer conn.Close()
	if err := conn.SetDeadline(time.Now().Add(time.Second)); err != nil {
		return "", err
	}
	line, err := bufio.NewReader(conn).ReadString('\n')
	return strings.TrimSpace(line), err
}

// DatagramPort is where a Pod answers each datagram with its name and the address that it came from.
const DatagramPort = 7102

// AskDatagram is Ask by UDP.
func AskDatagram(ctx context.Context, l *lab.Lab, from *lab.Host, to netip.AddrPort) (string, error) {
	ctx, cancel := context.WithTimeout(ctx, time.Second)
	defer cancel()
	conn, err := l.Dial(ctx, from, "udp", to.String())
	if err != nil {
		return "", err
	}
	defer conn.Close()
	limit, _ := ctx.Deadline()
	if err := conn.SetDeadline(limit); err != nil {
		return "", err
	}
	if _, err := conn.Write([]byte("who?\n")); err != nil {
		return "", err
	}
	answer := make([]byte, 200)
	n, err := conn.Read(answer)
	name, _, _ := strings.Cut(string(answer[:n]), " ")
	return name, err
}
