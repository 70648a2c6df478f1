package packaging

import (
	"testing"

	monitoringv1 "github.com/prometheus-operator/prometheus-operator/pkg/apis/monitoring/v1"
	admissionv1 "k8s.io/api/admissionregistration/v1"
	appsv1 "k8s.io/api/apps/v1"
	coordinationv1 "k8s.io/api/coordination/v1"
	corev1 "k8s.io/api/core/v1"
	networkingv1 "k8s.io/api/networking/v1"
	policyv1 "k8s.io/api/policy/v1"
	rbacv1 "k8s.io/api/rbac/v1"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"sigs.k8s.io/yaml"
)

// types are what an API server reads the objects into. The definitions of custom
// resources have tests of their own.
var types = map[schema.GroupVersionKind]func() any{
	{Version: "v1", Kind: "Namespace"}:                                                               func() any { return new(corev1.Namespace) },
	{Version: "v1", Kind: "ServiceAccount"}:                                                          func() any { return new(corev1.ServiceAccount) },
	{Version: "v1", Kind: "Service"}:                                                                 func() any { return new(corev1.Service) },
	{Group: "monitoring.coreos.com", Version: "v1", Kind: "ServiceMonitor"}:                          func() any { return new(monitoringv1.ServiceMonitor) },
	{Group: "monitoring.coreos.com", Version: "v1", Kind: "PrometheusRule"}:                          func() any { return new(monitoringv1.PrometheusRule) },
	{Version: "v1", Kind: "Secret"}:                                                                  func() any { return new(corev1.Secret) },
	{Version: "v1", Kind: "ResourceQuota"}:                                                           func() any { return new(corev1.ResourceQuota) },
	{Version: "v1", Kind: "ConfigMap"}:                                                               func() any { return new(corev1.ConfigMap) },
	{Group: "admissionregistration.k8s.io", Version: "v1", Kind: "ValidatingAdmissionPolicy"}:        func() any { return new(admissionv1.ValidatingAdmissionPolicy) },
	{Group: "admissionregistration.k8s.io", Version: "v1", Kind: "ValidatingAdmissionPolicyBinding"}: func() any { return new(admissionv1.ValidatingAdmissionPolicyBinding) },
	{Group: "apps", Version: "v1", Kind: "DaemonSet"}:                                                func() any { return new(appsv1.DaemonSet) },
	{Group: "apps", Version: "v1", Kind: "Deployment"}:                                               func() any { return new(appsv1.Deployment) },
	{Group: "policy", Version: "v1", Kind: "PodDisruptionBudget"}:                                    func() any { return new(policyv1.PodDisruptionBudget) },
	{Group: "networking.k8s.io", Version: "v1", Kind: "IngressClass"}:                                func() any { return new(networkingv1.IngressClass) },
	{Group: "networking.k8s.io", Version: "v1", Kind: "NetworkPolicy"}:                               func() any { return new(networkingv1.NetworkPolicy) },
	{Group: "coordination.k8s.io", Version: "v1", Kind: "Lease"}:                                     func() any { return new(coordinationv1.Lease) },
	{Group: "rbac.authorization.k8s.io", Version: "v1", Kind: "Role"}:                                func() any { return new(rbacv1.Role) },
	{Group: "rbac.authorization.k8s.io", Version: "v1", Kind: "RoleBinding"}:                         func() any { return new(rbacv1.RoleBinding) },
	{Group: "rbac.authorization.k8s.io", Version: "v1", Kind: "ClusterRole"}:                         func() any { return new(rbacv1.ClusterRole) },
	{Group: "rbac.authorization.k8s.io", Version: "v1", Kind: "ClusterRoleBinding"}:                  func() any { return new(rbacv1.ClusterRoleBinding) },
	{Group: "apiextensions.k8s.io", Version: "v1", Kind: "CustomResourceDefinition"}:                 nil,
}

// checkTypes reads every object into its type: no field that is not known, no value
// of another type.
func checkTypes(t *testing.T, objects []Object) {
	t.Helper()
	for _, o := range objects {
		kind := schema.FromAPIVersionAndKind(o.Text("apiVersion"), o.Text("kind"))
		fresh, known := types[kind]
		if !known {
			t.Errorf("%s: %v is not among the kinds that are installed", o.Key(), kind)
		}
		if fresh == nil {
			continue
		}
		data, err := yaml.Marshal(o)
		if err == nil {
			err = yaml.UnmarshalStrict(data, fresh())
		}
		if err != nil {
			t.Errorf("%s: %v", o.Key(), err)
		}
	}
}

func TestTypes(t *testing.T) {
	checkTypes(t, kustomized(t))
	checkTypes(t, charted(t, nil))
}
