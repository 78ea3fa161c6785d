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

{{/* Nine tenths of the memory limit, in MiB; empty where it is in another unit. */}}
{{- define "spokelet-hub.memory" -}}
{{- $limit := dig "limits" "memory" "" .Values.resources | toString -}}
{{- if regexMatch "^[0-9]+Gi$" $limit -}}
{{ div (mul (trimSuffix "Gi" $limit | int) 1024 9) 10 }}MiB
{{- else if regexMatch "^[0-9]+Mi$" $limit -}}
{{ div (mul (trimSuffix "Mi" $limit | int) 9) 10 }}MiB
{{- end -}}
{{- end }}

{{/* What the webhooks have in common. */}}
{{- define "spokelet-hub.webhook" -}}
admissionReviewVersions: [v1]
sideEffects: None
timeoutSeconds: 10
rules:
  - apiGroups: [work.open-cluster-management.io]
    apiVersions: [v1]
    resources: [manifestworks]
    operations: [CREATE, UPDATE]
    scope: Namespaced
{{- if .Values.admission.nilExecutorValidating }}
  # Those name no executor, and are executed as ManifestWorks without one.
  - apiGroups: [multicluster.x-k8s.io]
    apiVersions: [v1alpha1]
    resources: [works]
    operations: [CREATE, UPDATE]
    scope: Namespaced
{{- end }}
# Labels, finalizers and owners of a work can be changed without the hub.
matchConditions:
  - name: spec-is-new
    expression: request.operation == 'CREATE' || object.?spec != oldObject.?spec
{{- end }}
