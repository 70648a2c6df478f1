package controlplane

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"path/filepath"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/dynamic"
	"k8s.io/client-go/rest"

	"lbd.dev/lbd/tests/lab"
)

// ClusterAPI is the Go module whose CustomResourceDefinitions tests apply.
const ClusterAPI = "sigs.k8s.io/cluster-api@v1.12.0"

// What Cluster API calls things.
const (
	machineFinalizer  = "machine.cluster.x-k8s.io"
	clusterLabel      = "cluster.x-k8s.io/cluster-name"
	controlPlaneLabel = "cluster.x-k8s.io/control-plane"
	hookPrefix        = "pre-drain.delete.hook.machine.cluster.x-k8s.io/"
	// DrainHook is the hook that lbd removes.
	DrainHook = hookPrefix + "lbd"
)

var (
	machineResource = schema.GroupVersionResource{Group: "cluster.x-k8s.io", Version: "v1beta2", Resource: "machines"}
	clusterResource = schema.GroupVersionResource{Group: "cluster.x-k8s.io", Version: "v1beta2", Resource: "clusters"}
)

// ApplyClusterAPI applies the definitions of Clusters, Machines and KubeadmControlPlanes from the module of
// Cluster API, as its authors generated them.
func (c *ControlPlane) ApplyClusterAPI(ctx context.Context) error {
	return c.applyModule(ctx, ClusterAPI, "config/crd/bases/cluster.x-k8s.io_clusters.yaml", "config/crd/bases/cluster.x-k8s.io_machines.yaml",
		"controlplane/kubeadm/config/crd/bases/controlplane.cluster.x-k8s.io_kubeadmcontrolplanes.yaml")
}

// applyModule applies definitions that a Go module has, and waits until they are served.
func (c *ControlPlane) applyModule(ctx context.Context, name string, files ...string) error {
	dir, err := os.MkdirTemp(c.Host.Dir, "module") // outside any module: nothing is required of it
	if err != nil {
		return fmt.Errorf("%s: %w", name, err)
	}
	out, err := command(ctx, dir, "go", "mod", "download", "-json", name)
	if err != nil {
		return fmt.Errorf("%s: %w", name, err)
	}
	var module struct{ Dir string }
	if err := json.Unmarshal([]byte(out), &module); err != nil || module.Dir == "" {
		return fmt.Errorf("%s: go mod download says %q: %w", name, short(out), err)
	}
	for _, file := range files {
		file = filepath.Join(module.Dir, filepath.FromSlash(file))
		if _, err := c.Kubectl(ctx, "apply", "--server-side", "-f", file); err != nil {
			return fmt.Errorf("%s: %w", name, err)
		}
	}
	return c.established(ctx)
}

// MachineCluster is a Cluster of Cluster API whose Machines are made by hand: what its
// controllers would do is done by the methods.
type MachineCluster struct {
	Namespace, Name string

	client dynamic.Interface
}

// AdminDynamic is an administrator's client for objects of any kind.
func (c *ControlPlane) AdminDynamic() (dynamic.Interface, error) {
	s := c.APIServers[0]
	cfg, err := c.Config(s.Host, c.address(s.Host), Admin)
	if err != nil {
		return nil, err
	}
	cfg.WarningHandler = rest.NoWarnings{} // of the names that Cluster API gives its finalizers
	return dynamic.NewForConfig(cfg)
}

// NewMachineCluster makes the namespace and the Cluster.
func (c *ControlPlane) NewMachineCluster(ctx context.Context, namespace, name string) (*MachineCluster, error) {
	m, err := c.NoMachineCluster(ctx, namespace, name)
	if err != nil {
		return nil, err
	}
	return m, m.CreateCluster(ctx)
}

// NoMachineCluster makes only the namespace.
func (c *ControlPlane) NoMachineCluster(ctx context.Context, namespace, name string) (*MachineCluster, error) {
	client, err := c.AdminDynamic()
	if err != nil {
		return nil, err
	}
	ns := fmt.Sprintf("apiVersion: v1\nkind: Namespace\nmetadata: {name: %s}\n", namespace)
	if err := c.Apply(ctx, ns); err != nil {
		return nil, err
	}
	return &MachineCluster{Namespace: namespace, Name: name, client: client}, nil
}

// CreateCluster makes the Cluster.
func (m *MachineCluster) CreateCluster(ctx context.Context) error {
	_, err := m.client.Resource(clusterResource).Namespace(m.Namespace).Create(ctx, &unstructured.Unstructured{Object: map[string]any{
		"apiVersion": "cluster.x-k8s.io/v1beta2", "kind": "Cluster", "metadata": map[string]any{"name": m.Name},
		"spec": map[string]any{"infrastructureRef": map[string]any{"apiGroup": "infrastructure.example.com", "kind": "Bare", "name": m.Name}},
	}}, metav1.CreateOptions{})
	return err
}

// DeleteCluster removes the Cluster, and no Machine with it.
func (m *MachineCluster) DeleteCluster(ctx context.Context) error {
	return m.client.Resource(clusterResource).Namespace(m.Namespace).Delete(ctx, m.Name, metav1.DeleteOptions{})
}

// Endpoint is the host of the endpoint that the Cluster has.
func (m *MachineCluster) Endpoint(ctx context.Context) (string, error) {
	c, err := m.client.Resource(clusterResource).Namespace(m.Namespace).Get(ctx, m.Name, metav1.GetOptions{})
	if err != nil {
		return "", err
	}
	host, _, err := unstructured.NestedString(c.Object, "spec", "controlPlaneEndpoint", "host")
	return host, err
}

// Machine says what one is to be like.
type Machine struct {
	Name string
	// Host is where it runs; nil: nowhere yet, as before the infrastructure is there.
	Host *lab.Host
	// Node is the name in nodeRef, "" without one.
	Node        string
	Labels      map[string]string
	Annotations map[string]string
	// Worker: it is not of the control plane.
	Worker bool
}

// OfNode is the Machine of a node of the lab, held by the hook of lbd if asked for.
func OfNode(n *lab.Node, hook bool) Machine {
	m := Machine{Name: "cp-" + n.Name, Host: &n.Host, Node: n.Name}
	if hook {
		m.Annotations = map[string]string{DrainHook: ""}
	}
	return m
}

// Create makes a Machine with its status, as it is when its Node has joined.
func (m *MachineCluster) Create(ctx context.Context, x Machine) error {
	labels := map[string]any{clusterLabel: m.Name}
	if !x.Worker {
		labels[controlPlaneLabel] = ""
	}
	for k, v := range x.Labels {
		labels[k] = v
	}
	annotations := map[string]any{}
	for k, v := range x.Annotations {
		annotations[k] = v
	}
	obj := &unstructured.Unstructured{Object: map[string]any{
		"apiVersion": "cluster.x-k8s.io/v1beta2", "kind": "Machine",
		"metadata": map[string]any{
			"name": x.Name, "namespace": m.Namespace, "labels": labels, "annotations": annotations, "finalizers": []any{machineFinalizer},
		},
		"spec": map[string]any{
			"clusterName": m.Name, "version": "v1.35.0", "bootstrap": map[string]any{"dataSecretName": "none"},
			"infrastructureRef": map[string]any{"apiGroup": "infrastructure.example.com", "kind": "BareMachine", "name": x.Name},
		},
	}}
	if _, err := m.machines().Create(ctx, obj, metav1.CreateOptions{}); err != nil {
		return fmt.Errorf("machine: %w", err)
	}
	status := map[string]any{"phase": "Running"}
	if x.Node != "" {
		status["nodeRef"] = map[string]any{"name": x.Node}
	}
	if x.Host != nil {
		status["addresses"] = []any{
			map[string]any{"type": "Hostname", "address": x.Host.Name},
			map[string]any{"type": "InternalIP", "address": x.Host.IP4.String()},
		}
	}
	return m.patch(ctx, x.Name, map[string]any{"status": status}, "status")
}

func (m *MachineCluster) machines() dynamic.ResourceInterface {
	return m.client.Resource(machineResource).Namespace(m.Namespace)
}

func (m *MachineCluster) patch(ctx context.Context, name string, body map[string]any, sub ...string) error {
	data, err := json.Marshal(body)
	if err != nil {
		return err
	}
	if _, err = m.machines().Patch(ctx, name, types.MergePatchType, data, metav1.PatchOptions{}, sub...); err != nil {
		return fmt.Errorf("machine: %w", err)
	}
	return nil
}

// Label sets a label of a Machine, or removes it if the value is nil.
func (m *MachineCluster) Label(ctx context.Context, name, key string, value *string) error {
	return m.patch(ctx, name, map[string]any{"metadata": map[string]any{"labels": map[string]any{key: value}}})
}

// Annotate does the same with an annotation.
func (m *MachineCluster) Annotate(ctx context.Context, name, key string, value *string) error {
	return m.patch(ctx, name, map[string]any{"metadata": map[string]any{"annotations": map[string]any{key: value}}})
}

// Healthy has a MachineHealthCheck be content with a Machine again.
func (m *MachineCluster) Healthy(ctx context.Context, name string) error {
	return m.patch(ctx, name, map[string]any{"status": map[string]any{"conditions": nil}}, "status")
}

// Unhealthy has a MachineHealthCheck be against a Machine, which is how a remediation
// begins.
func (m *MachineCluster) Unhealthy(ctx context.Context, name string) error {
	now := metav1.Now().UTC().Format("2006-01-02T15:04:05Z")
	return m.patch(ctx, name, map[string]any{"status": map[string]any{"conditions": []any{
		map[string]any{"type": "HealthCheckSucceeded", "status": "False", "reason": "UnhealthyNode", "message": "", "lastTransitionTime": now},
		map[string]any{"type": "OwnerRemediated", "status": "False", "reason": "WaitingForRemediation", "message": "", "lastTransitionTime": now},
	}}}, "status")
}

// Delete begins the deletion of a Machine, as scaling down, a remediation and a user
// do; it lasts until Finish.
func (m *MachineCluster) Delete(ctx context.Context, name string) error {
	return m.machines().Delete(ctx, name, metav1.DeleteOptions{})
}

// Finish ends the deletion.
func (m *MachineCluster) Finish(ctx context.Context, name string) error {
	return m.patch(ctx, name, map[string]any{"metadata": map[string]any{"finalizers": nil}})
}

// Released waits until no hook holds the Machine before its Node is drained, which is
// what the Machine controller waits for, and returns at that moment.
func (m *MachineCluster) Released(ctx context.Context, name string) error {
	for {
		w, err := m.machines().Watch(ctx, metav1.ListOptions{FieldSelector: "metadata.name=" + name})
		if err != nil {
			return fmt.Errorf("machine: %w", err)
		}
		for e := range w.ResultChan() {
			if u, ok := e.Object.(*unstructured.Unstructured); ok && !held(u) {
				w.Stop()
				return nil
			}
		}
		w.Stop()
		if ctx.Err() != nil {
			return fmt.Errorf("machine %s is still held: %w", name, ctx.Err())
		}
	}
}

// held tells whether a hook is there. Which one does not matter, and its value neither.
func held(u *unstructured.Unstructured) bool {
	for k := range u.GetAnnotations() {
		if len(k) > len(hookPrefix) && k[:len(hookPrefix)] == hookPrefix {
			return true
		}
	}
	return false
}

// Get returns a Machine.
func (m *MachineCluster) Get(ctx context.Context, name string) (*unstructured.Unstructured, error) {
	return m.machines().Get(ctx, name, metav1.GetOptions{})
}

// Retire plays a deletion by KubeadmControlPlane and the Machine controller: the
// Machine is deleted; in the moment in which no hook holds it the API server of the host
// dies, since its etcd member is removed; and then the Machine goes. Without a hook die
// is called as soon as the deletion has begun.
func (m *MachineCluster) Retire(ctx context.Context, name string, die func() error) error {
	if err := m.Delete(ctx, name); err != nil {
		return err
	}
	return errors.Join(m.Released(ctx, name), die(), m.Finish(ctx, name))
}
