package storage

import (
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/nri-blkio/nri-blkio/blkio"
)

// fakeNode is a Storage over a mountinfo file, sysfs and a root directory made
// for the test.
type fakeNode struct {
	*Storage
	mountinfo string
	root      string
	sys       fakeSysfs
}

func newFakeNode(t testing.TB, mounts string) *fakeNode {
	t.Helper()
	n := &fakeNode{
		mountinfo: filepath.Join(t.TempDir(), "mountinfo"),
		root:      t.TempDir(),
		sys:       newFakeSysfs(),
	}
	n.setMounts(t, mounts)
	var err error
	n.Storage, err = Open(Config{Sys: n.sys, Mountinfo: n.mountinfo, HostRoot: n.root})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { n.Close() })
	return n
}

// setMounts replaces the file at once: a watcher must not read half of it.
func (n *fakeNode) setMounts(t testing.TB, mounts string) {
	t.Helper()
	if err := os.WriteFile(n.mountinfo+".new", []byte(mounts), 0o644); err != nil {
		t.Fatal(err)
	}
	if err := os.Rename(n.mountinfo+".new", n.mountinfo); err != nil {
		t.Fatal(err)
	}
}

func (n *fakeNode) mkdir(t testing.TB, p string) {
	t.Helper()
	if err := os.MkdirAll(n.root+p, 0o755); err != nil {
		t.Fatal(err)
	}
}

func (n *fakeNode) symlink(t testing.TB, target, p string) {
	t.Helper()
	n.mkdir(t, filepath.Dir(p))
	if err := os.Symlink(target, n.root+p); err != nil {
		t.Fatal(err)
	}
}

var (
	sda    = blkio.Disk{Dev: blkio.Dev{Major: 8, Minor: 0}, Name: "sda"}
	sdb    = blkio.Disk{Dev: blkio.Dev{Major: 8, Minor: 16}, Name: "sdb"}
	sdc    = blkio.Disk{Dev: blkio.Dev{Major: 8, Minor: 32}, Name: "sdc"}
	sdd    = blkio.Disk{Dev: blkio.Dev{Major: 8, Minor: 48}, Name: "sdd"}
	onRoot = blkio.Backing{Mountpoint: "/", FSType: "ext4", Disks: []blkio.Disk{sda}}
	onXFS  = blkio.Backing{Mountpoint: "/var/lib/containerd", FSType: "xfs", Disks: []blkio.Disk{sdb}}
)

func TestResolve(t *testing.T) {
	n := newFakeNode(t, nodeMounts)
	n.mkdir(t, "/l") // the layers of the overlay
	n.mkdir(t, "/u")
	lost := "the filesystem's device is not in sysfs: block device 65:16: no such disk"
	tests := map[string]blkio.Backing{
		"/":                                      onRoot,
		"/var/log/pods":                          onRoot,
		"/var/lib/containerd/x":                  onXFS,
		"/var/lib/kubelet/pods/1/volumes/bound/": {Mountpoint: "/var/lib/kubelet/pods/1/volumes/bound", FSType: "ext4", Disks: []blkio.Disk{sda}},
		"/srv/lv":                                {Mountpoint: "/srv/lv", FSType: "ext4", Disks: []blkio.Disk{{Dev: blkio.Dev{Major: 253, Minor: 0}, Name: "dm-0"}}, Warning: &blkio.Warning{Kind: blkio.NoCgroupWriteback, Text: "ext4 with data=journal has no cgroup writeback: limits on writes hold for direct I/O only"}},
		"/srv/btrfs":                             {Mountpoint: "/srv/btrfs", FSType: "btrfs", Disks: []blkio.Disk{sda, sdc}},
		"/srv/btrfs2/a":                          {Mountpoint: "/srv/btrfs2", FSType: "btrfs", Disks: []blkio.Disk{{Dev: blkio.Dev{Major: 253, Minor: 1}, Name: "dm-1"}}},
		"/srv/nvme disk/a":                       {Mountpoint: "/srv/nvme disk", FSType: "vfat", Disks: []blkio.Disk{{Dev: blkio.Dev{Major: 259, Minor: 1}, Name: "nvme0n1"}}, Warning: &blkio.Warning{Kind: blkio.NoCgroupWriteback, Text: "vfat has no cgroup writeback: limits on writes hold for direct I/O only"}},
		"/srv/many":                              {Mountpoint: "/srv/many", FSType: "bcachefs", Disks: []blkio.Disk{sda, sdd}, Warning: &blkio.Warning{Kind: blkio.NoCgroupWriteback, Text: "bcachefs has no cgroup writeback: limits on writes hold for direct I/O only"}},
		"/srv/nfs/a":                             {Mountpoint: "/srv/nfs", FSType: "nfs4", Reason: "nfs4 is a network filesystem: there is no local disk to limit"},
		"/srv/nfs/local":                         {Mountpoint: "/srv/nfs/local", FSType: "ext4", Disks: []blkio.Disk{sdc}},
		"/srv/nfs/local/a":                       {Mountpoint: "/srv/nfs/local", FSType: "ext4", Reason: "its place is below nfs4, which could hang"},
		"/run/x":                                 {Mountpoint: "/run", FSType: "tmpfs", Reason: "tmpfs is memory, not a disk"},
		"/proc/self":                             {Mountpoint: "/proc", FSType: "proc", Reason: "proc is a view of the kernel, not a disk"},
		"/dev/null":                              {Mountpoint: "/dev", FSType: "devtmpfs", Reason: "devtmpfs is memory, not a disk"},
		"/var/lib/containerd/rootfs/a":           {Mountpoint: "/var/lib/containerd/rootfs", FSType: "overlay", Disks: []blkio.Disk{sda}},
		"/srv/lost":                              {Mountpoint: "/srv/lost", FSType: "ext4", Reason: lost, Missing: true},
		"/srv/odd":                               {Mountpoint: "/srv/odd", FSType: "oddfs", Reason: "oddfs has no block device, only the device number 0:52"},
		"/srv/zfs":                               {Mountpoint: "/srv/zfs", FSType: "zfs", Reason: "zfs writes to the disks of its pool with its own threads, whose I/O belongs to no container"},
		"data":                                   {Reason: `path "data" is not absolute`},
		"":                                       {Reason: `path "" is not absolute`},
	}
	for in, want := range tests {
		for _, attempt := range []string{"first", "again"} {
			if diff := cmp.Diff(want, *n.Resolve(t.Context(), in)); diff != "" {
				t.Errorf("%s, %s: %s", in, attempt, diff)
			}
		}
	}
}

func TestResolveSymlinks(t *testing.T) {
	n := newFakeNode(t, nodeMounts)
	n.mkdir(t, "/srv/nfs/dead")
	n.mkdir(t, "/var/lib/containerd/dir")
	n.mkdir(t, "/srv/plain/dir")
	n.symlink(t, "/var/lib/containerd", "/srv/abs")
	n.symlink(t, "../var/lib/containerd/dir", "/srv/rel")
	n.symlink(t, "abs/dir", "/srv/twice")
	n.symlink(t, "../../../../..", "/srv/plain/up")
	n.symlink(t, "/srv/nfs/dead/link", "/srv/remote")
	n.symlink(t, "/srv/abs", "/srv/nfs/dead/link") // must not be read
	n.symlink(t, "/run/x", "/srv/memory")
	n.symlink(t, "loop", "/srv/loop")
	n.symlink(t, "/nowhere/../srv/abs", "/srv/dangling")
	tests := map[string]string{ // to the mountpoint
		"/srv/plain/dir":        "/",
		"/srv/abs":              "/var/lib/containerd",
		"/srv/abs/dir":          "/var/lib/containerd",
		"/srv/abs/rootfs/x":     "/var/lib/containerd/rootfs",
		"/srv/rel":              "/var/lib/containerd",
		"/srv/rel/..":           "/", // as text, as the kubelet cleans paths
		"/srv/twice/not/there":  "/var/lib/containerd",
		"/srv/plain/up/srv/lv":  "/srv/lv",
		"/srv/remote":           "/srv/nfs",
		"/srv/memory":           "/run",
		"/srv/not/there":        "/",
		"/srv/plain/up/srv/abs": "/var/lib/containerd",
	}
	for in, want := range tests {
		if got := n.Resolve(t.Context(), in); got.Mountpoint != want {
			t.Errorf("%s is on %q (%s), want %q", in, got.Mountpoint, got.Reason, want)
		}
	}
	got := n.Resolve(t.Context(), "/srv/loop/a")
	if !strings.Contains(got.Reason, "too many symbolic links") || got.Err != nil {
		t.Errorf("a loop: %+v", got)
	}
	// A missing path is resolved again.
	n.symlink(t, "/var/lib/containerd", "/srv/not/there")
	if diff := cmp.Diff(onXFS, *n.Resolve(t.Context(), "/srv/not/there")); diff != "" {
		t.Error(diff)
	}
}

func TestResolveEndsWithContext(t *testing.T) {
	n := newFakeNode(t, nodeMounts)
	n.symlink(t, "/var/lib/containerd", "/srv/abs")
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	if got := n.Resolve(ctx, "/srv/abs"); !errors.Is(got.Err, context.Canceled) && got.Mountpoint != onXFS.Mountpoint {
		t.Errorf("got %+v", got)
	}
	// And that is not remembered.
	if diff := cmp.Diff(onXFS, *n.Resolve(t.Context(), "/srv/abs")); diff != "" {
		t.Error(diff)
	}
}

func TestRefresh(t *testing.T) {
	n := newFakeNode(t, nodeMounts)
	ctx := t.Context()
	if diff := cmp.Diff(onRoot, *n.Resolve(ctx, "/data/pvc")); diff != "" {
		t.Fatal(diff)
	}
	before := n.Mounts()
	checkError(t, n.Refresh(ctx), "")
	if n.Mounts() != before {
		t.Error("read again without a change")
	}

	n.setMounts(t, nodeMounts+"90 29 8:48 / /data/pvc rw,relatime - ext4 /dev/sdd rw\n")
	if diff := cmp.Diff(onRoot, *n.Resolve(ctx, "/data/pvc")); diff != "" {
		t.Error("Resolve does not refresh", diff)
	}
	checkError(t, n.Refresh(ctx), "")
	want := blkio.Backing{Mountpoint: "/data/pvc", FSType: "ext4", Disks: []blkio.Disk{sdd}}
	if diff := cmp.Diff(want, *n.Resolve(ctx, "/data/pvc")); diff != "" {
		t.Error(diff)
	}

	// A bad table is an error each time, until there is a good one.
	n.setMounts(t, "what\n")
	for range 2 {
		if err := n.Refresh(ctx); err == nil {
			t.Error("a bad table is no error")
		}
	}
	if diff := cmp.Diff(want, *n.Resolve(ctx, "/data/pvc")); diff != "" {
		t.Error("the old table is gone", diff)
	}
	n.setMounts(t, nodeMounts)
	checkError(t, n.Refresh(ctx), "")
	if diff := cmp.Diff(onRoot, *n.Resolve(ctx, "/data/pvc")); diff != "" {
		t.Error(diff)
	}

	canceled, cancel := context.WithCancel(ctx)
	cancel()
	n.refreshing <- struct{}{}
	if err := n.Refresh(canceled); !errors.Is(err, context.Canceled) {
		t.Errorf("waits for a lock without end: %v", err)
	}
	<-n.refreshing
}

// TestOpenUnread verifies that paths have an error, and not a reason for good, until the mount table is read.
func TestOpenUnread(t *testing.T) {
	read := newFakeNode(t, nodeMounts)
	n, err := OpenUnread(Config{Sys: read.sys, Mountinfo: read.mountinfo, HostRoot: read.root})
	if err != nil {
		t.Fatal(err)
	}
	defer n.Close()
	ctx := t.Context()
	if got := n.Resolve(ctx, "/data/pvc"); got.Err == nil || got.Reason != resolveFailed || len(n.Mounts().All()) > 0 {
		t.Errorf("before: %+v", got)
	}
	for range n.Submounts(ctx, "/") {
		t.Error("a mount of a table that was not read")
	}
	checkError(t, n.Refresh(ctx), "")
	if d := cmp.Diff(onRoot, *n.Resolve(ctx, "/data/pvc")); d != "" {
		t.Error(d)
	}
	for _, missing := range []Config{{Mountinfo: read.mountinfo, HostRoot: read.root + "/none"}, {Mountinfo: read.root + "/none", HostRoot: read.root}} {
		if _, err := OpenUnread(missing); err == nil {
			t.Errorf("opened %+v", missing)
		}
	}
}

// TestRefreshForgetsDevices verifies that devices are resolved again after a change of the table, because a
// number may belong to another disk then.
func TestRefreshForgetsDevices(t *testing.T) {
	n := newFakeNode(t, nodeMounts)
	ctx := t.Context()
	n.Resolve(ctx, "/srv/nfs/local")
	delete(n.sys.MapFS, "dev/block/8:32")
	n.sys.add(scsi+"9/block/sdz", "8:32", "size=2048")
	n.setMounts(t, nodeMounts+"90 29 8:48 / /data rw,relatime - ext4 /dev/sdd rw\n")
	checkError(t, n.Refresh(ctx), "")
	if got := n.Resolve(ctx, "/srv/nfs/local"); len(got.Disks) != 1 || got.Disks[0].Name != "sdz" {
		t.Errorf("got %+v", got)
	}
}

// TestResolveLooksForLostDevices verifies that a device that sysfs did not have is found when it appears
// without a change of the table.
func TestResolveLooksForLostDevices(t *testing.T) {
	n := newFakeNode(t, nodeMounts)
	if got := n.Resolve(t.Context(), "/srv/lost"); got.Reason == "" {
		t.Errorf("got %+v", got)
	}
	n.sys.add(scsi+"9/block/sdr", "65:16", "size=2048")
	if got := n.Resolve(t.Context(), "/srv/lost"); len(got.Disks) != 1 {
		t.Errorf("got %+v", got)
	}
}

func TestWatch(t *testing.T) {
	n := newFakeNode(t, nodeMounts)
	ctx, cancel := context.WithCancel(t.Context())
	done := make(chan error, 1)
	go func() { done <- n.Watch(ctx, func() {}) }()
	n.setMounts(t, nodeMounts+"90 29 8:48 / /data rw,relatime - ext4 /dev/sdd rw\n")
	deadline := time.Now().Add(time.Minute)
	for n.Resolve(ctx, "/data").Mountpoint != "/data" {
		if time.Now().After(deadline) {
			t.Fatal("the change was not seen")
		}
		time.Sleep(time.Millisecond)
	}
	cancel()
	if err := <-done; !errors.Is(err, context.Canceled) {
		t.Errorf("Watch: %v", err)
	}
}

func TestConcurrentUse(t *testing.T) {
	n := newFakeNode(t, nodeMounts)
	n.symlink(t, "/var/lib/containerd", "/srv/abs")
	ctx := t.Context()
	watchCtx, cancel := context.WithCancel(ctx)
	var wg sync.WaitGroup
	wg.Go(func() { _ = n.Watch(watchCtx, func() {}) })
	for range 4 {
		wg.Go(func() {
			for range 200 {
				if err := n.Refresh(ctx); err != nil {
					t.Error(err)
				}
				if got := n.Resolve(ctx, "/srv/abs/a"); got.Mountpoint != "/var/lib/containerd" {
					t.Errorf("got %+v", got)
				}
				n.Resolve(ctx, "/srv/btrfs")
				if at, _, ok := n.Below(ctx, "/srv/abs", "rootfs/a"); at != "rootfs" || !ok {
					t.Errorf("below: got %q", at)
				}
				for range n.Submounts(ctx, "/srv") {
				}
			}
		})
	}
	for i := range 20 {
		n.setMounts(t, nodeMounts+fmt.Sprintf("90 29 8:48 / /data%d rw,relatime - ext4 /dev/sdd rw\n", i))
		time.Sleep(time.Millisecond)
	}
	cancel()
	wg.Wait()
}

// TestProcMountinfo reads the kernel's own file on this machine.
func TestProcMountinfo(t *testing.T) {
	if _, err := os.Stat("/proc/self/mountinfo"); err != nil {
		t.Skip("no procfs here")
	}
	s, err := Open(Config{Sys: os.DirFS("/sys"), Mountinfo: "/proc/self/mountinfo", HostRoot: "/"})
	if err != nil {
		t.Fatal(err)
	}
	defer s.Close()
	if s.source.isFile {
		t.Error("taken for a regular file")
	}
	before := s.Mounts()
	checkError(t, s.Refresh(t.Context()), "")
	if s.Mounts() != before {
		t.Error("read again without a change")
	}
	if got := s.Resolve(t.Context(), "/proc/self/mountinfo"); got.FSType != "proc" || got.Reason == "" {
		t.Errorf("got %+v", got)
	}
	for _, p := range []string{"/", "/usr/bin", "/tmp"} {
		got := s.Resolve(t.Context(), p)
		if (len(got.Disks) == 0) != (got.Reason != "") {
			t.Errorf("%s: %+v", p, got)
		}
		t.Logf("%s: %+v", p, got)
	}
	ctx, cancel := context.WithTimeout(t.Context(), 50*time.Millisecond)
	defer cancel()
	if err := s.Watch(ctx, func() {}); !errors.Is(err, context.DeadlineExceeded) {
		t.Errorf("Watch: %v", err)
	}
}

func TestOpenStorageErrors(t *testing.T) {
	dir := t.TempDir()
	_, err := Open(Config{Mountinfo: dir + "/none", HostRoot: dir})
	checkError(t, err, "open "+dir+"/none: no such file or directory")
	_, err = Open(Config{Mountinfo: "/proc/self/mountinfo", HostRoot: dir + "/none"})
	checkError(t, err, "open the host's root "+dir+"/none: no such file or directory")
}

// TestDisksChanged verifies that a filesystem can get one more disk without a change of the mount table.
func TestDisksChanged(t *testing.T) {
	n := newFakeNode(t, nodeMounts)
	before := n.Resolve(t.Context(), "/srv/btrfs").Disks
	n.sys.link(btrfsUUID+"devices/sdd", "../../../../devices/"+scsi+"3/block/sdd")
	if got := n.Resolve(t.Context(), "/srv/btrfs").Disks; !cmp.Equal(got, before) {
		t.Errorf("before DisksChanged the disks are %v, want %v", got, before)
	}
	if err := n.DisksChanged(t.Context()); err != nil {
		t.Fatal(err)
	}
	if diff := cmp.Diff([]blkio.Disk{sda, sdc, sdd}, n.Resolve(t.Context(), "/srv/btrfs").Disks); diff != "" {
		t.Error(diff)
	}
}
