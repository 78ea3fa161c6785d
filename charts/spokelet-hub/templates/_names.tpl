{{- define "spokelet-hub.selector" -}}
app.kubernetes.io/name: spokelet-hub
app.kubernetes.io/instance: {{ .Release.Name }}
{{- end }}

{{- define "spokelet-hub.labels" -}}
{{ include "spokelet-hub.selector" . }}
app.kubernetes.io/part-of: spokelet
app.kubernetes.io/version: {{ .Chart.AppVersion | quote }}
app.kubernetes.io/managed-by: {{ .Release.Service }}
helm.sh/chart: {{ printf "%s-%s" .Chart.Name .Chart.Version }}
{{- with .Values.commonLabels }}
{{ toYaml . }}
{{- end }}
{{- end }}

{{- define "spokelet-hub.image" -}}
{{- with .Values.image -}}
{{- if .digest -}}
{{ .repository }}@{{ .digest }}
{{- else -}}
{{ .repository }}:{{ .tag | default $.Chart.AppVersion }}
{{- end -}}
{{- end -}}
{{- end }}

{{- define "spokelet-hub.restricted" -}}
allowPrivilegeEscalation: false
readOnlyRootFilesystem: true
capabilities:
  drop: [ALL]
{{- end }}
