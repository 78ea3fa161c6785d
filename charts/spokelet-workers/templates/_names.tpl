{{- define "spokelet-workers.selector" -}}
app.kubernetes.io/name: spokelet-workers
app.kubernetes.io/instance: {{ .Release.Name }}
{{- end }}

{{- define "spokelet-workers.labels" -}}
{{ include "spokelet-workers.selector" . }}
app.kubernetes.io/part-of: spokelet
app.kubernetes.io/version: {{ .Chart.AppVersion | quote }}
app.kubernetes.io/managed-by: {{ .Release.Service }}
helm.sh/chart: {{ printf "%s-%s" .Chart.Name .Chart.Version }}
{{- with .Values.commonLabels }}
{{ toYaml . }}
{{- end }}
{{- end }}

{{- define "spokelet-workers.apiSelector" -}}
app.kubernetes.io/name: spokelet-workers-api
app.kubernetes.io/instance: {{ .Release.Name }}
{{- end }}

{{- define "spokelet-workers.apiLabels" -}}
{{ include "spokelet-workers.labels" . | replace "app.kubernetes.io/name: spokelet-workers" "app.kubernetes.io/name: spokelet-workers-api" }}
{{- end }}

{{- define "spokelet-workers.image" -}}
{{- with .Values.image -}}
{{- if .digest -}}
{{ .repository }}@{{ .digest }}
{{- else -}}
{{ .repository }}:{{ .tag | default $.Chart.AppVersion }}
{{- end -}}
{{- end -}}
{{- end }}

{{- define "spokelet-workers.restricted" -}}
allowPrivilegeEscalation: false
readOnlyRootFilesystem: true
capabilities:
  drop: [ALL]
{{- end }}

{{/* Nine tenths of the memory limit of resources, in MiB; empty where it is in another unit. */}}
{{- define "spokelet-workers.memory" -}}
{{- $limit := dig "limits" "memory" "" . | toString -}}
{{- if regexMatch "^[0-9]+Gi$" $limit -}}
{{ div (mul (trimSuffix "Gi" $limit | int) 1024 9) 10 }}MiB
{{- else if regexMatch "^[0-9]+Mi$" $limit -}}
{{ div (mul (trimSuffix "Mi" $limit | int) 9) 10 }}MiB
{{- end -}}
{{- end }}

{{/* The image of workerd. */}}
{{- define "spokelet-workers.runtime" -}}
{{ .Values.registry.runtime | default (printf "ghcr.io/spokelet/spokelet-workerd:%s" .Chart.AppVersion) }}
{{- end }}

{{/* The API as API servers of the clusters know it. */}}
{{- define "spokelet-workers.tailUser" -}}
{{- if .Values.api.enabled -}}
{{ .Values.api.clusterUser | default (printf "hub:system:serviceaccount:%s:spokelet-workers-api" .Release.Namespace) }}
{{- end -}}
{{- end }}

{{/* The Secrets that the operator reads, by the folder that each step of a build has too. */}}
{{- define "spokelet-workers.secrets" -}}
store: {{ .Values.store.credentialsSecret | quote }}
store-ca: {{ .Values.store.caSecret | quote }}
registry: {{ .Values.registry.pushSecret | quote }}
registry-ca: {{ .Values.registry.caSecret | quote }}
{{- end }}
