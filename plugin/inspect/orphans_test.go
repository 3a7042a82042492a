package inspect

import (
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/nri-blkio/nri-blkio/blkio/hostfs"
	"github.com/nri-blkio/nri-blkio/blkio/storage"
	"github.com/nri-blkio/nri-blkio/internal/fakenode"
	"github.com/nri-blkio/nri-blkio/plugin/record"
	"github.com/nri-blkio/nri-blkio/plugin/volumepath"
)

// orphanNode is a finder on a node with orphanMounts.
func orphanNode(t *testing.T, driver string) *orphanFinder {
	t.Helper()
	root := writeOrphans(t, driver)
	h := Host{
		Storage: fakenode.OpenStorage(t, fakenode.Sysfs(), root, orphanMounts), Root: hostfs.Root(root), KubeletRoot: kubeletRoot,
		Cgroups: fakenode.OpenCgroups(t, filepath.Join(root, "cg")),
	}
	f := h.orphanFinder(t.Context(), nil)
	f.boot = time.Now().Add(-time.Hour)
	return f
}

const kubeletRoot = "/var/lib/kubelet"

func orphanLines(t *testing.T, f *orphanFinder) (out []string) {
	t.Helper()
	found, err := f.find(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	for i := range found {
		o := &found[i]
		out = append(out, fmt.Sprintf("%s %s %q %s %v %s", o.Namespace+"/"+o.Pod, o.UID, o.Volume, o.Type, o.Disks, o.State))
	}
	return out
}

func TestOrphans(t *testing.T) {
	gone := []string{
		`prod/db-0 gone-1 "conf" ext4 [nvme0n1] noCgroup`,
		`prod/db-0 gone-1 "data" xfs [dm-1] noCgroup`,
		`/ gone-2 "evil\x1b[2J" nfs4 [] noCgroup`,
	}
	for _, driver := range []string{"systemd", "cgroupfs"} {
		f := orphanNode(t, driver)
		want := append(gone[:3:3], `/ left-1 "data" ext4 [dm-2] noProcess`)
		if d := cmp.Diff(want, orphanLines(t, f)); d != "" {
			t.Errorf("%s, -want +got:\n%s", driver, d)
		}
		f.boot = time.Now().Add(time.Hour) // the containers ran before
		if d := cmp.Diff(gone, orphanLines(t, f)); d != "" {
			t.Errorf("%s, after a boot, -want +got:\n%s", driver, d)
		}
		f.grace = time.Hour
		if got := orphanLines(t, f); got != nil {
			t.Errorf("%s: pods that have just come are gone: %v", driver, got)
		}
	}
}

// TestOrphansUnknown verifies that if the cgroups of pods cannot be read, no pod counts as removed.
func TestOrphansUnknown(t *testing.T) {
	f := orphanNode(t, "cgroupfs")
	dir := filepath.Join(string(f.host), "cg")
	for change, do := range map[string]func() error{
		"not all pods are visible in this cgroup namespace": func() error {
			return os.WriteFile(filepath.Join(dir, "cgroup.events"), nil, 0o644)
		},
		"no kubepods cgroup found": func() error {
			return os.Rename(filepath.Join(dir, "kubepods"), filepath.Join(dir, "other"))
		},
	} {
		if err := do(); err != nil {
			t.Fatal(err)
		}
		found, err := f.find(t.Context())
		if len(found) != 0 || err == nil || !strings.HasSuffix(err.Error(), change) {
			t.Errorf("%s: found %v, %v", change, found, err)
		}
		_ = os.Remove(filepath.Join(dir, "cgroup.events")) // for the next
		_ = os.Rename(filepath.Join(dir, "other"), filepath.Join(dir, "kubepods"))
	}
}

// TestTreeOrphans verifies that the tree begins with the orphans, which are marked.
func TestTreeOrphans(t *testing.T) {
	volumes := []podVolume{
		{Volume: volumepath.Volume{UID: "live", Plugin: volumepath.CSI, Name: "data"}, path: "/a"},
		{Volume: volumepath.Volume{UID: "gone", Plugin: "kubernetes.io/empty-dir", Name: "tmp"}, path: "/b"},
	}
	orphan := func(volume, mountpoint string) Orphan {
		return Orphan{OrphanPod: OrphanPod{UID: "gone"}, OrphanVolume: OrphanVolume{Volume: volume, Mountpoint: mountpoint}}
	}
	var got []string
	for _, v := range withOrphans(volumes, []Orphan{orphan("tmp", "/b"), orphan("sub", "/c")}) {
		n := v.node()
		got = append(got, fmt.Sprint(n.UID, " ", n.Name, " ", n.Plugin, " ", n.Path, " ", n.Orphan))
	}
	want := []string{"gone tmp kubernetes.io/empty-dir /b true", "gone sub  /c true", "live data kubernetes.io/csi /a false"}
	if d := cmp.Diff(want, got); d != "" {
		t.Errorf("-want +got:\n%s", d)
	}
}

// TestOrphanStates verifies that a pod may exist if its cgroup has a process or cannot be read. A pod with a
// directory that is not the kubelet's own gets no state.
func TestOrphanStates(t *testing.T) {
	const pods = podsDir
	gone := []string{
		`prod/db-0 gone-1 "conf" ext4 [nvme0n1] noCgroup`, `prod/db-0 gone-1 "data" xfs [dm-1] noCgroup`, `/ gone-2 "evil\x1b[2J" nfs4 [] noCgroup`,
	}
	const left = `/ left-1 "data" ext4 [dm-2] noProcess`
	write := func(name, data string) func(*testing.T, string) {
		return func(t *testing.T, root string) { fakenode.WriteFiles(t, root, map[string]string{name: data}) }
	}
	for _, tt := range []struct {
		name   string
		change func(t *testing.T, root string)
		mounts string
		want   []string
	}{
		{"as it is", write("x", ""), "", append(gone[:3:3], left)},
		{"a pod that runs, and did before", write(pods+"live-1/containers/db/1", ""), "", append(gone[:3:3], left)},
		{"a cgroup that cannot be read", func(t *testing.T, root string) {
			file := filepath.Join(root, "cg/kubepods/burstable/podleft-1/cgroup.events")
			if err := os.Remove(file); err != nil {
				t.Fatal(err)
			}
			loop(t, file)
		}, "", gone},
		{"a pod without a directory", func(t *testing.T, root string) {
			if err := os.RemoveAll(filepath.Join(root, pods, "gone-2")); err != nil {
				t.Fatal(err)
			}
		}, "", append(gone[:2:2], left)},
		{"a pod's directory that is a mount", write(pods+"remote/x", ""), "", append(gone[:3:3], left)},
		{"a container's directory that is a mount", write("x", ""), "40 1 0:80 / /var/lib/kubelet/pods/left-1/containers/db rw - nfs4 filer:/ rw\n", gone},
		{"another container's", write(pods+"left-1/containers/web/1", ""), "40 1 0:80 / /var/lib/kubelet/pods/left-1/containers/db rw - nfs4 filer:/ rw\n", append(gone[:3:3], left)},
		{"a container that is a file", func(t *testing.T, root string) {
			dir := filepath.Join(root, pods, "left-1/containers")
			if err := os.RemoveAll(dir); err != nil {
				t.Fatal(err)
			}
			write(pods+"left-1/containers/db", "")(t, root)
		}, "", gone},
	} {
		t.Run(tt.name, func(t *testing.T) {
			f := orphanNode(t, "cgroupfs")
			tt.change(t, string(f.host))
			if tt.mounts != "" {
				f.storage = fakenode.OpenStorage(t, fakenode.Sysfs(), string(f.host), orphanMounts+tt.mounts)
			}
			if d := cmp.Diff(tt.want, orphanLines(t, f)); d != "" {
				t.Errorf("-want +got:\n%s", d)
			}
		})
	}
}

// TestNoOrphans verifies that a node without volumes of pods has no orphans, even if not all pods can be seen.
func TestNoOrphans(t *testing.T) {
	for name, mounts := range map[string]string{"no volumes": rootMount, "no mount": "1 0 259:300 / /srv rw - ext4 /dev/nvme0n1 rw\n"} {
		f := orphanNode(t, "cgroupfs")
		fakenode.WriteFiles(t, string(f.host), map[string]string{"cg/cgroup.events": ""})
		f.storage = fakenode.OpenStorage(t, fakenode.Sysfs(), string(f.host), mounts)
		if found, err := f.find(t.Context()); found == nil || len(found) > 0 || err != nil {
			t.Errorf("%s: %v, %v", name, found, err)
		}
	}
}

// TestPodMounts verifies that of mounts on one another the last one counts, and mounts of devices do not.
func TestPodMounts(t *testing.T) {
	const dir = "/var/lib/kubelet/pods/u/volumes/kubernetes.io~csi/data/mount"
	table, err := storage.ParseMountTable(strings.NewReader(rootMount + "2 1 8:16 / " + dir + " rw - xfs /dev/sdb rw\n3 2 0:60 / " + dir + " rw - tmpfs tmpfs rw\n" +
		"4 1 0:6 /dm-2 /var/lib/kubelet/pods/u/volumeDevices/kubernetes.io~csi/raw rw - devtmpfs devtmpfs rw\n5 1 8:16 / /srv rw - xfs /dev/sdb rw\n" +
		"6 1 8:16 /a /var/lib/kubelet/pods/u/volume-subpaths/data/c/0 rw - xfs /dev/sdb rw\n"))
	if err != nil {
		t.Fatal(err)
	}
	var got []string
	for _, m := range podMounts(table, strings.TrimSuffix(podsDir, "/")) {
		got = append(got, fmt.Sprint(m.mount.ID, " ", m.UID, " ", m.Name, " ", m.Plugin))
	}
	if d := cmp.Diff([]string{"3 u data kubernetes.io/csi", "6 u data "}, got); d != "" {
		t.Errorf("-want +got:\n%s", d)
	}
}

// TestPodCgroups verifies that each pod has its own cgroup, and none of its containers.
func TestPodCgroups(t *testing.T) {
	for _, driver := range []string{"systemd", "cgroupfs"} {
		f := orphanNode(t, driver)
		found, err := f.podCgroups()
		if err != nil {
			t.Fatal(err)
		}
		got := map[string]int{}
		for uid, cgroups := range found {
			got[uid] = len(cgroups)
		}
		if d := cmp.Diff(map[string]int{"left_1": 1, "live_1": 1, "waits_1": 1}, got); d != "" {
			t.Errorf("%s: -want +got:\n%s", driver, d)
		}
	}
}

// TestOrphansOf verifies that the filter selects by namespace, and by name, and a record has the name of its pod.
func TestOrphansOf(t *testing.T) {
	f := orphanNode(t, "systemd")
	h := Host{Cgroups: f.tree, Storage: f.storage, Root: f.host, KubeletRoot: kubeletRoot}
	records := []Recorded{{Record: &record.Record{UID: "gone-2", Namespace: "test", Pod: "db-0"}}}
	for filter, want := range map[Filter]int{{}: 3, {Namespace: "prod", Name: "db-0"}: 2, {Namespace: "test", Name: "db-0"}: 1, {Namespace: "test", Name: "db-1"}: 0, {Namespace: "prod", Name: ""}: 2, {Namespace: "none", Name: ""}: 0} {
		found, err := h.Orphans(t.Context(), records, filter)
		n := 0
		for _, o := range found {
			if o.State == orphanNoCgroup {
				n++
			}
		}
		if n != want || err != nil {
			t.Errorf("%v: %d orphans, want %d, %v", filter, n, want, err)
		}
	}
	loop(t, filepath.Join(string(f.host), "cg/cgroup.events"))
	if found, err := h.Orphans(t.Context(), nil, Filter{}); len(found) > 0 || !errors.Is(err, syscall.ELOOP) || !strings.HasPrefix(err.Error(), "look for orphaned volumes: ") {
		t.Errorf("without cgroups: %v, %v", found, err)
	}
}
