package main

import (
	"bytes"
	"context"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"testing/fstest"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/nri-blkio/nri-blkio/blkio/cgroupfs"
	"github.com/nri-blkio/nri-blkio/blkio/storage"
	"github.com/nri-blkio/nri-blkio/plugin"
	"github.com/nri-blkio/nri-blkio/plugin/volumepath"
)

// orphanMounts: pods by their UIDs. Those of live-1 are as they should be.
const orphanMounts = `1 0 259:300 / / rw shared:1 - ext4 /dev/nvme0n1 rw
20 1 253:1 / /var/lib/kubelet/plugins/kubernetes.io/csi/x/globalmount rw - xfs /dev/mapper/luks rw
21 1 253:1 / /var/lib/kubelet/pods/gone-1/volumes/kubernetes.io~csi/data/mount rw - xfs /dev/mapper/luks rw
22 1 259:300 /srv/sub /var/lib/kubelet/pods/gone-1/volume-subpaths/conf/app/0 rw - ext4 /dev/nvme0n1 rw
23 1 0:60 / /var/lib/kubelet/pods/gone-2/volumes/kubernetes.io~nfs/evil\033[2J rw - nfs4 filer:/ rw
24 1 9:0 / /var/lib/kubelet/pods/live-1/volumes/kubernetes.io~csi/data/mount rw - ext4 /dev/md0 rw
25 1 253:2 / /var/lib/kubelet/pods/left-1/volumes/kubernetes.io~csi/data/mount rw - ext4 /dev/dm-2 rw
26 1 253:2 /a /var/lib/kubelet/pods/waits-1/volumes/kubernetes.io~csi/data/mount rw - ext4 /dev/dm-2 rw
27 1 0:70 / /var/lib/kubelet/pods/remote/ rw - nfs4 filer:/ rw
28 27 0:71 / /var/lib/kubelet/pods/remote/volumes/kubernetes.io~projected/token rw - tmpfs tmpfs rw
29 1 0:72 / /var/lib/kubelet/pods/gone-1/etc-hosts rw - tmpfs tmpfs rw
30 1 0:6 /dm-2 /var/lib/kubelet/pods/gone-1/volumeDevices/kubernetes.io~csi/raw rw - devtmpfs devtmpfs rw
`

// orphanNode is a finder on a node with the mounts above.
func orphanNode(t *testing.T, driver string) *orphanFinder {
	t.Helper()
	root := t.TempDir()
	cgroups := map[string]string{"live-1": "populated 1\n", "left-1": "populated 0\n", "waits-1": "populated 0\n"}
	files := map[string]string{"cg/cgroup.controllers": "io\n"}
	for uid, events := range cgroups {
		dir := "cg/kubepods.slice/kubepods-burstable.slice/kubepods-burstable-pod" + underscored(uid) + ".slice"
		if driver == "cgroupfs" {
			dir = "cg/kubepods/burstable/pod" + uid
		}
		files[dir+"/cgroup.events"] = events
		files[dir+"/container/cgroup.events"] = events
	}
	for _, uid := range []string{"gone-1", "gone-2", "live-1", "left-1", "waits-1"} {
		files[podsOf+uid+"/plugins/.keep"] = ""
	}
	files[podsOf+"left-1/containers/db/1234"] = ""
	files["/var/log/pods/prod_db-0_gone-1/.keep"] = ""
	for name, data := range files {
		name = filepath.Join(root, name)
		if err := os.MkdirAll(filepath.Dir(name), 0o755); err != nil {
			t.Fatal(err)
		}
		if err := os.WriteFile(name, []byte(data), 0o644); err != nil {
			t.Fatal(err)
		}
	}
	tree, err := cgroupfs.OpenTree(filepath.Join(root, "cg"))
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { tree.Close() })
	k := kubelet{openStorage(t, stackedSys(), root, orphanMounts), root, plugin.DefaultKubeletRoot}
	f := newOrphanFinder(t.Context(), k, tree, 0, nil)
	f.boot = time.Now().Add(-time.Hour)
	return f
}

func orphanLines(t *testing.T, f *orphanFinder) (out []string) {
	t.Helper()
	found, err := f.find(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	for i := range found {
		o := &found[i]
		out = append(out, fmt.Sprintf("%s %s %q %s %s", ownerOf(o), o.UID, o.Volume, storedOn(o), o.State))
	}
	return out
}

func TestOrphans(t *testing.T) {
	gone := []string{
		`prod/db-0 gone-1 "conf" ext4 on nvme0n1 noCgroup`,
		`prod/db-0 gone-1 "data" xfs on dm-1 noCgroup`,
		`gone-2 gone-2 "evil\x1b[2J" nfs4 noCgroup`,
	}
	for _, driver := range []string{"systemd", "cgroupfs"} {
		f := orphanNode(t, driver)
		want := append(gone[:3:3], `left-1 left-1 "data" ext4 on dm-2 noProcess`)
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
	dir := filepath.Join(f.hostRoot, "cg")
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

// fakeProc has the node's first process; one on the node with files open, in and
// out of a volume; two of a pod that has the node's mounts, and one that has none.
func fakeProc() fstest.MapFS {
	f := fstest.MapFS{}
	file := func(name, data string) { f[name] = &fstest.MapFile{Data: []byte(data)} }
	link := func(name, target string) {
		f[name] = &fstest.MapFile{Data: []byte(target), Mode: os.ModeSymlink | 0o777}
	}
	fd := func(mount int) string { return fmt.Sprintf("pos:\t0\nflags:\t02\nmnt_id:\t%d\nino:\t7\n", mount) }
	const pod = "101 100 259:300 / / rw - overlay overlay rw\n" +
		"102 101 253:1 / /host/data\\033[2J rw - xfs /dev/mapper/luks rw\n" +
		"103 101 259:300 /srv /elsewhere rw - ext4 /dev/nvme0n1 rw\n" +
		"104 101 259:300 /srv/sub/deep /conf rw - ext4 /dev/nvme0n1 rw\n"
	// A service has the node's mounts, and loses what the node unmounts.
	service := strings.NewReplacer("\n2", "\n302", " shared:1 ", " master:1 ").Replace(orphanMounts)
	service = strings.ReplaceAll("301"+strings.TrimPrefix(service, "1"), " 1 ", " 301 ")
	for pid, comm := range map[int]string{60: "service", 1: "systemd", 30: "tail\n\x1b]0;evil\x07", 40: "agent", 41: "agent", 50: "nginx"} {
		p := fmt.Sprint(pid, "/")
		file(p+"mountinfo", orphanMounts)
		file(p+"comm", comm+"\n")
		file(p+"cgroup", "0::/system.slice\n")
		link(p+"cwd", "/")
		link(p+"root", "/")
		if pid == 40 || pid == 41 {
			file(p+"mountinfo", pod)
			file(p+"cgroup", "0::/kubepods.slice/kubepods-podlive_1.slice/cri-containerd-1.scope\n")
		}
	}
	file("60/mountinfo", service)
	file("60/fdinfo/3", fd(3025))
	file("50/mountinfo", "200 100 0:99 / / rw - overlay overlay rw\n")
	file("30/fdinfo/0", fd(1))
	file("30/fdinfo/3", fd(21))
	file("30/fdinfo/4", fd(21))
	file("30/fdinfo/5", "pos:\t0\n")
	link("30/cwd", podsOf+"gone-1/volumes/kubernetes.io~csi/data/mount/dir (deleted)")
	file("41/fdinfo/9", fd(102))
	file("50/fdinfo/9", fd(21)) // passed to it: not looked for
	file("self/comm", "x\n")
	return f
}

func TestHolders(t *testing.T) {
	f := orphanNode(t, "systemd")
	orphans, err := f.find(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	h := holderFinder{proc: fakeProc(), names: map[string]podName{"live_1": {"kube-system", "agent-x"}}}
	if notes := h.find(t.Context(), f.storage.Mounts(), orphans); notes != nil {
		t.Error(notes)
	}
	var out bytes.Buffer
	(&app{stdout: &out}).printOrphans(orphans)
	want, err := os.ReadFile("testdata/orphans.golden")
	if os.Getenv("UPDATE_SCRIPTS") != "" {
		want = out.Bytes()
		err = os.WriteFile("testdata/orphans.golden", want, 0o644)
	}
	if err != nil {
		t.Fatal(err)
	}
	if d := cmp.Diff(string(want), out.String()); d != "" {
		t.Errorf("-want +got:\n%s", d)
	}
	if strings.ContainsAny(out.String(), "\x1b\x07\r\t") {
		t.Errorf("control characters in\n%q", out.String())
	}
}

func TestHoldersBounded(t *testing.T) {
	f := orphanNode(t, "systemd")
	orphans, err := f.find(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	ended, cancel := context.WithCancel(t.Context())
	cancel()
	h := holderFinder{proc: fakeProc()}
	want := []string{"not all processes and open files were read"}
	if d := cmp.Diff(want, h.find(ended, f.storage.Mounts(), orphans)); d != "" {
		t.Error(d)
	}
	h = holderFinder{proc: fakeProc(), files: maxFiles}
	if d := cmp.Diff(want, h.find(t.Context(), f.storage.Mounts(), orphans)); d != "" {
		t.Error(d)
	}
}

// The tree has what is orphaned, first of all and marked.
func TestTreeOrphans(t *testing.T) {
	volumes := []podVolume{
		{Volume: volumepath.Volume{UID: "live", Plugin: volumepath.CSI, Name: "data"}, path: "/a"},
		{Volume: volumepath.Volume{UID: "gone", Plugin: "kubernetes.io/empty-dir", Name: "tmp"}, path: "/b"},
	}
	var got []string
	for _, v := range withOrphans(volumes, []orphan{{UID: "gone", Volume: "tmp", Mountpoint: "/b"}, {UID: "gone", Volume: "sub", Mountpoint: "/c"}}) {
		got = append(got, v.Name+strings.TrimSpace(" "+nodeText(v.node())))
	}
	want := []string{"tmpORPHANED pod gone empty-dir", "subORPHANED pod gone", "datapod live csi"}
	if d := cmp.Diff(want, got); d != "" {
		t.Errorf("-want +got:\n%s", d)
	}
}

// On the machine that runs the tests: the kernel's own fdinfo and mountinfo.
func TestHoldersHere(t *testing.T) {
	table, err := os.Open("/proc/self/mountinfo")
	if err != nil {
		t.Skip("no procfs here")
	}
	defer table.Close()
	mounts, err := storage.ParseMountTable(table)
	if err != nil {
		t.Fatal(err)
	}
	dir, err := filepath.EvalSymlinks(t.TempDir())
	if err != nil {
		t.Fatal(err)
	}
	m, ok := mounts.Find(dir)
	if !ok {
		t.Fatal("no mount holds", dir)
	}
	file, err := os.Create(filepath.Join(dir, "held"))
	if err != nil {
		t.Fatal(err)
	}
	defer file.Close()
	orphans := []orphan{{mount: m, Mountpoint: m.Mountpoint}}
	h := holderFinder{proc: os.DirFS("/proc")}
	t.Log(h.find(t.Context(), mounts, orphans))
	for _, held := range orphans[0].Holders {
		if held.PID == os.Getpid() && held.OpenFiles > 0 && held.Comm != "" {
			return
		}
	}
	t.Errorf("this process %d is not in %+v", os.Getpid(), orphans[0].Holders)
}
