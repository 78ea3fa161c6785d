{{- define "spokelet-agent.selector" -}}
app.kubernetes.io/name: spokelet-agent
app.kubernetes.io/instance: {{ .Release.Name }}
{{- end }}

{{- define "spokelet-agent.labels" -}}
{{ include "spokelet-agent.selector" . }}
app.kubernetes.io/part-of: spokelet
app.kubernetes.io/version: {{ .Chart.AppVersion | quote }}
app.kubernetes.io/managed-by: {{ .Release.Service }}
helm.sh/chart: {{ printf "%s-%s" .Chart.Name .Chart.Version }}
{{- with .Values.commonLabels }}
{{ toYaml . }}
{{- end }}
{{- end }}

{{- define "spokelet-agent.image" -}}
{{- with .Values.image -}}
{{- if .digest -}}
{{ .repository }}@{{ .digest }}
{{- else -}}
{{ .repository }}:{{ .tag | default $.Chart.AppVersion }}
{{- end -}}
{{- end -}}
{{- end }}

{{- define "spokelet-agent.restricted" -}}
allowPrivilegeEscalation: false
readOnlyRootFilesystem: true
capabilities:
  drop: [ALL]
{{- end }}

{{/* A quantity of memory in MiB; empty where it is in another unit than Mi and Gi. */}}
{{- define "spokelet-agent.mib" -}}
{{- if regexMatch "^[0-9]+Gi$" . -}}
{{ mul (trimSuffix "Gi" . | int) 1024 }}
{{- else if regexMatch "^[0-9]+Mi$" . -}}
{{ trimSuffix "Mi" . }}
{{- end -}}
{{- end }}

{{/* The hub refuses these names, and the agent would hear of it only at its first join. */}}
{{- define "spokelet-agent.cluster" -}}
{{- $name := .Values.cluster.name -}}
{{- if or (eq $name "default") (hasPrefix "kube-" $name) -}}
{{- fail (printf "cluster.name: cluster name %q: name is that of a namespace with a purpose of its own" $name) -}}
{{- end -}}
{{ $name }}
{{- end }}

{{/* Nine tenths of the memory limit, less what two processes of Helm may use; empty where
     the limit is in another unit. */}}
{{- define "spokelet-agent.memory" -}}
{{- $limit := include "spokelet-agent.mib" (dig "limits" "memory" "" .Values.resources | toString) -}}
{{- if $limit -}}
{{- $left := int $limit -}}
{{- if .Values.helm.charts -}}
{{- $left = sub $left (mul 2 (include "spokelet-agent.mib" .Values.helm.memory | int)) -}}
{{- if lt $left 100 -}}
{{- fail (printf "resources.limits.memory: %sMi does not hold twice helm.memory (%s) and 100Mi for the agent" $limit .Values.helm.memory) -}}
{{- end -}}
{{- end -}}
{{ div (mul $left 9) 10 }}MiB
{{- end -}}
{{- end }}
