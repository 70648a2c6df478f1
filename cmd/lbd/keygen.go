package main

import (
	"context"
	"errors"
	"fmt"
	"os"
	"strings"
	"time"

	"github.com/spf13/cobra"

	"lbd.dev/lbd/internal/config"
	"lbd.dev/lbd/internal/k8s"
)

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
