{{/*
The SecurityContextConstraints of the parts, and those of the pods that remove the limits when the release is
uninstalled. Arguments: root, and remove for the latter.
*/}}
{{- define "nri-blkio.scc" -}}
{{- $remove := .remove -}}
{{- with .root -}}
{{- $accounts := list (include "nri-blkio.name" .) -}}
{{- if .Values.cluster.enabled }}{{ $accounts = append $accounts (print (include "nri-blkio.name" .) "-cluster") }}{{ end -}}
{{- if $remove }}{{ $accounts = list (print (include "nri-blkio.name" .) "-remove") }}{{ end -}}
{{- $hostile := eq .Values.privileges "hostile-tenants" -}}
{{- $capabilities := list "DAC_READ_SEARCH" -}}
{{- if not $hostile }}{{ $capabilities = append $capabilities "SYS_NICE" }}{{ end -}}
{{- if and .Values.writeback.enabled (not $remove) -}}
{{- $capabilities = concat $capabilities (list "BPF" "PERFMON") -}}
{{- if not $hostile }}{{ $capabilities = concat $capabilities (list "SYS_PTRACE" "FOWNER") }}{{ end -}}
{{- end -}}
# The pods of nri-blkio need directories of the node, its network, and uid 0.
apiVersion: security.openshift.io/v1
kind: SecurityContextConstraints
metadata:
  name: {{ include "nri-blkio.name" . }}{{ if $remove }}-remove{{ end }}{{ include "nri-blkio.suffix" . }}
  {{- include "nri-blkio.labels" (dict "root" . "indent" 2) }}
  {{- if $remove }}
  annotations:
    {{- include "nri-blkio.removeHook" -20 | nindent 4 }}
  {{- end }}
users:
  {{- range $accounts }}
  - system:serviceaccount:{{ $.root.Release.Namespace }}:{{ . }}
  {{- end }}
groups: []
allowHostDirVolumePlugin: true
allowHostNetwork: true
allowHostPID: {{ and .Values.writeback.enabled (not $hostile) (not $remove) }}
allowHostIPC: false
allowHostPorts: {{ and .Values.metrics.enabled (not $remove) }}
allowPrivilegedContainer: false
allowPrivilegeEscalation: false
allowedCapabilities:
  {{- toYaml $capabilities | nindent 2 }}
defaultAddCapabilities: []
requiredDropCapabilities: []
readOnlyRootFilesystem: true
runAsUser: {type: RunAsAny}
fsGroup: {type: RunAsAny}
supplementalGroups: {type: RunAsAny}
seLinuxContext: {type: RunAsAny}
seccompProfiles:
  - runtime/default
  {{- if $hostile }}
  - localhost/nri-blkio/limits.json
  - localhost/nri-blkio/writeback.json
  {{- end }}
volumes: [configMap, hostPath, projected]
{{- end -}}
{{- end -}}
