package storage

import (
	"fmt"
	"maps"
	"math/rand/v2"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"golang.org/x/sys/unix"

	"github.com/nri-blkio/nri-blkio/blkio"
)

// carriedMounts returns lines of mountinfo of which a random table is made: volumes, overlays, and mounts on the way to the
// layers, beside them and on them.
func carriedMounts() []string {
	const places = "/var/lib/containerd/snapshots"
	out := []string{
		"40 29 8:16 / /var/lib/containerd rw - xfs /dev/sdb rw",
		"41 29 8:32 / /var/lib rw - ext4 /dev/sdc rw",
		"42 29 0:70 / " + places + " rw - tmpfs tmpfs rw",
		"43 29 8:48 / " + places + "/1/fs rw - ext4 /dev/sdd rw",
		"44 29 8:32 / /link rw - ext4 /dev/sdc rw",
		"45 29 8:48 / /target rw - ext4 /dev/sdd rw",
		"46 29 8:16 / /mnt/volume rw - ext4 /dev/sdb rw,data=journal",
		"47 29 0:71 / /mnt/memory rw - tmpfs tmpfs rw",
		"48 29 0:72 / /mnt/absent rw - ext4 /dev/absent rw",
		"49 29 8:16 / /mnt/realtime rw - xfs /dev/sdb rw,rtdev=/dev/sdc",
		"50 29 0:73 / /mnt/image ro - erofs " + places + "/1/fs/layer.erofs ro",
		"51 29 0:74 / /run/image ro - overlay overlay ro,lowerdir=/mnt/image",
	}
	for i, layers := range []string{
		"lowerdir=" + places + "/1/fs:" + places + "/2/fs,upperdir=" + places + "/3/fs",
		"lowerdir=" + places + "/2/fs",
		"lowerdir=/other/1,upperdir=/other/2",
		"lowerdir=/link/1/fs,upperdir=/link/2/fs", // a symlink to /target
		"lowerdir=/run/0,upperdir=/other/2",
		"lowerdir=none/1/fs",
		"upperdir=/absent/1/fs",
	} {
		out = append(out, fmt.Sprintf("%d 29 0:%d / /run/%d rw - overlay overlay rw,%s", 60+i, 80+i, i, layers))
	}
	return out
}

// TestCarriedBackings verifies that a table that is read after any change leads to the same disks as one that is read for the
// first time.
func TestCarriedBackings(t *testing.T) {
	lines := carriedMounts()
	for seed := range uint64(12) {
		rng := rand.New(rand.NewPCG(seed, 5))
		n := newFakeNode(t, nodeRoot)
		for _, dir := range []string{"/var/lib/containerd/snapshots/1/fs", "/var/lib/containerd/snapshots/2/fs", "/var/lib/containerd/snapshots/3/fs", "/other/1", "/other/2", "/target/1/fs", "/target/2/fs", "/run/0", "/var/lib/containerd/snapshots/1/fs/layer.erofs"} {
			n.mkdir(t, dir)
		}
		n.symlink(t, "/target", "/link")
		there := map[int]bool{}
		for step := range 25 {
			for range 1 + rng.IntN(3) {
				i := rng.IntN(len(lines))
				if there[i] = !there[i]; !there[i] {
					delete(there, i)
				}
			}
			text := nodeRoot
			for _, i := range slices.Sorted(maps.Keys(there)) {
				text += lines[i] + "\n"
			}
			n.setMounts(t, text)
			if err := n.Refresh(t.Context()); err != nil {
				t.Fatal(err)
			}
			fresh, err := Open(Config{Sys: n.sys, Mountinfo: n.mountinfo, HostRoot: n.root})
			if err != nil {
				t.Fatal(err)
			}
			for m := range n.current.Load().mounts.copy() {
				if !slices.Contains(n.Mounts().All(), m) {
					t.Fatalf("seed %d, step %d: the backing of %s is kept, which is not mounted", seed, step, m.Mountpoint)
				}
			}
			anew := fakeNode{Storage: fresh}
			want, got := list(t.Context(), &anew, "/"), list(t.Context(), n, "/")
			fresh.Close()
			if d := cmp.Diff(want, got); d != "" {
				t.Fatalf("seed %d, step %d, -anew +carried:\n%s%s", seed, step, d, text)
			}
		}
	}
}

const nodeRoot = "29 1 8:1 / / rw - ext4 /dev/sda1 rw\n"

// TestCarriedDisks verifies that what is known of a filesystem is not kept if it has other disks after a change.
func TestCarriedDisks(t *testing.T) {
	const volume = "50 29 0:90 / /mnt/volume rw - btrfs /dev/sdc rw\n"
	const places = "/var/lib/snapshots"
	const overlay = "51 29 0:91 / /run/rootfs rw - overlay overlay rw,upperdir=" + places + "/1/fs\n52 29 0:90 / /var/lib rw - btrfs /dev/sdc rw\n"
	n := newFakeNode(t, nodeRoot+volume+overlay)
	n.mkdir(t, places+"/1/fs")
	before := list(t.Context(), n, "/")
	delete(n.sys.MapFS, btrfsUUID+"devices/sda2")
	n.setMounts(t, nodeRoot+volume+overlay+"53 29 8:48 / /mnt/new rw - ext4 /dev/sdd rw\n")
	if err := n.Refresh(t.Context()); err != nil {
		t.Fatal(err)
	}
	got := list(t.Context(), n, "/")
	if d := cmp.Diff([]string{"mnt/volume sda,sdc", "run/rootfs sda,sdc", "var/lib sda,sdc"}, before); d != "" {
		t.Errorf("before: %s", d)
	}
	if d := cmp.Diff([]string{"mnt/new sdd", "mnt/volume sdc", "run/rootfs sdc", "var/lib sdc"}, got); d != "" {
		t.Errorf("after: %s", d)
	}
}

// BenchmarkFollow is a changed mount on a node with 10,000 mounts and five containers that follow the mounts of "/". It
// reports the CPU time of both halves: reading the table, and finding the disks of the containers.
func BenchmarkFollow(b *testing.B) {
	mounts, _ := busyNode()
	again := strings.NewReplacer("/pods/0000", "/pods/0001", "/run/containerd/", "/run/containerd2/").Replace(mounts)
	again = again[strings.Index(again, "1000 29"):]
	n := newFakeNode(b, mounts+again)
	n.mkdir(b, "/")
	for i := range 6000 {
		n.mkdir(b, fmt.Sprintf("/var/lib/containerd/io.containerd.snapshotter.v1.overlayfs/snapshots/%d/fs", i))
	}
	cpu := func() time.Duration {
		var u unix.Rusage
		if err := unix.Getrusage(unix.RUSAGE_SELF, &u); err != nil {
			b.Fatal(err)
		}
		return time.Duration(u.Utime.Nano() + u.Stime.Nano())
	}
	find := func() {
		count := 0
		for range 5 {
			var found [][]blkio.Disk
			for _, one := range n.Submounts(b.Context(), "/") {
				isEqual := func(disks []blkio.Disk) bool { return slices.Equal(disks, one.Disks) }
				if !slices.ContainsFunc(found, isEqual) {
					found = append(found, one.Disks)
				}
				count++
			}
		}
		if count < 50_000 {
			b.Fatal(count)
		}
	}
	find()
	var reading, finding time.Duration
	turn := 0
	for b.Loop() {
		turn++
		n.setMounts(b, mounts+again+fmt.Sprintf("90000 29 8:48 / /data%d rw,relatime - ext4 /dev/sdd rw\n", turn))
		began := cpu()
		if err := n.Refresh(b.Context()); err != nil {
			b.Fatal(err)
		}
		read := cpu()
		find()
		reading, finding = reading+read-began, finding+cpu()-read
	}
	b.ReportMetric(reading.Seconds()*1000/float64(turn), "ms-CPU/read")
	b.ReportMetric(finding.Seconds()*1000/float64(turn), "ms-CPU/find")
}
