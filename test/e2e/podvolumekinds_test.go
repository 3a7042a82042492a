package e2e

import (
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"testing"

	"github.com/nri-blkio/nri-blkio/plugin/volumepath"
)

const (
	csiDriver  = "lvm.e2e.test"
	localNodes = `nodeAffinity: {required: {nodeSelectorTerms: [{matchExpressions: [{key: kubernetes.io/hostname, operator: In, values: [node]}]}]}}`
)

func singleFile(s store) store { s.single = true; return s }

func unwritable(s store) store { s.readOnly = true; return s }

func alike(s store) store { s.alike = true; return s }

// podVolumes are all kinds, on volumes of the group where they come by CSI.
func podVolumes(k *kit, group string) []volumeKind {
	k.Helper()
	on := func(name, fs string, disks ...string) store {
		return store{name: "pod's " + name, fs: fs, disks: disks}
	}
	host := func(path, kind string) string { return fmt.Sprintf("hostPath: {path: %s, type: %q}", path, kind) }
	logical := func(name string) (handle, disk string) {
		return fmt.Sprintf("csi: {driver: %s, volumeHandle: %s, fsType: ext4}", csiDriver, name),
			diskBehind(k.T, k.logical(group, name, "-L", "100M"))
	}
	published, onPublished := logical("published")
	block, onBlock := logical("block")
	ephemeral, onEphemeral := logical("ephemeral")
	made, file := volumes["part"]+"/made", volumes["btrfs"]+"/file"
	k.Cleanup(func() { removeAll(k.T, made, file, volumes["ext4"]+"/volumes", "/mnt/*/e2e/storage-pod-s-*") })
	single := testFile(k.T, "xfs", "single")
	writeFile(k.T, single, "")
	localBlock := k.one()
	kinds := []volumeKind{
		{store: on("emptyDir", "ext4", "vda"), Volume: "emptyDir: {}", by: "@emptydir"},
		{store: alike(on("subPath", "ext4", "vda")), Volume: "emptyDir: {}", Mount: "subPath: sub", by: "@subpath"},
		{store: on("hostPath", "ext4", "vdb"), Volume: host(volumes["ext4"], "")},
		{store: alike(on("subPathExpr of a hostPath", "ext4", "vdb")), Volume: host(volumes["ext4"], "Directory"), Mount: "subPathExpr: $(POD)"},
		{store: alike(on("hostPath, DirectoryOrCreate", "ext4", "vdc")), Volume: host(made, "DirectoryOrCreate")},
		{store: singleFile(on("hostPath, File", "xfs", "vdd")), Volume: host(single, "File")},
		{store: alike(singleFile(on("hostPath, FileOrCreate", "btrfs", "vde"))), Volume: host(file, "FileOrCreate")},
		{store: singleFile(on("hostPath, BlockDevice", "", "vdf")), Volume: host("/dev/vdf", "BlockDevice"), Privileged: true},
		{store: alike(on("local PersistentVolume", "xfs", "vdd")), Claim: "local: {path: " + volumes["xfs"] + "}\n  " + localNodes},
		{
			store: alike(singleFile(on("local PersistentVolume, raw block", "", "vdg"))),
			Claim: "local: {path: " + localBlock + "}\n  " + localNodes, Mode: "Block", Block: true,
		},
		{store: on("CSI claim", "ext4", onPublished), Claim: published, by: "@pv-csi-claim", orphan: volumepath.CSI},
		{store: singleFile(on("CSI claim, raw block", "", onBlock)), Claim: block, Mode: "Block", Block: true},
		{store: alike(on("generic ephemeral", "ext4", onEphemeral)), Volume: claimTemplate("generic-ephemeral"), Claim: ephemeral},
		{
			store: on("CSI inline", "ext4"), Volume: "csi: {driver: " + csiDriver + "}",
			by: "@csi-inline", device: "/dev/" + group + "/csi-*", orphan: volumepath.CSI,
		},
		{store: unwritable(on("configMap", "ext4", "vda")), Volume: "configMap: {name: config}", by: "@configmap"},
	}
	if node.containerd == "2" { // 1.7 knows no image volumes
		image := "image: {reference: docker.io/local/busybox:1, pullPolicy: Never}"
		kinds = append(kinds, volumeKind{store: unwritable(on("image", "overlay", "vda")), Volume: image})
	}
	return append(kinds, refusedVolumes(on)...)
}

// removeAll removes what pods have left on the node's own disks.
func removeAll(t *testing.T, patterns ...string) {
	t.Helper()
	for _, pattern := range patterns {
		found, err := filepath.Glob(pattern)
		for _, path := range found {
			err = errors.Join(err, os.RemoveAll(path))
		}
		if err != nil {
			t.Error(err)
		}
	}
}

func claimTemplate(class string) string {
	return "ephemeral: {volumeClaimTemplate: {spec: {accessModes: [ReadWriteOnce], " +
		"resources: {requests: {storage: 100Mi}}, storageClassName: " + class + "}}}"
}

// refusedVolumes have no disk, or none that their name leads to.
func refusedVolumes(on func(name, fs string, disks ...string) store) []volumeKind {
	const memory = "tmpfs is memory, not a disk"
	return []volumeKind{
		{store: on("emptyDir in memory", "tmpfs"), Volume: "emptyDir: {medium: Memory}", by: "@emptydir-in-memory", refuse: memory},
		{store: on("secret", "tmpfs"), Volume: "secret: {secretName: secret}", by: "@secret", refuse: memory},
		{
			store:  on("projected", "tmpfs"),
			Volume: "projected: {sources: [{secret: {name: secret}}, {configMap: {name: config}}]}", refuse: memory,
		},
		{
			store:  on("downwardAPI", "tmpfs"),
			Volume: "downwardAPI: {items: [{path: name, fieldRef: {fieldPath: metadata.name}}]}", refuse: memory,
		},
		{
			store:  on("hostPath, CharDevice", "devtmpfs"),
			Volume: `hostPath: {path: /dev/null, type: CharDevice}`, refuse: "is memory, not a disk",
		},
		{
			store:  on("hostPath, Socket", "tmpfs"),
			Volume: `hostPath: {path: /run/containerd/containerd.sock, type: Socket}`, refuse: memory,
		},
		{
			store: on("hostPath by name", "ext4"), Volume: "hostPath: {path: " + volumes["ext4"] + "}",
			by: "@hostpath-by-name", refuse: `no mount of the container is known to come from it`,
		},
	}
}
