package inspect

import (
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"syscall"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/nri-blkio/nri-blkio/blkio/hostfs"
	"github.com/nri-blkio/nri-blkio/internal/fakenode"
	"github.com/nri-blkio/nri-blkio/plugin/record"
	"github.com/nri-blkio/nri-blkio/plugin/volumepath"
)

// TestVolumesBelowMounts verifies that no filesystem that is mounted in a pod's directory is read, nor are the
// types of its entries.
func TestVolumesBelowMounts(t *testing.T) {
	root := t.TempDir()
	for _, d := range []string{
		"a/volumes/kubernetes.io~nfs/x/hidden", "b/volumes/kubernetes.io~csi/y", "b/volumes/kubernetes.io~empty-dir/b",
		"b/volumeDevices/kubernetes.io~csi/z", "b/volumeDevices/kubernetes.io~csi/b",
	} {
		if err := os.MkdirAll(filepath.Join(root, podsDir, d), 0o755); err != nil {
			t.Fatal(err)
		}
	}
	const mounts = "1 0 259:300 / / rw - ext4 /dev/nvme0n1 rw\n2 1 0:60 / /var/lib/kubelet/pods/a/volumes rw - nfs4 filer:/ rw\n"
	list := func(mounts string) (out []string) {
		k := kubelet{storage: fakenode.OpenStorage(t, fakenode.Sysfs(), root, mounts), host: hostfs.Root(root), root: kubeletRoot}
		found, err := k.volumes(t.Context())
		if err != nil {
			t.Fatal(err)
		}
		for _, v := range found {
			out = append(out, fmt.Sprint(v.UID, " ", v.Plugin, " ", v.Name, " ", strings.TrimPrefix(v.path, podsDir), " ", v.Block))
		}
		return out
	}
	want := []string{
		"b kubernetes.io/csi y b/volumes/kubernetes.io~csi/y/mount false",
		"b kubernetes.io/empty-dir b b/volumes/kubernetes.io~empty-dir/b false",
		"b kubernetes.io/csi z b/volumeDevices/kubernetes.io~csi/z true",
	}
	if d := cmp.Diff(want, list(mounts)); d != "" {
		t.Errorf("-want +got:\n%s", d)
	}
	if got := list("1 0 0:60 / / rw - nfs4 filer:/ rw\n"); got != nil {
		t.Errorf("a kubelet on a network filesystem was read: %v", got)
	}
}

// kubeletOf is the kubelet of a node with these mounts and directories.
func kubeletOf(t *testing.T, mounts string, dirs ...string) kubelet {
	t.Helper()
	root := t.TempDir()
	for _, d := range dirs {
		if err := os.MkdirAll(filepath.Join(root, d), 0o755); err != nil {
			t.Fatal(err)
		}
	}
	return kubelet{storage: fakenode.OpenStorage(t, fakenode.Sysfs(), root, mounts), host: hostfs.Root(root), root: kubeletRoot}
}

const rootMount = "1 0 259:300 / / rw - ext4 /dev/nvme0n1 rw\n"

// loop makes a symbolic link to itself, which cannot be read.
func loop(t *testing.T, name string) {
	t.Helper()
	if err := os.MkdirAll(filepath.Dir(name), 0o755); err != nil {
		t.Fatal(err)
	}
	if err := os.Symlink(filepath.Base(name), name); err != nil {
		t.Fatal(err)
	}
}

// TestVolumesFail verifies that a directory that cannot be read is an error, and the volumes before it are
// reported.
func TestVolumesFail(t *testing.T) {
	for name, want := range map[string]int{"b/volumes": 1, "b/volumes/kubernetes.io~csi": 1, "a/volumeDevices": 1, "c": 1} {
		k := kubeletOf(t, rootMount, podsDir+"a/volumes/kubernetes.io~empty-dir/tmp")
		loop(t, filepath.Join(string(k.host), podsDir, name))
		got, err := k.volumes(t.Context())
		if len(got) != want || !errors.Is(err, syscall.ELOOP) || !strings.HasPrefix(err.Error(), "look for volumes: ") {
			t.Errorf("%s: %d volumes, %v", name, len(got), err)
		}
	}
}

// TestNoVolumes verifies that a node without a kubelet has no volumes, and that listing them succeeds.
func TestNoVolumes(t *testing.T) {
	for name, k := range map[string]kubelet{
		"no directory": kubeletOf(t, rootMount), "no mount": kubeletOf(t, "1 0 259:300 / /srv rw - ext4 /dev/nvme0n1 rw\n", podsDir+"a/volumes/x/y"),
	} {
		if got, err := k.volumes(t.Context()); got != nil || err != nil {
			t.Errorf("%s: %v, %v", name, got, err)
		}
	}
}

// TestPodNames verifies that a pod has the name in its record or, without one, the name in its logs.
func TestPodNames(t *testing.T) {
	known := map[string]podName{"u1": {"prod", "recorded"}, "u3": {"prod", "alone"}}
	var records []Recorded
	for uid, name := range known {
		records = append(records, Recorded{Record: &record.Record{UID: uid, Namespace: name.namespace, Pod: name.name}})
	}
	logs := []string{"prod_db-0_u1", "kube-system_agent_u2", "odd", "prod_a_b_u4", "_"}
	for i, name := range logs {
		logs[i] = "/var/log/pods/" + name
	}
	for _, tt := range []struct {
		name, mounts string
		dirs         []string
		want         map[string]podName
	}{
		{"logs", rootMount, logs, map[string]podName{"u1": {"prod", "recorded"}, "u2": {"kube-system", "agent"}, "u3": {"prod", "alone"}}},
		{"no logs", rootMount, nil, known},
		{"logs on a network filesystem", rootMount + "2 1 0:60 / /var/log rw - nfs4 filer:/ rw\n", logs, known},
		{"one of them is a mountpoint", rootMount + "2 1 0:60 / /var/log/pods/prod_db-0_u1 rw - nfs4 filer:/ rw\n", logs, map[string]podName{"u1": {"prod", "recorded"}, "u2": {"kube-system", "agent"}, "u3": {"prod", "alone"}}},
	} {
		k := kubeletOf(t, tt.mounts, tt.dirs...)
		if d := cmp.Diff(tt.want, k.podNames(t.Context(), records), cmp.AllowUnexported(podName{})); d != "" {
			t.Errorf("%s: -want +got:\n%s", tt.name, d)
		}
	}
}

// TestVolumeOrder verifies the order: orphans, provisioned volumes, scratch space, then the volumes that each
// pod has. Those of one kind keep their order.
func TestVolumeOrder(t *testing.T) {
	var volumes []podVolume
	for i, plugin := range []string{"secret", "empty-dir", "csi", "configmap", "projected", "nfs", "empty-dir", "downward-api", "local-volume"} {
		volumes = append(volumes, podVolume{Volume: volumepath.Volume{Plugin: "kubernetes.io/" + plugin, Name: fmt.Sprint(i)}, path: fmt.Sprint("/", i)})
	}
	orphan := Orphan{OrphanVolume: OrphanVolume{Mountpoint: "/3"}}
	var got []string
	for _, v := range withOrphans(volumes, []Orphan{orphan}) {
		got = append(got, v.Name+" "+strings.TrimPrefix(v.Plugin, "kubernetes.io/"))
	}
	want := []string{"3 configmap", "2 csi", "5 nfs", "8 local-volume", "1 empty-dir", "6 empty-dir", "0 secret", "4 projected", "7 downward-api"}
	if d := cmp.Diff(want, got); d != "" {
		t.Errorf("-want +got:\n%s", d)
	}
}
