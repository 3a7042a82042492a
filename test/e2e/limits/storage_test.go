package limits

import (
	"os"
	"path/filepath"
	"testing"

	"github.com/nri-blkio/nri-blkio/test/e2e/cri"
	"github.com/nri-blkio/nri-blkio/test/e2e/lab"
)

// TestStorage verifies, for each kind of storage, that the disk of a volume is found, that its limit is in
// force when the container starts, and that writes obey it.
func TestStorage(t *testing.T) {
	stores := append(plainStores(t), newStores(lab.NewKit(t, 11))...)
	for _, s := range stores {
		lab.Know(t, s.Disks...)
	}
	t.Run("every mount, by lsblk and findmnt", func(t *testing.T) { lab.Agrees(t, 20) })
	capture(t)
	lab.StartPlugin(t)
	a := lab.Annotations{}
	for _, s := range stores {
		a[lab.Limits+"container."+s.Container()] = s.Path() + " wbps=1Mi"
	}
	pod := lab.RunPod(t, "pod", a)
	t.Run("of", func(t *testing.T) {
		for _, s := range stores {
			t.Run(s.Container(), func(t *testing.T) {
				t.Parallel()
				s.Obeys(t, pod)
			})
		}
	})
}

// plainStores are on the disks that the node comes with.
func plainStores(t *testing.T) []lab.Store {
	t.Helper()
	file, link := lab.File(t, "xfs", "single"), filepath.Join(lab.Volumes["root"], "storage-link")
	lab.WriteFile(t, file, "")
	os.Remove(link) // of a run that was interrupted
	if err := os.Symlink(lab.Volumes["part"], link); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { os.Remove(link) })
	on := func(volume string) cri.Mount { return cri.Mount{Path: "/data", Host: lab.Volumes[volume]} }
	return []lab.Store{
		{Label: "disk, ext4", Mount: on("ext4"), FS: "ext4", Disks: []string{"vdb"}},
		{Label: "disk, XFS", Mount: on("xfs"), FS: "xfs", Disks: []string{"vdd"}},
		{Label: "disk, btrfs", Mount: on("btrfs"), FS: "btrfs", Disks: []string{"vde"}},
		{Label: "partition", Mount: on("part"), FS: "ext4", Disks: []string{"vdc"}, Alike: true}, // as the disk with ext4
		{
			Label: "mount below a volume", Mount: cri.Mount{Path: "/host", Host: "/mnt"}, Target: "/host/xfs/e2e",
			FS: "xfs", Disks: []string{"vdd"}, Alike: true,
		},
		{
			Label: "bind mount of a file", Mount: cri.Mount{Path: "/file", Host: file}, Single: true, Target: "/file",
			FS: "xfs", Disks: []string{"vdd"}, Alike: true,
		},
		{Label: "path with a symbolic link", Mount: cri.Mount{Path: "/data", Host: link}, FS: "ext4", Disks: []string{"vdc"}, Alike: true},
	}
}

// stores are those that are to be made.
func newStores(k *lab.Kit) []lab.Store {
	k.Helper()
	var out []lab.Store
	add := func(name, dir, fs string, disks ...string) {
		out = append(out, lab.Store{Label: name, Mount: cri.Mount{Path: "/data", Host: dir}, FS: fs, Disks: disks})
	}
	on := func(name, fs, device string) { add(name, k.Mounts(fs, device), fs, lab.DiskBehind(k.T, device)) }
	isAlike := func() { out[len(out)-1].Alike = true }

	group := k.VolumeGroup()
	on("LVM, linear", "ext4", k.Logical(group, "linear", "-L", "120M"))
	on("LVM, striped", "xfs", k.Logical(group, "striped", "-L", "320M", "-i", "2"))
	isAlike()
	lab.Administer(k.T, "lvcreate", "-q", "-y", "-T", "-L", "160M", "-n", "pool", group)
	on("LVM, thin", "ext4", k.Logical(group, "thin", "-V", "150M", "--thinpool", "pool"))
	isAlike()
	on("dm-crypt", "ext4", k.Encrypted(k.One()))
	on("md RAID 0", "xfs", k.RAID("md10", "0"))
	on("md RAID 1", "ext4", k.RAID("md11", "1"))
	isAlike()
	array := k.RAID("md300", "0")
	add("partition on md", k.Mounts("ext4", k.Partitioned(array)), "ext4", lab.DiskBehind(k.T, array))
	isAlike()
	on("loop, a file on XFS", "ext4", k.Loop(filepath.Join(k.Mounts("xfs", k.One()), "file"), "/dev/loop300"))
	on("dm-multipath", "ext4", k.Multipath())
	isAlike()
	on("NVMe, two controllers", "ext4", k.NVMe())
	on("zram", "ext4", k.Zram())

	a, b := k.Pair()
	add("btrfs, RAID 1 over two disks", k.Mounts("btrfs", "-m", "raid1", "-d", "raid1", a, b), "btrfs", lab.Raw...)
	out[len(out)-1].Mirrored = true
	a, b = k.Pair()
	add("btrfs, RAID 0 over two disks", k.Mounts("btrfs", "-m", "raid0", "-d", "raid0", a, b), "btrfs", lab.Raw...)
	a, b = k.Pair()
	lab.Administer(k.T, "mkfs.xfs", "-q", "-f", "-d", "rtinherit=1", "-r", "rtdev="+b, a)
	add("XFS, realtime device", k.Mount("-o", "rtdev="+b, a), "xfs", lab.Raw...) // the data is on the second disk
	subvolume := "storage-subvolume"
	lab.Administer(k.T, "btrfs", "-q", "subvolume", "create", filepath.Join(lab.Volumes["btrfs"], subvolume))
	k.Cleanup(func() {
		lab.Administer(k.T, "btrfs", "-q", "subvolume", "delete", filepath.Join(lab.Volumes["btrfs"], subvolume))
	})
	add("btrfs, subvolume", k.Mount("-o", "subvol=e2e/"+subvolume, "/dev/vde"), "btrfs", "vde")
	isAlike()
	add("overlay, lower ext4, upper XFS", k.Overlay(), "overlay", "vdb", "vdd")

	vfat := k.One()
	out = append(out, lab.Store{
		Label: "vfat", Mount: cri.Mount{Path: "/data", Host: k.Mounts("vfat", vfat)}, FS: "vfat", Disks: []string{"vdg"},
		Escapes: "not limited: no cgroup writeback",
	})
	device := k.One()
	out = append(out, lab.Store{
		Label: "raw block volume", Devices: map[string]string{"/dev/data": device}, Target: "/dev/data", Disks: []string{"vdg"},
	})
	return out
}
