{{/* Names, labels, and parts that several templates share. */}}

{{/* The name of a release may contain dots, the name of a Service may not. */}}
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

{{/* The name of both webhook configurations. The API server calls mutating ones in the order of their names; zz- sorts late. */}}
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

{{/* The Secret that the leader creates. The uninstall deletes only this one and one that the leader created under the default
name: never yours, and never cert-manager's. */}}
{{- define "transom.selfManagedSecret" -}}
{{- if eq .Values.certificates.mode "self-managed" -}}
{{- include "transom.certificateSecret" . -}}
{{- else -}}
{{- include "transom.fullname" . }}-self-managed-certificates
{{- end -}}
{{- end -}}

{{/* The labels that selectors use. Do not change them: selectors are immutable. */}}
{{- define "transom.selectorLabels" -}}
app.kubernetes.io/name: transom
app.kubernetes.io/instance: {{ .Release.Name | quote }}
{{- end -}}

{{/* (dict "root" $ "component" … "labels" …): one map, so that no key appears twice. Selector labels are fixed; of the others,
the user's take precedence. */}}
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

{{/* Names are quoted everywhere: YAML reads 123, on and null as other types, and Kubernetes allows such names. */}}

{{/* metadata of an object, in the namespace unless "cluster" is set: (dict "root" $ "name" … "component" … "annotations" …) */}}
{{- define "transom.metadata" -}}
name: {{ .name | quote }}
{{- if not .cluster }}
namespace: {{ default .root.Release.Namespace .namespace | quote }}
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
{{- include "transom.registry" . }}/{{ $image.repository }}:{{ default .Chart.AppVersion $image.tag }}
{{- with $image.digest }}@{{ . }}{{ end -}}
{{- end -}}

{{/* Names of pull Secrets: from imagePullSecrets, and from a parent chart, where they may be plain names. */}}
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

{{/* The namespace in which `helm test` creates a pod as a dry run; empty if there is no test. RBAC cannot distinguish a dry run
from another create, so the test requires the ValidatingAdmissionPolicy that can. */}}
{{- define "transom.testNamespace" -}}
{{- if and (eq .Values.hooks.runner "helm") .Values.admissionPolicies.enabled -}}
{{- if ne "true" (include "transom.isExcluded" (dict "root" . "namespace" .Values.probe.namespace)) -}}
{{- .Values.probe.namespace -}}
{{- end -}}
{{- end -}}
{{- end -}}

{{/* Whether the webhooks are never called for a namespace: "true" or "false": (dict "root" $ "namespace" …) */}}
{{- define "transom.isExcluded" -}}
{{- has .namespace (concat (list "kube-system" "kube-node-lease" "kube-public" .root.Release.Namespace) .root.Values.webhooks.excludedNamespaces) -}}
{{- end -}}

{{/* The pod template of a Job. Never on the host network: a Job only connects to the API server, and its account may lack the
right to use the host network: (dict "root" $ "component" … "account" … "args" [argument, …]) */}}
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
  serviceAccountName: {{ .account | quote }}
  automountServiceAccountToken: true
  {{- with include "transom.imagePullSecrets" .root }}
  {{- . | nindent 2 }}
  {{- end }}
  {{- with $values.runtimeClassName }}
  runtimeClassName: {{ . | quote }}
  {{- end }}
  {{- with $values.priorityClassName }}
  priorityClassName: {{ . | quote }}
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
      {{- with $values.hooks.resources }}
      resources:
        {{- toYaml . | nindent 8 }}
      {{- end }}
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

{{/* OpenTelemetry's variables. The kubelet inserts the namespace and the pod. */}}
{{- define "transom.tracingEnv" -}}
{{- with .Values.tracing }}
{{- if .endpoint }}
- name: OTEL_EXPORTER_OTLP_ENDPOINT
  value: {{ .endpoint | quote }}
- name: OTEL_TRACES_SAMPLER_ARG
  value: {{ .ratio | toString | quote }}
- name: OTEL_RESOURCE_ATTRIBUTES
  value: k8s.namespace.name=$(TRANSOM_NAMESPACE),k8s.pod.name=$(TRANSOM_IDENTITY)
{{- end }}
{{- end }}
{{- end -}}

{{/* Rights on everything that describes pods: (dict "root" $ "verbs" …) */}}
{{- define "transom.workloadRules" -}}
- apiGroups: [""]
  resources: [pods, replicationcontrollers, podtemplates]
  verbs: {{ .verbs }}
- apiGroups: [apps]
  resources: [deployments, replicasets, statefulsets, daemonsets]
  verbs: {{ .verbs }}
- apiGroups: [batch]
  resources: [jobs, cronjobs]
  verbs: {{ .verbs }}
{{ include "transom.customResourceRules" . }}
{{- end -}}

{{/* The policies that the chart creates: their specs by name, as YAML. What they do not say comes from the mode of the
installation: Audit writes nothing, Warn writes labels of nodes, Enforce labels and taints. */}}
{{- define "transom.podPolicies" -}}
{{- $specs := dict -}}
{{- range $name, $policy := .Values.podPolicies -}}
{{- if and (kindIs "map" $policy) (dig "create" true $policy) -}}
{{- $_ := set $specs $name (merge (deepCopy (default (dict) $policy.spec)) (dict "mode" $.Values.mode)) -}}
{{- end -}}
{{- end -}}
{{- toYaml $specs -}}
{{- end -}}

{{- define "transom.nodePolicies" -}}
{{- $specs := dict -}}
{{- range $name, $policy := .Values.nodePolicies -}}
{{- if and (kindIs "map" $policy) (dig "create" true $policy) -}}
{{- $spec := deepCopy (default (dict) $policy.spec) -}}
{{- $defaults := dict "mode" (eq $.Values.mode "Audit" | ternary "Audit" "Reconcile") -}}
{{- if and (eq $.Values.mode "Warn") (not $spec.mode) -}}
{{- $_ := set $defaults "taints" (dict "mode" "Audit") -}}
{{- end -}}
{{- $_ := set $specs $name (merge $spec $defaults) -}}
{{- end -}}
{{- end -}}
{{- toYaml $specs -}}
{{- end -}}

{{/* What the leader writes to nodes for the spec of a WindowsNodePolicy, in words; empty if nothing. The defaults are those of
the API. */}}
{{- define "transom.writtenToNodes" -}}
{{- $written := list -}}
{{- if has "Reconcile" (list (dig "labels" "kubelet" "mode" .mode .) (dig "labels" "nodeRestriction" "mode" .mode .)) -}}
{{- $written = append $written "labels" -}}
{{- end -}}
{{- if eq "Reconcile" (dig "taints" "mode" .mode .) -}}
{{- $written = append $written "taints" -}}
{{- end -}}
{{- join " and " $written -}}
{{- end -}}

{{/* Whether the spec of a WindowsNodePolicy needs the right to write to nodes: "true" or "false". */}}
{{- define "transom.reconcilesNodes" -}}
{{- or (ne "" (include "transom.writtenToNodes" .)) (kindIs "map" .startup) -}}
{{- end -}}

{{/* The name of the MutatingAdmissionPolicy that sets the startup taint on new nodes. */}}
{{- define "transom.startupPolicy" -}}
{{- include "transom.fullname" . }}-startup-taint
{{- end -}}

{{/* Whether the spec of a WindowsNodePolicy manages RuntimeClasses: "true" or "false". */}}
{{- define "transom.managesRuntimeClasses" -}}
{{- eq "Reconcile" (dig "runtimeClasses" "mode" "Disabled" .) -}}
{{- end -}}

{{/* The name of the account of the uninstall Job; empty if there is no such Job. */}}
{{- define "transom.uninstallAccount" -}}
{{- $hook := dict "helm" "pre-delete" "argocd" "post-delete" -}}
{{- if hasKey $hook .Values.hooks.runner -}}
{{- $own := printf "%s-%s" (include "transom.fullname" .) (get $hook .Values.hooks.runner) -}}
{{- default (.Values.serviceAccount.create | ternary $own (include "transom.serviceAccount" .)) .Values.hooks.serviceAccount.name -}}
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
