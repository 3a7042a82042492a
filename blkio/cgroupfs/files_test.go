package cgroupfs

import (
	"errors"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	"golang.org/x/sys/unix"

	"github.com/nri-blkio/nri-blkio/blkio"
)

// TestReadSizes verifies that a file is read whole, whether it is shorter or longer than
// the buffer, or just as long.
func TestReadSizes(t *testing.T) {
	h, dir := newHierarchy(t, map[string]string{"pod/io.max": ""})
	c := h.Cgroup("pod")
	for _, size := range []int{0, 1, 1023, 1024, 1025, 2047, 2048, 4096, 100_000} {
		want := strings.Repeat("x", size)
		writeFiles(t, dir, map[string]string{"pod/io.max": want})
		for _, buf := range [][]byte{nil, make([]byte, 0, 16), make([]byte, 1024), make([]byte, 0, 200_000)} {
			got, err := c.ReadText("io.max", buf)
			if err != nil || string(got) != want {
				t.Errorf("%d bytes into %d: %d bytes, %v", size, cap(buf), len(got), err)
			}
		}
	}
	if _, err := h.Cgroup("gone").ReadText("io.max", nil); !errors.Is(err, blkio.ErrGone) {
		t.Errorf("a removed cgroup: %v", err)
	}
}

// TestReadValues verifies the values of the control files, and the errors of a missing
// controller and of other files.
func TestReadValues(t *testing.T) {
	h, _ := newHierarchy(t, map[string]string{
		"c/io.max": "8:16 rbps=max wbps=5 riops=max wiops=max\n", "c/io.weight": "default 50\n8:0 70\n", "c/cpu.max": "max 100000\n",
		"bad/io.max": "8:16 wbps=0\n", "noio/cgroup.procs": "",
	})
	disk := blkio.Dev{Major: 8, Minor: 16}
	values, err := h.Cgroup("c").ReadValues(blkio.IOMax)
	checkError(t, err, "")
	if got := values.At(blkio.Address{Key: blkio.Wbps, Dev: disk}); got.Amount != 5 || len(values) != 4 {
		t.Errorf("io.max: %v", values)
	}
	values, err = h.Cgroup("c").ReadValues(blkio.IOWeight)
	checkError(t, err, "")
	if diff := cmp.Diff(blkio.Values{{Key: blkio.Weight}: 50, {Key: blkio.DiskWeight, Dev: blkio.Dev{Major: 8}}: 70}, values); diff != "" {
		t.Errorf("io.weight: %s", diff)
	}
	_, err = h.Cgroup("c").ReadValues("cpu.max")
	checkError(t, err, "read cpu.max: parse cpu.max: no known keys (cgroup c)")
	_, err = h.Cgroup("bad").ReadValues(blkio.IOMax)
	checkError(t, err, `read io.max: parse io.max, line 1 "8:16 wbps=0": invalid wbps "0": "0" is no amount (cgroup bad)`)
	if _, err = h.Cgroup("noio").ReadValues(blkio.IOMax); !errors.Is(err, blkio.ErrNotSupported) {
		t.Errorf("without the controller: %v", err)
	}
}

// TestChildren verifies that only directories are cgroups, that a container cannot lead out
// of the tree by a symlink, and that a removed cgroup has no children.
func TestChildren(t *testing.T) {
	h, dir := newHierarchy(t, map[string]string{"pod/b/io.max": "", "pod/a/io.max": "", "pod/io.max": ""})
	if err := os.Symlink("/etc", filepath.Join(dir, "pod/link")); err != nil {
		t.Fatal(err)
	}
	got, err := h.Cgroup("pod").Children()
	checkError(t, err, "")
	if diff := cmp.Diff([]string{"pod/a", "pod/b"}, paths(got)); diff != "" {
		t.Error(diff)
	}
	for _, name := range []string{"pod/a", "gone", "gone/below"} {
		if got, err := h.Cgroup(name).Children(); len(got) > 0 || err != nil {
			t.Errorf("%s: %v, %v", name, got, err)
		}
	}
	if _, err := h.Cgroup("pod/io.max").Children(); err == nil {
		t.Error("a file has children")
	}
	if _, err := h.Cgroup("pod/link").Children(); err == nil {
		t.Error("a symlink has children")
	}
}

// TestOwner verifies the user of a cgroup's directory, and the errors.
func TestOwner(t *testing.T) {
	h, _ := newHierarchy(t, map[string]string{"pod/io.max": ""})
	if uid, err := h.Cgroup("pod").Owner(); uid != os.Getuid() || err != nil {
		t.Errorf("owner %d, %v", uid, err)
	}
	_, err := h.Cgroup("gone").Owner()
	if !errors.Is(err, blkio.ErrGone) || !strings.HasPrefix(err.Error(), "stat directory: cgroup was removed") {
		t.Errorf("a removed cgroup: %v", err)
	}
}

// modelIOMax is a tree of plain files in which a write to io.max sets one key of one
// device, as the kernel does.
func modelIOMax(t *testing.T, files map[string]string) (h *Hierarchy, dir string, writes *[]string) {
	t.Helper()
	dir, writes = t.TempDir(), new([]string)
	writeFiles(t, dir, map[string]string{"cgroup.controllers": "io\n"})
	writeFiles(t, dir, files)
	h, err := OpenFake(dir, Fake{Write: func(name, data string) error {
		*writes = append(*writes, name+": "+data)
		limits, err := blkio.ParseIOMax(readBack(t, dir, name))
		if err != nil {
			return err
		}
		var dev blkio.Dev
		var key, amount string
		word, pair, _ := strings.Cut(data, " ")
		if dev, err = blkio.ParseDev(word); err != nil {
			return err
		}
		key, amount, _ = strings.Cut(pair, "=")
		k, ok := blkio.ParseKey(blkio.IOMax, key)
		a, err := blkio.ParseAmount(amount)
		if !ok || err != nil {
			return unix.EINVAL
		}
		if dev.Major == 99 {
			return unix.ENODEV
		}
		l := limits[dev]
		l[k] = a
		limits[dev] = l
		writeFiles(t, dir, map[string]string{name: blkio.FormatIOMax(limits)})
		return nil
	}})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { h.Close() })
	return h, dir, writes
}

// TestReplaceIOMaxBelow verifies that exactly the values that the plugin set are replaced
// below a container's cgroup: a container may run a cgroup manager itself.
func TestReplaceIOMaxBelow(t *testing.T) {
	const ours, other = "8:16 rbps=max wbps=100 riops=max wiops=7\n", "8:16 rbps=max wbps=50 riops=max wiops=max\n"
	h, dir, writes := modelIOMax(t, map[string]string{
		"c/io.max": ours, "c/container/io.max": ours, "c/own/io.max": other, "c/none/io.max": "", "c/noio/cgroup.procs": "",
		"c/container/deeper/io.max": ours, "d/container/io.max": ours,
	})
	disk := blkio.Dev{Major: 8, Minor: 16}
	at := func(k blkio.Key) blkio.Address { return blkio.Address{Key: k, Dev: disk} }
	checkError(t, h.Cgroup("c").ReplaceIOMaxBelow([]blkio.Replacement{
		{Address: at(blkio.Wbps), From: 100, To: 200},
		{Address: at(blkio.Wiops), From: 9, To: 10}, // it has another value
		{Address: blkio.Address{Key: blkio.Weight}, From: 100, To: 200},
	}), "")
	if diff := cmp.Diff([]string{"c/container/io.max: 8:16 wbps=200"}, *writes); diff != "" {
		t.Errorf("writes (-want, +got):\n%s", diff)
	}
	for file, want := range map[string]string{
		"c/container/io.max": "8:16 rbps=max wbps=200 riops=max wiops=7\n", "c/io.max": ours, "c/own/io.max": other,
		"c/container/deeper/io.max": ours, "d/container/io.max": ours, "c/none/io.max": "",
	} {
		if got := readBack(t, dir, file); got != want {
			t.Errorf("%s is %q, want %q", file, got, want)
		}
	}
	*writes = nil
	checkError(t, h.Cgroup("c").ReplaceIOMaxBelow(nil), "")
	checkError(t, h.Cgroup("gone").ReplaceIOMaxBelow([]blkio.Replacement{{Address: at(blkio.Wbps), From: 1, To: 2}}), "")
	if len(*writes) > 0 {
		t.Errorf("writes %q", *writes)
	}
}

// TestReplaceFails verifies that a failed replacement is an error, and that the others are
// made all the same.
func TestReplaceFails(t *testing.T) {
	h, dir, _ := modelIOMax(t, map[string]string{
		"c/a/io.max": "99:0 rbps=max wbps=100 riops=max wiops=max\n8:0 rbps=max wbps=100 riops=max wiops=max\n",
		"c/b/io.max": "8:0 rbps=max wbps=100 riops=max wiops=max\n",
	})
	err := h.Cgroup("c").ReplaceIOMaxBelow([]blkio.Replacement{
		{Address: blkio.Address{Key: blkio.Wbps, Dev: blkio.Dev{Major: 99}}, From: 100, To: 200},
		{Address: blkio.Address{Key: blkio.Wbps, Dev: blkio.Dev{Major: 8}}, From: 100, To: 200},
	})
	if !errors.Is(err, blkio.ErrNoDevice) {
		t.Errorf("got %v", err)
	}
	for _, name := range []string{"c/a/io.max", "c/b/io.max"} {
		if got := readBack(t, dir, name); !strings.Contains(got, "8:0 rbps=max wbps=200 ") {
			t.Errorf("%s is %q", name, got)
		}
	}
}

// TestGetxattr verifies the growth of the buffer, and that an attribute which grows again
// and again does not grow it for ever.
func TestGetxattr(t *testing.T) {
	of := func(size int) func([]byte) (int, error) {
		return func(buf []byte) (int, error) {
			if size > len(buf) {
				return -1, unix.ERANGE
			}
			return copy(buf, strings.Repeat("x", size)), nil
		}
	}
	for _, size := range []int{0, 15, 16, 17, 64, 65, 64 << 10} {
		got, err := getxattr(make([]byte, 16), of(size))
		if err != nil || got == nil || len(got) != size {
			t.Errorf("%d bytes: %d bytes, %v", size, len(got), err)
		}
	}
	if got, err := getxattr(make([]byte, 16), func([]byte) (int, error) { return -1, unix.ENODATA }); got != nil || err != nil {
		t.Errorf("none: %q, %v", got, err)
	}
	if _, err := getxattr(make([]byte, 16), func([]byte) (int, error) { return -1, unix.EPERM }); !errors.Is(err, unix.EPERM) {
		t.Errorf("got %v", err)
	}
	calls := 0
	_, err := getxattr(make([]byte, 16), func([]byte) (int, error) { calls++; return -1, unix.ERANGE })
	if !errors.Is(err, unix.ERANGE) || calls > 12 {
		t.Errorf("%v after %d calls", err, calls)
	}
}

// TestListXattrs verifies which names are the plugin's: the name itself, and those with a
// dot and at least one more byte.
func TestListXattrs(t *testing.T) {
	const ours = "user.nri-blkio"
	list := func(names ...string) func([]byte) (int, error) {
		return func(buf []byte) (int, error) {
			text := strings.Join(names, "\x00")
			if len(names) > 0 {
				text += "\x00"
			}
			if len(text) > len(buf) {
				return -1, unix.ERANGE
			}
			return copy(buf, text), nil
		}
	}
	for _, tt := range []struct{ in, want []string }{
		{nil, nil},
		{[]string{ours}, []string{ours}},
		{[]string{"user.other", "security.selinux", ours + ".b", ours, ours + ".a"}, []string{ours, ours + ".a", ours + ".b"}},
		{[]string{ours + ".", ours + "x", ours + "-other.a", "user.nri-blki", "trusted.nri-blkio"}, nil},
		{[]string{ours + "....", ours + ".a.b", ours + ". "}, []string{ours + ". ", ours + "....", ours + ".a.b"}},
		// No directory has such a name: it would lead to another one, or out of the tree.
		{[]string{ours + "..", ours + "...", ours + "./", ours + ".../..", ours + ".a/../..", ours + ".a/b"}, nil},
	} {
		got, err := listXattrs(make([]byte, 8), ours, list(tt.in...))
		if err != nil || !slices.Equal(got, tt.want) {
			t.Errorf("%q: %q, %v, want %q", tt.in, got, err, tt.want)
		}
	}
	if _, err := listXattrs(make([]byte, 8), ours, func([]byte) (int, error) { return -1, unix.EIO }); !errors.Is(err, unix.EIO) {
		t.Errorf("got %v", err)
	}
}

// TestSumOf has flat keyed files as the kernel, or a fixture, may have them.
func TestSumOf(t *testing.T) {
	for _, tt := range []struct {
		in   string
		want uint64
		err  string
	}{
		{"a 1\nb 2\n", 3, ""},
		{"b 2\na 1", 3, ""},
		{"a 0\nb 0\n", 0, ""},
		{"aa 5\nb 2\n", 0, "no a"},
		{"xa 5\na 1\nb 2\nb 9\n", 3, ""},
		{"a 9223372036854775807\nb 9223372036854775807\n", 1<<64 - 2, ""},
		{"a 9223372036854775808\nb 1\n", 0, `a: strconv.ParseUint: parsing "9223372036854775808": value out of range`},
		{"a -1\nb 1\n", 0, `a: strconv.ParseUint: parsing "-1": invalid syntax`},
		{"a \nb 1\n", 0, `a: strconv.ParseUint: parsing "": invalid syntax`},
		{"a 1 \nb 1\n", 0, `a: strconv.ParseUint: parsing "1 ": invalid syntax`},
		{"", 0, "no a"},
	} {
		got, err := sumOf(tt.in, "a", "b")
		checkError(t, err, tt.err)
		if got != tt.want {
			t.Errorf("%q: %d, want %d", tt.in, got, tt.want)
		}
	}
}

// TestProcessesHostile has cgroup.procs with processes of other namespaces, and with text
// that is no process.
func TestProcessesHostile(t *testing.T) {
	h, _ := newHierarchy(t, map[string]string{
		"none/cgroup.procs": "", "two/cgroup.procs": "17\n4194304\n", "other/cgroup.procs": "0\n0\n5\n",
		"bad/cgroup.procs": "17\nx\n", "noprocs/io.max": "",
	})
	for path, want := range map[string][]int{"none": nil, "two": {17, 4194304}, "other": {0, 0, 5}} {
		got, err := h.Cgroup(path).Processes()
		if diff := cmp.Diff(want, got); diff != "" || err != nil {
			t.Errorf("%s: %v %s", path, err, diff)
		}
	}
	_, err := h.Cgroup("bad").Processes()
	checkError(t, err, `read cgroup.procs: strconv.Atoi: parsing "x": invalid syntax (cgroup bad)`)
	for path, want := range map[string]error{"noprocs": blkio.ErrNotSupported, "gone": blkio.ErrGone} {
		if _, err := h.Cgroup(path).Processes(); !errors.Is(err, want) {
			t.Errorf("%s: %v, want %v", path, err, want)
		}
	}
}

// TestUnknownKind verifies that the entries of a filesystem that reports no types are examined one by one, and
// so are symlinks and names that vanish.
func TestUnknownKind(t *testing.T) {
	h, dir := newHierarchy(t, map[string]string{"pod/a/io.max": "", "pod/io.max": ""})
	if err := os.Symlink("a", filepath.Join(dir, "pod/link")); err != nil {
		t.Fatal(err)
	}
	checkError(t, h.Cgroup("pod").withDir(func(fd int) error {
		var entries []byte
		for _, name := range []string{".", "..", "a", "io.max", "link", "vanished"} {
			entries = append(entries, direntOf(unix.DT_UNKNOWN, name)...)
		}
		if diff := cmp.Diff([]string{"a"}, appendDirectories(nil, fd, entries)); diff != "" {
			t.Error(diff)
		}
		return nil
	}), "")
}

// TestWalkDeep verifies that a container with a path that is longer than the kernel takes
// hides no other cgroup.
func TestWalkDeep(t *testing.T) {
	h, dir := newHierarchy(t, map[string]string{"z/io.max": ""})
	name := strings.Repeat("d", 200)
	at, err := unix.Open(dir, unix.O_RDONLY|unix.O_DIRECTORY|unix.O_CLOEXEC, 0)
	if err != nil {
		t.Fatal(err)
	}
	for range 25 { // 5,000 bytes; PATH_MAX is 4,096
		if err := unix.Mkdirat(at, name, 0o755); err != nil {
			t.Fatal(err)
		}
		next, err := unix.Openat(at, name, unix.O_RDONLY|unix.O_DIRECTORY|unix.O_CLOEXEC, 0)
		unix.Close(at)
		if err != nil {
			t.Fatal(err)
		}
		at = next
	}
	unix.Close(at)
	var seen, longest int
	found := false
	checkError(t, h.walk(".", func(c Cgroup, _ int, _ *unix.Stat_t) error {
		seen++
		longest = max(longest, len(c.path))
		found = found || c.path == "z"
		return nil
	}), "")
	if !found || seen < 20 || longest >= unix.PathMax {
		t.Errorf("%d cgroups, the longest path has %d bytes, the last one is found: %v", seen, longest, found)
	}
}

// TestWalkEnds verifies that an error ends a walk unchanged, and that SkipDir skips the cgroups below.
func TestWalkEnds(t *testing.T) {
	h, _ := newHierarchy(t, map[string]string{"a/b/x": "", "c/x": ""})
	stop := errors.New("stop")
	var seen []string
	err := h.walk(".", func(c Cgroup, _ int, _ *unix.Stat_t) error {
		seen = append(seen, c.path)
		if c.path == "a" {
			return fs.SkipDir
		}
		if c.path == "c" {
			return stop
		}
		return nil
	})
	if !errors.Is(err, stop) || !slices.Equal(seen, []string{".", "a", "c"}) {
		t.Errorf("%v after %q", err, seen)
	}
}
