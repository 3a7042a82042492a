package writeback

import (
	"os"
	"path/filepath"
	"testing"

	"github.com/nri-blkio/nri-blkio/test/e2e/cgroup"
	"github.com/nri-blkio/nri-blkio/test/e2e/lab"
)

// volume is a directory for scenarios. Limits are set on each of its disks, on which its writes are charged.
type volume struct {
	name  string
	dir   string // below the mountpoint
	disks []string
}

// twoDisks is a stack.
const twoDisks = "btrfs over two disks"

// stacks are the volumes that are made for a test, each of whole raw disks: some scenarios
// write gigabytes.
var stacks = map[string]func(k *lab.Kit) (mountpoint string, disks []string){
	twoDisks: func(k *lab.Kit) (string, []string) {
		a, b := k.Pair()
		return k.Mounts("btrfs", "-m", "raid0", "-d", "raid0", a, b), lab.Raw
	},
	"LVM": func(k *lab.Kit) (string, []string) {
		return ext4(k, k.Logical(k.VolumeGroup(), "volume", "-l", "50%VG"))
	},
	"dm-crypt": func(k *lab.Kit) (string, []string) {
		return ext4(k, k.Encrypted(k.One()))
	},
}

// ext4 formats a device like the disks that the node has from the start: fully initialized, so that no
// initialization runs during a measurement.
func ext4(k *lab.Kit, device string) (mountpoint string, disks []string) {
	k.Helper()
	return k.Mounts("ext4", "-E", "lazy_itable_init=0,lazy_journal_init=0", device), []string{lab.DiskBehind(k.T, device)}
}

// volumeOf returns the volume of a name. A stack exists until the end of the test.
func volumeOf(t *testing.T, name string) volume {
	t.Helper()
	stack := stacks[name]
	if stack == nil {
		return volume{name, lab.Volumes[name], []string{lab.DiskOf[name]}}
	}
	mountpoint, disks := stack(lab.NewKit(t, 1))
	lab.Know(t, disks...)
	v := volume{name, filepath.Join(mountpoint, "e2e"), disks}
	if err := os.Mkdir(v.dir, 0o755); err != nil {
		t.Fatal(err)
	}
	return v
}

// other is a directory on another disk.
func (v volume) other() string {
	if v.name == "xfs" {
		return lab.Volumes["ext4"]
	}
	return lab.Volumes["xfs"]
}

// written returns the bytes that are charged to a cgroup on the volume.
func (v volume) written(dir string) (int64, error) {
	sum := int64(0)
	for _, disk := range v.disks {
		n, err := cgroup.Dir(dir).Counter(lab.Node.Disks[disk], "wbytes")
		if err != nil {
			return 0, err
		}
		sum += n
	}
	return sum, nil
}
