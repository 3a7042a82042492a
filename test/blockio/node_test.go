package blockio

import (
	"errors"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"golang.org/x/sys/unix"

	"github.com/nri-blkio/nri-blkio/blkio"
	"github.com/nri-blkio/nri-blkio/policy"
)

// node is a directory with the device nodes and links of a node. goresctrl reads it in place of /dev.
type node struct {
	root  string
	disks map[string]blkio.Disk // by the kernel's name
	links map[string][]string   // of udev, by the kernel's name
}

// newNode makes the nodes of devices. Without the privilege for that, they are links to block devices of this
// machine, of which it has to have as many.
func newNode(t *testing.T) *node {
	t.Helper()
	n := &node{
		root: t.TempDir(), disks: map[string]blkio.Disk{},
		links: map[string][]string{
			"sdb": {"/dev/disk/by-id/ata-Some_SSD_1", "/dev/disk/by-id/wwn-0x5"}, "nvme0n1": {"/dev/disk/by-id/nvme-Other_SSD"}, "dm-0": {"/dev/mapper/vg-lv"},
		},
	}
	real := blockDevices(t)
	all := []blkio.Disk{
		{Dev: blkio.Dev{Major: 8}, Name: "sda"},
		{Dev: blkio.Dev{Major: 8, Minor: 16}, Name: "sdb"},
		{Dev: blkio.Dev{Major: 8, Minor: 32}, Name: "sdc"},
		{Dev: blkio.Dev{Major: 259, Minor: 1}, Name: "nvme0n1"},
		{Dev: blkio.Dev{Major: 253}, Name: "dm-0"},
	}
	for i, d := range all {
		at := n.at("/dev/" + d.Name)
		err := unix.Mknod(at, unix.S_IFBLK|0o600, int(unix.Mkdev(d.Dev.Major, d.Dev.Minor)))
		if errors.Is(err, unix.EPERM) && i < len(real) {
			d.Dev, err = real[i].Dev, os.Symlink("/dev/"+real[i].Name, at)
		}
		if errors.Is(err, unix.EPERM) {
			t.Skipf("neither device nodes can be made here, nor are there %d block devices: %v", i+1, err)
		}
		if err != nil {
			t.Fatal(err)
		}
		n.disks[d.Name] = d
		for _, link := range n.links[d.Name] {
			if err := os.Symlink(at, n.at(link)); err != nil {
				t.Fatal(err)
			}
		}
	}
	return n
}

// at returns the place of a path of the node, in a directory that exists.
func (n *node) at(path string) string {
	out := filepath.Join(n.root, path)
	if err := os.MkdirAll(filepath.Dir(out), 0o755); err != nil {
		panic(err)
	}
	return out
}

// under returns a file of blockio classes with the paths of the node in place of /dev.
func (n *node) under(file string) string {
	return strings.NewReplacer("/dev/", n.root+"/dev/", "/d*v/", n.root+"/d*v/").Replace(file)
}

// container returns a container that uses all disks of the node.
func (n *node) container() policy.Container {
	c := policy.Container{Name: "c", MemoryLimited: true, Stack: policy.Stack{Links: map[blkio.Dev][]string{}}}
	for name, d := range n.disks {
		c.Rootfs.Disks = append(c.Rootfs.Disks, d)
		c.Links[d.Dev] = n.links[name]
	}
	c.Under = map[blkio.Dev][]blkio.Disk{n.disks["dm-0"].Dev: {n.disks["sdc"]}}
	return c
}

// blockDevices returns the block devices in /dev.
func blockDevices(t *testing.T) (out []blkio.Disk) {
	t.Helper()
	paths, err := filepath.Glob("/dev/*")
	if err != nil {
		t.Fatal(err)
	}
	for _, path := range paths {
		var st unix.Stat_t
		if unix.Lstat(path, &st) == nil && st.Mode&unix.S_IFMT == unix.S_IFBLK {
			out = append(out, blkio.Disk{Dev: blkio.DevOf(st.Rdev), Name: filepath.Base(path)})
		}
	}
	return out
}
