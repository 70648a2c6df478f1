package main

import (
	"crypto/sha256"
	"crypto/x509"
	"encoding/base64"
	"encoding/hex"
	"encoding/pem"
	"errors"
	"fmt"
	"net/url"
	"os"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/spf13/cobra"
	"sigs.k8s.io/yaml"

	"lbd.dev/lbd/api/v1alpha1"
	"lbd.dev/lbd/internal/fileaccess"
	"lbd.dev/lbd/internal/k8s"
	"lbd.dev/lbd/internal/k8s/agent"
	"lbd.dev/lbd/internal/k8s/hub"
	"lbd.dev/lbd/packaging"
)

func newTenant() *cobra.Command {
	cmd := &cobra.Command{
		Use:   "tenant",
		Short: "Join clusters to a hub that gives load balancers to them, show what each has, and end it",
		Args:  noArgs,
		RunE:  func(cmd *cobra.Command, _ []string) error { return cmd.Help() },
	}
	cmd.AddCommand(newTenantCreate(), newTenantJoin(), newTenantList(), newTenantShow(), newTenantRotate(), newTenantRebind(), newTenantDelete())
	return cmd
}

// mainCluster is the name of a cluster that is not named.
const mainCluster = "main"

// clusterFlags choose one cluster of a tenant.
type clusterFlags struct{ cluster, namespace string }

func (f *clusterFlags) add(cmd *cobra.Command, flag string) {
	cmd.Flags().StringVar(&f.cluster, "cluster", mainCluster, "name of the cluster")
	cmd.Flags().StringVar(&f.namespace, flag, "", "namespace of the cluster in the hub (default: lbd-NAME-CLUSTER)")
}

// check wants a namespace to be named where the default one could be that of another tenant, too: of
// lbd-a-b-c nobody can tell whether it is that of a or of a-b.
func (f *clusterFlags) check(flag string) error {
	if f.namespace == "" && strings.Contains(f.cluster, "-") {
		return fmt.Errorf("--cluster %q has a hyphen: name its namespace in the hub, by --%s", f.cluster, flag)
	}
	return nil
}

// in is the namespace of the cluster in the hub.
func (f *clusterFlags) in(tenant string) string {
	if f.namespace != "" {
		return f.namespace
	}
	return "lbd-" + tenant + "-" + f.cluster
}

// tlsSecrets is how many Secrets with certificates a tenant may have that is allowed any.
const tlsSecrets = 50

// createFlags are what `lbd tenant create` is told.
type createFlags struct {
	clusterFlags
	cidrs, pools, sources         []string
	hostnames, annotations        []string
	nodePorts, class, controllers string
	gateway                       string
	limits                        map[string]int
	tlsSecrets                    bool
}

func newTenantCreate() *cobra.Command {
	var f createFlags
	cmd := &cobra.Command{
		Use:   "create NAME",
		Short: "Print what the hub needs, for kubectl apply --server-side -f -",
		Long: `Print what the hub needs for one cluster of the tenant NAME, for
kubectl apply --server-side -f -: the namespace that the agent of the cluster writes
into, its account with its rights, and the Tenant. For another cluster of the same
tenant apply with --field-manager=NAME-CLUSTER, so that it is added to the Tenant.`,
		Args: exactArgs(1, "the name of one tenant"),
		RunE: func(cmd *cobra.Command, args []string) error {
			if err := f.clusterFlags.check("namespace"); err != nil {
				return usageError{err}
			}
			manifest, err := f.manifest(args[0])
			if err != nil {
				return usageError{err}
			}
			if err := text(cmd, manifest); err != nil {
				return err
			}
			if f.cluster != mainCluster {
				fmt.Fprintf(cmd.ErrOrStderr(), "%s: apply with --field-manager=%s-%s, or the clusters that were applied before leave the Tenant\n", levelNote, args[0], f.cluster)
			}
			fmt.Fprintf(cmd.ErrOrStderr(), "%s: the token for `lbd tenant join %s`: kubectl -n %s create token agent --duration=2160h > token\n", levelNote, args[0], f.in(args[0]))
			return nil
		},
	}
	f.clusterFlags.add(cmd, "namespace")
	flags := cmd.Flags()
	flags.StringSliceVar(&f.cidrs, "node-cidr", nil, "prefix in which the nodes of the cluster are; may be repeated")
	flags.StringSliceVar(&f.pools, "pool", nil, "IPAddressPool that addresses are from; may be repeated, the first that has one counts")
	flags.StringSliceVar(&f.sources, "source", nil, "what nodes may see as the address of a client: vip, client, or both (default: vip)")
	flags.StringVar(&f.nodePorts, "node-ports", v1alpha1.DefaultNodePorts, "NodePorts of the cluster")
	flags.StringToIntVar(&f.limits, "limit", nil, fmt.Sprintf("what the tenant may have: services=%d, addresses=%d, ports=%d, nodes=%d, routes=%d unless told otherwise",
		v1alpha1.DefaultTenantServices, v1alpha1.DefaultTenantAddresses, v1alpha1.DefaultTenantPorts, v1alpha1.DefaultTenantNodes, v1alpha1.DefaultTenantRoutes))
	flags.StringVar(&f.class, "ingress-class", "", "IngressClass of the hub whose engine serves Ingresses of the tenant (default: none are served)")
	flags.StringVar(&f.gateway, "gateway", "", "Gateway of the hub, NAMESPACE/NAME, that serves HTTPRoutes and GRPCRoutes of the tenant (default: none are served)")
	flags.StringSliceVar(&f.hostnames, "hostname", nil, "hostname that its Ingresses and routes may have, such as *.shop.example.com; may be repeated; with --ingress-class or --gateway")
	flags.StringSliceVar(&f.annotations, "allow-annotation", nil, "key of annotations of its Ingresses that the engine is to see, or how keys begin and *; may be repeated")
	flags.BoolVar(&f.tlsSecrets, "tls-secrets", false, fmt.Sprintf("let agents copy the certificates of its Ingresses into the hub, %d unless --limit tlsSecrets=N says otherwise; with --ingress-class", tlsSecrets))
	flags.StringVar(&f.controllers, "controller-namespace", defaultNamespace, "namespace of the controller of the hub, with --ingress-class or --gateway")
	complete(cmd, "source", string(v1alpha1.SourceVIP), string(v1alpha1.SourceClient))
	return cmd
}

// tenant is the object as the flags say it, without defaults.
func (f *createFlags) tenant(name string) (*v1alpha1.Tenant, error) {
	t := &v1alpha1.Tenant{
		TypeMeta: v1alpha1.TypeMeta{APIVersion: v1alpha1.APIVersion, Kind: v1alpha1.KindTenant}, Metadata: v1alpha1.ObjectMeta{Name: name},
		Spec: v1alpha1.TenantSpec{
			Clusters: []v1alpha1.TenantCluster{{Name: f.cluster, Namespace: f.in(name), NodeCIDRs: f.cidrs, NodePorts: f.nodePorts}},
			Pools:    f.pools, Hostnames: f.hostnames, IngressClass: f.class, Gateway: f.gateway, Annotations: v1alpha1.TenantAnnotations{Allow: f.annotations},
		},
	}
	for _, s := range f.sources {
		t.Spec.Sources = append(t.Spec.Sources, v1alpha1.SourceAddress(s))
	}
	to := map[string]*int32{"services": &t.Spec.Limits.Services, "addresses": &t.Spec.Limits.Addresses, "ports": &t.Spec.Limits.Ports, "nodes": &t.Spec.Limits.Nodes,
		"routes": &t.Spec.Limits.Routes, "tlsSecrets": &t.Spec.Limits.TLSSecrets}
	if f.tlsSecrets {
		t.Spec.Limits.TLSSecrets = tlsSecrets
	}
	for what, n := range f.limits {
		field, ok := to[what]
		if !ok || n < 1 || n > 1<<20 {
			return nil, fmt.Errorf("--limit %s=%d: it is services, addresses, ports, nodes, routes or tlsSecrets, and at least 1", what, n)
		}
		*field = int32(n)
	}
	switch {
	case len(f.cidrs) == 0 || len(f.pools) == 0:
		return nil, errors.New("--node-cidr and --pool must be given")
	case (f.class == "" && f.gateway == "") != (len(f.hostnames) == 0):
		return nil, errors.New("--ingress-class or --gateway and --hostname need each other")
	case f.tlsSecrets && f.class == "" || f.limits["tlsSecrets"] != 0 && !f.tlsSecrets:
		return nil, errors.New("--limit tlsSecrets needs --tls-secrets, and that needs --ingress-class")
	case f.controllers == "" || strings.ContainsAny(f.controllers, " \n\"':"):
		return nil, fmt.Errorf("--controller-namespace %q is not the name of a namespace", f.controllers)
	}
	t.Default()
	if errs := t.Validate(); len(errs) > 0 {
		var all []error
		for _, err := range errs {
			all = append(all, err)
		}
		return nil, errors.Join(all...)
	}
	return t, nil
}

// manifest is what the hub needs.
func (f *createFlags) manifest(name string) (string, error) {
	t, err := f.tenant(name)
	if err != nil {
		return "", err
	}
	if len(name) > 63 { // it is the value of a label
		return "", fmt.Errorf("%q has more than 63 characters", name)
	}
	object, err := yaml.Marshal(t)
	if err != nil {
		return "", err
	}
	// What is over a limit is to be seen, so the quota has room for it.
	fill := strings.NewReplacer("HUB_NAMESPACE", strconv.Quote(f.in(name)), "TENANT", strconv.Quote(name), "CLUSTER", strconv.Quote(f.cluster),
		"MOST_SERVICES", strconv.Itoa(2*int(t.Spec.Limits.Services)+10), "MOST_NODES", strconv.Itoa(int(t.Spec.Limits.Nodes)/50+10),
		"MOST_ROUTES", strconv.Itoa(2*int(t.Spec.Limits.Routes)+10), "CONTROLLER_NAMESPACE", strconv.Quote(f.controllers),
		"MOST_SECRETS", strconv.Itoa(2*int(t.Spec.Limits.TLSSecrets)+int(t.Spec.Limits.Routes)+10))
	all := packaging.TenantHub
	if f.class != "" || f.gateway != "" {
		all += "---\n" + packaging.TenantHubIngress
	}
	if f.gateway != "" {
		all += "---\n" + packaging.TenantHubGateway
	}
	if f.tlsSecrets {
		all += "---\n" + packaging.TenantHubTLS
	}
	return fill.Replace(all) + "---\n" + string(object), nil
}

// joinFlags are what `lbd tenant join` is told.
type joinFlags struct {
	clusterFlags
	server, ca, token, image string
	classless                bool
	ingress, gateway         bool
	tlsNamespaces            []string
}

func newTenantJoin() *cobra.Command {
	var f joinFlags
	cmd := &cobra.Command{
		Use:   "join NAME",
		Short: "Print what a cluster of the tenant needs, for kubectl apply --server-side -f -",
		Long: `Print what a cluster of the tenant NAME needs, for kubectl apply --server-side -f -:
the agent with its rights, and the Secret by which it reaches the hub. What is printed
contains the token.`,
		Args: exactArgs(1, "the name of one tenant"),
		RunE: func(cmd *cobra.Command, args []string) error {
			if err := f.check(args[0]); err != nil {
				return usageError{err}
			}
			manifest, err := f.manifest(args[0], time.Now())
			if err != nil {
				return err
			}
			return text(cmd, manifest)
		},
	}
	f.clusterFlags.add(cmd, "hub-namespace")
	flags := cmd.Flags()
	flags.StringVar(&f.server, "server", "", "URL of the API server of the hub, such as https://hub.example.com:6443")
	flags.StringVar(&f.ca, "ca", "", "file with the certificate authority of the hub, in PEM")
	flags.StringVar(&f.token, "token", "", "file with a token of the account that `lbd tenant create` prints")
	flags.StringVar(&f.image, "image", imageName+":"+imageTag(), "image to run")
	flags.BoolVar(&f.classless, "classless", false, "have the hub serve Services without a class too")
	flags.BoolVar(&f.ingress, "ingress", false, "have the hub serve Ingresses of the class "+agent.IngressClass+", too")
	flags.BoolVar(&f.gateway, "gateway", false, "have the hub serve HTTPRoutes and GRPCRoutes of Gateways of the class "+agent.GatewayClass+", too")
	flags.StringSliceVar(&f.tlsNamespaces, "tls-namespace", nil, "namespace in which the agent may read Secrets, to copy the certificates that Ingresses there name into the hub; may be repeated; with --ingress")
	for _, name := range []string{"ca", "token"} {
		_ = cmd.MarkFlagFilename(name) // the flags exist
	}
	return cmd
}

func (f *joinFlags) check(name string) error {
	u, err := url.Parse(f.server)
	switch {
	case f.server == "" || f.ca == "" || f.token == "":
		return errors.New("--server, --ca and --token must be given")
	case err != nil || u.Scheme != "https" || u.Hostname() == "" || u.User != nil || u.RawQuery != "" || u.Fragment != "" || strings.ContainsAny(f.server, " \"'\\"):
		return fmt.Errorf("--server %q: it is a URL such as https://hub.example.com:6443", f.server)
	}
	if err := f.clusterFlags.check("hub-namespace"); err != nil {
		return err
	}
	// The names are those of a Tenant.
	t := &v1alpha1.Tenant{Metadata: v1alpha1.ObjectMeta{Name: name}, Spec: v1alpha1.TenantSpec{Clusters: []v1alpha1.TenantCluster{{Name: f.cluster, Namespace: f.in(name)}}}}
	for _, err := range t.Validate() {
		if slices.Contains([]string{"metadata.name", "spec.clusters[0].name", "spec.clusters[0].namespace"}, err.Path) {
			return err
		}
	}
	if err := checkTLSNamespaces(f.tlsNamespaces, f.ingress); err != nil {
		return err
	}
	return checkImage(f.image)
}

// checkTLSNamespaces keeps the namespace of the agent out: the token for the hub is there.
func checkTLSNamespaces(namespaces []string, ingress bool) error {
	if len(namespaces) > 0 && !ingress {
		return errors.New("--tls-namespace needs --ingress")
	}
	for _, n := range namespaces {
		if !v1alpha1.IsDNSLabel(n) || n == agentNamespace || n == "kube-system" {
			return fmt.Errorf("--tls-namespace %q: it is the name of a namespace, and neither kube-system nor %s", n, agentNamespace)
		}
	}
	return nil
}

// manifest is what the cluster needs.
func (f *joinFlags) manifest(name string, now time.Time) (string, error) {
	ca, err := read("--ca", f.ca)
	if err != nil {
		return "", err
	}
	if err := checkCertificates(ca); err != nil {
		return "", fmt.Errorf("--ca %s: %w", f.ca, err)
	}
	data, err := read("--token", f.token)
	if err != nil {
		return "", err
	}
	token := strings.TrimSpace(string(data))
	t, ok := k8s.ParseToken(token)
	switch {
	case !ok:
		return "", fmt.Errorf("--token %s: it is no token of a service account", f.token)
	case t.Namespace != f.in(name):
		return "", fmt.Errorf("--token %s: it is of the namespace %q and not of %q, that of the cluster in the hub: see --cluster and --hub-namespace", f.token, t.Namespace, f.in(name))
	case t.Account != hub.Account:
		return "", fmt.Errorf("--token %s: it is of the account %q and not of %q", f.token, t.Account, hub.Account)
	case !t.Ends.IsZero() && !t.Ends.After(now):
		return "", fmt.Errorf("--token %s: it ended at %s", f.token, t.Ends.UTC().Format(time.RFC3339))
	}
	config, err := yaml.Marshal(map[string]any{
		"apiVersion": "v1", "kind": "Config", "current-context": "hub",
		"clusters": []any{map[string]any{"name": "hub", "cluster": map[string]any{"server": f.server, "certificate-authority": "ca.crt"}}},
		"users":    []any{map[string]any{"name": "agent", "user": map[string]any{"tokenFile": "token"}}},
		"contexts": []any{map[string]any{"name": "hub", "context": map[string]any{"cluster": "hub", "user": "agent", "namespace": f.in(name)}}},
	})
	if err != nil {
		return "", err
	}
	encoded := base64.StdEncoding.EncodeToString
	more := "--hub-secret=lbd-hub"
	if f.classless {
		more += ", --classless"
	}
	all := packaging.TenantAgent
	if f.ingress {
		more += ", --ingress"
		all += "---\n" + packaging.TenantAgentIngress
	}
	if f.gateway {
		more += ", --gateway"
		all += "---\n" + packaging.TenantAgentGateway
	}
	for _, namespace := range f.tlsNamespaces {
		more += ", --tls-namespace=" + namespace
		all += "---\n" + strings.ReplaceAll(packaging.TenantAgentTLS, "TLS_NAMESPACE", strconv.Quote(namespace))
	}
	fill := strings.NewReplacer("IMAGE", strconv.Quote(f.image), "HUB_HASH", hash(config, ca), ": KUBECONFIG\n", ": "+encoded(config)+"\n", ": CA\n", ": "+encoded(ca)+"\n", ": TOKEN\n", ": "+encoded([]byte(token))+"\n",
		"--hub-secret=lbd-hub", more)
	return fill.Replace(all), nil
}

// checkCertificates wants certificates in PEM and nothing else: what is in the file goes to a Secret.
func checkCertificates(data []byte) error {
	n := 0
	for block, rest := pem.Decode(data); block != nil; block, rest = pem.Decode(rest) {
		if block.Type != "CERTIFICATE" {
			return fmt.Errorf("it has a %s beside certificates", block.Type)
		}
		if _, err := x509.ParseCertificate(block.Bytes); err != nil {
			return err
		}
		n++
	}
	if n == 0 {
		return errors.New("it is no certificate in PEM")
	}
	return nil
}

// hash is the same for the same hub, so that the agent starts again with the files of another one.
func hash(all ...[]byte) string {
	h := sha256.New()
	for _, b := range all {
		_, _ = h.Write(b) // it never fails
	}
	return hex.EncodeToString(h.Sum(nil)[:8])
}

func read(flag, path string) ([]byte, error) {
	data, err := os.ReadFile(path)
	if err != nil {
		return nil, fmt.Errorf("%s: %w", flag, fileaccess.Explain(err))
	}
	return data, nil
}
