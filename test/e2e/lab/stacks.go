package lab

import (
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/nri-blkio/nri-blkio/test/e2e/cgroup"
)

// Kit makes storage of two raw disks of the node: each has the same number of equal
// partitions, so that a stack of two of these has a part of each disk.
type Kit struct {
	*testing.T
	partitions, next int
}

// Raw are the disks that a kit may write to.
var Raw = []string{"vdg", "vdh"}

// rawSize is the part of a raw disk that its partitions share, in MiB: the disk is somewhat larger.
const rawSize = 4000

// NewKit partitions the raw disks for the time of the test.
func NewKit(t *testing.T, partitions int) *Kit {
	t.Helper()
	for _, disk := range Raw {
		wipe := func() { Administer(t, "wipefs", "-q", "-a", "-f", "/dev/"+disk) }
		wipe()
		// Of a run that was interrupted there may be the old ones.
		cmd := exec.CommandContext(t.Context(), "sfdisk", "-q", "--wipe-partitions", "always", "/dev/"+disk)
		cmd.Stdin = strings.NewReader("label: gpt\n" + strings.Repeat(fmt.Sprintf("size=%dM\n", rawSize/partitions), partitions))
		if out, err := cmd.CombinedOutput(); err != nil {
			t.Fatalf("partition %s: %v: %s", disk, err, out)
		}
		t.Cleanup(wipe)
	}
	Administer(t, "udevadm", "settle", "--timeout=30")
	return &Kit{T: t, partitions: partitions}
}

// Pair is a partition of each disk that nothing else is made of.
func (k *Kit) Pair() (string, string) {
	k.Helper()
	if k.next++; k.next > k.partitions {
		k.Fatal("all partitions are in use")
	}
	return fmt.Sprintf("/dev/vdg%d", k.next), fmt.Sprintf("/dev/vdh%d", k.next)
}

// One is a partition of the first disk.
func (k *Kit) One() string {
	k.Helper()
	p, _ := k.Pair()
	return p
}

// Know adds disks to node.disks until the end of the test, and returns the device number of the last one.
func Know(t *testing.T, names ...string) (number string) {
	t.Helper()
	for _, name := range names {
		var err error
		if number, err = cgroup.Disk(name); err != nil {
			t.Fatal(err)
		}
		if _, known := Node.Disks[name]; !known {
			Node.Disks[name] = number
			t.Cleanup(func() { delete(Node.Disks, name) })
		}
	}
	return number
}

// Mounts makes a filesystem and mounts it until the end of the test.
func (k *Kit) Mounts(fs string, devices ...string) string {
	k.Helper()
	force := map[string]string{"ext4": "-F", "xfs": "-f", "btrfs": "-f", "vfat": "-I"}
	quiet := map[string]string{"ext4": "-q", "xfs": "-q", "btrfs": "-q", "vfat": "-v"}
	Administer(k.T, slices.Concat([]string{"mkfs." + fs, quiet[fs], force[fs]}, devices)...)
	return k.Mount("-t", fs, devices[len(devices)-1])
}

// Mount mounts with these arguments.
func (k *Kit) Mount(args ...string) string {
	k.Helper()
	dir := k.TempDir()
	Administer(k.T, slices.Concat([]string{"mount"}, args, []string{dir})...)
	k.Cleanup(func() { unmounts(k.T, dir) })
	return dir
}

// VolumeGroup makes an LVM volume group over both disks, and returns its name.
func (k *Kit) VolumeGroup() string {
	k.Helper()
	a, b := k.Pair()
	const name = "e2e"
	Administer(k.T, "vgcreate", "-q", "-y", name, a, b)
	k.Cleanup(func() { Administer(k.T, "vgremove", "-q", "-y", name); Administer(k.T, "pvremove", "-q", "-y", a, b) })
	return name
}

// Logical makes a volume of a group.
func (k *Kit) Logical(group, name string, args ...string) string {
	k.Helper()
	Administer(k.T, slices.Concat([]string{"lvcreate", "-q", "-y", "-n", name}, args, []string{group})...)
	return "/dev/" + group + "/" + name
}

// Encrypted is a LUKS device, with a key that takes no time to derive.
func (k *Kit) Encrypted(on string) string {
	k.Helper()
	key := filepath.Join(k.TempDir(), "key")
	if err := os.WriteFile(key, []byte("e2e"), 0o600); err != nil {
		k.Fatal(err)
	}
	Administer(k.T, "cryptsetup", "luksFormat", "-q", "--pbkdf", "pbkdf2", "--pbkdf-force-iterations", "1000", "--key-file", key, on)
	Administer(k.T, "cryptsetup", "open", "--key-file", key, on, "e2e-crypt")
	k.Cleanup(func() { Administer(k.T, "cryptsetup", "close", "e2e-crypt") })
	return "/dev/mapper/e2e-crypt"
}

// RAID is an md array of a level over both disks.
func (k *Kit) RAID(name, level string) string {
	k.Helper()
	a, b := k.Pair()
	Administer(k.T, "mdadm", "--create", "/dev/"+name, "--run", "--quiet", "--level="+level, "--metadata=1.0",
		"--assume-clean", "--raid-devices=2", a, b)
	k.Cleanup(func() {
		Administer(k.T, "mdadm", "--stop", "--quiet", "/dev/"+name)
		Administer(k.T, "mdadm", "--zero-superblock", a, b)
	})
	return "/dev/" + name
}

// Partitioned is a partition of a device.
func (k *Kit) Partitioned(device string) string {
	k.Helper()
	cmd := exec.CommandContext(k.Context(), "sfdisk", "-q", device)
	cmd.Stdin = strings.NewReader("label: gpt\nsize=300M\n")
	if out, err := cmd.CombinedOutput(); err != nil {
		k.Fatalf("partition %s: %v: %s", device, err, out)
	}
	Administer(k.T, "udevadm", "settle", "--timeout=30")
	k.Cleanup(func() { Administer(k.T, "wipefs", "-q", "-a", "-f", device) })
	return device + "p1"
}

// Loop is a file as a device, with a minor number that takes more than eight bits.
func (k *Kit) Loop(file, device string) string {
	k.Helper()
	f, err := os.Create(file)
	if err != nil {
		k.Fatal(err)
	}
	defer f.Close()
	if err := f.Truncate(400 * MiB); err != nil {
		k.Fatal(err)
	}
	Administer(k.T, "modprobe", "loop")
	Administer(k.T, "losetup", device, file)
	k.Cleanup(func() { Administer(k.T, "losetup", "-d", device) })
	return device
}

// Multipath is one disk by two ways.
func (k *Kit) Multipath() string {
	k.Helper()
	paths := SCSIDisks(k.T, 2, "add_host=2", "per_host_store=0", "dev_size_mb=128")
	var numbers []string
	for _, p := range paths {
		number, err := cgroup.Disk(p)
		if err != nil {
			k.Fatal(err)
		}
		numbers = append(numbers, number)
	}
	Administer(k.T, "modprobe", "dm-multipath")
	Administer(k.T, "modprobe", "dm-round-robin")
	table := fmt.Sprintf("0 %d multipath 0 0 1 1 round-robin 0 2 1 %s 1000 %s 1000", 128*MiB/512, numbers[0], numbers[1])
	Administer(k.T, "dmsetup", "create", "e2e-multipath", "--table", table)
	k.Cleanup(func() { Administer(k.T, "dmsetup", "remove", "--retry", "e2e-multipath") })
	return "/dev/mapper/e2e-multipath"
}

// NVMe returns the disk of both controllers. Its name is that of the controller that was found first.
func (k *Kit) NVMe() string {
	k.Helper()
	heads, err := filepath.Glob("/dev/nvme*n1")
	if err != nil || len(heads) != 1 {
		k.Fatalf("NVMe disks: %q (%v), want one", heads, err)
	}
	return heads[0]
}

// Zram returns a disk of compressed memory.
func (k *Kit) Zram() string {
	k.Helper()
	Administer(k.T, "modprobe", "zram", "num_devices=1")
	k.Cleanup(func() { Administer(k.T, "modprobe", "-r", "zram") })
	WriteFile(k.T, "/sys/block/zram0/disksize", "256M")
	return "/dev/zram0"
}

// Overlay has its upper layer on XFS and a lower one on ext4.
func (k *Kit) Overlay() string {
	k.Helper()
	layers := map[string]string{}
	for _, l := range [][2]string{{"lower", "ext4"}, {"upper", "xfs"}, {"work", "xfs"}} {
		dir, err := os.MkdirTemp(Volumes[l[1]], "overlay-"+l[0]+"-")
		if err != nil {
			k.Fatal(err)
		}
		k.Cleanup(func() { os.RemoveAll(dir) })
		layers[l[0]] = dir
	}
	return k.Mount("-t", "overlay", "-o",
		fmt.Sprintf("lowerdir=%s,upperdir=%s,workdir=%s", layers["lower"], layers["upper"], layers["work"]), "overlay")
}

// StackedDevice is a linear device on the spare disk.
func StackedDevice(t *testing.T) string {
	t.Helper()
	CreateStacked(t)
	t.Cleanup(func() { Administer(t, "dmsetup", "remove", "--retry", "e2e") })
	return "/dev/mapper/e2e"
}

// CreateStacked makes that device, as also after it was removed.
func CreateStacked(t *testing.T) {
	t.Helper()
	Administer(t, "dmsetup", "create", "e2e", "--table", "0 1048576 linear /dev/vdf 0")
}
