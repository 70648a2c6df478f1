package packaging

import (
	"strings"
	"testing"

	"sigs.k8s.io/yaml"
)

// TestSchemaRefuses: each wrong value is refused, and the error names where it is.
func TestSchemaRefuses(t *testing.T) {
	for text, where := range map[string]string{
		"imge: {tag: v1}":                                           "imge",
		"image: {tag: 'a b'}":                                       "/image/tag",
		"image: {digest: 'sha256:12'}":                              "/image/digest",
		"image: {pullPolicy: Sometimes}":                            "/image/pullPolicy",
		"image: {repository: 'a@b'}":                                "/image/repository",
		"imagePullSecrets: [a]":                                     "/imagePullSecrets/0",
		"loadBalancerClass: 'a b'":                                  "/loadBalancerClass",
		"classless: 'yes'":                                          "/classless",
		"gossip: {secretName: A_B}":                                 "/gossip/secretName",
		"gossip: {keyFile: /a}":                                     "/gossip",
		"speaker: {configuration: {socket: /a}}":                    "/speaker/configuration/socket",
		"speaker: {configuration: {nodeName: a}}":                   "/speaker/configuration/nodeName",
		"speaker: {configuration: {kind: a}}":                       "/speaker/configuration/kind",
		"speaker: {configuration: {gossip: {keyFile: /a}}}":         "/speaker/configuration/gossip/keyFile",
		"speaker: {configuration: {gossip: {port: 70000}}}":         "/speaker/configuration/gossip/port",
		"speaker: {configuration: {kubernetes: {classless: true}}}": "/speaker/configuration/kubernetes/classless",
		"speaker: {configuration: {kubernetes: {kubeconfig: /a}}}":  "/speaker/configuration/kubernetes/kubeconfig",
		"speaker: {configuration: {metrics: {address: ':1'}}}":      "/speaker/configuration/metrics/address",
		"monitoring: {enabled: 'yes'}":                              "/monitoring/enabled",
		"monitoring: {port: 0}":                                     "/monitoring/port",
		"monitoring: {podMonitors: true}":                           "/monitoring",
		"monitoring: {labels: {a: 1}}":                              "/monitoring/labels/a",
		"monitoring: {dashboardLabels: {a: true}}":                  "/monitoring/dashboardLabels/a",
		"speaker: {terminationGracePeriodSeconds: 5}":               "/speaker/terminationGracePeriodSeconds",
		"speaker: {maxUnavailable: 0}":                              "/speaker/maxUnavailable",
		"speaker: {resources: {request: {}}}":                       "/speaker/resources",
		"speaker: {tolerations: {}}":                                "/speaker/tolerations",
		"speaker: {podLabels: {a: 1}}":                              "/speaker/podLabels/a",
		"speaker: {privileged: true}":                               "/speaker",
		"controller: {replicas: 0}":                                 "/controller/replicas",
		"controller: {quarantine: 60}":                              "/controller/quarantine",
		"controller: {quarantine: 1x}":                              "/controller/quarantine",
		"controller: {networkPolicy: {apiServerPorts: []}}":         "/controller/networkPolicy/apiServerPorts",
		"controller: {networkPolicy: {apiServerPorts: [0]}}":        "/controller/networkPolicy/apiServerPorts/0",
	} {
		_, err := Chart(chart, parse(t, text))
		if err == nil || !strings.Contains(err.Error(), where) {
			t.Errorf("%s: %v, want an error about %s", text, err, where)
		}
	}
}

// TestSchemaTakes: what people set gives objects that an API server knows.
func TestSchemaTakes(t *testing.T) {
	for text, want := range map[string]string{
		"image: {repository: 'r.example.net:5000/lbd', tag: v1-rc.1_a}":                                     "image: r.example.net:5000/lbd:v1-rc.1_a\n",
		"image: {digest: 'sha256:" + strings.Repeat("0a", 32) + "'}":                                        "@sha256:0a0a",
		"image: {pullPolicy: Always}":                                                                       "imagePullPolicy: Always",
		"imagePullSecrets: [{name: reg}]":                                                                   "- name: reg\n",
		"gossip: {secretName: other}":                                                                       "--secret=other",
		"speaker: {maxUnavailable: 10%}":                                                                    "maxUnavailable: 10%",
		"speaker: {seLinuxOptions: {type: spc_t}}":                                                          "type: spc_t",
		"speaker: {nodeSelector: {a: b}, podAnnotations: {c: d}, podLabels: {e: f}}":                        "a: b\n",
		"speaker: {extraVolumes: [{name: x, emptyDir: {}}], extraVolumeMounts: [{name: x, mountPath: /x}]}": "mountPath: /x\n",
		"speaker: {resources: {limits: {memory: 1Gi}}}":                                                     "memory: 1Gi",
		"speaker: {configuration: {http: {address: '10.0.0.1:99'}}}":                                        "host: 10.0.0.1\n",
		"speaker: {configuration: {http: {address: '[fd00::1]:99'}}}":                                       "host: fd00::1\n",
		"speaker: {tolerations: []}":                                                                        "",
		"controller: {replicas: 3, extraArgs: [--lease-name=a]}":                                            "- --lease-name=a\n",
		"controller: {quarantine: 1m30s}":                                                                   "- --quarantine=1m30s\n",
		"controller: {networkPolicy: {apiServerPorts: [8443]}}":                                             "port: 8443\n",
		"controller: {nodeSelector: {a: b}, tolerations: [], podLabels: {c: d}, podAnnotations: {e: f}}":    "a: b\n",
	} {
		objects, err := Chart(chart, parse(t, text))
		if err != nil {
			t.Errorf("%s: %v", text, err)
			continue
		}
		checkTypes(t, objects)
		var out strings.Builder
		if err := Write(&out, objects); err != nil || !strings.Contains(out.String(), want) {
			t.Errorf("%s: %v, the objects do not have %q", text, err, want)
		}
	}
}

// TestSwitches: what is switched off is not there.
func TestSwitches(t *testing.T) {
	off := index(t, charted(t, parse(t, `
gossip: {createSecret: false}
controller: {podDisruptionBudget: false, networkPolicy: {enabled: false}}
speaker: {configuration: {http: {address: "off"}}}`)))
	for _, key := range []string{"PodDisruptionBudget/lbd-system/lbd-controller", "NetworkPolicy/lbd-system/lbd-controller"} {
		if _, ok := off[key]; ok {
			t.Errorf("%s is there", key)
		}
	}
	if n := len(containers(off["Deployment/lbd-system/lbd-controller"])); n != 1 {
		t.Errorf("%d containers", n)
	}
	for _, r := range rights(off["Role/lbd-system/lbd-controller"]) {
		if strings.Contains(r, "secrets") {
			t.Errorf("the controller may %s", r)
		}
	}
	if p := containers(off["DaemonSet/lbd-system/lbd"])[0]["livenessProbe"]; p != nil {
		t.Errorf("asks what does not listen: %v", p)
	}
}

func parse(t *testing.T, text string) map[string]any {
	t.Helper()
	var values map[string]any
	if err := yaml.UnmarshalStrict([]byte(text), &values); err != nil {
		t.Fatal(err)
	}
	return values
}
