package e2e

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

// kit makes storage of two raw disks of the node: each has the same number of equal
// partitions, so that a stack of two of these has a part of each disk.
type kit struct {
	*testing.T
	partitions, next int
}

// raw are the disks that a kit may write to.
var raw = []string{"vdg", "vdh"}

// rawSize is the part of a raw disk that its partitions share, in MiB: the disk is somewhat larger.
const rawSize = 4000

func newKit(t *testing.T, partitions int) *kit {
	t.Helper()
	for _, disk := range raw {
		wipe := func() { administer(t, "wipefs", "-q", "-a", "-f", "/dev/"+disk) }
		wipe()
		// Of a run that was interrupted there may be the old ones.
		cmd := exec.CommandContext(t.Context(), "sfdisk", "-q", "--wipe-partitions", "always", "/dev/"+disk)
		cmd.Stdin = strings.NewReader("label: gpt\n" + strings.Repeat(fmt.Sprintf("size=%dM\n", rawSize/partitions), partitions))
		if out, err := cmd.CombinedOutput(); err != nil {
			t.Fatalf("partition %s: %v: %s", disk, err, out)
		}
		t.Cleanup(wipe)
	}
	administer(t, "udevadm", "settle", "--timeout=30")
	return &kit{T: t, partitions: partitions}
}

// pair is a partition of each disk that nothing else is made of.
func (k *kit) pair() (string, string) {
	k.Helper()
	if k.next++; k.next > k.partitions {
		k.Fatal("all partitions are in use")
	}
	return fmt.Sprintf("/dev/vdg%d", k.next), fmt.Sprintf("/dev/vdh%d", k.next)
}

// one is a partition of the first disk.
func (k *kit) one() string {
	k.Helper()
	p, _ := k.pair()
	return p
}

// know adds disks to node.disks until the end of the test, and returns the device number of the last one.
func know(t *testing.T, names ...string) (number string) {
	t.Helper()
	for _, name := range names {
		var err error
		if number, err = cgroup.Disk(name); err != nil {
			t.Fatal(err)
		}
		if _, known := node.disks[name]; !known {
			node.disks[name] = number
			t.Cleanup(func() { delete(node.disks, name) })
		}
	}
	return number
}

// mounts makes a filesystem and mounts it until the end of the test.
func (k *kit) mounts(fs string, devices ...string) string {
	k.Helper()
	force := map[string]string{"ext4": "-F", "xfs": "-f", "btrfs": "-f", "vfat": "-I"}
	quiet := map[string]string{"ext4": "-q", "xfs": "-q", "btrfs": "-q", "vfat": "-v"}
	administer(k.T, slices.Concat([]string{"mkfs." + fs, quiet[fs], force[fs]}, devices)...)
	return k.mount("-t", fs, devices[len(devices)-1])
}

// mount mounts with these arguments.
func (k *kit) mount(args ...string) string {
	k.Helper()
	dir := k.TempDir()
	administer(k.T, slices.Concat([]string{"mount"}, args, []string{dir})...)
	k.Cleanup(func() { unmounts(k.T, dir) })
	return dir
}

// volumeGroup makes an LVM volume group over both disks, and returns its name.
func (k *kit) volumeGroup() string {
	k.Helper()
	a, b := k.pair()
	const name = "e2e"
	administer(k.T, "vgcreate", "-q", "-y", name, a, b)
	k.Cleanup(func() { administer(k.T, "vgremove", "-q", "-y", name); administer(k.T, "pvremove", "-q", "-y", a, b) })
	return name
}

// logical makes a volume of a group.
func (k *kit) logical(group, name string, args ...string) string {
	k.Helper()
	administer(k.T, slices.Concat([]string{"lvcreate", "-q", "-y", "-n", name}, args, []string{group})...)
	return "/dev/" + group + "/" + name
}

// encrypted is a LUKS device, with a key that takes no time to derive.
func (k *kit) encrypted(on string) string {
	k.Helper()
	key := filepath.Join(k.TempDir(), "key")
	if err := os.WriteFile(key, []byte("e2e"), 0o600); err != nil {
		k.Fatal(err)
	}
	administer(k.T, "cryptsetup", "luksFormat", "-q", "--pbkdf", "pbkdf2", "--pbkdf-force-iterations", "1000", "--key-file", key, on)
	administer(k.T, "cryptsetup", "open", "--key-file", key, on, "e2e-crypt")
	k.Cleanup(func() { administer(k.T, "cryptsetup", "close", "e2e-crypt") })
	return "/dev/mapper/e2e-crypt"
}

// raid is an md array of a level over both disks.
func (k *kit) raid(name, level string) string {
	k.Helper()
	a, b := k.pair()
	administer(k.T, "mdadm", "--create", "/dev/"+name, "--run", "--quiet", "--level="+level, "--metadata=1.0",
		"--assume-clean", "--raid-devices=2", a, b)
	k.Cleanup(func() {
		administer(k.T, "mdadm", "--stop", "--quiet", "/dev/"+name)
		administer(k.T, "mdadm", "--zero-superblock", a, b)
	})
	return "/dev/" + name
}

// partitioned is a partition of a device.
func (k *kit) partitioned(device string) string {
	k.Helper()
	cmd := exec.CommandContext(k.Context(), "sfdisk", "-q", device)
	cmd.Stdin = strings.NewReader("label: gpt\nsize=300M\n")
	if out, err := cmd.CombinedOutput(); err != nil {
		k.Fatalf("partition %s: %v: %s", device, err, out)
	}
	administer(k.T, "udevadm", "settle", "--timeout=30")
	k.Cleanup(func() { administer(k.T, "wipefs", "-q", "-a", "-f", device) })
	return device + "p1"
}

// loop is a file as a device, with a minor number that takes more than eight bits.
func (k *kit) loop(file, device string) string {
	k.Helper()
	f, err := os.Create(file)
	if err != nil {
		k.Fatal(err)
	}
	defer f.Close()
	if err := f.Truncate(400 * mib); err != nil {
		k.Fatal(err)
	}
	administer(k.T, "modprobe", "loop")
	administer(k.T, "losetup", device, file)
	k.Cleanup(func() { administer(k.T, "losetup", "-d", device) })
	return device
}

// multipath is one disk by two ways.
func (k *kit) multipath() string {
	k.Helper()
	paths := scsiDisks(k.T, 2, "add_host=2", "per_host_store=0", "dev_size_mb=128")
	var numbers []string
	for _, p := range paths {
		number, err := cgroup.Disk(p)
		if err != nil {
			k.Fatal(err)
		}
		numbers = append(numbers, number)
	}
	administer(k.T, "modprobe", "dm-multipath")
	administer(k.T, "modprobe", "dm-round-robin")
	table := fmt.Sprintf("0 %d multipath 0 0 1 1 round-robin 0 2 1 %s 1000 %s 1000", 128*mib/512, numbers[0], numbers[1])
	administer(k.T, "dmsetup", "create", "e2e-multipath", "--table", table)
	k.Cleanup(func() { administer(k.T, "dmsetup", "remove", "--retry", "e2e-multipath") })
	return "/dev/mapper/e2e-multipath"
}

// nvme returns the disk of both controllers. Its name is that of the controller that was found first.
func (k *kit) nvme() string {
	k.Helper()
	heads, err := filepath.Glob("/dev/nvme*n1")
	if err != nil || len(heads) != 1 {
		k.Fatalf("NVMe disks: %q (%v), want one", heads, err)
	}
	return heads[0]
}

// zram returns a disk of compressed memory.
func (k *kit) zram() string {
	k.Helper()
	administer(k.T, "modprobe", "zram", "num_devices=1")
	k.Cleanup(func() { administer(k.T, "modprobe", "-r", "zram") })
	writeFile(k.T, "/sys/block/zram0/disksize", "256M")
	return "/dev/zram0"
}

// overlay has its upper layer on XFS and a lower one on ext4.
func (k *kit) overlay() string {
	k.Helper()
	layers := map[string]string{}
	for _, l := range [][2]string{{"lower", "ext4"}, {"upper", "xfs"}, {"work", "xfs"}} {
		dir, err := os.MkdirTemp(volumes[l[1]], "overlay-"+l[0]+"-")
		if err != nil {
			k.Fatal(err)
		}
		k.Cleanup(func() { os.RemoveAll(dir) })
		layers[l[0]] = dir
	}
	return k.mount("-t", "overlay", "-o",
		fmt.Sprintf("lowerdir=%s,upperdir=%s,workdir=%s", layers["lower"], layers["upper"], layers["work"]), "overlay")
}

// stackedDevice is a linear device on the spare disk.
func stackedDevice(t *testing.T) string {
	t.Helper()
	createStacked(t)
	t.Cleanup(func() { administer(t, "dmsetup", "remove", "--retry", "e2e") })
	return "/dev/mapper/e2e"
}

func createStacked(t *testing.T) {
	t.Helper()
	administer(t, "dmsetup", "create", "e2e", "--table", "0 1048576 linear /dev/vdf 0")
}
