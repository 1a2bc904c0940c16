{{- define "turnscore.env" -}}
{{- $settings := .Values.settings -}}
# What the pod asks for is all it should use; a request of CPUs cannot be seen from inside.
{{- if not (hasKey $settings "TURNSCORE_RUNTIME__THREADS") }}
- {name: TURNSCORE_RUNTIME__THREADS, value: "1"}
{{- end }}
{{- if not (or .Values.gpu.enabled (hasKey $settings "TURNSCORE_RUNTIME__CONCURRENT_BATCHES")) }}
- name: TURNSCORE_RUNTIME__CONCURRENT_BATCHES
  valueFrom:
    resourceFieldRef: {containerName: turnscore, resource: requests.cpu, divisor: "1"}
{{- end }}
{{- if and .Values.gpu.enabled (not (hasKey $settings "TURNSCORE_RUNTIME__DEVICE")) }}
- {name: TURNSCORE_RUNTIME__DEVICE, value: cuda}
{{- end }}
- {name: TURNSCORE_DRAIN_SECONDS, value: {{ .Values.drainSeconds | quote }}}
- {name: TURNSCORE_SHUTDOWN_SECONDS, value: {{ .Values.shutdownSeconds | quote }}}
- {name: TURNSCORE_GRPC__MAX_CONNECTION_AGE_SECONDS, value: {{ .Values.grpc.maxConnectionAgeSeconds | quote }}}
{{- with include "turnscore.models" . }}
- {name: TURNSCORE_MODELS, value: {{ . | quote }}}
{{- end }}
{{- with include "turnscore.allowedHosts" . }}
{{- if not (hasKey $settings "TURNSCORE_HTTP__ALLOWED_HOSTS") }}
- {name: TURNSCORE_HTTP__ALLOWED_HOSTS, value: {{ . | quote }}}
{{- end }}
{{- end }}
{{- with .Values.cache.secret }}
- name: TURNSCORE_CACHE__URL
  valueFrom:
    secretKeyRef: {name: {{ . }}, key: {{ $.Values.cache.secretKey }}}
{{- end }}
{{- if .Values.keysSecret }}
- {name: TURNSCORE_AUTH__KEYS_FILE, value: /etc/turnscore/keys/keys.toml}
{{- end }}
{{- if .Values.grpc.tlsSecret }}
- {name: TURNSCORE_GRPC__TLS_CERT_FILE, value: /etc/turnscore/tls/tls.crt}
- {name: TURNSCORE_GRPC__TLS_KEY_FILE, value: /etc/turnscore/tls/tls.key}
{{- end }}
{{- range $name, $value := $settings }}
- {name: {{ $name }}, value: {{ kindIs "string" $value | ternary $value (toJson $value) | quote }}}
{{- end }}
{{- end }}

{{- define "turnscore.resources" -}}
{{- $resources := deepCopy .Values.resources -}}
{{- if .Values.gpu.enabled -}}
{{- $resources = mustMergeOverwrite $resources (dict "limits" (dict .Values.gpu.resource .Values.gpu.count)) -}}
{{- end -}}
{{ toYaml $resources }}
{{- end }}

{{- define "turnscore.mounts" -}}
- {name: tmp, mountPath: /tmp}
{{- if ne .Values.models.source "starter" }}
- {name: models, mountPath: /models, readOnly: true}
{{- end }}
{{- if .Values.keysSecret }}
- {name: keys, mountPath: /etc/turnscore/keys, readOnly: true}
{{- end }}
{{- if .Values.grpc.tlsSecret }}
- {name: tls, mountPath: /etc/turnscore/tls, readOnly: true}
{{- end }}
{{- if .Values.cache.caSecret }}
- {name: redis-ca, mountPath: /etc/turnscore/redis, readOnly: true}
{{- end }}
{{- end }}

{{- define "turnscore.volumes" -}}
- name: tmp
  emptyDir: {medium: Memory, sizeLimit: 128Mi}
{{- if eq .Values.models.source "volume" }}
- name: models
  persistentVolumeClaim: {claimName: {{ .Values.models.claim }}, readOnly: true}
{{- else if eq .Values.models.source "image" }}
- name: models
  image: {reference: {{ .Values.models.image | quote }}, pullPolicy: IfNotPresent}
{{- else if eq .Values.models.source "archive" }}
- name: models
  emptyDir: {sizeLimit: {{ .Values.models.archive.size }}}
{{- end }}
{{- with .Values.keysSecret }}
- name: keys
  secret: {secretName: {{ . }}}
{{- end }}
{{- with .Values.grpc.tlsSecret }}
- name: tls
  secret: {secretName: {{ . }}}
{{- end }}
{{- with .Values.cache.caSecret }}
- name: redis-ca
  secret: {secretName: {{ . }}}
{{- end }}
{{- end }}

{{- define "turnscore.fetching" -}}
- name: models
  image: {{ include "turnscore.image" . | quote }}
  imagePullPolicy: {{ .Values.image.pullPolicy }}
  command: [turnscore, models, fetch]
  args:
    - {{ .Values.models.archive.url | quote }}
    - --sha256={{ .Values.models.archive.sha256 }}
    - --folder=/models
  {{- with .Values.models.archive.credentialsSecret }}
  envFrom: [{secretRef: {name: {{ . }}}}]
  {{- end }}
  resources: {requests: {cpu: 100m, memory: 128Mi}, limits: {memory: 512Mi}}
  securityContext: {allowPrivilegeEscalation: false, readOnlyRootFilesystem: true, capabilities: {drop: [ALL]}}
  volumeMounts:
    - {name: tmp, mountPath: /tmp}
    - {name: models, mountPath: /models}
{{- end }}
