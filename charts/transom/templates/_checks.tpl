{{/* What the schema cannot say. Each refusal names the value and what to write instead. */}}

{{- define "transom.checks" -}}
{{- if and .Values.hostNetwork (eq (int .Values.ports.webhook) 10250) -}}
{{- fail "ports.webhook: 10250 is the kubelet's port on the host network; set another one, such as ports.webhook=10260, and let the API server reach it" -}}
{{- end -}}
{{- if eq (int .Values.ports.webhook) (int .Values.ports.health) -}}
{{- fail (printf "ports: webhook and health are both %d; they need a port each" (int .Values.ports.health)) -}}
{{- end -}}
{{- if and (eq .Values.certificates.mode "provided") (not .Values.certificates.secretName) -}}
{{- fail "certificates.secretName: with certificates.mode=provided name the Secret that holds your certificate; it must be valid for NAME.NAMESPACE.svc of the Service" -}}
{{- end -}}
{{- if and (not .Values.serviceAccount.create) (not .Values.serviceAccount.name) .Values.rbac.create -}}
{{- fail "serviceAccount.name: with serviceAccount.create=false name the ServiceAccount; otherwise the rights of Transom would go to the namespace's default one" -}}
{{- end -}}
{{- if and (hasPrefix "https://" .Values.tracing.endpoint) (not .Values.tracing.caConfigMap.name) (not .Values.extraVolumes) -}}
{{- fail "tracing.caConfigMap.name: the image has no CA certificates, so name a ConfigMap with those of the receiver (or mount a file by extraVolumes and name it in OTEL_EXPORTER_OTLP_CERTIFICATE by extraEnv)" -}}
{{- end -}}
{{- if .Values.policy.create -}}
{{- include "transom.checkRules" . -}}
{{- include "transom.checkDefinition" (dict "name" "windowspodpolicies.transom.dev" "value" "policy.spec" "spec" (include "transom.podPolicySpec" . | fromYaml)) -}}
{{- end -}}
{{- if .Values.nodePolicy.create -}}
{{- $taints := default (dict) .Values.nodePolicy.spec.taints -}}
{{- range $taints.taints -}}
{{- if and (eq (default "" .effect) "NoExecute") (not $taints.allowNoExecute) -}}
{{- fail "nodePolicy.spec.taints: NoExecute evicts running pods; set nodePolicy.spec.taints.allowNoExecute=true if that is what you want" -}}
{{- end -}}
{{- end -}}
{{- include "transom.checkDefinition" (dict "name" "windowsnodepolicies.transom.dev" "value" "nodePolicy.spec" "spec" .Values.nodePolicy.spec) -}}
{{- end -}}
{{- end -}}

{{- define "transom.checkRules" -}}
{{- $known := .Files.Lines "files/rules.txt" -}}
{{- range $rule, $_ := .Values.policy.spec.rules -}}
{{- if not (has $rule $known) -}}
{{- fail (printf "policy.spec.rules: there is no rule %q; `transom rules` lists them" $rule) -}}
{{- end -}}
{{- end -}}
{{- range $index, $exemption := .Values.policy.spec.exemptions -}}
{{- range $exemption.rules -}}
{{- if not (has . $known) -}}
{{- fail (printf "policy.spec.exemptions[%d].rules: there is no rule %q; `transom rules` lists them" $index .) -}}
{{- end -}}
{{- end -}}
{{- end -}}
{{- end -}}

{{/* Helm installs crds/ once and never again: a cluster may hold older ones, which would silently drop what they do not
know. Nothing is known here of the cluster where there is none, as in `helm template`. */}}
{{- define "transom.checkDefinition" -}}
{{- $definition := lookup "apiextensions.k8s.io/v1" "CustomResourceDefinition" "" .name -}}
{{- $known := dig "spec" "versions" (list) $definition -}}
{{- if $known -}}
{{- $fields := dig "schema" "openAPIV3Schema" "properties" "spec" "properties" (dict) (first $known) -}}
{{- range $field, $_ := .spec -}}
{{- if not (hasKey $fields $field) -}}
{{- fail (printf "%s.%s: the CustomResourceDefinition %s in the cluster is older than this chart and does not know it; bring it up to date first: transom generate crds | kubectl apply --server-side --field-manager=helm --force-conflicts -f -" $.value $field $.name) -}}
{{- end -}}
{{- end -}}
{{- end -}}
{{- end -}}
