{{/* Names, labels, and what several templates say alike. */}}

{{/* A release may have dots in its name, a Service may not. */}}
{{- define "transom.fullname" -}}
{{- if .Values.fullnameOverride -}}
{{- .Values.fullnameOverride | trunc 50 | trimSuffix "-" -}}
{{- else -}}
{{- $name := default .Chart.Name .Values.nameOverride -}}
{{- if contains $name .Release.Name -}}
{{- .Release.Name | replace "." "-" | trunc 50 | trimSuffix "-" -}}
{{- else -}}
{{- printf "%s-%s" .Release.Name $name | replace "." "-" | trunc 50 | trimSuffix "-" -}}
{{- end -}}
{{- end -}}
{{- end -}}

{{/* Both webhook configurations; mutating ones are called in the order of their names, and Transom wants to be late. */}}
{{- define "transom.webhookName" -}}
zz-{{ include "transom.fullname" . }}
{{- end -}}

{{- define "transom.serviceAccount" -}}
{{- if .Values.serviceAccount.create -}}
{{- default (include "transom.fullname" .) .Values.serviceAccount.name -}}
{{- else -}}
{{- default "default" .Values.serviceAccount.name -}}
{{- end -}}
{{- end -}}

{{- define "transom.certificateSecret" -}}
{{- default (printf "%s-certificates" (include "transom.fullname" .)) .Values.certificates.secretName -}}
{{- end -}}

{{/* The Secret that the leader makes. The uninstall deletes no other but what the leader made under the name by default:
not one of yours, and not cert-manager's. */}}
{{- define "transom.selfManagedSecret" -}}
{{- if eq .Values.certificates.mode "self-managed" -}}
{{- include "transom.certificateSecret" . -}}
{{- else -}}
{{- include "transom.fullname" . }}-self-managed-certificates
{{- end -}}
{{- end -}}

{{/* By these the chart's objects are selected: never another value. */}}
{{- define "transom.selectorLabels" -}}
app.kubernetes.io/name: transom
app.kubernetes.io/instance: {{ .Release.Name }}
{{- end -}}

{{/* (dict "root" $ "component" … "labels" …): one map, so that no key stands there twice. What others select by is fixed, of
the rest yours count. */}}
{{- define "transom.labels" -}}
{{- $root := .root -}}
{{- $labels := include "transom.selectorLabels" $root | fromYaml -}}
{{- $_ := set $labels "app.kubernetes.io/managed-by" $root.Release.Service -}}
{{- with .component -}}
{{- $_ := set $labels "app.kubernetes.io/component" . -}}
{{- end -}}
{{- $ours := dict "app.kubernetes.io/version" $root.Chart.AppVersion "app.kubernetes.io/part-of" "transom" -}}
{{- $_ := set $ours "helm.sh/chart" (printf "%s-%s" $root.Chart.Name $root.Chart.Version | replace "+" "_" | trunc 63 | trimSuffix "-") -}}
{{- merge $labels (default (dict) .labels) $root.Values.commonLabels $ours | toYaml -}}
{{- end -}}

{{/* metadata of an object in the namespace: (dict "root" $ "name" … "component" … "annotations" …) */}}
{{- define "transom.metadata" -}}
name: {{ .name }}
{{- if not .cluster }}
namespace: {{ default .root.Release.Namespace .namespace }}
{{- end }}
labels:
  {{- include "transom.labels" . | nindent 2 }}
{{- $annotations := merge (dict) (default (dict) .annotations) .root.Values.commonAnnotations }}
{{- with $annotations }}
annotations:
  {{- toYaml . | nindent 2 }}
{{- end }}
{{- end -}}

{{- define "transom.registry" -}}
{{- default .Values.image.registry .Values.global.imageRegistry -}}
{{- end -}}

{{- define "transom.image" -}}
{{- $image := .Values.image -}}
{{- include "transom.registry" . }}/{{ $image.repository -}}
{{- if $image.digest -}}
@{{ $image.digest }}
{{- else -}}
:{{ default .Chart.AppVersion $image.tag }}
{{- end -}}
{{- end -}}

{{/* Names of Secrets for the image: yours, and those of a parent chart, which may be plain names. */}}
{{- define "transom.imagePullSecrets" -}}
{{- $secrets := list -}}
{{- range concat (default (list) .Values.imagePullSecrets) (default (list) .Values.global.imagePullSecrets) -}}
{{- $secrets = append $secrets (kindIs "string" . | ternary (dict "name" .) .) -}}
{{- end -}}
{{- with $secrets | uniq -}}
imagePullSecrets:
  {{- toYaml . | nindent 2 }}
{{- end -}}
{{- end -}}

{{/* The namespace in which `helm test` creates a pod as a dry run; empty where there is no test. RBAC cannot tell a dry run
from another create, so there is none without the ValidatingAdmissionPolicy that can. */}}
{{- define "transom.testNamespace" -}}
{{- if and (eq .Values.hooks "helm") .Values.admissionPolicies.enabled -}}
{{- $namespace := default (default "default" .Values.probe.namespace) .Values.test.namespace -}}
{{- if not (has $namespace (concat (list .Release.Namespace) .Values.webhooks.excludedNamespaces)) -}}
{{- $namespace -}}
{{- end -}}
{{- end -}}
{{- end -}}

{{/* The pod template of a Job: (dict "root" $ "component" … "account" … "args" [argument, …]) */}}
{{- define "transom.jobTemplate" -}}
{{- $values := .root.Values -}}
metadata:
  labels:
    {{- include "transom.selectorLabels" .root | nindent 4 }}
    app.kubernetes.io/component: {{ .component }}
    {{- with merge (dict) $values.podLabels $values.commonLabels }}
    {{- toYaml . | nindent 4 }}
    {{- end }}
  {{- with merge (dict) $values.podAnnotations $values.commonAnnotations }}
  annotations:
    {{- toYaml . | nindent 4 }}
  {{- end }}
spec:
  restartPolicy: Never
  serviceAccountName: {{ .account }}
  automountServiceAccountToken: true
  {{- with include "transom.imagePullSecrets" .root }}
  {{- . | nindent 2 }}
  {{- end }}
  {{- with $values.priorityClassName }}
  priorityClassName: {{ . }}
  {{- end }}
  {{- if $values.hostNetwork }}
  hostNetwork: true
  dnsPolicy: {{ default "ClusterFirstWithHostNet" $values.dnsPolicy }}
  {{- end }}
  {{- with $values.podSecurityContext }}
  securityContext:
    {{- toYaml . | nindent 4 }}
  {{- end }}
  {{- with $values.nodeSelector }}
  nodeSelector:
    {{- toYaml . | nindent 4 }}
  {{- end }}
  {{- with $values.tolerations }}
  tolerations:
    {{- toYaml . | nindent 4 }}
  {{- end }}
  containers:
    - name: transom
      image: {{ include "transom.image" .root }}
      imagePullPolicy: {{ $values.image.pullPolicy }}
      args:
        {{- toYaml .args | nindent 8 }}
      {{- with include "transom.proxyEnv" .root | trim }}
      env:
        {{- . | nindent 8 }}
      {{- end }}
      resources:
        requests: {cpu: 10m, memory: 32Mi}
        limits: {memory: 128Mi}
      {{- with $values.securityContext }}
      securityContext:
        {{- toYaml . | nindent 8 }}
      {{- end }}
{{- end -}}

{{- define "transom.proxyEnv" -}}
{{- with .Values.proxy }}
{{- with .https }}
- name: HTTPS_PROXY
  value: {{ . | quote }}
{{- end }}
{{- with .http }}
- name: HTTP_PROXY
  value: {{ . | quote }}
{{- end }}
{{- if or .https .http }}
- name: NO_PROXY
  value: {{ prepend (without (splitList "," .noProxy) "") "$(KUBERNETES_SERVICE_HOST),kubernetes.default.svc" | join "," | quote }}
{{- end }}
{{- end }}
{{- end -}}

{{/* OpenTelemetry's variables. Values of lists are percent-encoded; the kubelet puts in the namespace and the pod. */}}
{{- define "transom.tracingEnv" -}}
{{- with .Values.tracing }}
{{- if .endpoint }}
- name: OTEL_EXPORTER_OTLP_ENDPOINT
  value: {{ .endpoint | quote }}
- name: OTEL_TRACES_SAMPLER_ARG
  value: {{ .ratio | toString | quote }}
{{- $attributes := list "k8s.namespace.name=$(TRANSOM_NAMESPACE)" "k8s.pod.name=$(TRANSOM_IDENTITY)" }}
{{- range $key, $value := .resourceAttributes }}
{{- $attributes = append $attributes (printf "%s=%s" $key ($value | urlquery | replace "+" "%20")) }}
{{- end }}
- name: OTEL_RESOURCE_ATTRIBUTES
  value: {{ join "," $attributes | quote }}
{{- with .headersSecret.name }}
- name: OTEL_EXPORTER_OTLP_HEADERS
  valueFrom:
    secretKeyRef:
      name: {{ . }}
      key: {{ $.Values.tracing.headersSecret.key }}
{{- end }}
{{- with .caConfigMap.name }}
- name: OTEL_EXPORTER_OTLP_CERTIFICATE
  value: /var/run/transom/tracing/{{ $.Values.tracing.caConfigMap.key }}
{{- end }}
{{- end }}
{{- end }}
{{- end -}}

{{/* The spec of the default WindowsNodePolicy, as YAML. Taints are set together with a policy of this release that enforces;
under any other policy they are reported, unless the values say it themselves. */}}
{{- define "transom.nodePolicySpec" -}}
{{- $spec := deepCopy (default (dict) .Values.nodePolicy.spec) -}}
{{- $taints := default (dict) $spec.taints -}}
{{- if not $taints.mode -}}
{{- $enforces := and .Values.policy.create (eq .Values.policy.spec.mode "Enforce") -}}
{{- $_ := set $taints "mode" (ternary "Apply" "Report" $enforces) -}}
{{- end -}}
{{- $_ := set $spec "taints" $taints -}}
{{- toYaml $spec -}}
{{- end -}}

{{/* Whether the spec of a WindowsNodePolicy manages RuntimeClasses: "true" or "false". */}}
{{- define "transom.managesRuntimeClasses" -}}
{{- eq "Managed" (dig "runtimeClasses" "management" "Disabled" (default (dict) .)) -}}
{{- end -}}

{{/* The node policies that the cluster holds, as YAML; none where there is no cluster, as in `helm template`. An upgrade that
takes the last one away finds it here still: what was written is taken back with the rights of before. */}}
{{- define "transom.storedNodePolicies" -}}
{{- $stored := list -}}
{{- if and .Release.IsUpgrade (lookup "apiextensions.k8s.io/v1" "CustomResourceDefinition" "" "windowsnodepolicies.transom.dev") -}}
{{- $stored = default (list) (lookup "transom.dev/v1alpha1" "WindowsNodePolicy" "" "").items -}}
{{- end -}}
{{- toYaml (dict "items" $stored) -}}
{{- end -}}

{{/* Whether Transom may write to nodes: "true" or "false". */}}
{{- define "transom.writesNodes" -}}
{{- if kindIs "bool" .Values.rbac.nodePolicies -}}
{{- .Values.rbac.nodePolicies -}}
{{- else -}}
{{- or .Values.nodePolicy.create (gt (len (include "transom.storedNodePolicies" . | fromYaml).items) 0) -}}
{{- end -}}
{{- end -}}

{{/* Whether Transom may write RuntimeClasses. Those that it made must be found and taken away by it. */}}
{{- define "transom.writesRuntimeClasses" -}}
{{- if ne (include "transom.writesNodes" .) "true" -}}
false
{{- else if kindIs "bool" .Values.rbac.runtimeClasses -}}
{{- .Values.rbac.runtimeClasses -}}
{{- else -}}
{{- $managed := and .Values.nodePolicy.create (eq "true" (include "transom.managesRuntimeClasses" .Values.nodePolicy.spec)) -}}
{{- range (include "transom.storedNodePolicies" . | fromYaml).items -}}
{{- $managed = or $managed (eq "true" (include "transom.managesRuntimeClasses" .spec)) -}}
{{- end -}}
{{- if .Release.IsUpgrade -}}
{{- range (lookup "node.k8s.io/v1" "RuntimeClass" "" "").items -}}
{{- $managed = or $managed (hasKey (dig "metadata" "annotations" (dict) .) "transom.dev/owned") -}}
{{- end -}}
{{- end -}}
{{- $managed -}}
{{- end -}}
{{- end -}}

{{/* Whether there is a NetworkPolicy: "true" or "false". */}}
{{- define "transom.hasNetworkPolicy" -}}
{{- with .Values.networkPolicy -}}
{{- if kindIs "bool" .enabled -}}
{{- .enabled -}}
{{- else -}}
{{- gt (len (concat .webhookFrom .metricsFrom .egress)) 0 -}}
{{- end -}}
{{- end -}}
{{- end -}}
