package node

import (
	"os"
	"os/exec"
	"path/filepath"
	"testing"

	"golang.org/x/sys/unix"

	"github.com/nri-blkio/nri-blkio/blkio"
	"github.com/nri-blkio/nri-blkio/blkio/cgroupfs"
	"github.com/nri-blkio/nri-blkio/blkio/storage"
)

// makeCgroups makes real cgroups, and removes them with the benchmark.
func (n *reconciledNode) makeCgroups(b *testing.B, parent string, cgroups []string) *cgroupfs.Hierarchy {
	b.Helper()
	all, err := storage.NewSysfs(os.DirFS("/sys")).Disks()
	if err != nil || len(all) < 2 {
		b.Fatalf("disks %v, %v", all, err)
	}
	n.disk = all[len(all)-1].Disk
	n.dir = filepath.Join(parent, "nri-blkio-bench")
	write(b, filepath.Join(parent, "cgroup.subtree_control"), "+io")
	const other = "kubepods.slice/other.scope" // it uses another disk, as on each real node
	dirs := []string{"", "kubepods.slice", other}
	dirs = append(dirs, cgroups...)
	for _, cg := range dirs {
		dir := filepath.Join(n.dir, cg)
		if err := os.Mkdir(dir, 0o755); err != nil {
			b.Fatal(err)
		}
		b.Cleanup(func() { os.Remove(dir) })
		switch {
		case cg == other:
			runIn(b, dir, &all[0].Disk)
		case filepath.Ext(cg) == ".scope":
			runIn(b, dir, &n.disk)
		default:
			write(b, filepath.Join(dir, "cgroup.subtree_control"), "+io")
		}
	}
	h, err := cgroupfs.OpenHierarchy(n.dir)
	if err != nil {
		b.Fatal(err)
	}
	b.Cleanup(func() { h.Close() })
	return h
}

// runIn reads from a disk in a cgroup, so that it has I/O. It runs a process there until the benchmark ends, so that its container counts
// as running.
func runIn(b *testing.B, dir string, disk *blkio.Disk) {
	b.Helper()
	cgroup, err := os.Open(dir)
	if err != nil {
		b.Fatal(err)
	}
	defer cgroup.Close()
	in := &unix.SysProcAttr{UseCgroupFD: true, CgroupFD: int(cgroup.Fd())}
	read := exec.Command("dd", "status=none", "if=/dev/"+disk.Name, "of=/dev/null", "bs=4k", "count=1", "iflag=direct")
	read.SysProcAttr = in
	if out, err := read.CombinedOutput(); err != nil {
		b.Fatalf("%v: %v: %s", read, err, out)
	}
	cmd := exec.Command("sleep", "infinity")
	cmd.SysProcAttr = in
	if err := cmd.Start(); err != nil {
		b.Fatal(err)
	}
	b.Cleanup(func() {
		_ = cmd.Process.Kill()
		_ = cmd.Wait() // the error is the signal
	})
}
