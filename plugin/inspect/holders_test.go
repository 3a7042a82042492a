package inspect

import (
	"context"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"testing/fstest"

	"github.com/google/go-cmp/cmp"

	"github.com/nri-blkio/nri-blkio/blkio/hostfs"
	"github.com/nri-blkio/nri-blkio/blkio/storage"
	"github.com/nri-blkio/nri-blkio/internal/fakenode"
)

// TestHolders verifies that the report has the processes that hold each orphan, with the names of their pods.
func TestHolders(t *testing.T) {
	root := writeOrphans(t, "systemd")
	sys := fakenode.Sysfs()
	h := Host{
		Cgroups: fakenode.OpenCgroups(t, filepath.Join(root, "cg")), Storage: fakenode.OpenStorage(t, sys, root, orphanMounts),
		Sysfs: storage.NewSysfs(sys), Root: hostfs.Root(root), Proc: procOf(), KubeletRoot: kubeletRoot,
	}
	r, err := h.Devices(t.Context())
	if err != nil || r.Lost != nil {
		t.Fatal(r.Lost, err)
	}
	got := map[string][]string{}
	for _, o := range r.Orphans {
		for _, p := range o.Holders {
			got[o.UID+" "+o.Volume] = append(got[o.UID+" "+o.Volume], fmt.Sprintf("%d %s/%s %q %d %v", p.PID, p.Namespace, p.Pod, p.Mountpoint, p.OpenFiles, p.WorkingDir))
		}
	}
	want := map[string][]string{
		"gone-1 data": {`30 / "" 2 true`, `40 kube-system/agent-x "/host/data\x1b[2J" 0 false`, `41 kube-system/agent-x "" 1 false`},
		"gone-1 conf": {`40 kube-system/agent-x "/conf" 0 false`},
		"left-1 data": {`60 / "" 1 false`},
	}
	if d := cmp.Diff(want, got); d != "" {
		t.Errorf("-want +got:\n%s", d)
	}
	for pod, n := range map[string]int{"db-0": 2, "other": 0} {
		if found, err := h.Orphans(t.Context(), nil, Filter{Namespace: "prod", Name: pod}); err != nil || len(found) != n {
			t.Errorf("%s: %d orphans, want %d: %v", pod, len(found), n, err)
		}
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
	h := holderFinder{proc: procOf()}
	want := []string{"not all processes and open files were read"}
	if d := cmp.Diff(want, h.find(ended, f.storage.Mounts(), orphans)); d != "" {
		t.Error(d)
	}
	h = holderFinder{proc: procOf(), files: maxFiles}
	if d := cmp.Diff(want, h.find(t.Context(), f.storage.Mounts(), orphans)); d != "" {
		t.Error(d)
	}
}

// deniedFS denies the list of open files of all processes.
type deniedFS struct{ fs.FS }

func (d deniedFS) Open(name string) (fs.File, error) {
	if strings.HasSuffix(name, "/fdinfo") {
		return nil, &fs.PathError{Op: "open", Path: name, Err: fs.ErrPermission}
	}
	return d.FS.Open(name)
}

func (d deniedFS) ReadLink(name string) (string, error) { return fs.ReadLink(d.FS, name) }

func (d deniedFS) Lstat(name string) (fs.FileInfo, error) { return fs.Lstat(d.FS, name) }

// TestHolderNotes verifies that the report notes which facts about processes could not be read, and has all
// others.
func TestHolderNotes(t *testing.T) {
	const partial = "not all processes and open files were read"
	// many has more open files than are read of one process.
	many := procOf()
	for i := range maxFDs + 1 {
		many[fmt.Sprintf("30/fdinfo/%d", 1000+i)] = &fstest.MapFile{Data: []byte("mnt_id:\t21\n")}
	}
	hostile := procOf()
	hostile["50/mountinfo"] = &fstest.MapFile{Data: []byte("200 100 none\n")}
	canceled, cancel := context.WithCancel(t.Context())
	cancel()
	for _, tt := range []struct {
		name  string
		ctx   context.Context
		proc  fs.FS
		notes []string
		found bool
	}{
		{"all", t.Context(), procOf(), nil, true},
		{"files denied", t.Context(), deniedFS{procOf()}, []string{"open files of 5 processes are unreadable (requires CAP_SYS_PTRACE)"}, true},
		{"many files", t.Context(), many, []string{partial}, true},
		{"a line of mountinfo that cannot be parsed", t.Context(), hostile, nil, true},
		{"canceled", canceled, procOf(), []string{partial}, false},
	} {
		t.Run(tt.name, func(t *testing.T) {
			table, err := storage.ParseMountTable(strings.NewReader(orphanMounts))
			if err != nil {
				t.Fatal(err)
			}
			const data = podsDir + "gone-1/volumes/kubernetes.io~csi/data/mount"
			m, _ := table.Find(data)
			orphans := []Orphan{{mount: m}}
			orphans[0].Mountpoint = data
			f := holderFinder{proc: tt.proc}
			if d := cmp.Diff(tt.notes, f.find(tt.ctx, table, orphans)); d != "" {
				t.Errorf("notes, -want +got:\n%s", d)
			}
			if found := len(orphans[0].Holders) > 0; found != tt.found {
				t.Errorf("holders: %+v", orphans[0].Holders)
			}
		})
	}
}

// TestHoldersHere reads the kernel's own fdinfo and mountinfo on the machine that runs the tests.
func TestHoldersHere(t *testing.T) {
	table, err := os.Open("/proc/self/mountinfo")
	if err != nil {
		t.Fatal(err)
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
	orphans := []Orphan{{mount: m, OrphanVolume: OrphanVolume{Mountpoint: m.Mountpoint}}}
	h := holderFinder{proc: os.DirFS("/proc")}
	t.Log(h.find(t.Context(), mounts, orphans))
	for _, held := range orphans[0].Holders {
		if held.PID == os.Getpid() && held.OpenFiles > 0 && held.Comm != "" {
			return
		}
	}
	t.Errorf("this process %d is not in %+v", os.Getpid(), orphans[0].Holders)
}

// TestHolderDescribed verifies that the pod of a holder is the pod of its cgroup of version 2.
func TestHolderDescribed(t *testing.T) {
	const node = "1 0 8:1 / / rw - ext4 /dev/sda1 rw\n2 1 8:16 / /pods/v rw - xfs /dev/sdb rw\n"
	const slice = "0::/kubepods.slice/kubepods-pod1_2.slice/cri-containerd-1.scope\n"
	for _, tt := range []struct {
		name, cgroup string
		want         Holder
	}{
		{"a pod", slice, Holder{UID: "1_2", Namespace: "prod", Pod: "db-0"}},
		{"with version 1 as well", "12:cpu:/kubepods/podx\n" + slice + "1:name=systemd:/kubepods/pody\n", Holder{UID: "1_2", Namespace: "prod", Pod: "db-0"}},
		{"version 1 only", "12:cpu:/kubepods/pod1_2\n", Holder{}},
		{"an unknown pod", "0::/kubepods/burstable/pod3/c\n", Holder{UID: "3"}},
		{"no pod", "0::/system.slice/sshd.service\n", Holder{}},
		{"ended", "", Holder{}},
	} {
		proc := fstest.MapFS{"7/cgroup": {Data: []byte(tt.cgroup)}}
		addProcess(proc, 1, node)
		addProcess(proc, 7, node, 2)
		if tt.cgroup == "" {
			delete(proc, "7/cgroup")
		} else {
			proc["7/comm"], tt.want.Comm = &fstest.MapFile{Data: []byte("post gres\n")}, "post gres"
		}
		f := holderFinder{proc: proc, names: map[string]podName{"1_2": {"prod", "db-0"}}}
		orphans, _ := heldBy(t, f, node, "/pods/v")
		tt.want.PID, tt.want.OpenFiles = 7, 1
		if d := cmp.Diff([]Holder{tt.want}, orphans[0].Holders); d != "" {
			t.Errorf("%s: -want +got:\n%s", tt.name, d)
		}
	}
}

// brokenReads is a procfs in which files with this name fail to be read after they were opened a
// number of times.
type brokenReads struct {
	fstest.MapFS
	name  string
	after int
	opens map[string]int
}

func (b brokenReads) Open(name string) (fs.File, error) {
	f, err := b.MapFS.Open(name)
	if err == nil && filepath.Base(name) == b.name {
		if b.opens[name]++; b.opens[name] > b.after {
			return brokenFile{f}, nil
		}
	}
	return f, err
}

type brokenFile struct{ fs.File }

func (brokenFile) Read([]byte) (int, error) { return 0, fs.ErrInvalid }

// TestHoldersUnreadable verifies that a process that ends, or whose files cannot be parsed, is left out. One
// whose mounts cannot be read any more is noted.
func TestHoldersUnreadable(t *testing.T) {
	const node = "1 0 8:1 / / rw - ext4 /dev/sda1 rw\n2 1 8:16 / /pods/v rw - xfs /dev/sdb rw\n"
	const pod = "101 100 8:1 / / rw - ext4 /dev/sda1 rw\n102 101 8:16 / /v rw - xfs /dev/sdb rw\n"
	text := func(s string) *fstest.MapFile { return &fstest.MapFile{Data: []byte(s)} }
	long := "pos:\t0\nflags:\t02\nmnt_id:\t102\nino:\t7\n" + strings.Repeat("inotify wd:1 ino:2 sdev:3\n", 100)
	for _, tt := range []struct {
		name   string
		change func(fstest.MapFS)
		broken brokenReads
		want   []string
		notes  []string
	}{
		{name: "all", want: []string{"7 /v 1"}},
		{name: "no process", change: func(p fstest.MapFS) { delete(p, "7/mountinfo") }},
		{name: "no mounts", change: func(p fstest.MapFS) { p["7/mountinfo"] = text("") }},
		{name: "no number", change: func(p fstest.MapFS) { p["7/mountinfo"] = text("x" + pod) }},
		{name: "a long description", change: func(p fstest.MapFS) { p["7/fdinfo/0"] = text(long) }, want: []string{"7 /v 1"}},
		{name: "no mount of a file", change: func(p fstest.MapFS) { p["7/fdinfo/0"] = text("pos:\t0\n") }, want: []string{"7 /v 0"}},
		{name: "no number of a file", change: func(p fstest.MapFS) { p["7/fdinfo/0"] = text("mnt_id:\tx\n") }, want: []string{"7 /v 0"}},
		{name: "a closed file", broken: brokenReads{name: "0"}, want: []string{"7 /v 0"}},
		{name: "the first mount", broken: brokenReads{name: "mountinfo"}},
		{name: "the mounts", broken: brokenReads{name: "mountinfo", after: 1}, notes: []string{"not all processes and open files were read"}},
	} {
		t.Run(tt.name, func(t *testing.T) {
			proc := fstest.MapFS{}
			addProcess(proc, 7, pod, 102)
			if tt.change != nil {
				tt.change(proc)
			}
			tt.broken.MapFS, tt.broken.opens = proc, map[string]int{}
			orphans, notes := heldBy(t, holderFinder{proc: tt.broken}, node, "/pods/v")
			if d := cmp.Diff(tt.want, heldLines(&orphans[0])); d != "" {
				t.Errorf("-want +got:\n%s", d)
			}
			if d := cmp.Diff(tt.notes, notes); d != "" {
				t.Errorf("notes, -want +got:\n%s", d)
			}
		})
	}
}

// TestHolderBounds verifies that the number of mount tables, and that of open files, is bounded. The note
// reports that there may be more.
func TestHolderBounds(t *testing.T) {
	const node = "1 0 8:1 / / rw - ext4 /dev/sda1 rw\n2 1 8:16 / /pods/v rw - xfs /dev/sdb rw\n"
	partial := []string{"not all processes and open files were read"}
	many := fstest.MapFS{}
	for i := range maxNamespaces + 1 {
		addProcess(many, 1000+i, fmt.Sprintf("%d 0 8:16 / / rw - xfs /dev/sdb rw\n", 10_000+i))
	}
	orphans, notes := heldBy(t, holderFinder{proc: many}, node, "/pods/v")
	if d := cmp.Diff(partial, notes); d != "" || len(orphans[0].Holders) != maxNamespaces {
		t.Errorf("%d namespaces: %d holders, notes -want +got:\n%s", maxNamespaces+1, len(orphans[0].Holders), d)
	}
	one := fstest.MapFS{}
	addProcess(one, 7, node, 2, 2)
	for files, want := range map[int]string{maxFiles - 2: "7 /pods/v 2", maxFiles - 1: "7 /pods/v 1", maxFiles: "7 /pods/v 0"} {
		orphans, notes := heldBy(t, holderFinder{proc: one, files: files}, node, "/pods/v")
		if got := heldLines(&orphans[0]); !slices.Equal(got, []string{want}) || (notes != nil) != (files > maxFiles-2) {
			t.Errorf("after %d files: %q, want %q, notes %q", files, got, want, notes)
		}
	}
}
