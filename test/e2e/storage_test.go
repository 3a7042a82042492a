package e2e

import (
	"fmt"
	"os"
	"path/filepath"
	"regexp"
	"strings"
	"testing"
	"time"

	"github.com/nri-blkio/nri-blkio/test/e2e/cgroup"
	"github.com/nri-blkio/nri-blkio/test/e2e/cri"
)

// storageRow begins a line of TestStorage that is a row of docs/reference/storage.md.
const storageRow = "storage-row "

// store is storage of one kind, ready to be written to.
type store struct {
	name    string
	mount   cri.Mount         // of the container
	devices map[string]string // the same for a raw block volume
	target  string            // "/data" if empty
	single  bool              // the mount is of one file
	// readOnly is true if the volume cannot be written to, so that its limit is on reads.
	readOnly bool
	fs       string   // "" for none
	disks    []string // the disks that have to be limited; writes are measured on the last one
	// alike is true if another store that is limited in the same way is measured. Only a proof, such as
	// `make storage`, measures this one.
	alike bool
	// escapes is why limits do not hold for buffered writes; "": they do.
	escapes string
	// mirrored is true if buffered writes are charged on one of the disks only, which also bounds the
	// other one (docs/reference/quirks.md).
	mirrored bool
}

// TestStorage verifies, for each kind of storage, that the disk of a volume is found, that its limit is in
// force when the container starts, and that writes obey it.
func TestStorage(t *testing.T) {
	stores := append(plainStores(t), newStores(newKit(t, 10))...)
	for _, s := range stores {
		know(t, s.disks...)
	}
	t.Run("every mount, by lsblk and findmnt", func(t *testing.T) { agrees(t, 20) })
	capture(t)
	startPlugin(t)
	a := annotations{}
	for _, s := range stores {
		a[limits+"container."+s.container()] = s.path() + " wbps=1Mi"
	}
	pod := runPod(t, "pod", a)
	t.Run("of", func(t *testing.T) {
		for _, s := range stores {
			t.Run(s.container(), func(t *testing.T) {
				t.Parallel()
				s.obeys(t, pod)
			})
		}
	})
}

func (s *store) container() string {
	return strings.Trim(strings.Map(func(r rune) rune {
		if r >= 'a' && r <= 'z' || r >= '0' && r <= '9' {
			return r
		}
		return '-'
	}, strings.ToLower(s.name)), "-")
}

func (s *store) path() string {
	if s.target != "" {
		return s.target
	}
	return "/data"
}

// file returns the path in the container that the test writes to.
func (s *store) file() string {
	if s.devices != nil || s.single {
		return s.path()
	}
	return s.path() + "/storage-" + s.container()
}

// obeys measures direct writes and then buffered ones.
func (s *store) obeys(t *testing.T, pod podOf) {
	cfg := cri.ContainerConfig{Name: s.container(), Args: []string{"sleep"}, Memory: memoryLimit, Devices: s.devices}
	if s.devices == nil {
		cfg.Mounts = []cri.Mount{s.mount}
		t.Cleanup(func() { os.Remove(filepath.Join(s.mount.Host, strings.TrimPrefix(s.file(), s.mount.Path))) })
	}
	k := pod.by(t).run(cfg)
	s.measure(t, k)
	if err := k.Stop(t.Context()); err != nil {
		t.Error(err)
	}
}

// measure prints the row of a container that does nothing yet.
func (s *store) measure(t *testing.T, k *cri.Container) {
	t.Helper()
	want := s.limits()
	wantIOMax(t, k.Cgroup, want)
	if s.alike && !*proof {
		return
	}
	direct, buffered := "read-only", ""
	if !s.readOnly {
		direct, buffered = s.writes(t, k)
	}
	if t.Failed() {
		return
	}
	var lines []string
	for _, disk := range s.disks {
		lines = append(lines, node.disks[disk]+" "+want[disk])
	}
	printRow(s.name, s.fs, strings.Join(s.disks, ", "), strings.Join(lines, ", "), direct, buffered)
}

// limits are those that its disks are to have.
func (s *store) limits() disks {
	want := disks{}
	for _, disk := range s.disks {
		want[disk] = s.key() + "=1048576"
	}
	return want
}

func printRow(cells ...string) { fmt.Println(storageRow + "| " + strings.Join(cells, " | ") + " |") }

// key returns the key that is limited: the rate of reads for a read-only volume.
func (s *store) key() string {
	if s.readOnly {
		return "rbps"
	}
	return "wbps"
}

// writes measures direct and buffered writes.
func (s *store) writes(t *testing.T, k *cri.Container) (direct, buffered string) {
	t.Helper()
	write := []string{"write", "--path", s.file(), "--block", "64Ki", "--span", "64Mi"}
	direct = percent(s.rate(t, k, append(write, "--direct")))
	switch {
	case s.mirrored:
		return direct, percent(s.rate(t, k, write)) + ", charged on one disk"
	case s.escapes != "":
		return direct, s.escapes
	}
	return direct, percent(s.rate(t, k, write))
}

// measured returns the disk on which the present writes are charged.
func (s *store) measured(t *testing.T, k *cri.Container) string {
	t.Helper()
	last := s.disks[len(s.disks)-1]
	if !s.mirrored {
		return last
	}
	charged := func(disk string) int64 {
		n, err := cgroup.Dir(k.Cgroup).Counter(node.disks[disk], "wbytes")
		if err != nil {
			t.Fatal(err)
		}
		return n
	}
	first := s.disks[0]
	a, b := charged(first), charged(last)
	// The page cache takes the first ones, and metadata goes to both.
	for end := time.Now().Add(deadline); time.Now().Before(end); time.Sleep(100 * time.Millisecond) {
		switch onFirst, onLast := charged(first)-a, charged(last)-b; {
		case max(onFirst, onLast) < 2*mib:
		case onFirst > onLast:
			return first
		default:
			return last
		}
	}
	t.Fatal("writes of the container are charged on neither of the two disks")
	return ""
}

func percent(f float64) string { return fmt.Sprintf("%.0f %%", 100*f) }

// rate runs iotool in the container for as long as it takes to measure it.
func (s *store) rate(t *testing.T, k *cri.Container, args []string) float64 {
	t.Helper()
	ended := make(chan error, 1)
	go func() {
		_, err := k.Exec(t.Context(), 4*deadline, append([]string{"/bin/iotool"}, append(args, "--seconds", "150")...)...)
		ended <- err
	}()
	over := wantRate(t, k.Cgroup, s.measured(t, k), "wbytes", mib)
	// It ends at this, and the container's own process, which sleeps, does not.
	administer(t, "pkill", "--signal", "INT", "--full", "iotool write --path "+regexp.QuoteMeta(s.file())+" ")
	if err := <-ended; err != nil {
		t.Error(err)
	}
	return over
}

// plainStores are on the disks that the node comes with.
func plainStores(t *testing.T) []store {
	t.Helper()
	file, link := testFile(t, "xfs", "single"), filepath.Join(volumes["root"], "storage-link")
	writeFile(t, file, "")
	os.Remove(link) // of a run that was interrupted
	if err := os.Symlink(volumes["part"], link); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { os.Remove(link) })
	on := func(volume string) cri.Mount { return cri.Mount{Path: "/data", Host: volumes[volume]} }
	return []store{
		{name: "disk, ext4", mount: on("ext4"), fs: "ext4", disks: []string{"vdb"}},
		{name: "disk, XFS", mount: on("xfs"), fs: "xfs", disks: []string{"vdd"}},
		{name: "disk, btrfs", mount: on("btrfs"), fs: "btrfs", disks: []string{"vde"}},
		{name: "partition", mount: on("part"), fs: "ext4", disks: []string{"vdc"}},
		{
			name: "mount below a volume", mount: cri.Mount{Path: "/host", Host: "/mnt"}, target: "/host/xfs/e2e",
			fs: "xfs", disks: []string{"vdd"}, alike: true,
		},
		{
			name: "bind mount of a file", mount: cri.Mount{Path: "/file", Host: file}, single: true, target: "/file",
			fs: "xfs", disks: []string{"vdd"}, alike: true,
		},
		{name: "path with a symbolic link", mount: cri.Mount{Path: "/data", Host: link}, fs: "ext4", disks: []string{"vdc"}, alike: true},
	}
}

// stores are those that are to be made.
func newStores(k *kit) []store {
	k.Helper()
	var out []store
	add := func(name, dir, fs string, disks ...string) {
		out = append(out, store{name: name, mount: cri.Mount{Path: "/data", Host: dir}, fs: fs, disks: disks})
	}
	on := func(name, fs, device string) { add(name, k.mounts(fs, device), fs, diskBehind(k.T, device)) }
	isAlike := func() { out[len(out)-1].alike = true }

	group := k.volumeGroup()
	on("LVM, linear", "ext4", k.logical(group, "linear", "-L", "120M"))
	on("LVM, striped", "xfs", k.logical(group, "striped", "-L", "320M", "-i", "2"))
	isAlike()
	administer(k.T, "lvcreate", "-q", "-y", "-T", "-L", "160M", "-n", "pool", group)
	on("LVM, thin", "ext4", k.logical(group, "thin", "-V", "150M", "--thinpool", "pool"))
	on("dm-crypt", "ext4", k.encrypted(k.one()))
	on("md RAID 0", "xfs", k.raid("md10", "0"))
	on("md RAID 1", "ext4", k.raid("md11", "1"))
	array := k.raid("md300", "0")
	add("partition on md", k.mounts("ext4", k.partitioned(array)), "ext4", diskBehind(k.T, array))
	isAlike()
	on("loop, a file on XFS", "ext4", k.loop(filepath.Join(k.mounts("xfs", k.one()), "file"), "/dev/loop300"))
	on("dm-multipath", "ext4", k.multipath())
	on("NVMe, two controllers", "ext4", k.nvme())
	on("zram", "ext4", k.zram())

	a, b := k.pair()
	add("btrfs, RAID 1 over two disks", k.mounts("btrfs", "-m", "raid1", "-d", "raid1", a, b), "btrfs", raw...)
	out[len(out)-1].mirrored = true
	a, b = k.pair()
	add("btrfs, RAID 0 over two disks", k.mounts("btrfs", "-m", "raid0", "-d", "raid0", a, b), "btrfs", raw...)
	subvolume := "storage-subvolume"
	administer(k.T, "btrfs", "-q", "subvolume", "create", filepath.Join(volumes["btrfs"], subvolume))
	k.Cleanup(func() {
		administer(k.T, "btrfs", "-q", "subvolume", "delete", filepath.Join(volumes["btrfs"], subvolume))
	})
	add("btrfs, subvolume", k.mount("-o", "subvol=e2e/"+subvolume, "/dev/vde"), "btrfs", "vde")
	isAlike()
	add("overlay, lower ext4, upper XFS", k.overlay(), "overlay", "vdb", "vdd")

	vfat := k.one()
	out = append(out, store{
		name: "vfat", mount: cri.Mount{Path: "/data", Host: k.mounts("vfat", vfat)}, fs: "vfat", disks: []string{"vdg"},
		escapes: "not limited: no cgroup writeback",
	})
	device := k.one()
	out = append(out, store{
		name: "raw block volume", devices: map[string]string{"/dev/data": device}, target: "/dev/data", disks: []string{"vdg"},
	})
	return out
}
