{{- /*
Fails where values contradict each other, and where most would do nothing: values.schema.json sees each alone. What is
set to its default cannot be told from what is not set; autoscaling.keda is not read for other kinds, and NOTES.txt names
what has values but is off.
*/}}
{{- define "turnscore.refuse" -}}
{{- include "turnscore.refuseScaling" . }}
{{- include "turnscore.refuseModels" . }}
{{- include "turnscore.refuseSettings" . }}
{{- include "turnscore.refuseGpu" . }}
{{- include "turnscore.refuseRoutes" . }}
{{- $cpu := .Values.resources.requests.cpu | toString }}
{{- if not (regexMatch "^[1-9][0-9]*$" $cpu) }}
{{- fail (printf "resources.requests.cpu=%s: must be whole CPUs, such as 2, because each runs one batch at a time" $cpu) }}
{{- end }}
{{- if regexMatch "^[0-9]" .Release.Name }}
{{- fail (printf "the release %s: a Service's name must start with a letter, such as turnscore-%s" .Release.Name .Release.Name) }}
{{- end }}
{{- end }}

{{- define "turnscore.refuseScaling" -}}
{{- with .Values.autoscaling }}
{{- if eq .kind "none" }}
{{- if or (ne (int .min) 2) (ne (int .max) 10) (ne (int .cpuPercent) 70) }}
{{- fail "autoscaling.min, autoscaling.max and autoscaling.cpuPercent do nothing with autoscaling.kind=none: set replicas, or autoscaling.kind=hpa" }}
{{- end }}
{{- else }}
{{- if $.Values.replicas }}
{{- fail (printf "replicas=%v, but autoscaling.kind=%s decides on the number of pods: set autoscaling.min and autoscaling.max, or autoscaling.kind=none" $.Values.replicas .kind) }}
{{- end }}
{{- if gt (int .min) (int .max) }}
{{- fail (printf "autoscaling.min=%v is more than autoscaling.max=%v" .min .max) }}
{{- end }}
{{- end }}
{{- end }}
{{- end }}

{{- define "turnscore.refuseModels" -}}
{{- with .Values.models }}
{{- if and (ne .source "starter") (not .names) }}
{{- fail (printf "models.source=%s: models.names must name the bundles' folders in it" .source) }}
{{- end }}
{{- if and .archive.credentialsSecret (ne .source "archive") }}
{{- fail (printf "models.archive.credentialsSecret does nothing with models.source=%s: set models.source=archive" .source) }}
{{- end }}
{{- range $source, $values := dict "volume" (list "claim") "image" (list "image") "archive" (list "url" "sha256") }}
{{- range $value := $values }}
{{- $where := eq $source "archive" | ternary $.Values.models.archive $.Values.models }}
{{- $name := eq $source "archive" | ternary (printf "models.archive.%s" $value) (printf "models.%s" $value) }}
{{- if and (eq $source $.Values.models.source) (not (get $where $value)) }}
{{- fail (printf "%s is empty; models.source=%s needs it" $name $source) }}
{{- else if and (ne $source $.Values.models.source) (get $where $value) }}
{{- fail (printf "%s does nothing with models.source=%s: set models.source=%s" $name $.Values.models.source $source) }}
{{- end }}
{{- end }}
{{- end }}
{{- end }}
{{- end }}

{{- /* Twice in a pod, a variable has the value that Kubernetes happens to take; or a probe asks where nothing answers. */}}
{{- define "turnscore.refuseSettings" -}}
{{- $set := dict
  "TURNSCORE_MODELS" "models.names"
  "TURNSCORE_DRAIN_SECONDS" "drainSeconds"
  "TURNSCORE_SHUTDOWN_SECONDS" "shutdownSeconds"
  "TURNSCORE_GRPC__MAX_CONNECTION_AGE_SECONDS" "grpc.maxConnectionAgeSeconds"
  "TURNSCORE_GRPC__TLS_CERT_FILE" "grpc.tlsSecret"
  "TURNSCORE_GRPC__TLS_KEY_FILE" "grpc.tlsSecret"
  "TURNSCORE_AUTH__KEYS_FILE" "keysSecret"
  "TURNSCORE_AUTH__KEYS" "keysSecret or secretSettings"
  "TURNSCORE_CACHE__URL" "cache.secret"
  "TURNSCORE_CACHE__PASSWORD" "secretSettings"
  "TURNSCORE_CACHE__SENTINEL_PASSWORD" "secretSettings"
  "TURNSCORE_CACHE__SECRET" "secretSettings"
}}
{{- $fixed := list "TURNSCORE_HTTP__HOST" "TURNSCORE_HTTP__PORT" "TURNSCORE_GRPC__HOST" "TURNSCORE_GRPC__PORT" "TURNSCORE_GRPC__ENABLED" }}
{{- range $name, $value := .Values.settings }}
{{- with get $set $name }}
{{- fail (printf "settings.%s is not set here, but as %s" $name .) }}
{{- end }}
{{- if has $name $fixed }}
{{- fail (printf "settings.%s: Services and probes need the chart's" $name) }}
{{- end }}
{{- end }}
{{- end }}

{{- /* Whatever would hold a GPU while CPUs compute. */}}
{{- define "turnscore.refuseGpu" -}}
{{- $gpu := .Values.gpu }}
{{- $device := get .Values.settings "TURNSCORE_RUNTIME__DEVICE" | toString }}
{{- $workers := get .Values.settings "TURNSCORE_WORKERS" | default 1 }}
{{- if $gpu.enabled }}
{{- if eq .Values.models.source "starter" }}
{{- fail "gpu.enabled: the starter models have graphs for CPUs only (cpu-int8), so the GPU would be idle. Export bundles with `turnscore export KIND --graph cuda-fp16`, and set models.source=volume, image or archive" }}
{{- end }}
{{- if and $device (not (hasPrefix "cuda" $device)) }}
{{- fail (printf "gpu.enabled and settings.TURNSCORE_RUNTIME__DEVICE=%s: the GPU could be idle; leave the setting out" $device) }}
{{- end }}
{{- if gt (int $gpu.count) (int $workers) }}
{{- fail (printf "gpu.count=%v, but a worker uses one GPU: use more pods of one GPU, or settings.TURNSCORE_WORKERS=%v" $gpu.count $gpu.count) }}
{{- end }}
{{- else }}
{{- if hasPrefix "cuda" $device }}
{{- fail (printf "settings.TURNSCORE_RUNTIME__DEVICE=%s needs gpu.enabled=true" $device) }}
{{- end }}
{{- range $where := list "requests" "limits" }}
{{- if hasKey (get $.Values.resources $where | default dict) $gpu.resource }}
{{- fail (printf "resources.%s names %s: set gpu.enabled=true instead, or CPUs compute while pods hold GPUs" $where $gpu.resource) }}
{{- end }}
{{- end }}
{{- end }}
{{- end }}

{{- define "turnscore.refuseRoutes" -}}
{{- with .Values.ingress }}
{{- if and .enabled (not .hosts) }}
{{- fail "ingress.enabled: ingress.hosts is empty" }}
{{- end }}
{{- end }}
{{- with .Values.gateway }}
{{- if .enabled }}
{{- if not .parentRefs }}
{{- fail "gateway.enabled: gateway.parentRefs is empty; it names the Gateways, such as [{name: public, namespace: gateways}]" }}
{{- end }}
{{- if not (concat .hosts .grpcHosts) }}
{{- fail "gateway.enabled: set gateway.hosts (HTTP), gateway.grpcHosts (gRPC) or both" }}
{{- end }}
{{- range .grpcHosts }}
{{- if has . $.Values.gateway.hosts }}
{{- fail (printf "gateway: %s is in hosts and grpcHosts, but a Gateway accepts one of an HTTPRoute and a GRPCRoute for a host" .) }}
{{- end }}
{{- end }}
{{- end }}
{{- end }}
{{- end }}
