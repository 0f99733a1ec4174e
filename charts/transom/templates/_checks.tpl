{{/* Checks that the schema cannot express. Each error names the value and how to correct it. */}}

{{- define "transom.checks" -}}
{{- if has .Release.Namespace (list "kube-system" "kube-public" "kube-node-lease") -}}
{{- fail (printf "namespace: Transom does not belong in %s: an account that may create Secrets or ConfigMaps there can take over the cluster; install it in its own namespace, such as --namespace transom-system --create-namespace" .Release.Namespace) -}}
{{- end -}}
{{- include "transom.checkImage" . -}}
{{- include "transom.checkNodes" . -}}
{{- include "transom.checkReplicas" . -}}
{{- include "transom.checkOthers" . -}}
{{- include "transom.checkProbe" . -}}
{{- include "transom.checkStartup" . -}}
{{- if and .Values.hostNetwork (eq (int .Values.ports.webhook) 10250) -}}
{{- fail "ports.webhook: 10250 is the kubelet's port on the host network; set another port, such as ports.webhook=10260, and allow the API server to reach it" -}}
{{- end -}}
{{- if and .Values.hostNetwork (eq (int .Values.ports.health) 10250) -}}
{{- fail "ports.health: 10250 is the kubelet's port on the host network; set another port, such as ports.health=10261" -}}
{{- end -}}
{{- if not (regexMatch "^[a-z]" (include "transom.fullname" .)) -}}
{{- fail (printf "fullnameOverride: the name %q starts with a digit, which a Service name must not; set a name that starts with a letter" (include "transom.fullname" .)) -}}
{{- end -}}
{{- if and .Values.metrics.prometheusRule.enabled (not .Values.metrics.serviceMonitor.enabled) (not .Values.metrics.prometheusRule.job) -}}
{{- fail "metrics.prometheusRule.job: without metrics.serviceMonitor.enabled, set the job with which your Prometheus scrapes Transom; otherwise the alert TransomAbsent never ends" -}}
{{- end -}}
{{- include "transom.checkSizes" . -}}
{{- include "transom.checkTimes" . -}}
{{- if eq (int .Values.ports.webhook) (int .Values.ports.health) -}}
{{- fail (printf "ports: webhook and health are both %d; set different ports" (int .Values.ports.health)) -}}
{{- end -}}
{{- if and (eq .Values.certificates.mode "provided") (not .Values.certificates.secretName) -}}
{{- fail "certificates.secretName: with certificates.mode=provided, set the name of the Secret with your certificate; the certificate must be valid for NAME.NAMESPACE.svc of the Service" -}}
{{- end -}}
{{- if and (not .Values.serviceAccount.create) (not .Values.serviceAccount.name) .Values.rbac.create -}}
{{- fail "serviceAccount.name: with serviceAccount.create=false, set the name of a ServiceAccount; otherwise the namespace's default ServiceAccount gets the rights of Transom" -}}
{{- end -}}
{{- include "transom.checkImages" . -}}
{{- if and (not .Values.clientCertificates.caConfigMap.name) (or .Values.clientCertificates.required .Values.clientCertificates.names) -}}
{{- fail "clientCertificates.caConfigMap.name: clientCertificates.required and names need the ConfigMap with the CA of the certificates" -}}
{{- end -}}
{{- include "transom.checkPodPolicies" . -}}
{{- include "transom.checkNodePolicies" . -}}
{{- range $name, $pool := .Values.nodePools -}}
{{- if $pool -}}
{{- include "transom.checkDefinition" (dict "name" "windowsnodepools.transom.dev" "value" (printf "nodePools.%s.spec" $name) "spec" $pool.spec) -}}
{{- end -}}
{{- end -}}
{{- include "transom.checkDropped" . -}}
{{- include "transom.checkNodeLabels" . -}}
{{- include "transom.checkPodTemplates" . -}}
{{- end -}}

{{/* The program rejects the same, but only after an installation. */}}
{{- define "transom.checkPodTemplates" -}}
{{- $keywords := (.Files.Get "files/webhooks.json" | fromJson).podTemplates.keywords -}}
{{- range .Values.cluster.podTemplates -}}
{{- $path := .path -}}
{{- range splitList "." $path -}}
{{- if has . $keywords -}}
{{- fail (printf "cluster.podTemplates: the path %s has the field %s, which is a keyword of CEL, so no match condition can name it; remove the entry" $path .) -}}
{{- end -}}
{{- end -}}
{{- end -}}
{{- end -}}

{{- define "transom.checkProbe" -}}
{{- $probe := .Values.probe -}}
{{- if and $probe.enabled .Values.rbac.create (not .Values.admissionPolicies.enabled) -}}
{{- fail "probe.enabled: the right to create pods in probe.namespace is granted for dry runs only, which requires admissionPolicies.enabled=true; set that, or probe.enabled=false" -}}
{{- end -}}
{{- if eq "true" (include "transom.isExcluded" (dict "root" . "namespace" $probe.namespace)) -}}
{{- if or $probe.enabled (ne $probe.namespace "default") -}}
{{- fail (printf "probe.namespace: the webhooks are not called for the namespace %s, so a pod there cannot test them; set another namespace" $probe.namespace) -}}
{{- end -}}
{{- end -}}
{{- end -}}

{{- define "transom.checkPodPolicies" -}}
{{- $known := .Files.Lines "files/rules.txt" -}}
{{- range $name, $spec := include "transom.podPolicies" . | fromYaml -}}
{{- $value := printf "podPolicies.%s.spec" $name -}}
{{- range dig "validation" "rules" (list) $spec -}}
{{- if not (has .name $known) -}}
{{- fail (printf "%s.validation.rules: unknown rule %q; `transom rules` lists them" $value .name) -}}
{{- end -}}
{{- end -}}
{{- $names := list -}}
{{- range $index, $exemption := $spec.exemptions -}}
{{- if has $exemption.name $names -}}
{{- fail (printf "%s.exemptions[%d].name: there are two exemptions with the name %s; give each its own" $value $index $exemption.name) -}}
{{- end -}}
{{- $names = append $names $exemption.name -}}
{{- range $exemption.rules -}}
{{- if not (or (eq . "*") (has . $known)) -}}
{{- fail (printf "%s.exemptions[%d].rules: unknown rule %q; `transom rules` lists them, and \"*\" means all rules" $value $index .) -}}
{{- end -}}
{{- end -}}
{{- end -}}
{{- if and (eq "Registry" (dig "evidence" "imageEvidence" "" $spec)) (not $.Values.imageLookups.registries) -}}
{{- fail (printf "%s.evidence.imageEvidence: Registry has no effect, because imageLookups.registries is empty; list the registries that Transom may ask, as in [mcr.microsoft.com, \"*.azurecr.io\"]" $value) -}}
{{- end -}}
{{- include "transom.checkDefinition" (dict "name" "windowspodpolicies.transom.dev" "value" $value "spec" $spec) -}}
{{- end -}}
{{- end -}}

{{/* Each right that a node policy needs has a value of its own, which must not contradict the policy. */}}
{{- define "transom.checkNodePolicies" -}}
{{- range $name, $spec := include "transom.nodePolicies" . | fromYaml -}}
{{- $value := printf "nodePolicies.%s.spec" $name -}}
{{- if and $.Values.rbac.create (not $.Values.rbac.nodePolicies) (eq "true" (include "transom.reconcilesNodes" $spec)) -}}
{{- fail (printf "rbac.nodePolicies: false removes the right to write to nodes, which %s needs, because it writes labels or taints, or removes the startup taint; change one of them" $value) -}}
{{- end -}}
{{- if and $.Values.rbac.create (not $.Values.rbac.runtimeClasses) (eq "true" (include "transom.managesRuntimeClasses" $spec)) -}}
{{- fail (printf "rbac.runtimeClasses: %s.runtimeClasses.mode=Reconcile needs the right to create RuntimeClasses; set rbac.runtimeClasses=true" $value) -}}
{{- end -}}
{{- $taints := default (dict) $spec.taints -}}
{{- $noExecute := eq "Allowed" (default "Forbidden" $taints.noExecute) -}}
{{- range $taints.required -}}
{{- if and (eq (default "" .effect) "NoExecute") (not $noExecute) -}}
{{- fail (printf "%[1]s.taints.required: NoExecute evicts running pods; to allow that, set %[1]s.taints.noExecute=Allowed" $value) -}}
{{- end -}}
{{- end -}}
{{- if and $noExecute $.Values.admissionPolicies.enabled (not $.Values.admissionPolicies.noExecuteTaints) -}}
{{- fail (printf "admissionPolicies.noExecuteTaints: false refuses the taints that %s.taints.noExecute=Allowed allows; set admissionPolicies.noExecuteTaints=true" $value) -}}
{{- end -}}
{{- if and (eq "Pods" (dig "startup" "puller" "" $spec)) (not $.Values.nodeStartup.imagePuller.enabled) -}}
{{- fail (printf "%s.startup.puller: Pods needs the right to create them; set nodeStartup.imagePuller.enabled=true" $value) -}}
{{- end -}}
{{- include "transom.checkDefinition" (dict "name" "windowsnodepolicies.transom.dev" "value" $value "spec" $spec) -}}
{{- end -}}
{{- end -}}

{{/* A taint that nothing removes would keep pods off new nodes forever. Without a cluster, as in `helm template`, the version
decides whether the API is served. */}}
{{- define "transom.checkStartup" -}}
{{- $startup := .Values.nodeStartup -}}
{{- if $startup.admissionPolicy.enabled -}}
{{- $isServed := .Capabilities.APIVersions.Has "admissionregistration.k8s.io/v1/MutatingAdmissionPolicy" -}}
{{- if not (or $isServed (semverCompare ">=1.36.0-0" .Capabilities.KubeVersion.Version)) -}}
{{- fail (printf "nodeStartup.admissionPolicy.enabled: it needs Kubernetes 1.36 or later, which serves MutatingAdmissionPolicy, and this is %s; set the startup taint in the pool instead, or render with --kube-version" .Capabilities.KubeVersion.Version) -}}
{{- end -}}
{{- if and .Values.rbac.create (not .Values.rbac.nodePolicies) -}}
{{- fail "rbac.nodePolicies: false removes the right to write to nodes, so nothing would remove the taint that nodeStartup.admissionPolicy sets on new nodes; change one of them" -}}
{{- end -}}
{{- end -}}
{{- if and $startup.imagePuller.enabled (not .Values.admissionPolicies.enabled) -}}
{{- fail "nodeStartup.imagePuller.enabled: the right to create pods is granted for pods that pull images only, which requires admissionPolicies.enabled=true; set that, or nodeStartup.imagePuller.enabled=false" -}}
{{- end -}}
{{- end -}}

{{/* `transom serve` rejects the same, but only after the webhooks are registered. */}}
{{- define "transom.checkImages" -}}
{{- $images := .Values.imageLookups -}}
{{- if not $images.registries -}}
{{- range $value := list "pullSecret" "pullSecretNamespaces" "plainHTTP" -}}
{{- if get $images $value -}}
{{- fail (printf "imageLookups.%s: it has no effect, because imageLookups.registries is empty; list the registries that Transom may ask, or remove imageLookups.%s" $value $value) -}}
{{- end -}}
{{- end -}}
{{- end -}}
{{- range $images.registries -}}
{{- $host := regexReplaceAll ":[0-9]+$" . "" -}}
{{- $last := last (splitList "." $host) -}}
{{- if and (contains "*" $host) (or (regexMatch "^[0-9]+$" $last) (eq "localhost" (lower $last))) -}}
{{- fail (printf "imageLookups.registries: %s has a * in an address; list each address, as in 10.0.0.5:5000 or localhost:5000" .) -}}
{{- end -}}
{{- if and (eq $host .) (not (contains "." $host)) (not (contains ":" $host)) (ne "localhost" (lower $host)) -}}
{{- fail (printf "imageLookups.registries: %s has no dot and no port, and image references with it are on docker.io; write docker.io, or the port, as in %s:5000" . .) -}}
{{- end -}}
{{- end -}}
{{- if gt (len (join "" $images.registries)) 4096 -}}
{{- fail (printf "imageLookups.registries: they have %d characters together, and the maximum is 4096, because the API server compares images with all of them; replace several with one that has a *, as in *.azurecr.io" (len (join "" $images.registries))) -}}
{{- end -}}
{{- range $host := $images.plainHTTP -}}
{{- $isListed := false -}}
{{- range $images.registries -}}
{{- $listed := . | replace "." "\\." | replace "[" "\\[" | replace "]" "\\]" | replace "*" "[^.:]+" -}}
{{- $isListed = or $isListed (regexMatch (printf "^(?i)%s$" $listed) $host) -}}
{{- end -}}
{{- if not $isListed -}}
{{- fail (printf "imageLookups.plainHTTP: %s is not in imageLookups.registries; add it there too" $host) -}}
{{- end -}}
{{- end -}}
{{- range $namespace := $images.pullSecretNamespaces -}}
{{- if has $namespace (list "kube-system" "kube-node-lease" "kube-public") -}}
{{- fail (printf "imageLookups.pullSecretNamespaces: the webhooks are never called for %s, and access to its Secrets gives control of the cluster; remove it" $namespace) -}}
{{- end -}}
{{- if eq $namespace $.Release.Namespace -}}
{{- fail (printf "imageLookups.pullSecretNamespaces: %s is Transom's own namespace; name its Secret with imageLookups.pullSecret" $namespace) -}}
{{- end -}}
{{- if has $namespace $.Values.webhooks.excludedNamespaces -}}
{{- fail (printf "imageLookups.pullSecretNamespaces: the webhooks are not called for the namespace %s, because webhooks.excludedNamespaces lists it; remove one of them" $namespace) -}}
{{- end -}}
{{- end -}}
{{- end -}}

{{/* If the image cannot be pulled, the pods never start, but the webhooks are registered. */}}
{{- define "transom.checkImage" -}}
{{- $registry := include "transom.registry" . -}}
{{- if not $registry -}}
{{- fail "image.registry: it is empty, and docker.io has no image of Transom; build an image from the Dockerfile of Transom, push it to your registry, and name that registry: --set image.registry=REGISTRY" -}}
{{- end -}}
{{- if or (eq $registry "registry.example.com") (hasPrefix "registry.example.com/" $registry) -}}
{{- fail "image.registry: registry.example.com is a placeholder, because no image of Transom is published yet; build an image from the Dockerfile of Transom, push it to your registry, and name that registry: --set image.registry=REGISTRY" -}}
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
{{- range $pool := concat $source.pools.wellKnown $.Values.cluster.nodeLabels -}}
{{- if eq $label $pool.key -}}
{{- $isWindows = or $isWindows (has $value (default (list) $pool.values)) -}}
{{- range $pool.valuePrefixes -}}
{{- $isWindows = or $isWindows (hasPrefix . $value) -}}
{{- end -}}
{{- end -}}
{{- end -}}
{{- if $isWindows -}}
{{- fail (printf "nodeSelector: %s=%s selects Windows nodes, and Transom runs on Linux only; remove it" $label $value) -}}
{{- end -}}
{{- end -}}
{{- end -}}

{{/* Without a cluster, as in `helm template` and with Argo CD, no other release is found. */}}
{{- define "transom.checkOthers" -}}
{{- if and .Release.IsInstall (not .Values.webhooks.allowSecondRelease) -}}
{{- range (lookup "admissionregistration.k8s.io/v1" "ValidatingWebhookConfiguration" "" "").items -}}
{{- $isOther := ne .metadata.name (include "transom.webhookName" $) -}}
{{- $names := list -}}
{{- range .webhooks -}}
{{- $names = append $names .name -}}
{{- end -}}
{{- if and $isOther (has "validate.transom.dev" $names) -}}
{{- fail (printf "webhooks.allowSecondRelease: another Transom is registered in this cluster, as ValidatingWebhookConfiguration %s; two would review every pod twice, and both would write to nodes and to the status of the policies. Upgrade or uninstall that one, or set webhooks.allowSecondRelease=true, with podPolicies.default.create=false and nodePolicies.default.create=false" .metadata.name) -}}
{{- end -}}
{{- end -}}
{{- end -}}
{{- end -}}

{{/* Percentages are rounded up, as in Kubernetes for maxUnavailable. */}}
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

{{/* Values that would be ignored silently. A value that is set to its default cannot be distinguished from the default; the
notes then state that the release has no policy. An upgrade that removes the node policy keeps its spec in the values
(`--reset-then-reuse-values`), so it is not rejected there. With Argo CD every sync looks like an installation. */}}
{{- define "transom.checkDropped" -}}
{{- $mayBeRemoved := or .Release.IsUpgrade (eq .Values.hooks.runner "argocd") -}}
{{- range $value, $policies := dict "podPolicies" .Values.podPolicies "nodePolicies" (ternary (dict) .Values.nodePolicies $mayBeRemoved) -}}
{{- range $name, $policy := $policies -}}
{{- if and $policy (not (dig "create" true $policy)) $policy.spec -}}
{{- fail (printf "%[1]s.%[2]s.spec: no policy would use it, because %[1]s.%[2]s.create is false. Do not set create (charts/transom/platforms has values for each platform), or remove the spec%[3]s" $value $name (ternary ". If you create the policy yourself, register its webhooks with webhooks.linuxPods and webhooks.defaultOS" "" (eq $value "podPolicies"))) -}}
{{- end -}}
{{- end -}}
{{- end -}}
{{- end -}}

{{/* A size in bytes: 24MiB, as the program reads it, or 256Mi, as Kubernetes does. */}}
{{- define "transom.bytes" -}}
{{- $text := trimSuffix "b" (trimSuffix "B" (toString . | replace " " "")) -}}
{{- $units := dict "k" 1e3 "m" 1e6 "g" 1e9 "t" 1e12 "p" 1e15 "e" 1e18 "ki" 1024.0 "mi" 1048576.0 "gi" 1073741824.0 "ti" 1099511627776.0 "pi" 1125899906842624.0 "ei" 1152921504606846976.0 -}}
{{- $number := regexFind "^[0-9.]+([eE][-+]?[0-9]+)?" $text -}}
{{- mulf (float64 $number) (default 1.0 (get $units (trimPrefix $number $text | lower))) -}}
{{- end -}}

{{- define "transom.checkSizes" -}}
{{- $flight := include "transom.bytes" .Values.server.limits.maxBytesInFlight | float64 -}}
{{- if lt $flight 25165824.0 -}}
{{- fail (printf "server.limits.maxBytesInFlight: %s is less than 24MiB, which is needed for a review of 20 MiB (the limit) and small reviews at the same time" .Values.server.limits.maxBytesInFlight) -}}
{{- end -}}
{{- $memory := dig "limits" "memory" "" (default (dict) .Values.resources) -}}
{{- /* The suffix m means thousandths of a byte: not checked. */ -}}
{{- if and $memory (not (hasSuffix "m" (toString $memory))) -}}
{{- if lt (include "transom.bytes" $memory | float64) (mulf 8.0 $flight) -}}
{{- fail (printf "resources.limits.memory: %v is less than eight times server.limits.maxBytesInFlight (%s), so the process could run out of memory; raise the first or lower the second" $memory .Values.server.limits.maxBytesInFlight) -}}
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
{{- if le (float64 .Values.shutdown.terminationGracePeriodSeconds) $drain -}}
{{- fail (printf "shutdown.terminationGracePeriodSeconds: %d is no longer than drainDelay and drainTimeout together (%v s), so the kubelet would kill the pod while it still answers reviews; raise it" (int .Values.shutdown.terminationGracePeriodSeconds) $drain) -}}
{{- end -}}
{{- if eq .Values.certificates.mode "cert-manager" -}}
{{- $certificate := .Values.certificates.certManager -}}
{{- $lives := include "transom.seconds" $certificate.duration | float64 -}}
{{- $before := include "transom.seconds" $certificate.renewBefore | float64 -}}
{{- if lt $lives 3600.0 -}}
{{- fail (printf "certificates.certManager.duration: %s is less than one hour, which cert-manager requires" $certificate.duration) -}}
{{- end -}}
{{- if and .Values.metrics.prometheusRule.enabled (gt (mulf 86400.0 (float64 .Values.metrics.prometheusRule.certificateDays)) $before) -}}
{{- fail (printf "metrics.prometheusRule.certificateDays: %v days begin before a certificate is renewed (certificates.certManager.renewBefore=%s), so the alert would fire for every certificate; lower it" .Values.metrics.prometheusRule.certificateDays $certificate.renewBefore) -}}
{{- end -}}
{{- if or (lt $before 300.0) (ge $before $lives) -}}
{{- fail (printf "certificates.certManager.renewBefore: %s must be five minutes or longer, and shorter than the duration (%s)" $certificate.renewBefore $certificate.duration) -}}
{{- end -}}
{{- end -}}
{{- end -}}

{{/* For each pod that selects nodes by such a label, the API server evaluates every value of that label. */}}
{{- define "transom.checkNodeLabels" -}}
{{- $count := 0 -}}
{{- range .Values.cluster.nodeLabels -}}
{{- $count = add $count (len (default (list) .values)) (len (default (list) .valuePrefixes)) -}}
{{- end -}}
{{- if gt (int $count) 64 -}}
{{- fail (printf "cluster.nodeLabels: there are %d values and prefixes, and the limit is 64, because the API server evaluates them for each pod; replace several values with one of valuePrefixes" (int $count)) -}}
{{- end -}}
{{- end -}}

{{/* Helm installs crds/ only once: a cluster may have older definitions, which silently drop unknown fields. Without a cluster,
as in `helm template`, nothing is checked. */}}
{{- define "transom.checkDefinition" -}}
{{- $definition := lookup "apiextensions.k8s.io/v1" "CustomResourceDefinition" "" .name -}}
{{- $known := dig "spec" "versions" (list) $definition -}}
{{- if $known -}}
{{- $fields := dig "schema" "openAPIV3Schema" "properties" "spec" "properties" (dict) (first $known) -}}
{{- range $field, $_ := .spec -}}
{{- if not (hasKey $fields $field) -}}
{{- fail (printf "%s.%s: the CustomResourceDefinition %s in the cluster is older than this chart and does not know this field; update it first: transom generate crds | kubectl apply --server-side --field-manager=helm --force-conflicts -f -" $.value $field $.name) -}}
{{- end -}}
{{- end -}}
{{- end -}}
{{- end -}}
