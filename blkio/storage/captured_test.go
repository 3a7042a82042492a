package storage

import (
	"bytes"
	"encoding/json"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"testing/fstest"

	"github.com/google/go-cmp/cmp"
	"github.com/rogpeppe/go-internal/txtar"

	"github.com/nri-blkio/nri-blkio/blkio"
)

// capturedNode is sysfs of a test node with a dozen stacks, as the kernel had it:
// `e2e.test -test.run TestStorage$ -capture FILE` on the node of test/node.
type capturedNode struct {
	sys    fakeSysfs
	mounts *MountTable
	blocks []lsblkRow
}

// lsblkRow is a row of util-linux for it: a device is below each one that it is a part of.
type lsblkRow struct {
	KName, Type string
	MajMin      string `json:"maj:min"`
	Children    []lsblkRow

	parents []string
}

// flat lists each device once, with all that it is made of.
func flat(rows []lsblkRow) []lsblkRow {
	var out []lsblkRow
	var visit func(rows []lsblkRow, parent string)
	visit = func(rows []lsblkRow, parent string) {
		for _, r := range rows {
			i := slices.IndexFunc(out, func(o lsblkRow) bool { return o.KName == r.KName })
			if i < 0 {
				i = len(out)
				out = append(out, lsblkRow{KName: r.KName, Type: r.Type, MajMin: r.MajMin})
			}
			if parent != "" && !slices.Contains(out[i].parents, parent) {
				out[i].parents = append(out[i].parents, parent)
			}
			visit(r.Children, r.KName)
		}
	}
	visit(rows, "")
	return out
}

func readCaptured(t *testing.T, file string) capturedNode {
	t.Helper()
	a, err := txtar.ParseFile(file)
	if err != nil {
		t.Fatal(err)
	}
	n := capturedNode{sys: fakeSysfs{fstest.MapFS{}}}
	for _, f := range a.Files {
		name, target, isLink := strings.Cut(strings.TrimPrefix(f.Name, "sys/"), " -> ")
		switch {
		case f.Name == "mountinfo":
			n.mounts, err = ParseMountTable(bytes.NewReader(f.Data))
		case f.Name == "lsblk.json":
			var listed struct{ BlockDevices []lsblkRow }
			err = json.Unmarshal(f.Data, &listed)
			n.blocks = flat(listed.BlockDevices)
		case isLink:
			n.sys.link(name, target)
		default:
			n.sys.MapFS[name] = &fstest.MapFile{Data: f.Data}
		}
		if err != nil {
			t.Fatalf("%s: %s: %v", file, f.Name, err)
		}
	}
	if n.mounts == nil || len(n.blocks) == 0 {
		t.Fatalf("%s is not whole", file)
	}
	return n
}

// whole is the name of a device, or of the disk that it is a partition of.
func (r *lsblkRow) whole() string {
	if r.Type == "part" {
		return r.parents[0]
	}
	return r.KName
}

// below returns the names at the bottom of a device's stack.
func (n *capturedNode) below(name string) []string {
	i := slices.IndexFunc(n.blocks, func(r lsblkRow) bool { return r.KName == name })
	if len(n.blocks[i].parents) == 0 {
		return []string{name}
	}
	var out []string
	for _, p := range n.blocks[i].parents {
		out = append(out, n.below(p)...)
	}
	slices.Sort(out)
	return slices.Compact(out)
}

// TestCaptured compares the disks in the sysfs of real nodes with lsblk.
func TestCaptured(t *testing.T) {
	files, err := filepath.Glob("testdata/sysfs-*.txtar")
	if err != nil || len(files) == 0 {
		t.Fatalf("no captured nodes (%v)", err)
	}
	for _, file := range files {
		t.Run(filepath.Base(file), func(t *testing.T) {
			n := readCaptured(t, file)
			sys := NewSysfs(n.sys)
			kinds := map[DeviceKind]int{}
			for _, r := range n.blocks {
				dev, err := blkio.ParseDev(r.MajMin)
				if err != nil {
					t.Fatal(err)
				}
				if disk, err := sys.WholeDisk(dev); err != nil || disk.Name != r.whole() {
					t.Errorf("%s is on %v (%v), want %s", r.KName, disk, err, r.whole())
				}
				physical, err := sys.Physical(dev)
				if err != nil {
					t.Error(err)
				}
				if diff := cmp.Diff(n.below(r.whole()), names(physical)); diff != "" {
					t.Errorf("below %s: %s", r.KName, diff)
				}
			}
			stack, err := sys.Stack()
			if err != nil {
				t.Fatal(err)
			}
			for _, d := range stack {
				kinds[d.Kind]++
				i := slices.IndexFunc(n.blocks, func(r lsblkRow) bool { return r.KName == d.Name })
				if i < 0 {
					t.Errorf("lsblk has no %s", d.Name)
				} else if want := kindOf(n.blocks[i].Type); d.Kind != want {
					t.Errorf("%s is of kind %s, want %s", d.Name, d.Kind, want)
				}
			}
			for _, kind := range []DeviceKind{KindDisk, KindPartition, KindLVM, KindCrypt, KindLoop, "raid0", "raid1"} {
				if kinds[kind] == 0 {
					t.Errorf("no device of kind %s: %v", kind, kinds)
				}
			}
			for _, m := range n.mounts.All() {
				if m.Dev.Major == 0 {
					continue
				}
				if _, err := sys.WholeDisk(m.Dev); err != nil {
					t.Errorf("%s: %v", m.Mountpoint, err)
				}
			}
		})
	}
}

func names(disks []blkio.Disk) []string {
	var out []string
	for _, d := range disks {
		out = append(out, d.Name)
	}
	slices.Sort(out)
	return out
}

// kindOf translates lsblk's types.
func kindOf(lsblk string) DeviceKind {
	switch lsblk {
	case "part":
		return KindPartition
	case "mpath":
		return KindMultipath
	}
	return DeviceKind(lsblk)
}
