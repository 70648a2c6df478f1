package main

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"regexp"
	"strings"
	"time"

	"github.com/spf13/cobra"
	"sigs.k8s.io/yaml"

	"lbd.dev/lbd/api/v1alpha1"
	"lbd.dev/lbd/internal/config"
	"lbd.dev/lbd/internal/k8s"
	"lbd.dev/lbd/packaging"
	"lbd.dev/lbd/systemd"
)

func newManifest() *cobra.Command {
	cmd := &cobra.Command{
		Use:   "manifest",
		Short: "Print what to install: static-pod, daemonset, systemd, config, crds, alerts, dashboard",
		Args:  noArgs,
		RunE:  func(cmd *cobra.Command, _ []string) error { return cmd.Help() },
	}
	var image string
	pod := &cobra.Command{
		Use: "static-pod", Short: "Print the manifest for /etc/kubernetes/manifests", Args: noArgs,
		RunE: func(cmd *cobra.Command, _ []string) error {
			if err := checkImage(image); err != nil {
				return err
			}
			return text(cmd, strings.Replace(packaging.StaticPod, "IMAGE", image, 1))
		},
	}
	pod.Flags().StringVar(&image, "image", imageName+":"+imageTag(), "image to run")
	var sysusers, drain bool
	unit := &cobra.Command{
		Use: "systemd", Short: "Print the unit for /etc/systemd/system/lbd.service", Args: noArgs,
		RunE: func(cmd *cobra.Command, _ []string) error {
			if sysusers {
				return text(cmd, systemd.Sysusers)
			}
			if drain {
				return text(cmd, systemd.DrainUnit)
			}
			return text(cmd, systemd.Unit)
		},
	}
	unit.Flags().BoolVar(&sysusers, "sysusers", false, "print the user of the unit, for /usr/lib/sysusers.d/lbd.conf")
	unit.Flags().BoolVar(&drain, "drain", false, "print the unit that drains before the host goes down, for /etc/systemd/system/lbd-drain.service")
	var full bool
	conf := &cobra.Command{
		Use: "config", Short: "Print a configuration for /etc/lbd/lbd.yaml to start from", Args: noArgs,
		RunE: func(cmd *cobra.Command, _ []string) error {
			if full {
				return text(cmd, config.Reference())
			}
			return text(cmd, config.Minimal())
		},
	}
	conf.Flags().BoolVar(&full, "full", false, "with every field and what it means")
	crds := &cobra.Command{
		Use: "crds", Short: "Print the CustomResourceDefinitions, for kubectl apply -f -", Args: noArgs,
		RunE: func(cmd *cobra.Command, _ []string) error {
			all, err := definitions()
			if err != nil {
				return err
			}
			return text(cmd, all)
		},
	}
	cmd.AddCommand(pod, newManifestDaemonset(), unit, conf, crds, newManifestAlerts(), newManifestDashboard())
	return cmd
}

func newManifestAlerts() *cobra.Command {
	return &cobra.Command{
		Use: "alerts", Short: "Print the alerts, for rule_files of a Prometheus without the operator", Args: noArgs,
		RunE: func(cmd *cobra.Command, _ []string) error { return text(cmd, ruleFile(packaging.Alerts)) },
	}
}

func newManifestDashboard() *cobra.Command {
	return &cobra.Command{
		Use: "dashboard", Short: "Print the dashboard for Grafana", Args: noArgs,
		RunE: func(cmd *cobra.Command, _ []string) error { return text(cmd, packaging.Dashboard) },
	}
}

func newManifestDaemonset() *cobra.Command {
	var image string
	cmd := &cobra.Command{
		Use: "daemonset", Short: "Print all that a cluster needs for Services, for kubectl apply -f -", Args: noArgs,
		Long: `Print all that a cluster needs for Services, for kubectl apply -f -: the namespace
lbd-system, the CustomResourceDefinitions, the DaemonSet that runs lbd on every node
and the Deployment of the controller, with their rights. On a host that runs lbd
already, a note on stderr says how the DaemonSet is kept away from it.`,
		RunE: func(cmd *cobra.Command, _ []string) error {
			if err := checkImage(image); err != nil {
				return err
			}
			all, err := installation(image)
			if err != nil {
				return err
			}
			noteHost(cmd.ErrOrStderr(), v1alpha1.DefaultSocket)
			return text(cmd, all)
		},
	}
	cmd.Flags().StringVar(&image, "image", imageName+":"+imageTag(), "image to run")
	return cmd
}

// imageName is the image that the manifests name, without a tag.
const imageName = "lbd.dev/lbd"

// checkImage refuses what cannot stand after "image: " in a manifest.
func checkImage(image string) error {
	if image == "" || strings.ContainsAny(image, " \t\n\"'#") {
		return usageError{fmt.Errorf("--image %q is not the name of an image", image)}
	}
	return nil
}

// imageLine is where a manifest names the image.
var imageLine = regexp.MustCompile(`(?m)^(\s+image: )` + regexp.QuoteMeta(imageName) + `:\S+$`)

// installation returns the kustomize base as one stream of documents, in the order
// of its kustomization, with the image in place of its own.
func installation(image string) (string, error) {
	data, err := packaging.Kustomize.ReadFile("kustomize/kustomization.yaml")
	if err != nil {
		return "", err
	}
	var base struct{ Resources []string }
	if err := yaml.Unmarshal(data, &base); err != nil {
		return "", fmt.Errorf("kustomization: %w", err)
	}
	var all strings.Builder
	for _, name := range base.Resources {
		if name == "../crds" {
			crds, err := definitions()
			if err != nil {
				return "", err
			}
			all.WriteString(crds)
			continue
		}
		data, err := packaging.Kustomize.ReadFile("kustomize/" + name)
		if err != nil {
			return "", err
		}
		all.WriteString("---\n")
		all.Write(imageLine.ReplaceAll(data, []byte("${1}"+strings.ReplaceAll(image, "$", "$$"))))
	}
	return all.String(), nil
}

// ruleFile is the spec of a PrometheusRule, which is what Prometheus itself reads.
func ruleFile(object string) string {
	_, spec, _ := strings.Cut(object, "\nspec:\n")
	return strings.ReplaceAll(strings.TrimPrefix(spec, "  "), "\n  ", "\n")
}

// definitions returns the CustomResourceDefinitions as one stream of documents,
// in the order of their names.
func definitions() (string, error) {
	names, err := fs.Glob(packaging.CRDs, "crds/*.yaml")
	if err != nil {
		return "", err
	}
	var all strings.Builder
	for _, name := range names {
		data, err := packaging.CRDs.ReadFile(name)
		if err != nil {
			return "", err
		}
		all.WriteString("---\n")
		all.Write(data)
	}
	return all.String(), nil
}

func text(cmd *cobra.Command, s string) error {
	_, err := fmt.Fprint(cmd.OutOrStdout(), s)
	return err
}

// imageTag is the release, or latest for a build that is none.
func imageTag() string {
	if v := programVersion(); strings.HasPrefix(v, "v") && !strings.ContainsAny(v, "+-") {
		return v
	}
	return "latest"
}

const (
	// secretKey is the entry of the Secret that the manifests mount as keyring.
	secretKey = "gossip.key"
	// secretTimeout bounds the request; kubelet runs the init container again.
	secretTimeout = 30 * time.Second
	// podNamespace is where kubelet tells a pod its namespace.
	podNamespace = "/var/run/secrets/kubernetes.io/serviceaccount/namespace"
)

func newKeygen() *cobra.Command {
	var rotate string
	var s secretFlags
	cmd := &cobra.Command{
		Use:   "keygen",
		Short: "Print a new gossip key, put one at the head of a keyring, or make the Secret of a cluster",
		Long: `Print a new gossip key. With --rotate put a new one at the head of a keyring and
keep the others, which still decrypt. Rotate on one node, copy the keyring to the
others, in any order and at any pace: a daemon encrypts with the first key only
when every live member knows it. Then remove the old key everywhere.

With --secret make a Secret with a new key under gossip.key, and print nothing of
it. A Secret of that name that is there already stays as it is.`,
		Args: noArgs,
		RunE: func(cmd *cobra.Command, _ []string) error {
			switch {
			case s.name != "" && rotate != "":
				return usageError{errors.New("--secret and --rotate exclude each other")}
			case s.name == "" && (s.namespace != "" || s.kubeconfig != ""):
				return usageError{errors.New("--namespace and --kubeconfig are for --secret")}
			case s.name != "":
				return s.create(cmd)
			case rotate != "":
				return config.RotateKey(rotate)
			}
			_, err := fmt.Fprintln(cmd.OutOrStdout(), config.NewKey())
			return err
		},
	}
	cmd.Flags().StringVar(&rotate, "rotate", "", "keyring to put the new key into")
	cmd.Flags().StringVar(&s.name, "secret", "", "name of the Secret to make if there is none")
	cmd.Flags().StringVar(&s.namespace, "namespace", "", "its namespace (default: that of the pod)")
	cmd.Flags().StringVar(&s.kubeconfig, "kubeconfig", "", "how to reach the API server (default: the service account of the pod)")
	return cmd
}

// secretFlags choose a Secret of a cluster.
type secretFlags struct{ name, namespace, kubeconfig string }

// create makes the Secret unless there is one.
func (f *secretFlags) create(cmd *cobra.Command) error {
	if f.namespace == "" {
		data, err := os.ReadFile(podNamespace)
		if err != nil {
			return usageError{errors.New("--secret wants --namespace outside of a pod")}
		}
		f.namespace = strings.TrimSpace(string(data))
	}
	client, err := k8s.New(k8s.Options{Kubeconfig: f.kubeconfig, UserAgent: "lbd-keygen/" + programVersion()})
	if err != nil {
		return err
	}
	ctx, cancel := context.WithTimeout(cmd.Context(), secretTimeout)
	defer cancel()
	created, err := client.CreateSecret(ctx, f.namespace, f.name, secretKey, []byte(config.NewKey()+"\n"))
	if err != nil {
		return err
	}
	if created {
		return text(cmd, fmt.Sprintf("Secret %s/%s: made\n", f.namespace, f.name))
	}
	return text(cmd, fmt.Sprintf("Secret %s/%s: was there already\n", f.namespace, f.name))
}
