{{/* What the schema cannot say. Each refusal names the value and what to write instead. */}}

{{- define "transom.checks" -}}
{{- if has .Release.Namespace (list "kube-system" "kube-public" "kube-node-lease") -}}
{{- fail (printf "namespace: Transom does not belong in %s, where an account that may create Secrets or ConfigMaps can act as the cluster; install it in a namespace of its own, such as --namespace transom-system --create-namespace" .Release.Namespace) -}}
{{- end -}}
{{- include "transom.checkImage" . -}}
{{- include "transom.checkNodes" . -}}
{{- include "transom.checkReplicas" . -}}
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
{{- range $value, $namespace := dict "probe.namespace" .Values.probe.namespace "test.namespace" .Values.test.namespace -}}
{{- if and $namespace (has $namespace (concat (list "kube-system" "kube-node-lease" "kube-public" $.Release.Namespace) $.Values.webhooks.excludedNamespaces)) -}}
{{- fail (printf "%s: the webhooks are not called for the namespace %s, so a pod there would prove nothing; name another namespace" $value $namespace) -}}
{{- end -}}
{{- end -}}
{{- if and (not .Values.clientCertificates.caConfigMap.name) (or .Values.clientCertificates.required .Values.clientCertificates.names) -}}
{{- fail "clientCertificates.caConfigMap.name: clientCertificates.required and names need the ConfigMap with the CA that the certificates come from" -}}
{{- end -}}
{{- if .Values.policy.create -}}
{{- include "transom.checkRules" . -}}
{{- include "transom.checkDefinition" (dict "name" "windowspodpolicies.transom.dev" "value" "policy.spec" "spec" .Values.policy.spec) -}}
{{- end -}}
{{- include "transom.checkDropped" . -}}
{{- include "transom.checkPoolLabels" . -}}
{{- if .Values.nodePolicy.create -}}
{{- if eq (toString .Values.rbac.nodePolicies) "false" -}}
{{- fail "rbac.nodePolicies: false takes away the right to write to nodes, and nodePolicy.create=true makes a policy that needs it; set nodePolicy.create=false too" -}}
{{- end -}}
{{- if and (eq (toString .Values.rbac.runtimeClasses) "false") (eq "true" (include "transom.managesRuntimeClasses" .Values.nodePolicy.spec)) -}}
{{- fail "rbac.runtimeClasses: false takes away the right to make RuntimeClasses, and nodePolicy.spec.runtimeClasses.management=Managed needs it; set one of them otherwise" -}}
{{- end -}}
{{- $taints := default (dict) (default (dict) .Values.nodePolicy.spec).taints -}}
{{- range $taints.required -}}
{{- if and (eq (default "" .effect) "NoExecute") (ne (default "Forbidden" $taints.noExecute) "Allowed") -}}
{{- fail "nodePolicy.spec.taints.required: NoExecute evicts running pods; set nodePolicy.spec.taints.noExecute=Allowed if that is what you want" -}}
{{- end -}}
{{- end -}}
{{- include "transom.checkDefinition" (dict "name" "windowsnodepolicies.transom.dev" "value" "nodePolicy.spec" "spec" (include "transom.nodePolicySpec" . | fromYaml)) -}}
{{- end -}}
{{- end -}}

{{/* Pods of an image that cannot be pulled never start, and the webhooks would be registered all the same. */}}
{{- define "transom.checkImage" -}}
{{- $registry := include "transom.registry" . -}}
{{- if not $registry -}}
{{- fail "image.registry: it is empty, and docker.io has no image of Transom; build an image, push it to a registry of yours (docs/how-to/release.md), and name that registry: --set image.registry=REGISTRY" -}}
{{- end -}}
{{- if or (eq $registry "registry.example.com") (hasPrefix "registry.example.com/" $registry) -}}
{{- fail "image.registry: registry.example.com is a placeholder, because no image of Transom is published yet; build an image, push it to a registry of yours (docs/how-to/release.md), and name that registry: --set image.registry=REGISTRY" -}}
{{- end -}}
{{- end -}}

{{/* Transom is a Linux program: on a Windows node its pods never start. */}}
{{- define "transom.checkNodes" -}}
{{- $selector := default (dict) .Values.nodeSelector -}}
{{- range $label := list "kubernetes.io/os" "beta.kubernetes.io/os" -}}
{{- $os := default "linux" (get $selector $label) -}}
{{- if ne $os "linux" -}}
{{- fail (printf "nodeSelector: %s=%s selects no Linux node, and Transom runs on Linux only; set it to linux" $label $os) -}}
{{- end -}}
{{- end -}}
{{- $source := .Files.Get "files/webhooks.json" | fromJson -}}
{{- range $label, $value := $selector -}}
{{- $isWindows := has $label (list "node.kubernetes.io/windows-build" "transom.dev.node-restriction.kubernetes.io/windows-build") -}}
{{- range $pool := concat $source.pools.wellKnown (default (list) (include "transom.poolLabels" $ | fromYaml).labels) -}}
{{- if eq $label $pool.key -}}
{{- $isWindows = or $isWindows (has $value (default (list) $pool.values)) (and $pool.valuePrefix (hasPrefix (default "" $pool.valuePrefix) $value)) -}}
{{- end -}}
{{- end -}}
{{- if $isWindows -}}
{{- fail (printf "nodeSelector: %s=%s selects Windows nodes, and Transom runs on Linux only; leave it out" $label $value) -}}
{{- end -}}
{{- end -}}
{{- end -}}

{{/* A percentage is rounded up, as Kubernetes does for maxUnavailable. */}}
{{- define "transom.checkReplicas" -}}
{{- $replicas := int .Values.replicaCount -}}
{{- $most := .Values.podDisruptionBudget.maxUnavailable -}}
{{- if and .Values.podDisruptionBudget.enabled (gt $replicas 1) -}}
{{- $gone := int $most -}}
{{- if hasSuffix "%" (toString $most) -}}
{{- $gone = int (ceil (divf (mulf (trimSuffix "%" $most | float64) (float64 $replicas)) 100.0)) -}}
{{- end -}}
{{- if ge $gone $replicas -}}
{{- fail (printf "podDisruptionBudget.maxUnavailable: %v allows all %d replicas to be evicted at the same time, and then no review is answered; lower it to %d, or set podDisruptionBudget.enabled=false" $most $replicas (sub $replicas 1)) -}}
{{- end -}}
{{- end -}}
{{- end -}}

{{/* What would be dropped without a word. A default that is also set by hand cannot be told from one that is not; the notes
say then that no policy was made. */}}
{{- define "transom.checkDropped" -}}
{{- if and (not .Values.policy.create) (ne (toJson .Values.policy.spec) (toJson (dict "mode" "Enforce"))) -}}
{{- fail "policy.spec: it would be in no policy, because policy.create is false. Leave policy.create alone (charts/transom/platforms has values for each platform), or remove policy.spec; a policy that you apply yourself the webhooks learn of by webhooks.linuxPods and webhooks.defaultOS" -}}
{{- end -}}
{{- if and (not .Values.nodePolicy.create) .Values.nodePolicy.spec -}}
{{- fail "nodePolicy.spec: it would be in no policy, because nodePolicy.create is false. Leave nodePolicy.create alone, or remove nodePolicy.spec; pool labels of a policy that you apply yourself the webhooks learn of by webhooks.poolLabels" -}}
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
{{- $flight := include "transom.bytes" .Values.server.limits.maxBytesInFlight | float64 -}}
{{- if lt $flight 25165824.0 -}}
{{- fail (printf "server.limits.maxBytesInFlight: %s is less than 24MiB, which a review of 20 MiB, the largest that is read, and small ones next to it need" .Values.server.limits.maxBytesInFlight) -}}
{{- end -}}
{{- $memory := dig "limits" "memory" "" (default (dict) .Values.resources) -}}
{{- /* A quantity in thousandths of a byte is a mistake. */ -}}
{{- if and $memory (not (hasSuffix "m" (toString $memory))) -}}
{{- if lt (include "transom.bytes" $memory | float64) (mulf 8.0 $flight) -}}
{{- fail (printf "resources.limits.memory: %v is less than eight times server.limits.maxBytesInFlight (%s), so reviews could end the process; raise the first or lower the second" $memory .Values.server.limits.maxBytesInFlight) -}}
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
{{- range $rule, $_ := dig "validation" "rules" (dict) .Values.policy.spec -}}
{{- if not (has $rule $known) -}}
{{- fail (printf "policy.spec.validation.rules: there is no rule %q; `transom rules` lists them" $rule) -}}
{{- end -}}
{{- end -}}
{{- range $index, $exemption := .Values.policy.spec.exemptions -}}
{{- range $exemption.rules -}}
{{- if not (or (eq . "*") (has . $known)) -}}
{{- fail (printf "policy.spec.exemptions[%d].rules: there is no rule %q; `transom rules` lists them, and \"*\" stands for all" $index .) -}}
{{- end -}}
{{- end -}}
{{- end -}}
{{- end -}}

{{/* The API server evaluates every value of every label for each pod that selects a node by it. */}}
{{- define "transom.checkPoolLabels" -}}
{{- $count := 0 -}}
{{- range (include "transom.poolLabels" . | fromYaml).labels -}}
{{- $count = add $count (len (default (list 1) .values)) -}}
{{- end -}}
{{- if gt (int $count) 64 -}}
{{- fail (printf "webhooks.poolLabels: there are %d values together with nodePolicy.spec.poolLabels, and the API server has time for 64; let a valuePrefix stand for several" (int $count)) -}}
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
