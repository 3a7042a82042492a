package storage

import (
	"context"
	"slices"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/nri-blkio/nri-blkio/blkio"
)

// stackedMounts adds mounts below /mnt to nodeMounts: disks in disks, mounts that others hide, and names that
// are the same only as text.
const stackedMounts = nodeMounts + `100 29 8:1 / /mnt rw - ext4 /dev/sda1 rw
101 100 8:16 / /mnt/a rw - ext4 /dev/sdb rw
102 101 8:32 / /mnt/a/b/c rw - ext4 /dev/sdc rw
103 100 8:48 / /mnt/ab rw - ext4 /dev/sdd rw
104 100 0:70 / /mnt/a-b rw - tmpfs tmpfs rw
110 100 8:16 / /mnt/stack rw - ext4 /dev/sdb rw
111 110 8:32 / /mnt/stack/under rw - ext4 /dev/sdc rw
112 110 8:48 / /mnt/stack rw - xfs /dev/sdd rw
113 112 8:32 / /mnt/stack/over rw - ext4 /dev/sdc rw
120 100 8:16 / /mnt/d/x/y rw - ext4 /dev/sdb rw
121 100 8:48 / /mnt/d rw - ext4 /dev/sdd rw
`

// list is Submounts as text: "a sdb".
func list(ctx context.Context, n *fakeNode, hostPath string) []string {
	var out []string
	for at, b := range n.Submounts(ctx, hostPath) {
		out = append(out, at+" "+what(b))
	}
	return out
}

func what(b *blkio.Backing) string {
	if b == nil {
		return ""
	}
	if b.Reason != "" {
		return b.Reason
	}
	var names []string
	for _, d := range b.Disks {
		names = append(names, d.Name)
	}
	return strings.Join(names, ",")
}

const memory = "tmpfs is memory, not a disk"

func TestSubmounts(t *testing.T) {
	n := newFakeNode(t, stackedMounts)
	n.mkdir(t, "/mnt/plain/dir")
	n.mkdir(t, "/mnt/a/b")
	n.symlink(t, "/mnt/a", "/srv/link")
	n.symlink(t, "link/b", "/srv/twice")
	n.symlink(t, "loop", "/srv/loop")
	tests := map[string][]string{
		"/mnt":           {"a sdb", "a-b " + memory, "a/b/c sdc", "ab sdd", "d sdd", "stack sdd", "stack/over sdc"},
		"/mnt/":          {"a sdb", "a-b " + memory, "a/b/c sdc", "ab sdd", "d sdd", "stack sdd", "stack/over sdc"},
		"/mnt/a":         {"b/c sdc"},
		"/mnt/a/b":       {"c sdc"},
		"/mnt/a/b/c":     nil,
		"/mnt/ab":        nil,
		"/mnt/stack":     {"over sdc"},
		"/mnt/d":         nil, // one is there, and hidden
		"/mnt/d/x":       nil,
		"/mnt/plain/dir": nil,
		"/mnt/not/there": nil,
		"/zzz":           nil,
		"/srv/link":      {"b/c sdc"},
		"/srv/twice":     {"c sdc"},
		"/srv/loop":      nil,
		"/srv/nfs":       {"local sdc"},
		"/srv/nfs/local": nil,
		"/srv/nfs/loc":   nil,
		"mnt":            nil,
		"":               nil,
	}
	for in, want := range tests {
		for _, attempt := range []string{"first", "again"} {
			if diff := cmp.Diff(want, list(t.Context(), n, in)); diff != "" {
				t.Errorf("%q, %s: %s", in, attempt, diff)
			}
		}
	}
}

// TestSubmountsOfRoot verifies that the submounts of the root are all visible mounts.
func TestSubmountsOfRoot(t *testing.T) {
	n := newFakeNode(t, stackedMounts)
	var want []string
	for _, m := range n.Mounts().All() {
		if seen, _ := n.Mounts().Find(m.Mountpoint); m.Mountpoint != "/" && seen.Mountpoint == m.Mountpoint {
			want = append(want, m.Mountpoint[1:])
		}
	}
	slices.Sort(want)
	want = slices.Compact(want)
	var got []string
	for at := range n.Submounts(t.Context(), "/") {
		got = append(got, at)
	}
	if diff := cmp.Diff(want, got); diff != "" || slices.Contains(got, "mnt/d/x/y") {
		t.Error(diff)
	}
	for at := range n.Submounts(t.Context(), "/") { // may be left
		if at != got[0] {
			t.Errorf("got %q", at)
		}
		break
	}
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	if got := list(ctx, n, "/"); got != nil {
		t.Errorf("after the end of its context: %q", got)
	}
}

func TestBelow(t *testing.T) {
	n := newFakeNode(t, stackedMounts)
	n.mkdir(t, "/mnt/a/b")
	n.mkdir(t, "/mnt/plain")
	n.symlink(t, "/mnt/a", "/srv/link")
	n.symlink(t, "/mnt", "/srv/up")
	n.symlink(t, "../ab", "/mnt/plain/tenant") // must not be followed
	tests := []struct{ hostPath, rel, at, on string }{
		{"/mnt", "a", "a", "sdb"},
		{"/mnt", "a/b", "a", "sdb"},
		{"/mnt", "a/b/c/d", "a/b/c", "sdc"},
		{"/mnt", "ab/x", "ab", "sdd"},
		{"/mnt", "abc", "", ""},
		{"/mnt", "a-b", "a-b", memory},
		{"/mnt", "plain/x", "", ""}, // on the mount that the directory is on
		{"/mnt", "plain/tenant", "", ""},
		{"/mnt", "stack/under/x", "stack", "sdd"},
		{"/mnt", "stack/over/x", "stack/over", "sdc"},
		{"/mnt", "d/x/y", "d", "sdd"},
		{"/mnt/d", "x/y", "", ""}, // hidden
		{"/mnt/plain", "a", "", ""},
		{"/", "mnt/a/b/c", "mnt/a/b/c", "sdc"},
		{"/", "etc", "", ""},
		{"/", "srv/link", "", ""},
		{"/srv/link", "b/c", "b/c", "sdc"},
		{"/srv/up", "ab", "ab", "sdd"},
		{"/srv/up/a", "b/c/d", "b/c", "sdc"},
		{"/srv/nfs", "local/x", "local", "sdc"},
		{"mnt", "a", "", ""},

		// These are no clean relative paths.
		{"/mnt", "", "", ""},
		{"/mnt", ".", "", ""},
		{"/mnt", "..", "", ""},
		{"/mnt/plain", "../a", "", ""},
		{"/mnt", "a/../ab", "", ""},
		{"/mnt", "./a", "", ""},
		{"/mnt", "/a", "", ""},
		{"/mnt", "a/", "", ""},
		{"/mnt", "a//b", "", ""},
		{"/mnt", "a\xff", "", ""},
	}
	for _, tt := range tests {
		at, b, ok := n.Below(t.Context(), tt.hostPath, tt.rel)
		if at != tt.at || what(b) != tt.on || ok != (tt.at != "") {
			t.Errorf("Below(%q, %q) = %q, %q, %t, want %q, %q", tt.hostPath, tt.rel, at, what(b), ok, tt.at, tt.on)
		}
	}
	// After a change of the table it is another.
	n.setMounts(t, nodeMounts)
	checkError(t, n.Refresh(t.Context()), "")
	if at, _, ok := n.Below(t.Context(), "/mnt", "a"); ok {
		t.Errorf("still %q", at)
	}
}

// TestBelowInDev verifies that no file is read for a tenant's path, not even in /dev, where the names of the
// host's nodes are true.
func TestBelowInDev(t *testing.T) {
	n := newFakeNode(t, nodeMounts)
	n.mkdir(t, "/dev")
	if at, b, ok := n.Below(t.Context(), "/", "dev/sda"); at != "dev" || b.Reason != "devtmpfs is memory, not a disk" || !ok {
		t.Errorf("got %q, %+v", at, b)
	}
}

// TestFindLong verifies that a long path is resolved fast. To look up each of its directories took seconds.
func TestFindLong(t *testing.T) {
	n := newFakeNode(t, stackedMounts)
	long := strings.Repeat("a/", 1<<20) + "a"
	if at, b, ok := n.Below(t.Context(), "/mnt", long); at != "a" || what(b) != "sdb" || !ok {
		t.Errorf("got %q, %+v", at, b)
	}
	if m, ok := n.Mounts().Find("/mnt/a/b/c/" + long); !ok || m.ID != 102 {
		t.Errorf("got %+v", m)
	}
	// This is the longest mountpoint, with paths in it, and similar ones.
	const longest = "/var/lib/kubelet/pods/1/volumes/bound"
	for in, want := range map[string]string{longest: longest, longest + "/": longest, longest + "/a": longest, longest + "2/a": "/"} {
		if m, ok := n.Mounts().Find(in); !ok || m.Mountpoint != want {
			t.Errorf("%s: got %+v", in, m)
		}
	}
}

func TestDevice(t *testing.T) {
	n := newFakeNode(t, nodeMounts)
	for dev, want := range map[blkio.Dev]blkio.Backing{
		{Major: 8, Minor: 16}:    {Disks: []blkio.Disk{sdb}},
		{Major: 8, Minor: 17}:    {Disks: []blkio.Disk{sdb}}, // a partition
		{Major: 253, Minor: 0}:   {Disks: []blkio.Disk{{Dev: blkio.Dev{Major: 253, Minor: 0}, Name: "dm-0"}}},
		{Major: 259, Minor: 300}: {Disks: []blkio.Disk{{Dev: blkio.Dev{Major: 259, Minor: 1}, Name: "nvme0n1"}}},
		{Major: 65, Minor: 16}:   {Reason: "block device 65:16: no such disk", Missing: true},
	} {
		if diff := cmp.Diff(want, n.Device(dev)); diff != "" {
			t.Errorf("%s: %s", dev, diff)
		}
	}
	n.sys.add(scsi+"9/block/sdr", "65:16", "size=2048") // it came
	if got := n.Device(blkio.Dev{Major: 65, Minor: 16}); what(&got) != "sdr" {
		t.Errorf("got %+v", got)
	}
}

func BenchmarkSubmounts(b *testing.B) {
	n, paths := newBusyNode(b)
	ctx := b.Context()
	leaf := paths[1] // a directory on the root's disk
	for _, tt := range []struct {
		name, hostPath string
		want           int
	}{{"none", leaf, 0}, {"one pod", "/var/lib/kubelet/pods/000000f0-98b4-4e53-8c3e-7d8d2d5a5b1b", 14}, {"root", "/", 5002}} {
		b.Run(tt.name, func(b *testing.B) {
			n.mkdir(b, tt.hostPath)
			b.ReportAllocs()
			for b.Loop() {
				count := 0
				for range n.Submounts(ctx, tt.hostPath) {
					count++
				}
				if count != tt.want {
					b.Fatal(count)
				}
			}
		})
	}
}

func BenchmarkBelow(b *testing.B) {
	n, paths := newBusyNode(b)
	ctx := b.Context()
	leaf := paths[1]
	pod := leaf[:strings.Index(leaf, "/volumes")]
	for _, tt := range []struct {
		name, hostPath, rel string
		want                bool
	}{
		{"none", leaf, "data/pg", false},
		{"found", pod, "volumes/kubernetes.io~csi/pvc-14/mount/data", true},
		{"64KiB", pod, strings.Repeat("a/", 32<<10) + "a", false},
	} {
		b.Run(tt.name, func(b *testing.B) {
			b.ReportAllocs()
			for b.Loop() {
				if _, _, ok := n.Below(ctx, tt.hostPath, tt.rel); ok != tt.want {
					b.Fatal(ok)
				}
			}
		})
	}
}

func BenchmarkSortMountTable(b *testing.B) {
	mounts, _ := busyNode()
	table := parseTable(b, mounts)
	b.ReportAllocs()
	for b.Loop() {
		if fresh := newMountTable(table.mounts); len(fresh.sorted) != 5003 {
			b.Fatal(len(fresh.sorted))
		}
	}
}
