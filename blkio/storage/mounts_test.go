package storage

import (
	"errors"
	"fmt"
	"io"
	"runtime"
	"slices"
	"strconv"
	"strings"
	"testing"
	"testing/iotest"

	"github.com/google/go-cmp/cmp"
	"github.com/google/go-cmp/cmp/cmpopts"

	"github.com/nri-blkio/nri-blkio/blkio"
)

// nodeMounts is the text of a node, as Linux 6.12 prints it.
const nodeMounts = `22 29 0:21 / /proc rw,nosuid,nodev,noexec,relatime shared:12 - proc proc rw
23 29 0:22 / /sys rw,nosuid,nodev,noexec,relatime shared:6 - sysfs sysfs rw
24 29 0:5 / /dev rw,nosuid,relatime shared:2 - devtmpfs udev rw,size=1977012k,nr_inodes=494253,mode=755,inode64
26 29 0:24 / /run rw,nosuid,nodev,noexec,relatime shared:5 - tmpfs tmpfs rw,size=401100k,mode=755,inode64
29 1 8:1 / / rw,relatime shared:1 - ext4 /dev/sda1 rw,errors=remount-ro
30 23 0:26 / /sys/fs/cgroup rw,nosuid,nodev,noexec,relatime shared:9 - cgroup2 cgroup2 rw,nsdelegate,memory_recursiveprot
40 29 8:17 / /var/lib/containerd rw,relatime shared:30 - xfs /dev/sdb1 rw,attr2,inode64,logbufs=8,logbsize=32k,noquota
41 29 253:0 / /srv/lv rw,relatime shared:31 - ext4 /dev/mapper/vg-lv rw,data=journal
42 29 0:45 /sub /srv/btrfs rw,relatime shared:32 - btrfs /dev/sdc rw,space_cache=v2,subvolid=256,subvol=/sub
43 29 259:300 / /srv/nvme\040disk rw,relatime shared:33 - vfat /dev/nvme0n1p1 rw
44 29 0:50 / /srv/nfs rw,relatime shared:34 - nfs4 filer:/export rw,vers=4.2,hard,proto=tcp
45 44 8:32 / /srv/nfs/local rw,relatime shared:35 - ext4 /dev/sdc rw
46 40 0:60 / /var/lib/containerd/rootfs rw,relatime shared:36 - overlay overlay rw,lowerdir=/l,upperdir=/u,workdir=/w
47 29 0:46 / /srv/many rw,relatime shared:37 - bcachefs /dev/sda:/dev/sdd rw
48 29 65:16 / /srv/lost rw,relatime shared:38 - ext4 /dev/sdr rw
49 29 8:1 /srv/bound /var/lib/kubelet/pods/1/volumes/bound rw,relatime shared:1 - ext4 /dev/sda1 rw,errors=remount-ro
50 29 0:51 / /srv/zfs rw,relatime shared:39 - zfs tank/data rw,xattr
51 29 0:52 / /srv/odd rw,relatime shared:40 - oddfs none rw
52 29 0:53 / /srv/btrfs2 rw,relatime shared:41 - btrfs /dev/mapper/luks-home rw
`

func TestPropagation(t *testing.T) {
	for in, want := range map[string][2]int{
		"": {0, 0}, "shared:7": {7, 0}, "master:1": {0, 1}, "shared:7 master:1 propagate_from:3": {7, 1}, "unbindable": {0, 0}, "shared:x later:9": {0, 0},
	} {
		if peers, master := propagation(in); peers != want[0] || master != want[1] {
			t.Errorf("propagation(%q) is %d, %d, want %v", in, peers, master, want)
		}
	}
}

func TestFind(t *testing.T) {
	table := parseTable(t, nodeMounts)
	for in, want := range map[string]string{
		"/":                              "/",
		"/etc/fstab":                     "/",
		"/srv/lv":                        "/srv/lv",
		"/srv/lv/":                       "/srv/lv",
		"/srv/lv/a/b":                    "/srv/lv",
		"/srv/lvm":                       "/",
		"/srv/lv/../lv2":                 "/",
		"/srv/nvme disk/x":               "/srv/nvme disk",
		"/srv/nfs/local/x":               "/srv/nfs/local",
		"/srv/nfs/locality":              "/srv/nfs",
		"/var/lib/containerd/rootfs/bin": "/var/lib/containerd/rootfs",
	} {
		m, ok := table.Find(in)
		if !ok || m.Mountpoint != want {
			t.Errorf("Find(%q) is %+v, want %q", in, m, want)
		}
	}
	if m, ok := table.Find("srv/lv"); ok {
		t.Errorf("a relative path: %+v", m)
	}
	m, _ := table.Find("/srv/btrfs")
	want := &Mount{ID: 42, Parent: 29, Dev: blkio.Dev{Major: 0, Minor: 45}, Root: "/sub", Mountpoint: "/srv/btrfs", FSType: "btrfs", Source: "/dev/sdc", Peers: 32}
	if diff := cmp.Diff(want, m); diff != "" {
		t.Error(diff)
	}
	if m, _ := table.Find("/srv/lv"); !m.DataJournal {
		t.Error("data=journal is not seen")
	}
}

func TestFindStacks(t *testing.T) {
	const root = "1 0 8:1 / / rw - ext4 /dev/root rw\n"
	tests := map[string]struct {
		mounts, path string
		want         int // ID
	}{
		"later one on the same point": {
			root + "2 1 8:2 / /a rw - ext4 /dev/x rw\n3 2 8:3 / /a rw - ext4 /dev/y rw\n", "/a/f", 3,
		},
		"top listed first": {
			root + "3 2 8:3 / /a rw - ext4 /dev/y rw\n2 1 8:2 / /a rw - ext4 /dev/x rw\n", "/a/f", 3,
		},
		"three": {
			root + "9 2 8:4 / /a rw - ext4 /dev/z rw\n3 9 8:3 / /a rw - ext4 /dev/y rw\n2 1 8:2 / /a rw - ext4 /dev/x rw\n", "/a", 3,
		},
		"hidden by a mount on a directory above": {
			root + "2 1 8:2 / /a/b rw - ext4 /dev/x rw\n3 1 8:3 / /a rw - ext4 /dev/y rw\n", "/a/b/f", 3,
		},
		"hidden by one on the mount it is in": {
			root + "2 1 8:2 / /a rw - ext4 /dev/x rw\n3 2 8:3 / /a/b rw - ext4 /dev/y rw\n4 2 8:4 / /a rw - ext4 /dev/z rw\n", "/a/b/f", 4,
		},
		"hidden, and mounted again": {
			root + "2 1 8:2 / /a/b rw - ext4 /dev/x rw\n3 1 8:3 / /a rw - ext4 /dev/y rw\n4 3 8:4 / /a/b rw - ext4 /dev/z rw\n", "/a/b/f", 4,
		},
		"root over root": {
			"1 0 0:2 / / rw - rootfs rootfs rw\n5 1 8:1 / / rw - ext4 /dev/sda rw\n6 5 8:2 / /a rw - ext4 /dev/x rw\n", "/a/f", 6,
		},
		"root of its own parent": {
			"1 1 8:1 / / rw - ext4 /dev/sda rw\n6 1 8:2 / /a rw - ext4 /dev/x rw\n", "/a/f", 6,
		},
		"no root": {
			"6 5 8:2 / /a rw - ext4 /dev/x rw\n7 6 8:3 / /a/b rw - ext4 /dev/y rw\n", "/a/b", 7,
		},
		"in circles": {
			"6 7 8:2 / /a rw - ext4 /dev/x rw\n7 6 8:3 / /a rw - ext4 /dev/y rw\n", "/a/b", 7,
		},
	}
	for name, tt := range tests {
		t.Run(name, func(t *testing.T) {
			m, ok := parseTable(t, tt.mounts).Find(tt.path)
			if !ok || m.ID != tt.want {
				t.Errorf("got %+v, want %d", m, tt.want)
			}
		})
	}
}

// TestFindDeep verifies that a thousand nested mounts, which are all hidden, are searched fast. To search twice
// for the mounts around each would take 2^1000 steps.
func TestFindDeep(t *testing.T) {
	var b strings.Builder
	b.WriteString("1 0 8:1 / / rw - ext4 /dev/root rw\n")
	deep := ""
	for i := range 1000 {
		deep += "/d"
		fmt.Fprintf(&b, "%d 77777 8:2 / %s rw - ext4 /dev/x rw\n", i+2, deep)
	}
	if m, ok := parseTable(t, b.String()).Find(deep); !ok || m.ID != 1 {
		t.Errorf("got %+v", m)
	}
}

// TestUnreadableMounts verifies that a line that is malformed or too long affects its mount only.
func TestUnreadableMounts(t *testing.T) {
	const (
		root  = "1 0 8:1 / / rw - ext4 /dev/root rw\n"
		after = "3 1 8:3 / /b rw - ext4 /dev/b rw\n"
	)
	deep := strings.Repeat("/"+strings.Repeat("d", 250), 300)
	above := deep[:251*(maxMountPath/251)] // the deepest directory that a call of the kernel takes
	b := &Mount{ID: 3, Parent: 1, Dev: blkio.Dev{Major: 8, Minor: 3}, Root: "/", Mountpoint: "/b", FSType: "ext4", Source: "/dev/b"}
	unreadable := func(point, why string) *Mount {
		return &Mount{ID: 2, Parent: 1, Dev: blkio.Dev{Major: 8, Minor: 2}, Root: "/", Mountpoint: point, Unreadable: why}
	}
	tests := map[string]struct {
		line string
		path string // asked for
		want *Mount
	}{
		"long root":         {"2 1 8:2 " + deep + " /a rw - ext4 /dev/a rw", "/a/f", &Mount{ID: 2, Parent: 1, Dev: blkio.Dev{Major: 8, Minor: 2}, Mountpoint: "/a", FSType: "ext4", Source: "/dev/a"}},
		"longer root":       {"2 1 8:2 " + deep + deep + " /a rw - ext4 /dev/a rw", "/a/f", &Mount{ID: 2, Parent: 1, Dev: blkio.Dev{Major: 8, Minor: 2}, Mountpoint: "/a", FSType: "ext4", Source: "/dev/a"}},
		"long options":      {"2 1 8:2 / /a rw - ext4 /dev/a rw," + deep, "/a/f", unreadable("/a", badLine)},
		"long source":       {"2 1 8:2 / /a rw - ext4 " + deep + " rw", "/a/f", unreadable("/a", badLine)},
		"long optional":     {"2 1 8:2 / /a rw shared:" + deep + " - ext4 /dev/a rw", "/a/f", unreadable("/a", badLine)},
		"many fields":       {"2 1 8:2 / /a rw " + strings.Repeat("x ", maxMountLine) + "- ext4 /dev/a rw", "/a/f", unreadable("/a", badLine)},
		"no separator":      {"2 1 8:2 / /a rw ext4 /dev/a rw", "/a/f", unreadable("/a", badLine)},
		"no options":        {"2 1 8:2 / /a rw - ext4 /dev/a", "/a", unreadable("/a", badLine)},
		"device number":     {"2 1 8:-1 / /a rw - ext4 /dev/a rw", "/a", &Mount{ID: 2, Parent: 1, Root: "/", Mountpoint: "/a", FSType: "ext4", Source: "/dev/a", Unreadable: badLine}},
		"long point":        {"2 1 8:2 / " + deep + " rw - ext4 /dev/a rw", above + "/f", &Mount{ID: 2, Parent: 1, Dev: blkio.Dev{Major: 8, Minor: 2}, Root: "/", Mountpoint: above, FSType: "ext4", Source: "/dev/a", Unreadable: longMountpoint}},
		"- a path above it": {"2 1 8:2 / " + deep + " rw - ext4 /dev/a rw", parentDir(above), nil},
		"a name too long":   {"2 1 8:2 / /" + strings.Repeat("d", 5000) + " rw - ext4 /dev/a rw", "/a", nil},
		"no mountpoint":     {"2 1 8:2 / a rw - ext4 /dev/a rw", "/a", nil},
		"no number":         {"x 1 8:2 / /a rw - ext4 /dev/a rw", "/a", nil},
		"four fields":       {"2 1 8:2 /", "/a", nil},
		"empty":             {"", "/a", nil},
		"only a newline's":  {"other option of the mount before it", "/a", nil},
	}
	for name, tt := range tests {
		t.Run(name, func(t *testing.T) {
			table := parseTable(t, root+tt.line+"\n"+after)
			got, _ := table.Find(tt.path)
			if tt.want == nil && got.ID != 1 || tt.want != nil && !cmp.Equal(tt.want, got) {
				t.Errorf("%s:\n%.400s", tt.path, cmp.Diff(tt.want, got))
			}
			if other, _ := table.Find("/b/f"); !cmp.Equal(b, other) {
				t.Errorf("another mount:\n%s", cmp.Diff(b, other))
			}
		})
	}
}

// TestUnreadableResolved verifies that a path on such a mount, or below it, cannot be limited.
func TestUnreadableResolved(t *testing.T) {
	n := newFakeNode(t, nodeMounts+"60 29 8:32 / /srv/bad rw ext4 /dev/sdc rw\n61 60 8:48 / /srv/bad/in rw - ext4 /dev/sdd rw\n")
	for in, want := range map[string]string{
		"/srv/bad/x":    badLine,
		"/srv/bad/in":   "sdd", // its mountpoint is known to be free of symlinks
		"/srv/bad/in/x": "its mount cannot be read: " + badLine,
		"/srv/other":    "sda",
	} {
		if got := what(n.Resolve(t.Context(), in)); got != want {
			t.Errorf("%s is on %q, want %q", in, got, want)
		}
	}
	if d := cmp.Diff([]string{"bad " + badLine, "bad/in sdd"}, list(t.Context(), n, "/srv")[:2]); d != "" {
		t.Error(d)
	}
}

// longRoots is a table of n mounts of directories that a tenant moved to below a
// path of 60 KB, as the kernel writes it. Reading allocates nothing.
type longRoots struct {
	n, next   int
	buf, rest []byte
	dir       string
}

func newLongRoots(n int, name string) *longRoots {
	dir := strings.Repeat("/"+name, 60000/(len(name)+1))
	return &longRoots{n: n, rest: []byte("1 0 8:1 / / rw - ext4 /dev/root rw\n"), dir: dir, buf: make([]byte, 0, len(dir)+200)}
}

func (l *longRoots) Read(p []byte) (int, error) {
	if len(l.rest) == 0 {
		if l.next == l.n {
			return 0, io.EOF
		}
		l.rest = strconv.AppendInt(l.buf[:0], int64(l.next+2), 10)
		l.rest = append(append(l.rest, " 1 8:1 "...), l.dir...)
		l.rest = strconv.AppendInt(append(l.rest, " /subpaths/"...), int64(l.next), 10)
		l.rest = append(l.rest, " rw - ext4 /dev/sda1 rw\n"...)
		l.next++
	}
	n := copy(p, l.rest)
	l.rest = l.rest[n:]
	return n, nil
}

// TestMountReaderMemory verifies that the lines of one tenant take memory for their number, not for their
// length. Each reading has other lines, as after the renaming of a directory.
func TestMountReaderMemory(t *testing.T) {
	const lines, bound = 3000, 16 << 20
	r := newMountReader()
	for i := range 3 {
		src := newLongRoots(lines, fmt.Sprint("directory", i))
		var before, after runtime.MemStats
		runtime.ReadMemStats(&before)
		c, err := r.read(src)
		table := c.table
		runtime.ReadMemStats(&after)
		if err != nil || len(table.All()) != lines+1 {
			t.Fatalf("%d mounts, %v", len(table.All()), err)
		}
		if m, _ := table.Find("/subpaths/7/x"); m.ID != 9 || m.Unreadable != "" {
			t.Errorf("got %+v", m)
		}
		if got := after.TotalAlloc - before.TotalAlloc; got > bound {
			t.Errorf("reading %d: %d MiB allocated, at most %d", i, got>>20, bound>>20)
		}
	}
}

func parseTable(t testing.TB, text string) *MountTable {
	t.Helper()
	table, err := ParseMountTable(strings.NewReader(text))
	if err != nil {
		t.Fatal(err)
	}
	return table
}

// TestMountReader verifies that a table that is read again equals one that is read for the first time, after
// any change.
func TestMountReader(t *testing.T) {
	line := func(id int, point string) string {
		return fmt.Sprintf("%d 1 8:%d / %s rw - ext4 /dev/sda%d rw\n", id, id, point, id)
	}
	tables := []string{
		line(1, "/") + line(2, "/a") + line(3, "/b"),
		line(1, "/") + line(3, "/b") + line(4, "/c"),                          // one removed, one new
		line(1, "/") + line(5, "unreachable") + line(3, "/b") + line(4, "/d"), // the same ID elsewhere
		line(4, "/d") + line(5, "unreachable") + line(1, "/") + line(6, "/e"), // another order
		"",
		line(1, "/") + line(2, "/a"),
	}
	r := newMountReader()
	last := &MountTable{}
	for i, text := range tables {
		c, err := r.read(strings.NewReader(text))
		if err != nil {
			t.Fatal(err)
		}
		got := c.table
		checkChanged(t, last, &c, i > 0)
		last = got
		want, err := ParseMountTable(strings.NewReader(text))
		if err != nil {
			t.Fatal(err)
		}
		if d := cmp.Diff(want.All(), got.All(), cmpopts.EquateEmpty()); d != "" {
			t.Errorf("table %d (-anew +again):\n%s", i, d)
		}
	}
	broken := errors.New("broken")
	if _, err := r.read(io.MultiReader(strings.NewReader(tables[0]+line(8, "/g")), iotest.ErrReader(broken))); !errors.Is(err, broken) {
		t.Errorf("got %v", err)
	}
	if c, err := r.read(strings.NewReader(tables[0])); err != nil || len(c.table.All()) != 3 || c.mounts != nil {
		t.Errorf("after an error: %v, changes %v, %v", c.table, c.mounts, err)
	}
}

// checkChanged verifies the mounts that a reading reports as changed. It knows none at the first reading.
func checkChanged(t *testing.T, last *MountTable, c *mountChange, isKnown bool) {
	t.Helper()
	if (c.mounts != nil) != isKnown {
		t.Errorf("the changes are %v, known: %t", c.mounts, isKnown)
	}
	for _, m := range slices.Concat(last.All(), c.table.All()) {
		isChanged := slices.Contains(last.All(), m) != slices.Contains(c.table.All(), m)
		if isKnown && slices.Contains(c.mounts, m) != isChanged {
			t.Errorf("%s is changed: %t", m.Mountpoint, isChanged)
		}
	}
}
