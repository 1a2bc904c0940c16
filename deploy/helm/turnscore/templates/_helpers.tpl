{{- define "turnscore.name" -}}
{{ .Release.Name | trunc 50 | trimSuffix "-" }}
{{- end }}

{{- define "turnscore.selector" -}}
app.kubernetes.io/name: turnscore
app.kubernetes.io/instance: {{ .Release.Name }}
{{- end }}

{{- define "turnscore.labels" -}}
{{ include "turnscore.selector" . }}
app.kubernetes.io/version: {{ .Chart.AppVersion | quote }}
helm.sh/chart: {{ .Chart.Name }}-{{ .Chart.Version }}
{{- end }}

{{- define "turnscore.image" -}}
{{ .Values.image.repository }}{{ if .Values.image.digest }}@{{ .Values.image.digest }}{{ else }}:{{ .Values.image.tag | default .Chart.AppVersion }}{{ end }}
{{- end }}

{{- define "turnscore.models" -}}
{{- if ne .Values.models.source "starter" -}}
{{- if not .Values.models.names }}{{ fail "models.names must name the bundles' folders" }}{{ end -}}
{{- range $at, $name := .Values.models.names }}{{ if $at }},{{ end }}/models/{{ $name }}{{ end -}}
{{- end -}}
{{- end }}

{{- define "turnscore.scaling" -}}
scaleUp:
  stabilizationWindowSeconds: 0
  policies: [{type: Percent, value: 100, periodSeconds: 15}]
scaleDown:
  stabilizationWindowSeconds: 300
  policies: [{type: Pods, value: 1, periodSeconds: 60}]
{{- end }}
