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
  name: nri-blkio{{ if .remove }}-remove{{ end }}
  namespace: {{ .root.Release.Namespace }}
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
