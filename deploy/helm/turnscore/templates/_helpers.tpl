{{- define "turnscore.name" -}}
{{ .Release.Name | replace "." "-" }}
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
{{- $tag := .Values.image.tag | default .Chart.AppVersion -}}
{{- with .Values.gpu }}{{ if .enabled }}{{ $tag = printf "%s%s" (trimSuffix .tagSuffix $tag) .tagSuffix }}{{ end }}{{ end -}}
{{ .Values.image.repository }}{{ with .Values.image.digest }}@{{ . }}{{ else }}:{{ $tag }}{{ end }}
{{- end }}

{{- define "turnscore.models" -}}
{{- $folder := eq .Values.models.source "starter" | ternary "" "/models/" -}}
{{- range $at, $name := .Values.models.names }}{{ if $at }},{{ end }}{{ $folder }}{{ $name }}{{ end -}}
{{- end }}

{{- define "turnscore.grpcProtocol" -}}
{{ empty .Values.grpc.tlsSecret | ternary "kubernetes.io/h2c" "https" }}
{{- end }}

{{- define "turnscore.scaling" -}}
scaleUp:
  stabilizationWindowSeconds: 0
  policies: [{type: Percent, value: 100, periodSeconds: 15}]
scaleDown:
  stabilizationWindowSeconds: 300
  policies: [{type: Pods, value: 1, periodSeconds: 60}]
{{- end }}

{{- /* The names by which callers may ask, where a route leads browsers to the page: it refuses all others. */}}
{{- define "turnscore.allowedHosts" -}}
{{- $hosts := list -}}
{{- $page := false -}}
{{- range list .Values.ingress .Values.gateway }}{{ if .enabled -}}
{{- $hosts = concat $hosts .hosts -}}
{{- $page = or $page (and .hosts (has "/" .paths)) -}}
{{- end }}{{ end -}}
{{- $service := printf "%s.%s" (include "turnscore.name" .) .Release.Namespace -}}
{{- if and $page (not (contains "*" (join "" $hosts))) -}}
{{ concat $hosts (list (include "turnscore.name" .) $service (print $service ".svc") (print $service ".svc.cluster.local")) | uniq | join "," }}
{{- end -}}
{{- end }}
