{{/* What the schema cannot say. Each refusal names the value and what to write instead. */}}

{{- define "transom.checks" -}}
{{- if has .Release.Namespace (list "kube-system" "kube-public" "kube-node-lease") -}}
{{- fail (printf "namespace: Transom does not belong in %s, where an account that may create Secrets or ConfigMaps can act as the cluster; install it in a namespace of its own, such as --namespace transom-system --create-namespace" .Release.Namespace) -}}
{{- end -}}
{{- if and .Values.probe.namespace .Values.rbac.create (not .Values.admissionPolicies.enabled) -}}
{{- fail "probe.namespace: the right to create pods there is granted for dry runs only, which takes admissionPolicies.enabled=true; set that, or leave probe.namespace empty" -}}
{{- end -}}
{{- if and .Values.hostNetwork (eq (int .Values.ports.webhook) 10250) -}}
{{- fail "ports.webhook: 10250 is the kubelet's port on the host network; set another one, such as ports.webhook=10260, and let the API server reach it" -}}
{{- end -}}
{{- if and .Values.hostNetwork (eq (int .Values.ports.health) 10250) -}}
{{- fail "ports.health: 10250 is the kubelet's port on the host network; set another one, such as ports.health=10261" -}}
{{- end -}}
{{- if not (regexMatch "^[a-z]" (include "transom.fullname" .)) -}}
{{- fail (printf "fullnameOverride: the name %q would begin with a digit, which a Service must not; set one that begins with a letter" (include "transom.fullname" .)) -}}
{{- end -}}
{{- if and .Values.metrics.prometheusRule.enabled (not .Values.metrics.serviceMonitor.enabled) (not .Values.metrics.prometheusRule.job) -}}
{{- fail "metrics.prometheusRule.job: without metrics.serviceMonitor.enabled name the job by which your Prometheus scrapes Transom, or the alert TransomAbsent would never end" -}}
{{- end -}}
{{- include "transom.checkSizes" . -}}
{{- include "transom.checkTimes" . -}}
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
{{- with .Values.probe.namespace -}}
{{- if has . (concat (list "kube-system" "kube-node-lease" "kube-public" $.Release.Namespace) $.Values.exclusions.namespaces) -}}
{{- fail (printf "probe.namespace: the webhooks never ask about %s, so a probe there would tell nothing; name another namespace" .) -}}
{{- end -}}
{{- end -}}
{{- if and (not .Values.clientCertificates.caConfigMap.name) (or .Values.clientCertificates.required .Values.clientCertificates.names) -}}
{{- fail "clientCertificates.caConfigMap.name: clientCertificates.required and names need the ConfigMap with the CA that the certificates come from" -}}
{{- end -}}
{{- if .Values.policy.create -}}
{{- include "transom.checkRules" . -}}
{{- include "transom.checkDefinition" (dict "name" "windowspodpolicies.transom.dev" "value" "policy.spec" "spec" (include "transom.podPolicySpec" . | fromYaml)) -}}
{{- end -}}
{{- include "transom.checkDropped" . -}}
{{- if .Values.nodePolicy.create -}}
{{- if eq (toString .Values.rbac.nodePolicies) "false" -}}
{{- fail "rbac.nodePolicies: false takes away the right to write to nodes, and nodePolicy.create=true makes a policy that needs it; set nodePolicy.create=false too" -}}
{{- end -}}
{{- if and (eq (toString .Values.rbac.runtimeClasses) "false") (dig "runtimeClasses" "managed" false (default (dict) .Values.nodePolicy.spec)) -}}
{{- fail "rbac.runtimeClasses: false takes away the right to make RuntimeClasses, and nodePolicy.spec.runtimeClasses.managed=true needs it; set one of them otherwise" -}}
{{- end -}}
{{- $taints := default (dict) .Values.nodePolicy.spec.taints -}}
{{- range $taints.taints -}}
{{- if and (eq (default "" .effect) "NoExecute") (not $taints.allowNoExecute) -}}
{{- fail "nodePolicy.spec.taints: NoExecute evicts running pods; set nodePolicy.spec.taints.allowNoExecute=true if that is what you want" -}}
{{- end -}}
{{- end -}}
{{- include "transom.checkDefinition" (dict "name" "windowsnodepolicies.transom.dev" "value" "nodePolicy.spec" "spec" .Values.nodePolicy.spec) -}}
{{- end -}}
{{- end -}}

{{/* What would be dropped without a word. A default that is also set by hand cannot be told from one that is not; the notes
say then that no policy was made. */}}
{{- define "transom.checkDropped" -}}
{{- if not .Values.policy.create -}}
{{- $defaults := dict "validation" "Deny" "placement" "Apply" "inert" "Deny" "repair" "Off" -}}
{{- range $name := list "validation" "placement" "inert" "repair" -}}
{{- $value := include "transom.orOff" (get $.Values $name) -}}
{{- if and (hasKey $.Values $name) (ne $value (get $defaults $name)) -}}
{{- fail (printf "%s: %s would stand in no policy, because policy.create is false. Leave policy.create alone (charts/transom/platforms has values for each platform), or write `%s: %s` into the policy that you apply yourself" $name $value $name $value) -}}
{{- end -}}
{{- end -}}
{{- if .Values.policy.spec -}}
{{- fail "policy.spec: it would stand in no policy, because policy.create is false. Leave policy.create alone, or leave policy.spec out; of a policy that you apply yourself the webhooks learn by webhooks.poolLabels, webhooks.linuxPods and webhooks.defaultOs" -}}
{{- end -}}
{{- end -}}
{{- if and (not .Values.nodePolicy.create) (ne (toJson .Values.nodePolicy.spec) (toJson (dict "taints" (dict "mode" "Report")))) -}}
{{- fail "nodePolicy.spec: it would stand in no policy, because nodePolicy.create is false. Leave nodePolicy.create alone, or leave nodePolicy.spec out" -}}
{{- end -}}
{{- end -}}

{{/* A size in bytes, as the program reads 24MiB and Kubernetes 256Mi. */}}
{{- define "transom.bytes" -}}
{{- $text := trimSuffix "b" (trimSuffix "B" (toString . | replace " " "")) -}}
{{- $units := dict "k" 1e3 "m" 1e6 "g" 1e9 "t" 1e12 "p" 1e15 "e" 1e18 "ki" 1024.0 "mi" 1048576.0 "gi" 1073741824.0 "ti" 1099511627776.0 "pi" 1125899906842624.0 "ei" 1152921504606846976.0 -}}
{{- $number := regexFind "^[0-9.]+([eE][-+]?[0-9]+)?" $text -}}
{{- mulf (float64 $number) (default 1.0 (get $units (trimPrefix $number $text | lower))) -}}
{{- end -}}

{{- define "transom.checkSizes" -}}
{{- $flight := include "transom.bytes" .Values.limits.maxBytesInFlight | float64 -}}
{{- if lt $flight 25165824.0 -}}
{{- fail (printf "limits.maxBytesInFlight: %s is less than 24MiB, which a review of 20 MiB, the largest that is read, and small ones next to it need" .Values.limits.maxBytesInFlight) -}}
{{- end -}}
{{- $memory := dig "limits" "memory" "" (default (dict) .Values.resources) -}}
{{- /* A quantity in thousandths of a byte is a mistake. */ -}}
{{- if and $memory (not (hasSuffix "m" (toString $memory))) -}}
{{- if lt (include "transom.bytes" $memory | float64) (mulf 8.0 $flight) -}}
{{- fail (printf "resources.limits.memory: %v does not hold limits.maxBytesInFlight (%s) eight times, so reviews would end the process; raise the one or lower the other" $memory .Values.limits.maxBytesInFlight) -}}
{{- end -}}
{{- end -}}
{{- end -}}

{{/* A duration in seconds: 1m 30s, 500ms, 720h. */}}
{{- define "transom.seconds" -}}
{{- $units := dict "ms" 0.001 "s" 1.0 "m" 60.0 "h" 3600.0 -}}
{{- $sum := 0.0 -}}
{{- range regexFindAll "[0-9]+(ms|s|m|h)" . -1 -}}
{{- $sum = addf $sum (mulf (regexFind "[0-9]+" . | float64) (get $units (regexFind "[a-z]+" .))) -}}
{{- end -}}
{{- $sum -}}
{{- end -}}

{{- define "transom.checkTimes" -}}
{{- $drain := addf (include "transom.seconds" .Values.shutdown.drainDelay | float64) (include "transom.seconds" .Values.shutdown.drainTimeout | float64) -}}
{{- if le (float64 .Values.shutdown.gracePeriodSeconds) $drain -}}
{{- fail (printf "shutdown.gracePeriodSeconds: %d is no longer than drainDelay and drainTimeout together (%v s), so the kubelet would kill what still answers; raise it" (int .Values.shutdown.gracePeriodSeconds) $drain) -}}
{{- end -}}
{{- if eq .Values.certificates.mode "cert-manager" -}}
{{- $certificate := .Values.certificates.certManager -}}
{{- $lives := include "transom.seconds" $certificate.duration | float64 -}}
{{- $before := include "transom.seconds" $certificate.renewBefore | float64 -}}
{{- if lt $lives 3600.0 -}}
{{- fail (printf "certificates.certManager.duration: %s is less than the hour that cert-manager asks for" $certificate.duration) -}}
{{- end -}}
{{- if and .Values.metrics.prometheusRule.enabled (gt (mulf 86400.0 (float64 .Values.metrics.prometheusRule.certificateDays)) $before) -}}
{{- fail (printf "metrics.prometheusRule.certificateDays: %v days begin before a certificate is renewed (certificates.certManager.renewBefore=%s), so the alert would come with every one; lower it" .Values.metrics.prometheusRule.certificateDays $certificate.renewBefore) -}}
{{- end -}}
{{- if or (lt $before 300.0) (ge $before $lives) -}}
{{- fail (printf "certificates.certManager.renewBefore: %s must be five minutes or longer, and shorter than the duration (%s)" $certificate.renewBefore $certificate.duration) -}}
{{- end -}}
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
