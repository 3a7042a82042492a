package inspect

import (
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/nri-blkio/nri-blkio/blkio/hostfs"
	"github.com/nri-blkio/nri-blkio/internal/fakenode"
	"github.com/nri-blkio/nri-blkio/plugin/volumepath"
)

// orphanNode is a finder on a node with fakenode.OrphanMounts.
func orphanNode(t *testing.T, driver string) *orphanFinder {
	t.Helper()
	root := fakenode.WriteOrphans(t, driver)
	k := kubelet{fakenode.OpenStorage(t, fakenode.Sysfs(), root, fakenode.OrphanMounts), hostfs.Root(root), kubeletRoot}
	f := newOrphanFinder(t.Context(), k, fakenode.OpenCgroups(t, filepath.Join(root, "cg")), 0, nil)
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
		f.boot = time.Now().Add(time.Hour) // what ran, ran before
		if d := cmp.Diff(gone, orphanLines(t, f)); d != "" {
			t.Errorf("%s, after a boot, -want +got:\n%s", driver, d)
		}
		f.grace = time.Hour
		if got := orphanLines(t, f); got != nil {
			t.Errorf("%s: pods that have just come are gone: %v", driver, got)
		}
	}
}

// Where pods' cgroups are not to be seen, none is said to be gone.
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

// The tree has what is orphaned, first of all and marked.
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
