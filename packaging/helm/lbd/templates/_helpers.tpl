{{/* Labels of every object. Names are fixed: two installations would fight over ports of the nodes. */}}
{{- define "lbd.labels" -}}
app.kubernetes.io/name: lbd
app.kubernetes.io/component: {{ .component }}
app.kubernetes.io/instance: {{ .root.Release.Name }}
app.kubernetes.io/version: {{ .root.Chart.AppVersion | quote }}
app.kubernetes.io/managed-by: {{ .root.Release.Service }}
helm.sh/chart: {{ printf "%s-%s" .root.Chart.Name .root.Chart.Version | replace "+" "_" }}
{{- end }}

{{- define "lbd.selector" -}}
app.kubernetes.io/name: lbd
app.kubernetes.io/component: {{ .component }}
{{- end }}

{{- define "lbd.image" -}}
{{- if .Values.image.digest -}}
{{ .Values.image.repository }}@{{ .Values.image.digest }}
{{- else -}}
{{ .Values.image.repository }}:{{ .Values.image.tag | default .Chart.AppVersion }}
{{- end -}}
{{- end }}

{{- define "lbd.imageLines" -}}
image: {{ include "lbd.image" . | quote }}
{{- with .Values.image.pullPolicy }}
imagePullPolicy: {{ . }}
{{- end }}
{{- end }}

{{/* The NodeConfiguration of every node. */}}
{{- define "lbd.configuration" -}}
{{- $kubernetes := dict -}}
{{- if ne .Values.loadBalancerClass "lbd.dev/lbd" }}{{ $_ := set $kubernetes "loadBalancerClass" .Values.loadBalancerClass }}{{ end -}}
{{- if .Values.classless }}{{ $_ := set $kubernetes "classless" true }}{{ end -}}
{{- $ours := dict "apiVersion" "lbd.dev/v1alpha1" "kind" "NodeConfiguration" "gossip" (dict "keyFile" "/etc/lbd/gossip.key") "kubernetes" $kubernetes -}}
{{- if .Values.monitoring.enabled }}{{ $_ := set $ours "metrics" (dict "address" (printf ":%d" (int .Values.monitoring.port))) }}{{ end -}}
{{- toYaml (mergeOverwrite $ours (deepCopy .Values.speaker.configuration)) -}}
{{- end }}
