package main

import (
	"bytes"
	"context"
	"encoding/base64"
	"errors"
	"fmt"
	"io"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/spf13/cobra"
	"sigs.k8s.io/yaml"

	"lbd.dev/lbd/api/v1alpha1"
	"lbd.dev/lbd/internal/control"
	"lbd.dev/lbd/internal/k8s"
	"lbd.dev/lbd/internal/k8s/hub"
	"lbd.dev/lbd/internal/k8s/objects"
)

// hubTimeout bounds what a command asks of the hub, waiting aside.
const hubTimeout = 30 * time.Second

// hubFlags choose the hub, as those of kubectl do.
type hubFlags struct{ kubeconfig, context string }

func (f *hubFlags) add(cmd *cobra.Command) {
	cmd.Flags().StringVar(&f.kubeconfig, "kubeconfig", "", "kubeconfig file of the hub (default: that of kubectl)")
	cmd.Flags().StringVar(&f.context, "context", "", "context of the hub in it (default: the current one)")
	_ = cmd.MarkFlagFilename("kubeconfig") // the flag exists
}

func (f *hubFlags) client() (*k8s.Client, error) {
	return k8s.NewForPerson(f.kubeconfig, f.context, k8s.Options{UserAgent: "lbd-tenant/" + programVersion(), QPS: agentQPS, Burst: agentBurst})
}

// ask runs a question to the hub in bounded time.
func (f *hubFlags) ask(cmd *cobra.Command, do func(ctx context.Context, c *k8s.Client) error) error {
	c, err := f.client()
	if err != nil {
		return err
	}
	ctx, cancel := context.WithTimeout(cmd.Context(), hubTimeout)
	defer cancel()
	return do(ctx, c)
}

func (f *hubFlags) completeTenant(cmd *cobra.Command, args []string, _ string) ([]cobra.Completion, cobra.ShellCompDirective) {
	c, err := f.client()
	if err != nil || len(args) > 0 {
		return nil, cobra.ShellCompDirectiveNoFileComp
	}
	ctx, cancel := context.WithTimeout(cmd.Context(), completionTimeout)
	defer cancel()
	all, err := hub.Read(ctx, c)
	var names []cobra.Completion
	for _, t := range all {
		names = append(names, t.Name)
	}
	if err != nil {
		names = nil
	}
	return names, cobra.ShellCompDirectiveNoFileComp
}

func newTenantList() *cobra.Command {
	var f hubFlags
	var output string
	cmd := &cobra.Command{
		Use: "list", Short: "Show the tenants of a hub, and how much of what they may have they have", Args: noArgs,
		RunE: func(cmd *cobra.Command, _ []string) error {
			return f.ask(cmd, func(ctx context.Context, c *k8s.Client) error {
				all, err := hub.Read(ctx, c)
				if err != nil {
					return err
				}
				if output == "table" {
					return renderTenants(cmd.OutOrStdout(), all, time.Now())
				}
				for i := range all { // which `lbd tenant show` has
					for j := range all[i].Clusters {
						all[i].Clusters[j].Services, all[i].Clusters[j].Nodes = nil, nil
					}
				}
				return encode(cmd.OutOrStdout(), output, all)
			})
		},
	}
	f.add(cmd)
	addOutput(cmd, &output, "table")
	return cmd
}

func newTenantShow() *cobra.Command {
	var f hubFlags
	var output string
	cmd := &cobra.Command{
		Use: "show NAME", Short: "Show what a tenant has, each Service and node of it, and why it lacks the rest",
		Args: exactArgs(1, "the name of one tenant"), ValidArgsFunction: f.completeTenant,
		RunE: func(cmd *cobra.Command, args []string) error {
			return f.ask(cmd, func(ctx context.Context, c *k8s.Client) error {
				t, err := hub.Find(ctx, c, args[0])
				switch {
				case err != nil:
					return err
				case output == "table":
					return renderTenant(cmd.OutOrStdout(), &t, time.Now())
				}
				return encode(cmd.OutOrStdout(), output, t)
			})
		},
	}
	f.add(cmd)
	addOutput(cmd, &output, "table")
	return cmd
}

// ratio is how much of a limit is in use.
func ratio(n int, most int32) string { return fmt.Sprintf("%d/%d", n, most) }

func word(v objects.Verdict) string {
	if v.OK {
		return "yes"
	}
	return v.Reason
}

// ago says how long ago an agent was heard.
func ago(at, now time.Time) string {
	if at.IsZero() {
		return "never"
	}
	return control.Age(v1alpha1.NodeStatus{Time: now}, at) + " ago"
}

// renderTenants writes a row for each tenant.
func renderTenants(out io.Writer, all []hub.Tenant, now time.Time) error {
	if len(all) == 0 {
		_, err := fmt.Fprintln(out, "The hub has no tenant.")
		return err
	}
	var t control.Table
	t.Add("TENANT", "ACCEPTED", "SERVICES", "ADDRESSES", "PORTS", "NODES", "PROBLEMS", "AGENT HEARD", "POOLS", "NAMESPACES")
	for _, x := range all {
		var namespaces, away []string
		var last time.Time
		for _, c := range x.Clusters {
			namespaces = append(namespaces, c.Namespace)
			at, gone := c.Last(now)
			if at.After(last) {
				last = at
			}
			if gone {
				away = append(away, c.Name)
			}
		}
		heard := ago(last, now)
		if len(away) > 0 {
			heard += "; away: " + strings.Join(away, " ")
		}
		accepted := word(x.Accepted)
		if x.Suspended && x.Accepted.OK {
			accepted = "suspended"
		}
		t.Add(x.Name, accepted, ratio(x.Use.Services, x.Limits.Services), ratio(x.Use.Addresses, x.Limits.Addresses), ratio(x.Use.Ports, x.Limits.Ports),
			ratio(x.Use.Nodes, x.Limits.Nodes), strconv.Itoa(x.Use.Problems), heard, strings.Join(x.Pools, ","), strings.Join(namespaces, " "))
	}
	return t.Write(out, "")
}

// renderTenant writes all of one tenant.
func renderTenant(to io.Writer, x *hub.Tenant, now time.Time) error {
	var out bytes.Buffer
	state := "accepted"
	if !x.Accepted.OK {
		state = "not accepted: " + x.Accepted.Reason + ": " + x.Accepted.Message
	}
	if x.Suspended {
		state += "; suspended, so it keeps what it has and gets nothing new"
	}
	fmt.Fprintf(&out, "Tenant %s: %s\n", visible(x.Name), visible(state))
	fmt.Fprintf(&out, "Has %d of %d services, %d of %d addresses, %d of %d ports, %d of %d nodes, %d of %d routes; pools: %s\n", x.Use.Services, x.Limits.Services, x.Use.Addresses, x.Limits.Addresses,
		x.Use.Ports, x.Limits.Ports, x.Use.Nodes, x.Limits.Nodes, x.Use.Routes, x.Limits.Routes, strings.Join(x.Pools, ", "))
	for i := range x.Clusters {
		if err := renderCluster(&out, &x.Clusters[i], now); err != nil {
			return err
		}
	}
	_, err := to.Write(out.Bytes())
	return err
}

func renderCluster(out *bytes.Buffer, c *hub.Cluster, now time.Time) error {
	fmt.Fprintf(out, "\nCluster %s, namespace %s, nodes in %s with NodePorts %s\n", visible(c.Name), visible(c.Namespace), strings.Join(c.NodeCIDRs, ", "), c.NodePorts)
	if c.Owner != "" {
		fmt.Fprintf(out, "  The namespace is that of the Tenant %s.\n", visible(c.Owner))
		return nil
	}
	switch at, away := c.Last(now); {
	case away:
		fmt.Fprintf(out, "  The agent is away: it was last heard %s.\n", ago(at, now))
	case c.AgentHeard.IsZero():
		fmt.Fprintf(out, "  The agent wrote last: %s; it gives no signs of life.\n", ago(at, now))
	default:
		fmt.Fprintf(out, "  The agent was last heard %s.\n", ago(at, now))
	}
	if r := c.Refused; r.Asks(now) {
		fmt.Fprintf(out, "  ClusterMismatch: another cluster, with the UID %s, has the same credentials. Its agent writes nothing; it was last heard %s. See `lbd tenant rebind`.\n", visible(r.UID), ago(r.Seen, now))
	}
	if len(c.Services) > 0 {
		var t control.Table
		t.Add("SERVICE", "ADDRESSES", "PORTS", "SERVED", "WHY")
		for _, s := range c.Services {
			var addresses, ports []string
			for _, a := range s.Addresses {
				addresses = append(addresses, a.Address)
			}
			for _, p := range s.Ports {
				ports = append(ports, fmt.Sprintf("%d/%s:%d", p.Port, p.Protocol, p.NodePort))
			}
			if more := len(ports) - mostPorts; more > 0 {
				ports = append(ports[:mostPorts], fmt.Sprintf("and %d more", more))
			}
			if s.Weight != nil {
				addresses = append(addresses, fmt.Sprintf("as %s, weight %d", s.GlobalName, *s.Weight))
			}
			t.Add(s.Name, strings.Join(addresses, " "), strings.Join(ports, " "), word(s.Verdict), s.Verdict.Message)
		}
		fmt.Fprintln(out)
		if err := t.Write(out, "  "); err != nil {
			return err
		}
	}
	if err := renderRoutes(out, c.Routes); err != nil {
		return err
	}
	if len(c.Nodes) > 0 {
		var t control.Table
		t.Add("NODE", "STATE", "ADDRESSES", "OBJECT", "ACCEPTED", "WHY")
		for _, o := range c.Nodes {
			why := o.Verdict.Message // of the object: it names the nodes
			for _, n := range o.Nodes {
				t.Add(n.Name, string(n.State), strings.Join(n.Addresses, " "), o.Name, word(o.Verdict), why)
				why = ""
			}
		}
		fmt.Fprintln(out)
		return t.Write(out, "  ")
	}
	return nil
}

func renderRoutes(out *bytes.Buffer, all []hub.Route) error {
	if len(all) == 0 {
		return nil
	}
	var t control.Table
	t.Add("ROUTE", "HOSTS", "ADDRESSES", "SERVED", "WHY")
	for _, r := range all {
		hosts := r.Hosts
		if more := len(hosts) - mostPorts; more > 0 {
			hosts = append(hosts[:mostPorts:mostPorts], fmt.Sprintf("and %d more", more))
		}
		t.Add(r.Name, strings.Join(hosts, " "), strings.Join(r.Addresses, " "), word(r.Verdict), r.Verdict.Message)
	}
	fmt.Fprintln(out)
	return t.Write(out, "  ")
}

// mostPorts is how many ports of a Service are shown, or hostnames of a route.
const mostPorts = 4

func newTenantDelete() *cobra.Command {
	var f hubFlags
	var confirmed bool
	var timeout time.Duration
	cmd := &cobra.Command{
		Use:   "delete NAME",
		Short: "End a tenant: its addresses, what its agents wrote, and their accounts",
		Long: `End a tenant: its addresses, what its agents wrote, and their accounts. Without
--yes it only says what will end. First the Tenant goes, then, once the controller has
taken the addresses back, what is in its namespaces, and those namespaces that
'lbd tenant create' made. What is gone already is passed over, so it may be called again.`,
		Args: exactArgs(1, "the name of one tenant"), ValidArgsFunction: f.completeTenant,
		RunE: func(cmd *cobra.Command, args []string) error {
			if timeout < 0 {
				return usageError{errors.New("--timeout must not be negative")}
			}
			var end *hub.End
			err := f.ask(cmd, func(ctx context.Context, c *k8s.Client) (err error) {
				end, err = hub.Ending(ctx, c, args[0])
				return err
			})
			if err != nil {
				return err
			}
			if err := text(cmd, endText(end)); err != nil {
				return err
			}
			switch {
			case !end.Exists && len(end.Namespaces) == 0:
				return nil
			case !confirmed:
				return errors.New("nothing is deleted yet: --yes does it")
			}
			c, err := f.client()
			if err != nil {
				return err
			}
			return end.Run(cmd.Context(), c, timeout, func(line string) { fmt.Fprintln(cmd.OutOrStdout(), visible(line)) })
		},
	}
	f.add(cmd)
	cmd.Flags().BoolVar(&confirmed, "yes", false, "do it")
	cmd.Flags().DurationVar(&timeout, "timeout", 30*time.Second, "how long to wait until the controller has taken the addresses back")
	return cmd
}

// endText says what ends.
func endText(e *hub.End) string {
	if !e.Exists && len(e.Namespaces) == 0 {
		return fmt.Sprintf("There is no Tenant %s, and no namespace of it.\n", visible(e.Tenant))
	}
	var b strings.Builder
	fmt.Fprintf(&b, "What ends with the tenant %s:\n", visible(e.Tenant))
	if e.Exists {
		fmt.Fprintf(&b, "- the Tenant: its nodes get no connection any more\n")
	}
	for _, x := range e.Namespaces {
		what := "what lbd has in the namespace " + x.Namespace + ", which stays"
		if x.Whole {
			what = "the namespace " + x.Namespace + " with all that is in it"
		}
		addresses := "no address"
		if len(x.Addresses) > 0 {
			addresses = strings.Join(slices.Sorted(slices.Values(x.Addresses)), ", ")
		}
		fmt.Fprintf(&b, "- %s: %d TenantServices with %s\n", what, x.Services, addresses)
	}
	return b.String()
}

func newTenantRotate() *cobra.Command {
	var f hubFlags
	var cluster string
	var life time.Duration
	cmd := &cobra.Command{
		Use:   "rotate NAME",
		Short: "End the tokens of an agent and print a new one, for kubectl apply --server-side -f -",
		Long: `End the tokens of the agent of one cluster, by making its account in the hub anew, and
print the Secret with a new token. In the cluster, kubectl apply --server-side
--field-manager=lbd-rotate --force-conflicts -f - takes it. What is printed contains the token.`,
		Args: exactArgs(1, "the name of one tenant"), ValidArgsFunction: f.completeTenant,
		RunE: func(cmd *cobra.Command, args []string) error {
			if life < minTokenLife {
				return usageError{fmt.Errorf("--duration must be at least %s", minTokenLife)}
			}
			return f.ask(cmd, func(ctx context.Context, c *k8s.Client) error {
				x, err := findCluster(ctx, c, args[0], cluster)
				if err != nil {
					return err
				}
				token, err := hub.Rotate(ctx, c, x.Namespace, life)
				if err != nil {
					return err
				}
				return printSecret(cmd, token)
			})
		},
	}
	f.add(cmd)
	cmd.Flags().StringVar(&cluster, "cluster", mainCluster, "name of the cluster")
	cmd.Flags().DurationVar(&life, "duration", tokenLife, "how long the new token is good")
	complete(cmd, "cluster")
	return cmd
}

// findCluster returns a cluster of a tenant that has its namespace.
func findCluster(ctx context.Context, c *k8s.Client, tenant, cluster string) (*hub.Cluster, error) {
	t, err := hub.Find(ctx, c, tenant)
	if err != nil {
		return nil, err
	}
	at := slices.IndexFunc(t.Clusters, func(c hub.Cluster) bool { return c.Name == cluster })
	if at < 0 {
		return nil, fmt.Errorf("the Tenant %s has no cluster %q: see --cluster", t.Name, cluster)
	}
	x := &t.Clusters[at]
	if x.Owner != "" {
		return nil, fmt.Errorf("the namespace %s is that of the Tenant %s", x.Namespace, x.Owner)
	}
	return x, nil
}

func newTenantRebind() *cobra.Command {
	var f hubFlags
	var cluster string
	cmd := &cobra.Command{
		Use:   "rebind NAME",
		Short: "Have a cluster that is refused take the place of the one with the same credentials",
		Long: `Have the cluster that is refused (ClusterMismatch) take the place of the one that the hub
knows by the same credentials, as after it was made anew. End the agent of the other one
first: it learns of it within a minute, and until then both write.`,
		Args: exactArgs(1, "the name of one tenant"), ValidArgsFunction: f.completeTenant,
		RunE: func(cmd *cobra.Command, args []string) error {
			return f.ask(cmd, func(ctx context.Context, c *k8s.Client) error {
				x, err := findCluster(ctx, c, args[0], cluster)
				if err != nil {
					return err
				}
				to, err := hub.Rebind(ctx, c, x.Namespace, time.Now())
				if err != nil {
					return err
				}
				return text(cmd, fmt.Sprintf("The cluster with the UID %s is %s of the tenant %s from now on; its agent writes within a minute.\n", visible(to.UID), x.Name, args[0]))
			})
		},
	}
	f.add(cmd)
	cmd.Flags().StringVar(&cluster, "cluster", mainCluster, "name of the cluster")
	complete(cmd, "cluster")
	return cmd
}

const (
	// tokenLife is that of the token that `lbd tenant create` has people ask for.
	tokenLife = 2160 * time.Hour
	// minTokenLife is the least that Kubernetes gives.
	minTokenLife = 10 * time.Minute
)

// printSecret prints what a cluster needs of its token.
func printSecret(cmd *cobra.Command, token string) error {
	secret, err := yaml.Marshal(map[string]any{
		"apiVersion": "v1", "kind": "Secret", "metadata": map[string]any{"name": "lbd-hub", "namespace": agentNamespace},
		"data": map[string]any{"token": base64.StdEncoding.EncodeToString([]byte(token))},
	})
	if err != nil {
		return err
	}
	if err := text(cmd, string(secret)); err != nil {
		return err
	}
	fmt.Fprintf(cmd.ErrOrStderr(), "%s: apply it in the cluster: kubectl apply --server-side --field-manager=lbd-rotate --force-conflicts -f -\n", levelNote)
	return nil
}
