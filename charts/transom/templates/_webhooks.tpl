{{/*
The webhook configurations come from files/webhooks.json, which the program's own registration writes (tests/chart.rs
compares). Here stands only what differs from one installation to the next.
*/}}

{{/* The labels of pools that say Windows, by key: (dict "key" [value, …]) as YAML. */}}
{{- define "transom.pools" -}}
{{- $labels := concat .wellKnown (dig "evidence" "poolLabels" (list) .root.Values.policy.spec) .root.Values.webhooks.poolLabels -}}
{{- $pools := dict -}}
{{- range $labels -}}
{{- if not (has .key $.known) -}}
{{- $_ := set $pools .key (append (default (list) (get $pools .key)) (lower .value)) -}}
{{- end -}}
{{- end -}}
{{- toYaml $pools -}}
{{- end -}}

{{/* A part of a condition that stands once for each pool label. */}}
{{- define "transom.forEachPool" -}}
{{- range $key := keys .pools | sortAlpha -}}
{{- $values := list -}}
{{- range get $.pools $key -}}
{{- /* No value may end the literal that it stands in. */ -}}
{{- $value := . | replace "\\" "\\\\" | replace "'" "\\'" -}}
{{- if hasSuffix "*" . -}}
{{- $values = append $values (printf "v.lowerAscii().startsWith('%s')" (trimSuffix "*" $value)) -}}
{{- else -}}
{{- $values = append $values (printf "v.lowerAscii() == '%s'" $value) -}}
{{- end -}}
{{- end -}}
{{- $.part | replace $.source.value (join " || " $values) | replace $.source.key $key -}}
{{- end -}}
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
{{- $everywhere := default (dict) $values.policy.spec.namespaceSelector -}}
{{- $guard := default (include "transom.orOff" (default "Off" $values.policy.spec.reverseGuard)) -}}
{{- $optional := dict -}}
{{- if or $values.webhooks.linuxPods.enabled (and $values.policy.create (ne $guard "Off")) -}}
{{- $_ := set $optional "linux-pods" (default $everywhere $values.webhooks.linuxPods.namespaceSelector) -}}
{{- end -}}
{{- if or $values.webhooks.defaultOs.enabled (and $values.policy.create (dig "evidence" "namespaceDefaultOs" "" $values.policy.spec)) -}}
{{- $_ := set $optional "default-os" (default $everywhere $values.webhooks.defaultOs.namespaceSelector) -}}
{{- end -}}
{{- /* As expressions, which cannot get in the way of an entry's own labels. */ -}}
{{- $within := default (list) $values.webhooks.namespaceSelector.matchExpressions -}}
{{- range $label, $value := $values.webhooks.namespaceSelector.matchLabels -}}
{{- $within = append $within (dict "key" $label "operator" "In" "values" (list $value)) -}}
{{- end -}}
{{- $entries := list -}}
{{- range $entry := $configuration.webhooks -}}
{{- $which := first (splitList "." $entry.name) -}}
{{- if or (has $which (list "mutate" "validate" "certain")) (hasKey $optional $which) -}}
{{- $service := $entry.clientConfig.service -}}
{{- $_ := set $service "name" (include "transom.fullname" $root) -}}
{{- $_ := set $service "namespace" $root.Release.Namespace -}}
{{- $_ := set $entry "timeoutSeconds" (int $values.webhooks.timeoutSeconds) -}}
{{- $selector := $entry.namespaceSelector -}}
{{- $left := first $selector.matchExpressions -}}
{{- $_ := set $left "values" (concat (without $left.values "NAMESPACE") (list $root.Release.Namespace) $values.exclusions.namespaces | uniq) -}}
{{- $only := default (dict) (get $optional $which) -}}
{{- $_ := set $selector "matchExpressions" (concat (list $left) (rest $selector.matchExpressions) $within (default (list) $only.matchExpressions)) -}}
{{- with $only.matchLabels -}}
{{- $_ := set $selector "matchLabels" . -}}
{{- end -}}
{{- range $entry.matchConditions -}}
{{- $expression := .expression -}}
{{- range $part := $source.pools.parts -}}
{{- $expression = $expression | replace $part (include "transom.forEachPool" (dict "pools" $pools "part" $part "source" $source.pools)) -}}
{{- end -}}
{{- $_ := set . "expression" $expression -}}
{{- end -}}
{{- $entries = append $entries $entry -}}
{{- end -}}
{{- end -}}
{{- $annotations := merge (dict) $configuration.metadata.annotations $values.webhooks.annotations -}}
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
