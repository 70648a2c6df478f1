package main

import (
	"fmt"
	"io/fs"
	"regexp"
	"strings"

	"github.com/spf13/cobra"
	"sigs.k8s.io/yaml"

	"lbd.dev/lbd/api/v1alpha1"
	"lbd.dev/lbd/internal/config"
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
