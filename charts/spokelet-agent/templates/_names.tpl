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

{{/* Nine tenths of the memory limit, in MiB; empty where it is in another unit. */}}
{{- define "spokelet-agent.memory" -}}
{{- $limit := dig "limits" "memory" "" .Values.resources | toString -}}
{{- if regexMatch "^[0-9]+Gi$" $limit -}}
{{ div (mul (trimSuffix "Gi" $limit | int) 1024 9) 10 }}MiB
{{- else if regexMatch "^[0-9]+Mi$" $limit -}}
{{ div (mul (trimSuffix "Mi" $limit | int) 9) 10 }}MiB
{{- end -}}
{{- end }}
