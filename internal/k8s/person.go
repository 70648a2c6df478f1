package k8s

import (
	"fmt"

	"k8s.io/client-go/tools/clientcmd"
)

// NewForPerson makes a Client as kubectl would: of the kubeconfig file, else of those that KUBECONFIG names,
// else of ~/.kube/config; of its context with this name, else of the current one.
func NewForPerson(kubeconfig, context string, o Options) (*Client, error) {
	rules := clientcmd.NewDefaultClientConfigLoadingRules()
	rules.ExplicitPath = kubeconfig
	cfg, err := clientcmd.NewNonInteractiveDeferredLoadingClientConfig(rules, &clientcmd.ConfigOverrides{CurrentContext: context}).ClientConfig()
	if err != nil {
		return nil, fmt.Errorf("kubeconfig: %w", err)
	}
	return NewFor(cfg, o)
}
