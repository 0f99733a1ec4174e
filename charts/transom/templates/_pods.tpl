{{/* What Transom's accounts may do with pods: the probe, which is a dry run, and pods that pull images on new nodes, of which no
container is ever created. */}}

{{/* The account of the pods that pull images; empty if there are none. It has no rights and no token. */}}
{{- define "transom.imagePullerAccount" -}}
{{- if .Values.nodeStartup.imagePuller.enabled -}}
{{- include "transom.fullname" . }}-image-puller
{{- end -}}
{{- end -}}

{{/* An entry of the list of policies in admissionpolicies.yaml, as YAML; empty if the accounts may create no pods. */}}
{{- define "transom.podsPolicy" -}}
{{- $probes := .Values.probe.enabled -}}
{{- $puller := include "transom.imagePullerAccount" . -}}
{{- if or $probes $puller -}}
{{- $variables := list (dict "name" "isProbe" "expression" (ternary "request.operation == 'CREATE' && request.?dryRun.orValue(false)" "false" $probes)) -}}
{{- $allowed := "Transom creates pods as a dry run only" -}}
{{- $shape := list -}}
{{- if $puller -}}
{{- $pullers := printf "pods that pull images, in the namespace %s" .Release.Namespace -}}
{{- $allowed = $probes | ternary (printf "%s, except %s" $allowed $pullers) (printf "Transom creates and deletes only %s" $pullers) -}}
{{- $variables = concat $variables (list
  (dict "name" "pod" "expression" "request.operation == 'DELETE' ? dyn(oldObject) : dyn(object)")
  (dict "name" "isPuller" "expression" (printf "request.operation in ['CREATE', 'DELETE'] && request.namespace == '%s' && variables.pod.metadata.name.startsWith('transom-pull-') && variables.pod.spec.?serviceAccountName.orValue('') == '%s'" .Release.Namespace $puller))) -}}
{{- $shape = include "transom.pullerShape" . | fromYamlArray -}}
{{- end -}}
{{- $validations := list (dict
  "message" $allowed
  "expression" (printf "request.?subResource.orValue('') == '' && (variables.isProbe%s)" (ternary " || variables.isPuller" "" (ne $puller "")))) -}}
{{- range $shape -}}
{{- $validations = append $validations (dict
  "message" (printf "Transom must not create a pod that pulls images with %s" .message)
  "expression" (printf "variables.isProbe || request.operation != 'CREATE' || %s" .expression)) -}}
{{- end -}}
{{- dict
  "suffix" "pods"
  "rule" (dict "apiGroups" (list "") "apiVersions" (list "v1") "operations" (list "*") "resources" (list "pods" "pods/*") "scope" "Namespaced")
  "variables" $variables
  "validations" $validations | toYaml -}}
{{- end -}}
{{- end -}}

{{/* What a pod that pulls images must be. The kubelet pulls an image before it finds out that runAsNonRoot and the user
ContainerAdministrator exclude each other. Fields are listed, so that a later field of Kubernetes is denied until it is known. The
API server sets some of them, and on EKS a webhook requests an IP address. */}}
{{- define "transom.pullerShape" -}}
{{- $spec := list "containers" "nodeName" "nodeSelector" "os" "tolerations" "restartPolicy" "serviceAccountName" "serviceAccount" "automountServiceAccountToken" "imagePullSecrets" "terminationGracePeriodSeconds" "activeDeadlineSeconds" "securityContext" "dnsPolicy" "schedulerName" "enableServiceLinks" "priority" "priorityClassName" "preemptionPolicy" -}}
{{- $container := list "name" "image" "imagePullPolicy" "command" "resources" "resizePolicy" "securityContext" "terminationMessagePath" "terminationMessagePolicy" -}}
{{- $labels := dict "app.kubernetes.io/name" "transom" "app.kubernetes.io/component" "image-puller" "app.kubernetes.io/managed-by" "transom" "transom.dev/owned" "true" -}}
{{- $amounts := dict "cpu" "1m" "memory" "1Mi" "vpc.amazonaws.com/PrivateIPv4Address" "1" -}}
- message: a label, annotation or finalizer other than its own, or an owner other than its node
  expression: >-
    variables.pod.metadata.?labels.orValue({}) == {{ toJson $labels }}
    && variables.pod.metadata.?annotations.orValue({}).all(k, k in ['transom.dev/node', 'transom.dev/node-policy', 'transom.dev/images'])
    && variables.pod.metadata.?finalizers.orValue([]).size() == 0
    && variables.pod.metadata.?ownerReferences.orValue([]).all(o, o.apiVersion == 'v1' && o.kind == 'Node'
    && o.name == variables.pod.spec.?nodeName.orValue('') && !o.?controller.orValue(false) && !o.?blockOwnerDeletion.orValue(false))
- message: "a field in its spec other than {{ join ", " $spec }}, or in its securityContext"
  expression: variables.pod.spec.all(k, k in {{ toJson $spec }}) && variables.pod.spec.?securityContext.orValue({}) == {}
- message: another nodeSelector or os than those of Windows, without a nodeName, or with the priority of the system
  expression: >-
    variables.pod.spec.?nodeName.orValue('') != ''
    && variables.pod.spec.?nodeSelector.orValue({})[?'kubernetes.io/os'].orValue('') == 'windows'
    && variables.pod.spec.?os.orValue({}) == {'name': 'windows'} && variables.pod.spec.?priority.orValue(0) < 2000000000
- message: a token, a restart, a grace period, or without an activeDeadlineSeconds
  expression: >-
    !variables.pod.spec.?automountServiceAccountToken.orValue(true) && variables.pod.spec.restartPolicy == 'Never'
    && variables.pod.spec.?terminationGracePeriodSeconds.orValue(30) == 0 && variables.pod.spec.?activeDeadlineSeconds.orValue(0) > 0
- message: "a field in a container other than {{ join ", " $container }}, a container without the name image-N, or the imagePullPolicy Never"
  expression: >-
    variables.pod.spec.containers.all(c, c.all(k, k in {{ toJson $container }}) && c.name.matches('^image-[0-9]+$')
    && c.imagePullPolicy in ['IfNotPresent', 'Always'])
- message: "a container that could start: its command must be transom-puller-never-runs, and its securityContext runAsNonRoot and the user ContainerAdministrator"
  expression: >-
    variables.pod.spec.containers.all(c, c.?command.orValue([]) == ['transom-puller-never-runs']
    && c.?securityContext.orValue({}) == {'runAsNonRoot': dyn(true), 'windowsOptions': dyn({'runAsUserName': 'ContainerAdministrator'})})
- message: requests or limits above 1m of CPU or 1Mi of memory, or of other resources
  expression: >-
    variables.pod.spec.containers.all(c, c.?resources.orValue({}).all(k, k in ['requests', 'limits']
    && c.resources[k].all(r, r in {{ toJson $amounts }} && quantity(c.resources[k][r]).compareTo(quantity({{ toJson $amounts }}[r])) <= 0)))
{{- end -}}
