package cluster

import (
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"testing"

	"github.com/nri-blkio/nri-blkio/plugin/volumepath"
	"github.com/nri-blkio/nri-blkio/test/e2e/lab"
)

const (
	csiDriver  = "lvm.e2e.test"
	localNodes = `nodeAffinity: {required: {nodeSelectorTerms: [{matchExpressions: [{key: kubernetes.io/hostname, operator: In, values: [node]}]}]}}`
)

func singleFile(s lab.Store) lab.Store { s.Single = true; return s }

func unwritable(s lab.Store) lab.Store { s.ReadOnly = true; return s }

func alike(s lab.Store) lab.Store { s.Alike = true; return s }

// podVolumes are all kinds, on volumes of the group where they come by CSI.
func podVolumes(k *lab.Kit, group string) []volumeKind {
	k.Helper()
	on := func(name, fs string, disks ...string) lab.Store {
		return lab.Store{Label: "pod's " + name, FS: fs, Disks: disks}
	}
	host := func(path, kind string) string { return fmt.Sprintf("hostPath: {path: %s, type: %q}", path, kind) }
	logical := func(name string) (handle, disk string) {
		return fmt.Sprintf("csi: {driver: %s, volumeHandle: %s, fsType: ext4}", csiDriver, name),
			lab.DiskBehind(k.T, k.Logical(group, name, "-L", "100M"))
	}
	published, onPublished := logical("published")
	block, onBlock := logical("block")
	ephemeral, onEphemeral := logical("ephemeral")
	made, file := lab.Volumes["part"]+"/made", lab.Volumes["btrfs"]+"/file"
	k.Cleanup(func() { removeAll(k.T, made, file, lab.Volumes["ext4"]+"/volumes", "/mnt/*/e2e/storage-pod-s-*") })
	single := lab.File(k.T, "xfs", "single")
	lab.WriteFile(k.T, single, "")
	localBlock := k.One()
	kinds := []volumeKind{
		{Store: on("emptyDir", "ext4", "vda"), Volume: "emptyDir: {}", by: "@emptydir"},
		{Store: alike(on("subPath", "ext4", "vda")), Volume: "emptyDir: {}", Mount: "subPath: sub", by: "@subpath"},
		{Store: on("hostPath", "ext4", "vdb"), Volume: host(lab.Volumes["ext4"], "")},
		{Store: alike(on("subPathExpr of a hostPath", "ext4", "vdb")), Volume: host(lab.Volumes["ext4"], "Directory"), Mount: "subPathExpr: $(POD)"},
		{Store: alike(on("hostPath, DirectoryOrCreate", "ext4", "vdc")), Volume: host(made, "DirectoryOrCreate")},
		{Store: singleFile(on("hostPath, File", "xfs", "vdd")), Volume: host(single, "File")},
		{Store: alike(singleFile(on("hostPath, FileOrCreate", "btrfs", "vde"))), Volume: host(file, "FileOrCreate")},
		{Store: singleFile(on("hostPath, BlockDevice", "", "vdf")), Volume: host("/dev/vdf", "BlockDevice"), Privileged: true},
		{Store: alike(on("local PersistentVolume", "xfs", "vdd")), Claim: "local: {path: " + lab.Volumes["xfs"] + "}\n  " + localNodes},
		{
			Store: alike(singleFile(on("local PersistentVolume, raw block", "", "vdg"))),
			Claim: "local: {path: " + localBlock + "}\n  " + localNodes, Mode: "Block", Block: true,
		},
		{Store: on("CSI claim", "ext4", onPublished), Claim: published, by: "@pv-csi-claim", orphan: volumepath.CSI},
		{Store: singleFile(on("CSI claim, raw block", "", onBlock)), Claim: block, Mode: "Block", Block: true},
		{Store: alike(on("generic ephemeral", "ext4", onEphemeral)), Volume: claimTemplate("generic-ephemeral"), Claim: ephemeral},
		{
			Store: on("CSI inline", "ext4"), Volume: "csi: {driver: " + csiDriver + "}",
			by: "@csi-inline", device: "/dev/" + group + "/csi-*", orphan: volumepath.CSI,
		},
		{Store: unwritable(on("configMap", "ext4", "vda")), Volume: "configMap: {name: config}", by: "@configmap"},
	}
	if lab.Node.Engine == "containerd-2" { // 1.7 knows no image volumes
		image := "image: {reference: docker.io/local/busybox:1, pullPolicy: Never}"
		kinds = append(kinds, volumeKind{Store: unwritable(on("image", "overlay", "vda")), Volume: image})
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
func refusedVolumes(on func(name, fs string, disks ...string) lab.Store) []volumeKind {
	const memory = "tmpfs is memory, not a disk"
	return []volumeKind{
		{Store: on("emptyDir in memory", "tmpfs"), Volume: "emptyDir: {medium: Memory}", by: "@emptydir-in-memory", refuse: memory},
		{Store: on("secret", "tmpfs"), Volume: "secret: {secretName: secret}", by: "@secret", refuse: memory},
		{
			Store:  on("projected", "tmpfs"),
			Volume: "projected: {sources: [{secret: {name: secret}}, {configMap: {name: config}}]}", refuse: memory,
		},
		{
			Store:  on("downwardAPI", "tmpfs"),
			Volume: "downwardAPI: {items: [{path: name, fieldRef: {fieldPath: metadata.name}}]}", refuse: memory,
		},
		{
			Store:  on("hostPath, CharDevice", "devtmpfs"),
			Volume: `hostPath: {path: /dev/null, type: CharDevice}`, refuse: "is memory, not a disk",
		},
		{
			Store:  on("hostPath, Socket", "tmpfs"),
			Volume: `hostPath: {path: /run/containerd/containerd.sock, type: Socket}`, refuse: memory,
		},
		{
			Store: on("hostPath by name", "ext4"), Volume: "hostPath: {path: " + lab.Volumes["ext4"] + "}",
			by: "@hostpath-by-name", refuse: `the volumes of the pod are not known yet`,
		},
	}
}
