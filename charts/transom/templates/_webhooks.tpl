{{/*
The webhook configurations come from files/webhooks.json, which the program generates (tests/chart/ compares them). These
templates contain only what differs between installations.
*/}}

{{/* The file of the facts about the cluster, and its hash: the configurations name what they were made for. */}}
{{- define "transom.clusterConfig" -}}
{{- toYaml .Values.cluster -}}
{{- end -}}

{{- define "transom.clusterConfigMap" -}}
{{ include "transom.fullname" . }}-cluster
{{- end -}}

{{/* CEL tests of a label's value, by the label's key: (dict "key" [test, …]) as YAML. */}}
{{- define "transom.pools" -}}
{{- $labels := concat .wellKnown .root.Values.cluster.nodeLabels -}}
{{- $pools := dict -}}
{{- range $label := $labels -}}
{{- if not (has $label.key $.known) -}}
{{- $tests := default (list) (get $pools $label.key) -}}
{{- range $label.values -}}
{{- $tests = append $tests (printf "v == %s" (include "transom.celString" .)) -}}
{{- end -}}
{{- range $label.valuePrefixes -}}
{{- $tests = append $tests (printf "v.startsWith(%s)" (include "transom.celString" .)) -}}
{{- end -}}
{{- if $tests -}}
{{- $_ := set $pools $label.key (uniq $tests) -}}
{{- end -}}
{{- end -}}
{{- end -}}
{{- toYaml $pools -}}
{{- end -}}

{{/* A string literal of CEL, escaped so that no value can end it. */}}
{{- define "transom.celString" -}}
'{{ include "transom.celText" . }}'
{{- end -}}

{{/* The text within a literal. */}}
{{- define "transom.celText" -}}
{{ . | replace "\\" "\\\\" | replace "'" "\\'" }}
{{- end -}}

{{/* A part of a condition, repeated for each pool label. */}}
{{- define "transom.forEachPool" -}}
{{- range $key := keys .pools | sortAlpha -}}
{{- $.part | replace $.source.value (join " || " (get $.pools $key)) | replace $.source.key (include "transom.celText" $key) -}}
{{- end -}}
{{- end -}}

{{/* The custom resources that describe pods, in addition to the built-in ones: {kinds: [{group, resource, path}, …]} as YAML.
Without a resource, the plural is the one that the API server guesses. */}}
{{- define "transom.podTemplates" -}}
{{- $kinds := list -}}
{{- range .Values.cluster.podTemplates -}}
{{- $plural := printf "%ss" (lower .kind) -}}
{{- if hasSuffix "y" (lower .kind) -}}
{{- $plural = printf "%sies" (lower .kind | trimSuffix "y") -}}
{{- else if hasSuffix "s" (lower .kind) -}}
{{- $plural = printf "%ses" (lower .kind) -}}
{{- end -}}
{{- $kinds = append $kinds (dict "group" .group "resource" (default $plural .resource) "path" (printf ".?%s" (splitList "." .path | join ".?"))) -}}
{{- end -}}
{{- toYaml (dict "kinds" (uniq $kinds)) -}}
{{- end -}}

{{/* Rules for the custom resources that describe pods: the built-in ones, and those that the values add. A rule for one that
the cluster does not have grants nothing. */}}
{{- define "transom.customResourceRules" -}}
# Custom resources that describe pods. A rule for one that the cluster does not have grants nothing.
{{- range $group, $resources := (.root.Files.Get "files/webhooks.json" | fromJson).customResources }}
- apiGroups: [{{ $group }}]
  resources: [{{ join ", " $resources }}]
  verbs: {{ $.verbs }}
{{- end }}
{{- range default (list) (include "transom.podTemplates" .root | fromYaml).kinds }}
- apiGroups: [{{ .group | quote }}]
  resources: [{{ .resource | quote }}]
  verbs: [get, list]
{{- end }}
{{- end -}}

{{/* CEL tests of the first part of an image, for the listed registries: {tests: [test, …]} as YAML. They equal those of
src/registration/match_conditions/images.rs. The source has the test for references without a registry. */}}
{{- define "transom.registryTests" -}}
{{- $tests := list -}}
{{- range .root.Values.imageLookups.registries -}}
{{- $port := lower . | regexFind ":[0-9]+$" -}}
{{- $host := lower . | trimSuffix $port -}}
{{- if has $host (list "index.docker.io" "registry-1.docker.io") -}}
{{- $host = "docker.io" -}}
{{- end -}}
{{- $isDefault := has $port (list "" ":443") -}}
{{- $of := ternary "g" "r" $isDefault -}}
{{- $port = ternary "" $port $isDefault -}}
{{- if contains "*" $host -}}
{{- $parts := splitList "*" $host -}}
{{- $starts := ternary "" (printf "%s.startsWith(%s) && " $of (include "transom.celString" (first $parts))) (eq "" (first $parts)) -}}
{{- $ends := printf "%s.endsWith(%s)" $of (include "transom.celString" (print (last $parts) $port)) -}}
{{- $tests = append $tests (printf "(%s%s)" $starts $ends) -}}
{{- else -}}
{{- $isHub := and (eq $host "docker.io") $isDefault -}}
{{- $names := list -}}
{{- range $name := ternary (list $host "index.docker.io" "registry-1.docker.io") (list $host) $isHub -}}
{{- $names = append $names (include "transom.celString" (print $name $port)) -}}
{{- end -}}
{{- $tests = append $tests (printf "(%s in [%s]%s)" $of (join ", " $names) (ternary (printf " || %s" $.ofDockerHub) "" $isHub)) -}}
{{- end -}}
{{- end -}}
{{- toYaml (dict "tests" (uniq $tests)) -}}
{{- end -}}

{{/* The entries that only some policies need: the namespaceSelectors of the policies that need each, without doubles, as YAML. */}}
{{- define "transom.policyEntries" -}}
{{- $linuxPods := list -}}
{{- $defaultOS := list -}}
{{- range $spec := include "transom.podPolicies" . | fromYaml -}}
{{- $namespaces := default (dict) $spec.namespaceSelector -}}
{{- if ne "Disabled" (dig "placement" "linuxPods" "Disabled" $spec) -}}
{{- $linuxPods = append $linuxPods $namespaces -}}
{{- end -}}
{{- if dig "evidence" "defaultOS" "" $spec -}}
{{- $defaultOS = append $defaultOS $namespaces -}}
{{- end -}}
{{- end -}}
{{- toYaml (dict "linuxPods" (uniq $linuxPods) "defaultOS" (uniq $defaultOS)) -}}
{{- end -}}

{{/* (dict "root" $ "kind" "mutating") */}}
{{- define "transom.webhookConfiguration" -}}
{{- $root := .root -}}
{{- $values := $root.Values -}}
{{- $source := $root.Files.Get "files/webhooks.json" | fromJson -}}
{{- $configuration := get $source .kind -}}
{{- if eq .kind "validating" -}}
{{- $configuration = get $configuration $values.webhooks.failurePolicy -}}
{{- end -}}
{{- $pools := include "transom.pools" (dict "root" $root "wellKnown" $source.pools.wellKnown "known" $source.pools.known) | fromYaml -}}
{{- $podTemplates := default (list) (include "transom.podTemplates" $root | fromYaml).kinds -}}
{{- $optional := dict -}}
{{- $ofPolicies := include "transom.policyEntries" $root | fromYaml -}}
{{- range $value, $name := dict "linuxPods" "linux-pods" "defaultOS" "default-os" -}}
{{- $entry := get $values.webhooks $value -}}
{{- $selectors := get $ofPolicies $value -}}
{{- $isAuto := eq "auto" (toString $entry.enabled) -}}
{{- if ternary (gt (len $selectors) 0) $entry.enabled $isAuto -}}
{{- $only := and $isAuto (eq 1 (len $selectors)) | ternary (first (append $selectors (dict))) (dict) -}}
{{- $_ := set $optional $name (default $only $entry.namespaceSelector) -}}
{{- end -}}
{{- end -}}
{{- $plugin := $values.cluster.podNodeSelector -}}
{{- if or (eq "Enabled" $plugin) (and (ne "Disabled" $plugin) $values.cluster.defaultNodeSelector) -}}
{{- $_ := set $optional "default-node-selector" (dict) -}}
{{- end -}}
{{- $registries := default (list) (include "transom.registryTests" (dict "root" $root "ofDockerHub" $source.images.ofDockerHub) | fromYaml).tests -}}
{{- if $registries -}}
{{- $_ := set $optional "images" (dict) -}}
{{- end -}}
{{- /* As expressions, because matchLabels could overwrite an entry's own labels. */ -}}
{{- $within := default (list) $values.webhooks.namespaceSelector.matchExpressions -}}
{{- range $label, $value := $values.webhooks.namespaceSelector.matchLabels -}}
{{- $within = append $within (dict "key" $label "operator" "In" "values" (list $value)) -}}
{{- end -}}
{{- $entries := list -}}
{{- range $entry := $configuration.webhooks -}}
{{- $which := first (splitList "." $entry.name) -}}
{{- if or (has $which (list "mutate" "validate" "certain" "custom-resources")) (hasKey $optional $which) -}}
{{- $service := $entry.clientConfig.service -}}
{{- $_ := set $service "name" (include "transom.fullname" $root) -}}
{{- $_ := set $service "namespace" $root.Release.Namespace -}}
{{- $_ := set $entry "timeoutSeconds" (int $values.webhooks.timeoutSeconds) -}}
{{- $selector := $entry.namespaceSelector -}}
{{- $left := first $selector.matchExpressions -}}
{{- $_ := set $left "values" (concat (without $left.values "NAMESPACE") (list $root.Release.Namespace) $values.webhooks.excludedNamespaces | uniq) -}}
{{- $only := default (dict) (get $optional $which) -}}
{{- $_ := set $selector "matchExpressions" (concat (list $left) (rest $selector.matchExpressions) $within (default (list) $only.matchExpressions)) -}}
{{- with $only.matchLabels -}}
{{- $_ := set $selector "matchLabels" . -}}
{{- end -}}
{{- range $entry.matchConditions -}}
{{- $expression := .expression -}}
{{- if not $registries -}}
{{- range $source.images.parts -}}
{{- $expression = $expression | replace . "" -}}
{{- end -}}
{{- end -}}
{{- $expression = $expression | replace $source.images.test (join "\n        || " $registries) -}}
{{- range $part := $source.pools.parts -}}
{{- $expression = $expression | replace $part (include "transom.forEachPool" (dict "pools" $pools "part" $part "source" $source.pools)) -}}
{{- end -}}
{{- $ofKinds := "" -}}
{{- range $podTemplates -}}
{{- $ofKinds = printf "%s%s" $ofKinds ($source.podTemplates.part | replace $source.podTemplates.group (include "transom.celText" .group) | replace $source.podTemplates.resource (include "transom.celText" .resource) | replace $source.podTemplates.path .path) -}}
{{- end -}}
{{- $_ := set . "expression" ($expression | replace $source.podTemplates.part $ofKinds) -}}
{{- end -}}
{{- if eq $which "custom-resources" -}}
{{- $rules := list -}}
{{- range $rule := $entry.rules -}}
{{- if ne $source.podTemplates.group (first $rule.apiGroups) -}}
{{- $rules = append $rules $rule -}}
{{- else -}}
{{- range $podTemplates -}}
{{- $rules = append $rules (merge (dict "apiGroups" (list .group) "resources" (list .resource)) $rule) -}}
{{- end -}}
{{- end -}}
{{- end -}}
{{- $_ := set $entry "rules" $rules -}}
{{- end -}}
{{- $entries = append $entries $entry -}}
{{- end -}}
{{- end -}}
{{- $made := dict "transom.dev/cluster-config-hash" (include "transom.clusterConfig" $root | sha256sum) -}}
{{- $_ := set $made "transom.dev/cluster-config-map" (printf "%s/%s" $root.Release.Namespace (include "transom.clusterConfigMap" $root)) -}}
{{- $annotations := merge (dict) $configuration.metadata.annotations $made $values.webhooks.annotations -}}
{{- if eq $values.certificates.mode "cert-manager" -}}
{{- $_ := set $annotations "cert-manager.io/inject-ca-from" (printf "%s/%s" $root.Release.Namespace (include "transom.certificateSecret" $root)) -}}
{{- end -}}
apiVersion: {{ $configuration.apiVersion }}
kind: {{ $configuration.kind }}
metadata:
  {{- include "transom.metadata" (dict "root" $root "name" (include "transom.webhookName" $root) "cluster" true "component" "webhook" "annotations" $annotations) | nindent 2 }}
webhooks:
  {{- toYaml $entries | nindent 2 }}
{{- end -}}
