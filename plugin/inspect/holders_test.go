package inspect

import (
	"context"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"testing/fstest"

	"github.com/google/go-cmp/cmp"

	"github.com/nri-blkio/nri-blkio/blkio/hostfs"
	"github.com/nri-blkio/nri-blkio/blkio/storage"
	"github.com/nri-blkio/nri-blkio/internal/fakenode"
)

// The report has the processes that hold each orphan, with the names of their pods.
func TestHolders(t *testing.T) {
	root := fakenode.WriteOrphans(t, "systemd")
	sys := fakenode.Sysfs()
	h := Host{
		Cgroups: fakenode.OpenCgroups(t, filepath.Join(root, "cg")), Storage: fakenode.OpenStorage(t, sys, root, fakenode.OrphanMounts),
		Sysfs: storage.NewSysfs(sys), Root: hostfs.Root(root), Proc: fakenode.Proc(), KubeletRoot: kubeletRoot,
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
		if found, err := h.Orphans(t.Context(), nil, Filter{"prod", pod}); err != nil || len(found) != n {
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
	h := holderFinder{proc: fakenode.Proc()}
	want := []string{"not all processes and open files were read"}
	if d := cmp.Diff(want, h.find(ended, f.storage.Mounts(), orphans)); d != "" {
		t.Error(d)
	}
	h = holderFinder{proc: fakenode.Proc(), files: maxFiles}
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

// TestHolderNotes: what was not read of the processes is a note, and the rest is reported.
func TestHolderNotes(t *testing.T) {
	const partial = "not all processes and open files were read"
	// many has more open files than are read of one process.
	many := fakenode.Proc()
	for i := range maxFDs + 1 {
		many[fmt.Sprintf("30/fdinfo/%d", 1000+i)] = &fstest.MapFile{Data: []byte("mnt_id:\t21\n")}
	}
	hostile := fakenode.Proc()
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
		{"all", t.Context(), fakenode.Proc(), nil, true},
		{"files denied", t.Context(), deniedFS{fakenode.Proc()}, []string{"open files of 5 processes are unreadable (requires CAP_SYS_PTRACE)"}, true},
		{"many files", t.Context(), many, []string{partial}, true},
		{"a line of mountinfo that cannot be parsed", t.Context(), hostile, nil, true},
		{"canceled", canceled, fakenode.Proc(), []string{partial}, false},
	} {
		t.Run(tt.name, func(t *testing.T) {
			table, err := storage.ParseMountTable(strings.NewReader(fakenode.OrphanMounts))
			if err != nil {
				t.Fatal(err)
			}
			const data = fakenode.Pods + "gone-1/volumes/kubernetes.io~csi/data/mount"
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
