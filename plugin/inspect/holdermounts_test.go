package inspect

import (
	"fmt"
	"io/fs"
	"strings"
	"testing"
	"testing/fstest"

	"github.com/google/go-cmp/cmp"

	"github.com/nri-blkio/nri-blkio/blkio/storage"
)

// heldBy finds the holders of the mounts at some mountpoints of the node, and the notes.
func heldBy(t *testing.T, f holderFinder, mounts string, mountpoints ...string) ([]Orphan, []string) {
	t.Helper()
	table, err := storage.ParseMountTable(strings.NewReader(mounts))
	if err != nil {
		t.Fatal(err)
	}
	orphans := make([]Orphan, len(mountpoints))
	for i, p := range mountpoints {
		m, ok := table.Find(p)
		if !ok || m.Mountpoint != p {
			t.Fatal("no mount at", p)
		}
		orphans[i].Mountpoint, orphans[i].mount = p, m
	}
	return orphans, f.find(t.Context(), table, orphans)
}

// addProcess adds a process with this mount table and a file open on each of these mounts.
func addProcess(proc fstest.MapFS, pid int, mounts string, open ...int) {
	proc[fmt.Sprintf("%d/mountinfo", pid)] = &fstest.MapFile{Data: []byte(mounts)}
	for i, mount := range open {
		proc[fmt.Sprintf("%d/fdinfo/%d", pid, i)] = &fstest.MapFile{Data: fmt.Appendf(nil, "pos:\t0\nmnt_id:\t%d\n", mount)}
	}
}

func heldLines(o *Orphan) (out []string) {
	for _, h := range o.Holders {
		out = append(out, fmt.Sprintf("%d %s %d", h.PID, h.Mountpoint, h.OpenFiles))
	}
	return out
}

// TestHoldersFollow verifies that a mount of another namespace does not hold the volume if the kernel removes
// it together with the node's mount. Such a mount is at the same place on a peer or a slave of the parent
// mount.
func TestHoldersFollow(t *testing.T) {
	const volume = "2 1 8:16 / /pods/v rw - xfs /dev/sdb rw\n"
	node := func(fields string) string { return "1 0 8:1 / / rw " + fields + " - ext4 /dev/sda1 rw\n" + volume }
	other := func(fields string) string {
		return "101 100 8:1 / / rw " + fields + " - ext4 /dev/sda1 rw\n102 101 8:16 / /pods/v rw - xfs /dev/sdb rw\n"
	}
	for _, tt := range []struct {
		name, node, process string
		holds               bool
	}{
		{"a peer", node("shared:1"), other("shared:1"), false},
		{"a slave", node("shared:1"), other("master:1"), false},
		{"a slave with peers of its own", node("shared:1"), other("shared:2 master:1"), false},
		{"a slave of another", node("shared:1"), other("shared:2 master:3"), true},
		{"private there", node("shared:1"), other(""), true},
		{"private on the node", node(""), other(""), true},
		{"an unknown parent there", node("shared:1"), strings.Replace(other("shared:1"), "102 101 ", "102 999 ", 1), true},
		{"the namespace of the node", node(""), node(""), false},
	} {
		t.Run(tt.name, func(t *testing.T) {
			proc := fstest.MapFS{}
			addProcess(proc, 1, tt.node)
			addProcess(proc, 7, tt.process)
			var want []string
			if tt.holds {
				want = []string{"7 /pods/v 0"}
			}
			orphans, notes := heldBy(t, holderFinder{proc: proc}, tt.node, "/pods/v")
			if d := cmp.Diff(want, heldLines(&orphans[0])); d != "" || notes != nil {
				t.Errorf("notes %q; -want +got:\n%s", notes, d)
			}
		})
	}
}

// TestHoldersMountpoint verifies that the first one of several mountpoints in a namespace is reported, for the
// first process of the namespace. Mountpoints that the kernel removes with the node's are not reported.
func TestHoldersMountpoint(t *testing.T) {
	const node = "1 0 8:1 / / rw shared:1 - ext4 /dev/sda1 rw\n2 1 8:16 / /pods/v rw - xfs /dev/sdb rw\n"
	const pod = "101 100 8:1 / / rw master:1 - ext4 /dev/sda1 rw\n102 101 8:16 / /a rw - xfs /dev/sdb rw\n" +
		"103 101 8:32 / /private rw - ext4 /dev/sdc rw\n104 103 8:16 / /private/z rw - xfs /dev/sdb rw\n105 103 8:16 / /private/y rw - xfs /dev/sdb rw\n" +
		"106 103 8:16 / /private/x rw - xfs /dev/sdb rw\n"
	proc := fstest.MapFS{"acpi/x": {}, "self": {Data: []byte("9"), Mode: fs.ModeSymlink | 0o777}}
	addProcess(proc, 10, pod, 104, 103)
	addProcess(proc, 9, pod)
	addProcess(proc, 11, pod)
	orphans, _ := heldBy(t, holderFinder{proc: proc}, node, "/pods/v")
	if d := cmp.Diff([]string{"9 /private/x 0", "10  1"}, heldLines(&orphans[0])); d != "" {
		t.Errorf("-want +got:\n%s", d)
	}
}

// TestHoldersOfPart verifies that of a volume that is a part of a filesystem, mounts of that part and of
// directories in it count, and no others.
func TestHoldersOfPart(t *testing.T) {
	const node = "1 0 8:1 / / rw - ext4 /dev/sda1 rw\n2 1 8:1 /srv/sub /pods/conf rw - ext4 /dev/sda1 rw\n"
	const pod = "101 100 0:90 / / rw - overlay overlay rw\n102 101 8:1 /srv/sub /same rw - ext4 /dev/sda1 rw\n103 101 8:1 /srv/sub/deep /below rw - ext4 /dev/sda1 rw\n" +
		"104 101 8:1 /srv/subway /beside rw - ext4 /dev/sda1 rw\n105 101 8:1 /srv /above rw - ext4 /dev/sda1 rw\n106 101 8:1 / /all rw - ext4 /dev/sda1 rw\n" +
		"107 101 8:1 /srv/sub /other rw - fuseblk /dev/sda1 rw\n108 101 8:17 /srv/sub /disk rw - ext4 /dev/sdb1 rw\n"
	for mount, want := range map[int][]string{102: {"7 /below 1"}, 103: {"7 /below 1"}, 104: {"7 /below 0"}, 105: {"7 /below 0"}, 106: {"7 /below 0"}, 107: {"7 /below 0"}, 108: {"7 /below 0"}} {
		proc := fstest.MapFS{}
		addProcess(proc, 7, pod, mount)
		orphans, _ := heldBy(t, holderFinder{proc: proc}, node, "/pods/conf")
		if d := cmp.Diff(want, heldLines(&orphans[0])); d != "" {
			t.Errorf("a file on mount %d: -want +got:\n%s", mount, d)
		}
	}
}

// TestHoldersOfOneFilesystem verifies that of two volumes on one filesystem each has the files on its own
// mount. Its other mounts, in order, are those of the first one.
func TestHoldersOfOneFilesystem(t *testing.T) {
	const node = "1 0 8:1 / / rw - ext4 /dev/sda1 rw\n2 1 8:16 / /pods/a rw - xfs /dev/sdb rw\n3 1 8:16 / /pods/b rw - xfs /dev/sdb rw\n" +
		"4 1 8:16 / /plugins/z rw - xfs /dev/sdb rw\n5 1 8:16 / /plugins/y rw - xfs /dev/sdb rw\n6 1 8:32 / /else rw - xfs /dev/sdc rw\n"
	proc := fstest.MapFS{}
	addProcess(proc, 1, node)
	addProcess(proc, 7, node, 3, 3, 2)
	addProcess(proc, 8, node, 4, 6)
	orphans, _ := heldBy(t, holderFinder{proc: proc}, node, "/pods/a", "/pods/b")
	for i, want := range [][]string{{"7  1", "8  1"}, {"7  2"}} {
		if d := cmp.Diff(want, heldLines(&orphans[i])); d != "" {
			t.Errorf("%s: -want +got:\n%s", orphans[i].Mountpoint, d)
		}
	}
	if d := cmp.Diff([]string{"/plugins/y", "/plugins/z"}, orphans[0].Mounts); d != "" || orphans[1].Mounts != nil {
		t.Errorf("mounts of the second one: %q; -want +got:\n%s", orphans[1].Mounts, d)
	}
}
