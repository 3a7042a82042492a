{{/*
The spec of the pods of the limits part, and of those that remove what it has written when the release is
uninstalled. Arguments: root, remove for the latter, and pool, as of nri-blkio.placement.
*/}}
{{- define "nri-blkio.limitsPod" -}}
{{- $remove := .remove -}}
{{- with .root -}}
serviceAccountName: {{ include "nri-blkio.name" . }}{{ if $remove }}-remove{{ end }}
{{- with .Values.imagePullSecrets }}
imagePullSecrets:
  {{- toYaml . | nindent 2 }}
{{- end }}
# It does not use the API server.
automountServiceAccountToken: false
enableServiceLinks: false
# The pod is not evicted, and starts before other pods of a full node.
{{- with .Values.priorityClassName }}
priorityClassName: {{ . }}
{{- end }}
# On every node that is a machine, even before it is ready, because pods can start there.
{{- include "nri-blkio.placement" (dict "root" . "pool" $.pool "indent" 0) }}
# It uses the network for metrics only. With a network namespace of its own it
# would wait for the CNI plugin, and limit pods later on a new node.
hostNetwork: true
# Not hostPID: /host/proc is the host's, with the host's process 1.
hostPID: false
hostIPC: false
# SIGTERM ends it at once; limits stay in force.
terminationGracePeriodSeconds: 5
securityContext:
  # The group of the cluster part, cluster.yaml. As its member, this part can give it its
  # directories without CAP_CHOWN.
  supplementalGroups: [65530]
  seccompProfile:
    {{- if eq .Values.privileges "hostile-tenants" }}
    type: Localhost
    localhostProfile: nri-blkio/limits.json
    {{- else }}
    type: RuntimeDefault
    {{- end }}
containers:
  - name: nri-blkio
    image: {{ include "nri-blkio.image" . }}
    imagePullPolicy: {{ .Values.image.pullPolicy }}
    args:
      - run
      # The writeback part, with more privileges, is in writeback.yaml.
      - --only=limits
      {{- if $remove }}
      - --mode=observe
      {{- else }}
      - --policy=/etc/nri-blkio/policy.yaml
      {{- end }}
      - --log-format=json
      {{- if and .Values.cluster.enabled (not $remove) }}
      # Live changes and Events, if cluster.yaml is installed.
      - --exchange-dir=/run/nri-blkio/cluster
      - --events-dir=/run/nri-blkio/events
      {{- end }}
      {{- range .Values.limits.extraArgs }}
      - {{ . | quote }}
      {{- end }}
      {{- if and .Values.metrics.enabled (not $remove) }}
      - --metrics-address={{ .Values.metrics.host }}:{{ .Values.limits.metricsPort }}
      {{- else }}
      # Metrics for Prometheus, without authentication. The first address is for
      # a scraper on the node's network. The second one, with NODE_IP below, is for
      # a scraper in another pod or on another host.
      # - --metrics-address=127.0.0.1:9467
      # - --metrics-address=$(NODE_IP):9467
      {{- end }}
    {{- if and .Values.metrics.enabled (not $remove) }}
    ports:
      - name: metrics
        containerPort: {{ .Values.limits.metricsPort }}
    {{- end }}
    securityContext:
      # Files of cgroupfs and the runtime's socket belong to root, and as
      # their owner it needs no capability to write them.
      runAsUser: 0
      runAsGroup: 0
      capabilities:
        drop: [ALL]
        # Limits need neither; both are for the hand-over when a container
        # ends. SYS_NICE: the thread that lifts limits gets a high priority,
        # because systemd removes a cgroup 4 ms after its last process.
        # Without it, more limits are lifted too late on a busy node, each
        # with a warning in the log. DAC_READ_SEARCH: to open and sync a
        # volume whose directory only the tenant may enter.
        {{- if eq .Values.privileges "hostile-tenants" }}
        add: [DAC_READ_SEARCH]
        {{- else }}
        add: [SYS_NICE, DAC_READ_SEARCH]
        {{- end }}
      privileged: false
      allowPrivilegeEscalation: false
      readOnlyRootFilesystem: true
      # A node with SELinux needs a type that may write cgroupfs and connect
      # to the runtime:
      {{ include "nri-blkio.seLinux" . }}
    {{- if $remove }}
    # Ready means that nothing of nri-blkio is in force on the node any more.
    readinessProbe:
      exec:
        command: [/nri-blkio, status, --removed]
      periodSeconds: 2
      timeoutSeconds: 10
    {{- else }}
    # Ready means that the runtime asks an instance on this node about each
    # container. There is no liveness probe: a restart of the plugin does not
    # help where the runtime does not answer, and the plugin reconnects by itself.
    readinessProbe:
      exec:
        command: [/nri-blkio, status, --ready=limits]
      periodSeconds: 10
      # A node whose CPUs are busy starts the probe late.
      timeoutSeconds: 10
      failureThreshold: 3
    {{- end }}
    # As variables, not as flags: they also hold for commands in "kubectl exec".
    env:
      # Host paths in mounts and configuration are looked up below this.
      - name: NRI_BLKIO_HOST_ROOT
        value: /host
      # A separate mount, which is writable although the one of /host is not.
      - name: NRI_BLKIO_CGROUP_ROOT
        value: /host-cgroup
      - name: GOMEMLIMIT
        value: {{ .Values.limits.goMemoryLimit }}
      {{- if and .Values.metrics.enabled (not $remove) }}
      - name: NODE_IP
        valueFrom: {fieldRef: {fieldPath: status.hostIP}}
      {{- else }}
      # - name: NODE_IP # with IPv6, write [$(NODE_IP)]:9467 above
      #   valueFrom: {fieldRef: {fieldPath: status.hostIP}}
      {{- end }}
    {{- with .Values.limits.resources }}
    resources:
      # The runtime waits for it when it creates a container. No CPU limit: a
      # throttled plugin would miss the runtime's timeout. It uses about 30 MiB. A
      # pod's annotations have at most 256 KiB and take at most 0.5 MiB parsed, so 500
      # hostile pods take 375 MiB while the runtime lists them. If the plugin were
      # killed for its memory, it would get the same list again. GOMEMLIMIT makes the
      # garbage collector work harder before that.
      {{- toYaml . | nindent 6 }}
    {{- end }}
    volumeMounts:
      # The plugin's state, which status and the probe read.
      - name: state
        mountPath: /run/nri-blkio
      # The runtime's socket, and the lock that lets one instance per node
      # work. The directory, not the socket: a restarted runtime creates a
      # new socket.
      - name: nri
        mountPath: /var/run/nri
      # io.max, io.weight, io.cost.* and the records (extended attributes) are here.
      - name: cgroup
        mountPath: /host-cgroup
      # /host/proc/1/mountinfo: the node's mounts. /host/sys: disks, and the
      # devices below them. /host/dev: the numbers of device nodes. The rest:
      # symlinks in hostPath volumes, and the runtime's configuration.
      # readOnly applies to this mount, not to those below it.
      # HostToContainer: mounts and unmounts of the node must reach this pod.
      # Otherwise it would keep each volume of the node busy. This excludes
      # recursiveReadOnly.
      - name: host
        mountPath: /host
        readOnly: true
        mountPropagation: HostToContainer
      # Separate read-only mounts, because the mount of /host is read-only only at
      # its top, and uid 0 may write /proc/sys/kernel/core_pattern without any
      # capability. recursiveReadOnly includes the mounts below, if the runtime
      # supports it. It needs Kubernetes 1.30; delete these lines for an older one.
      # cgroupfs has a separate mount in any case.
      - name: proc
        mountPath: /host/proc
        readOnly: true
        {{- if semverCompare ">=1.30-0" .Capabilities.KubeVersion.Version }}
        recursiveReadOnly: IfPossible
        {{- end }}
      - name: sys
        mountPath: /host/sys
        readOnly: true
        {{- if semverCompare ">=1.30-0" .Capabilities.KubeVersion.Version }}
        recursiveReadOnly: IfPossible
        {{- end }}
      - name: cgroup
        mountPath: /host/sys/fs/cgroup
        readOnly: true
      {{- if .Values.schedulers }}
      - name: sys-devices
        mountPath: /host/sys/devices
      {{- end }}
      - name: dev
        mountPath: /host/dev
        readOnly: true
        {{- if semverCompare ">=1.30-0" .Capabilities.KubeVersion.Version }}
        recursiveReadOnly: IfPossible
        {{- end }}
      # Not recursive: that would exclude propagation, and this pod would keep the
      # containers' root filesystems below /run mounted.
      - name: run
        mountPath: /host/run
        readOnly: true
        mountPropagation: HostToContainer
      {{- if not $remove }}
      # The directory, not a subPath, which would not receive edits.
      - name: policy
        mountPath: /etc/nri-blkio
        readOnly: true
      {{- end }}
volumes:
  - name: state
    hostPath:
      path: /run/nri-blkio
      type: DirectoryOrCreate
  - name: nri
    hostPath:
      path: {{ .Values.nriDirectory }}
      # The runtime may not have started NRI yet.
      type: DirectoryOrCreate
  - name: cgroup
    hostPath:
      path: /sys/fs/cgroup
      type: Directory
  - name: host
    hostPath:
      path: /
      type: Directory
  - name: proc
    hostPath:
      path: /proc
      type: Directory
  - name: sys
    hostPath:
      path: /sys
      type: Directory
  {{- if .Values.schedulers }}
  - name: sys-devices
    hostPath:
      path: /sys/devices
      type: Directory
  {{- end }}
  - name: dev
    hostPath:
      path: /dev
      type: Directory
  - name: run
    hostPath:
      path: /run
      type: Directory
  {{- if not $remove }}
  - name: policy
    configMap:
      name: {{ include "nri-blkio.name" . }}-policy{{ include "nri-blkio.ofPool" $.pool }}
  {{- end }}
{{- end -}}
{{- end -}}
