{{/* The image of all parts. */}}
{{- define "nri-blkio.image" -}}
{{- $i := .Values.image -}}
{{- $repository := required "image.repository: required (where you pushed the image of `make image`)" $i.repository | default "missing" -}}
{{- if $i.digest -}}
{{ $repository }}@{{ $i.digest }}
{{- else -}}
{{ $repository }}:{{ required "image.tag: required (the tag under which you pushed the image; or set image.digest)" $i.tag | default "missing" }}
{{- end -}}
{{- end -}}

{{/* What the names of the objects in the namespace begin with. */}}
{{- define "nri-blkio.name" -}}
{{ .Values.nameOverride | default "nri-blkio" }}
{{- end -}}

{{/*
The field labels of an object or, with pod, of a pod template. Arguments: root, indent; own, labels of this object; name, its
label app.kubernetes.io/name; pool, as of nri-blkio.placement.
*/}}
{{- define "nri-blkio.labels" -}}
{{- $own := deepCopy (get . "own" | default dict) -}}
{{- with get . "name" }}{{ $_ := set $own "app.kubernetes.io/name" . }}{{ end -}}
{{- with get . "pool" }}{{ $_ := set $own "node-pool" . }}{{ end -}}
{{- $labels := merge $own (ternary .root.Values.podLabels dict (hasKey . "pod") | default dict) (.root.Values.commonLabels | default dict) -}}
{{- if $labels }}{{ printf "labels:\n%s" (toYaml $labels | indent 2) | nindent (int .indent) }}{{ end -}}
{{- end -}}

{{/* A list of the node pools; "" is the first one, which has the nodes of no pool. */}}
{{- define "nri-blkio.pools" -}}
{{- prepend (keys .Values.nodePools.policyFiles | sortAlpha) "" | toJson -}}
{{- end -}}

{{/* What is added to names of objects of a node pool. */}}
{{- define "nri-blkio.ofPool" -}}
{{- with . }}-pool-{{ . }}{{ end -}}
{{- end -}}

{{/*
The selector of a DaemonSet with its own policy, for the pods of its node pool or, without one, for those of none.
Arguments: name, pool.
*/}}
{{- define "nri-blkio.selector" -}}
matchLabels:
  app.kubernetes.io/name: {{ .name }}
  {{- with .pool }}
  node-pool: {{ . }}
  {{- else }}
matchExpressions:
  - {key: node-pool, operator: DoesNotExist}
  {{- end }}
{{- end -}}

{{/*
Where pods run. Arguments: root, indent, and pool: a node pool, "" for the nodes of no pool, "*" for all nodes.
*/}}
{{- define "nri-blkio.placement" -}}
{{- $v := .root.Values -}}
{{- $pools := keys $v.nodePools.policyFiles | sortAlpha -}}
{{- $selector := deepCopy ($v.nodeSelector | default dict) -}}
{{- $affinity := deepCopy ($v.affinity | default dict) -}}
{{- if has .pool $pools -}}
{{- $_ := set $selector $v.nodePools.label .pool -}}
{{- else if and $pools (not .pool) -}}
{{- /* The terms are alternatives: each of them leaves the pools out. */ -}}
{{- $without := dict "key" $v.nodePools.label "operator" "NotIn" "values" $pools -}}
{{- $terms := list -}}
{{- range dig "nodeAffinity" "requiredDuringSchedulingIgnoredDuringExecution" "nodeSelectorTerms" (list dict) $affinity -}}
{{- $terms = append $terms (set . "matchExpressions" (append (get . "matchExpressions" | default list) $without)) -}}
{{- end -}}
{{- $affinity = mergeOverwrite $affinity (dict "nodeAffinity" (dict "requiredDuringSchedulingIgnoredDuringExecution" (dict "nodeSelectorTerms" $terms))) -}}
{{- end -}}
{{- $fields := dict -}}
{{- range $name, $value := dict "affinity" $affinity "nodeSelector" $selector "tolerations" $v.tolerations -}}
{{- if $value }}{{ $_ := set $fields $name $value }}{{ end -}}
{{- end -}}
{{- if $fields }}{{ toYaml $fields | nindent (int .indent) }}{{ end -}}
{{- end -}}

{{/* Admission policies that test/admission/policies generates from the grammar of annotations. Arguments: root, name. */}}
{{- define "nri-blkio.admission" -}}
{{- $labels := include "nri-blkio.labels" (dict "root" .root "indent" 2) -}}
{{ .root.Files.Get (printf "files/admission/%s.yaml" .name) | replace "\nmetadata:" (print "\nmetadata:" $labels) }}
{{- end -}}

{{/* The mode of policyFile. */}}
{{- define "nri-blkio.mode" -}}
{{ dig "mode" "enforce" (fromYaml .Values.policyFile) }}
{{- end -}}

{{/* How an update replaces the pods of a DaemonSet. */}}
{{- define "nri-blkio.updateStrategy" -}}
type: {{ .Values.updateStrategy.type }}
{{- if eq .Values.updateStrategy.type "RollingUpdate" }}
rollingUpdate:
  # Containers that are created on a node while its plugin is replaced start
  # without limits, and get them seconds later. So few nodes at a time.
  maxUnavailable: {{ .Values.updateStrategy.rollingUpdate.maxUnavailable }}
  # The old pod is removed first: two of them on a node would wait for one lock, or write the same files.
  maxSurge: 0
{{- end }}
{{- end -}}

{{/* What is added to the names of objects without a namespace, for a second release. */}}
{{- define "nri-blkio.suffix" -}}
{{- if ne .Release.Namespace "nri-blkio" }}-{{ .Release.Namespace }}{{ end -}}
{{- end -}}

{{/* The SELinux options as a field of a securityContext, or the hint. */}}
{{- define "nri-blkio.seLinux" -}}
{{- $options := .Values.seLinuxOptions | default (ternary (dict "type" "spc_t") dict .Values.openshift.scc) -}}
{{- if $options -}}
seLinuxOptions: {{ toJson $options }}
{{- else -}}
# seLinuxOptions: {type: spc_t}
{{- end -}}
{{- end -}}

{{/*
The annotations of an object that exists only while `helm uninstall` removes the limits. They are deleted when
that has succeeded. Argument: the weight, by which they are created.
*/}}
{{- define "nri-blkio.removeHook" -}}
helm.sh/hook: post-delete
helm.sh/hook-weight: {{ . | quote }}
helm.sh/hook-delete-policy: before-hook-creation,hook-succeeded
{{- end -}}

{{/* A ResourceQuota that admits any number of pods of the priority class. Arguments: root, remove. */}}
{{- define "nri-blkio.resourceQuota" -}}
apiVersion: v1
kind: ResourceQuota
metadata:
  name: {{ include "nri-blkio.name" .root }}{{ if .remove }}-remove{{ end }}
  namespace: {{ .root.Release.Namespace }}
  {{- include "nri-blkio.labels" (dict "root" .root "indent" 2) }}
  {{- if .remove }}
  annotations:
    {{- include "nri-blkio.removeHook" -20 | nindent 4 }}
  {{- end }}
spec:
  hard:
    pods: 1G
  scopeSelector:
    matchExpressions:
      - scopeName: PriorityClass
        operator: In
        values: [{{ .root.Values.priorityClassName }}]
{{- end -}}
