{{/* The variables of serve, as a list. */}}
{{- define "transom.env" -}}
{{- $name := include "transom.fullname" . }}
{{- $mounted := ne .Values.certificates.mode "self-managed" }}
{{- $clientCa := .Values.clientCertificates.caConfigMap.name }}
{{- $knowledge := .Values.knowledge.configMap.name }}
{{- $imagesCa := and .Values.imageLookups.registries .Values.imageLookups.caConfigMap.name }}
- name: TRANSOM_NAMESPACE
  valueFrom:
    fieldRef:
      apiVersion: v1
      fieldPath: metadata.namespace
- name: TRANSOM_IDENTITY
  valueFrom:
    fieldRef:
      apiVersion: v1
      fieldPath: metadata.name
- name: TRANSOM_LEASE
  value: {{ $name | quote }}
- name: TRANSOM_SERVICE
  value: {{ printf "%s.%s" $name .Release.Namespace | quote }}
- name: TRANSOM_NAME
  value: {{ $name | quote }}
{{- /* An empty value means no namespace; without the variable, the program uses its default list. */}}
- name: TRANSOM_EXCLUDE_NAMESPACE
  {{- with .Values.webhooks.excludedNamespaces }}
  value: {{ join "," . | quote }}
  {{- end }}
{{- with .Values.documentation.baseURL }}
- name: TRANSOM_DOCUMENTATION_BASE_URL
  value: {{ . | quote }}
{{- end }}
{{- if .Values.reports.enabled }}
- name: TRANSOM_REPORTS
  value: "true"
{{- end }}
{{- if .Values.probe.enabled }}
- name: TRANSOM_PROBE_NAMESPACE
  value: {{ .Values.probe.namespace | quote }}
{{- end }}
{{- with include "transom.imagePullerAccount" . }}
- name: TRANSOM_IMAGE_PULLER_SERVICE_ACCOUNT
  value: {{ . | quote }}
{{- end }}
- name: TRANSOM_CERTIFICATES
  value: {{ .Values.certificates.mode }}
{{- if $mounted }}
{{- $keys := eq .Values.certificates.mode "provided" | ternary .Values.certificates.provided (dict "certKey" "tls.crt" "privateKeyKey" "tls.key") }}
- name: TRANSOM_TLS_CERT
  value: /var/run/transom/certificate/{{ $keys.certKey }}
- name: TRANSOM_TLS_KEY
  value: /var/run/transom/certificate/{{ $keys.privateKeyKey }}
{{- with $keys.caKey }}
- name: TRANSOM_CA_BUNDLE
  value: /var/run/transom/certificate/{{ . }}
{{- end }}
{{- else }}
- name: TRANSOM_CERTIFICATE_SECRET
  value: {{ include "transom.certificateSecret" . | quote }}
{{- end }}
- name: TRANSOM_LISTEN
  value: {{ printf "%s:%d" .Values.listenAddress (int .Values.ports.webhook) | quote }}
- name: TRANSOM_HEALTH_LISTEN
  value: {{ printf "%s:%d" .Values.listenAddress (int .Values.ports.health) | quote }}
- name: TRANSOM_MAX_CONCURRENT
  value: {{ int .Values.server.limits.maxConcurrent | quote }}
- name: TRANSOM_MAX_BYTES_IN_FLIGHT
  value: {{ .Values.server.limits.maxBytesInFlight | quote }}
- name: TRANSOM_DRAIN_DELAY
  value: {{ .Values.shutdown.drainDelay | quote }}
- name: TRANSOM_DRAIN_TIMEOUT
  value: {{ .Values.shutdown.drainTimeout | quote }}
- name: TRANSOM_LOG_FORMAT
  value: {{ .Values.server.log.format }}
- name: TRANSOM_LOG
  value: {{ .Values.server.log.filter | quote }}
{{- with .Values.imageLookups.registries }}
- name: TRANSOM_IMAGE_REGISTRY
  value: {{ join "," . | quote }}
{{- end }}
{{- with .Values.imageLookups.pullSecret }}
- name: TRANSOM_IMAGE_PULL_SECRET
  value: {{ . | quote }}
{{- end }}
{{- with .Values.imageLookups.pullSecretNamespaces }}
- name: TRANSOM_IMAGE_PULL_SECRET_NAMESPACE
  value: {{ join "," . | quote }}
{{- end }}
{{- with .Values.imageLookups.plainHTTP }}
- name: TRANSOM_REGISTRY_PLAIN_HTTP
  value: {{ join "," . | quote }}
{{- end }}
{{- if $imagesCa }}
- name: TRANSOM_REGISTRY_CA
  value: /var/run/transom/registries/{{ .Values.imageLookups.caConfigMap.key }}
{{- end }}
- name: TRANSOM_CLUSTER_CONFIG
  value: /var/run/transom/cluster/cluster.yaml
{{- if $knowledge }}
- name: TRANSOM_KNOWLEDGE
  value: /var/run/transom/knowledge/{{ .Values.knowledge.configMap.key }}
{{- end }}
{{- with .Values.server.featureGates }}
- name: TRANSOM_FEATURE_GATES
  value: {{ join "," . | quote }}
{{- end }}
{{ include "transom.proxyEnv" . }}
{{ include "transom.tracingEnv" . }}
{{- if $clientCa }}
- name: TRANSOM_CLIENT_CA
  value: /var/run/transom/clients/{{ .Values.clientCertificates.caConfigMap.key }}
{{- with .Values.clientCertificates.names }}
- name: TRANSOM_CLIENT_NAME
  value: {{ join "," . | quote }}
{{- end }}
{{- if .Values.clientCertificates.required }}
- name: TRANSOM_REQUIRE_CLIENT_CERTIFICATE
  value: "true"
{{- end }}
{{- end }}
{{- end -}}
