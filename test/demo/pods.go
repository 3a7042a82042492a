package main

import (
	"fmt"
	"os"
	"path/filepath"
)

// pod is one of the demo's pods: a writer with a limit in an annotation.
type pod struct {
	name, target string
	requested    int64  // bytes per second
	text         string // the same, as a user writes it
	disk         string // where the node has it
	volume       string // YAML of the volume, "" for the rootfs
}

// pods are three kinds of storage. The disks are those of test/node.
var pods = []pod{
	{
		name: "hostpath", target: "/data", requested: 2 << 20, text: "2Mi", disk: "vdb",
		volume: "hostPath: {path: /mnt/ext4/demo, type: DirectoryOrCreate}",
	},
	{name: "emptydir", target: "/data", requested: 1 << 20, text: "1Mi", disk: "vda", volume: "emptyDir: {}"},
	{name: "rootfs", target: "rootfs", requested: 1536 << 10, text: "1536Ki", disk: "vda"},
}

// manifest is the pod as the kubelet gets it. The writer writes with O_DIRECT
// as fast as it can, and does so from its first instruction on.
func (p pod) manifest() string {
	file := "/data/file"
	volumes, mounts := "[{name: data, "+p.volume+"}]", "[{name: data, mountPath: /data}]"
	if p.volume == "" {
		file, volumes, mounts = "/file", "[]", "[]"
	}
	return fmt.Sprintf(`apiVersion: v1
kind: Pod
metadata:
  name: %s
  annotations:
    limits.blkio.noderesource.dev/container.writer: "%s wbps=%s"
spec:
  hostNetwork: true
  terminationGracePeriodSeconds: 1
  containers:
  - name: writer
    image: local/iotool:1
    imagePullPolicy: Never
    args: [write, --path, %s, --direct, --seconds, "3600"]
    volumeMounts: %s
  volumes: %s
`, p.name, p.target, p.text, file, mounts, volumes)
}

// manifests is where the kubelet looks for static pods.
const manifests = "/etc/kubernetes/manifests"

// drop gives the pods to the kubelet.
func drop() error {
	if err := os.MkdirAll(manifests, 0o755); err != nil {
		return err
	}
	for _, p := range pods {
		if err := os.WriteFile(filepath.Join(manifests, p.name+".yaml"), []byte(p.manifest()), 0o644); err != nil {
			return err
		}
	}
	return nil
}
