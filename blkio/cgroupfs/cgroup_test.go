package cgroupfs

import (
	"errors"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	"golang.org/x/sys/unix"

	"github.com/nri-blkio/nri-blkio/blkio"
)

// newHierarchy makes a directory in the form of a cgroup tree, of files given as path and content.
func newHierarchy(t testing.TB, files map[string]string) (*Hierarchy, string) {
	t.Helper()
	dir := t.TempDir()
	writeFiles(t, dir, map[string]string{"cgroup.controllers": "cpuset cpu io memory pids\n"})
	writeFiles(t, dir, files)
	h, err := OpenTree(dir)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { h.Close() })
	return h, dir
}

func writeFiles(t testing.TB, dir string, files map[string]string) {
	t.Helper()
	for name, content := range files {
		full := filepath.Join(dir, name)
		if err := os.MkdirAll(filepath.Dir(full), 0o755); err != nil {
			t.Fatal(err)
		}
		if err := os.WriteFile(full, []byte(content), 0o644); err != nil {
			t.Fatal(err)
		}
	}
}

func readBack(t *testing.T, elem ...string) string {
	t.Helper()
	data, err := os.ReadFile(filepath.Join(elem...))
	if err != nil {
		t.Fatal(err)
	}
	return string(data)
}

func TestReleaseDeadOwners(t *testing.T) {
	dir := t.TempDir()
	if err := os.WriteFile(filepath.Join(dir, "cgroup.controllers"), []byte("io memory"), 0o644); err != nil {
		t.Fatal(err)
	}
	h, err := OpenTree(dir)
	if err != nil {
		t.Fatal(err)
	}
	defer h.Close()
	root := h.Cgroup("")
	for range 2 {
		if err := root.ReleaseRemovedOwners(); err != nil {
			t.Error(err)
		}
		// This one was left by a program that was killed.
		if err := os.Mkdir(filepath.Join(dir, releaseName), 0o700); err != nil {
			t.Errorf("one is left: %v", err)
		}
	}
	if err := os.WriteFile(filepath.Join(dir, releaseName, "x"), nil, 0o600); err != nil {
		t.Fatal(err)
	}
	if err := root.ReleaseRemovedOwners(); err == nil || !strings.Contains(err.Error(), releaseName) {
		t.Errorf("one that cannot be removed: %v", err)
	}
}

func TestOpenHierarchy(t *testing.T) {
	_, err := OpenHierarchy(t.TempDir())
	if !errors.Is(err, blkio.ErrNotSupported) {
		t.Errorf("a plain directory: %v", err)
	}
	_, err = OpenHierarchy(filepath.Join(t.TempDir(), "none"))
	if !errors.Is(err, unix.ENOENT) {
		t.Errorf("no directory: %v", err)
	}

	dir := t.TempDir()
	writeFiles(t, dir, map[string]string{"cgroup.controllers": "cpu pids\n"})
	_, err = OpenTree(dir)
	if !errors.Is(err, blkio.ErrNotSupported) {
		t.Errorf("without io: %v", err)
	}
	checkError(t, err, "open cgroups at "+dir+`: not supported: cgroup.controllers lists no io controller, only "cpu pids"; `+
		"it is not built into this kernel, or cgroup v1 holds it")
}

// TestOpenHierarchyHere reads the machine that runs the tests, with any cgroups.
func TestOpenHierarchyHere(t *testing.T) {
	h, err := OpenHierarchy("/sys/fs/cgroup")
	switch {
	case errors.Is(err, blkio.ErrNotSupported):
		if strings.Contains(err.Error(), "\n") {
			t.Errorf("more than a line: %v", err)
		}
	case errors.Is(err, unix.ENOENT):
	case err != nil:
		t.Error(err)
	default:
		if _, err := h.Probe(); err != nil {
			t.Error(err)
		}
		h.Close()
	}
}

func TestCgroupPathsStayInside(t *testing.T) {
	h, dir := newHierarchy(t, map[string]string{"a/io.max": ""})
	for in, want := range map[string]string{
		"a": "a", "/a/": "a", "a/../b": "b", "../../etc": "etc", "": ".", "/": ".", "a//b/.": "a/b",
	} {
		if got := h.Cgroup(in).Path(); got != want {
			t.Errorf("Cgroup(%q) is %q, want %q", in, got, want)
		}
	}

	outside := t.TempDir()
	writeFiles(t, outside, map[string]string{"io.max": "8:0 rbps=4 wbps=max riops=max wiops=max\n"})
	if err := os.Symlink(outside, filepath.Join(dir, "link")); err != nil {
		t.Fatal(err)
	}
	if limits, err := h.Cgroup("link").ReadIOMax(); err == nil {
		t.Errorf("read %v through a symlink", limits)
	}
	if err := h.Cgroup("link").Write(blkio.Line{File: blkio.IOMax, Text: "8:0 rbps=5"}); err == nil {
		t.Error("written through a symlink")
	}
}

func TestReadCgroup(t *testing.T) {
	long := strings.Repeat("8:16 rbps=max wbps=1048576 riops=max wiops=max\n", 100) // more than one read
	h, _ := newHierarchy(t, map[string]string{
		"pod/c/io.max":    long,
		"pod/c/io.stat":   "8:16 rbytes=4096 wbytes=0 rios=1 wios=0 dbytes=0 dios=0\n",
		"pod/c/io.weight": "default 250\n",
		"bad/io.max":      "8:16 rbps=x\n",
	})
	c := h.Cgroup("pod/c")
	limits, err := c.ReadIOMax()
	checkError(t, err, "")
	if diff := cmp.Diff(map[blkio.Dev]blkio.Limits{{Major: 8, Minor: 16}: {blkio.Max, 1 << 20, blkio.Max, blkio.Max}}, limits); diff != "" {
		t.Error(diff)
	}
	stat, err := c.ReadIOStat()
	checkError(t, err, "")
	if diff := cmp.Diff(map[blkio.Dev]blkio.Stat{{Major: 8, Minor: 16}: {Rbytes: 4096, Rios: 1}}, stat); diff != "" {
		t.Error(diff)
	}
	weights, err := c.ReadWeights(blkio.IOWeight)
	checkError(t, err, "")
	if weights.Default != 250 {
		t.Errorf("weights %v", weights)
	}
	_, err = h.Cgroup("bad").ReadIOMax()
	checkError(t, err, `read io.max: parse io.max, line 1 "8:16 rbps=x": invalid rbps "x": strconv.ParseUint: parsing "x": invalid syntax (cgroup bad)`)
}

func TestMissingCgroup(t *testing.T) {
	h, _ := newHierarchy(t, map[string]string{"noio/cgroup.procs": ""})
	if !h.Cgroup("noio").Exists() || h.Cgroup("gone").Exists() {
		t.Error("Exists is wrong")
	}
	limit := blkio.Line{File: blkio.IOMax, Text: "8:16 wbps=1048576"}

	err := h.Cgroup("gone").Write(limit)
	if !errors.Is(err, blkio.ErrGone) || !errors.Is(err, unix.ENOENT) {
		t.Errorf("gone: %v", err)
	}
	checkError(t, err, `write io.max "8:16 wbps=1048576": cgroup was removed: no such file or directory (cgroup gone)`)
	if e := new(CgroupError); !errors.As(err, &e) || strings.Contains(e.Cause(), "(cgroup") {
		t.Errorf("cause names the cgroup: %v", err)
	}

	err = h.Cgroup("noio").Write(limit)
	if !errors.Is(err, blkio.ErrNotSupported) || errors.Is(err, blkio.ErrGone) {
		t.Errorf("without the controller: %v", err)
	}
	if _, err := os.Stat(filepath.Join(h.dir, "noio/io.max")); err == nil {
		t.Error("a write has made the file")
	}
	if _, err = h.Cgroup("gone").ReadIOStat(); !errors.Is(err, blkio.ErrGone) {
		t.Errorf("read of one that is gone: %v", err)
	}
	if err := h.Cgroup("gone").WriteXattr("user.x", nil); !errors.Is(err, blkio.ErrGone) {
		t.Errorf("xattr of one that is gone: %v", err)
	}
}

// TestFileError covers answers of the kernel that a plain file does not give.
func TestFileError(t *testing.T) {
	h, _ := newHierarchy(t, map[string]string{"pod/io.max": ""})
	tests := []struct {
		cgroup   string
		errno    error
		sentinel error
		want     string
	}{
		{"pod", unix.EINVAL, unix.EINVAL, `write io.max "8:16 wbps=1": invalid argument (cgroup pod)`},
		{"pod", unix.ENODEV, blkio.ErrNoDevice, `write io.max "8:16 wbps=1": no such disk: no such device (cgroup pod)`},
		{"gone", unix.ENODEV, blkio.ErrGone, `write io.max "8:16 wbps=1": cgroup was removed: no such device (cgroup gone)`},
		{"pod", unix.EOPNOTSUPP, blkio.ErrNotSupported, `write io.max "8:16 wbps=1": not supported: operation not supported (cgroup pod)`},
		{"pod", unix.EACCES, os.ErrPermission, `write io.max "8:16 wbps=1": permission denied (cgroup pod)`},
	}
	for _, tt := range tests {
		err := h.Cgroup(tt.cgroup).fileError("write", "io.max", "8:16 wbps=1", tt.errno)
		if !errors.Is(err, tt.sentinel) || !errors.Is(err, tt.errno) {
			t.Errorf("%v is not %v", err, tt.sentinel)
		}
		checkError(t, err, tt.want)
	}
}

func TestWrite(t *testing.T) {
	h, dir := newHierarchy(t, map[string]string{"pod/io.max": "", "pod/io.weight": ""})
	c := h.Cgroup("pod")
	checkError(t, c.Write(blkio.Line{File: blkio.IOMax, Text: "8:16 rbps=max wiops=100"}), "")
	if got, want := readBack(t, dir, "pod/io.max"), "8:16 rbps=max wiops=100"; got != want {
		t.Errorf("got %q, want %q", got, want)
	}
	checkError(t, c.Write(blkio.Line{File: blkio.IOWeight, Text: "default 500"}), "")
	if got, want := readBack(t, dir, "pod/io.weight"), "default 500"; got != want {
		t.Errorf("got %q, want %q", got, want)
	}
}

func TestOpenRooted(t *testing.T) { // for systems without openat2
	h, dir := newHierarchy(t, map[string]string{"a/b/io.max": "x"})
	fd, err := h.openRooted("a/b/io.max", unix.O_RDONLY)
	if err != nil {
		t.Fatal(err)
	}
	defer unix.Close(fd)
	buf := make([]byte, 8)
	if n, err := unix.Read(fd, buf); err != nil || string(buf[:n]) != "x" {
		t.Errorf("read %q, %v", buf[:n], err)
	}
	if err := os.Symlink("/etc", filepath.Join(dir, "out")); err != nil {
		t.Fatal(err)
	}
	if _, err := h.openRooted("out/passwd", unix.O_RDONLY); err == nil {
		t.Error("a symlink leads out")
	}
}

func TestWalk(t *testing.T) {
	h, dir := newHierarchy(t, map[string]string{"a/b/x": "", "a/c/x": "", "d/x": ""})
	var seen []string
	err := h.walk(".", func(c Cgroup, _ int, _ *unix.Stat_t) error {
		seen = append(seen, c.Path())
		if c.Path() == "a" { // vanishes under the walk
			return os.RemoveAll(filepath.Join(dir, "a/b"))
		}
		return nil
	})
	checkError(t, err, "")
	if diff := cmp.Diff([]string{".", "a", "a/c", "d"}, seen); diff != "" {
		t.Error(diff)
	}
	stop := errors.New("stop")
	if err := h.walk(".", func(Cgroup, int, *unix.Stat_t) error { return stop }); !errors.Is(err, stop) {
		t.Errorf("got %v", err)
	}
}

func TestProbe(t *testing.T) {
	tests := map[string]struct {
		files map[string]string
		want  Features
	}{
		"Debian": {
			map[string]string{
				"io.cost.qos":                     "",
				"init.scope/cgroup.controllers":   "cpu\n",
				"system.slice/cgroup.controllers": "cpu io memory\n",
				"system.slice/io.max":             "", "system.slice/io.weight": "",
			},
			Features{IOMax: blkio.Yes, IOWeight: blkio.Yes, IOCost: blkio.Yes},
		},
		"Talos": {
			map[string]string{"kubepods/cgroup.controllers": "io\n", "kubepods/io.max": ""},
			Features{IOMax: blkio.Yes, IOWeight: blkio.No, IOCost: blkio.No},
		},
		"LinuxKit": {
			map[string]string{"kubepods/cgroup.controllers": "io\n", "kubepods/io.weight": ""},
			Features{IOMax: blkio.No, IOWeight: blkio.Yes, IOCost: blkio.No},
		},
		"no child": {
			map[string]string{"io.cost.qos": ""},
			Features{IOCost: blkio.Yes},
		},
		"namespace": {
			map[string]string{"cgroup.events": "", "io.max": ""},
			Features{IOMax: blkio.Yes, IOWeight: blkio.No, Namespaced: true},
		},
	}
	for name, tt := range tests {
		t.Run(name, func(t *testing.T) {
			h, _ := newHierarchy(t, tt.files)
			got, err := h.Probe()
			checkError(t, err, "")
			if diff := cmp.Diff(tt.want, got); diff != "" {
				t.Error(diff)
			}
			if missing := got.Missing(); slices.Contains(missing, blkio.IOMax) != (tt.want.IOMax == blkio.No) || slices.Contains(missing, blkio.IOWeight) != (tt.want.IOWeight == blkio.No) {
				t.Errorf("missing: %q", missing)
			}
		})
	}
}

func TestReadIOCostQOS(t *testing.T) {
	h, _ := newHierarchy(t, map[string]string{"io.cost.qos": "8:16 enable=1 ctrl=auto\n"})
	got, err := h.ReadIOCostQOS()
	checkError(t, err, "")
	if !got[blkio.Dev{Major: 8, Minor: 16}].Enabled {
		t.Errorf("got %v", got)
	}
	h, _ = newHierarchy(t, map[string]string{"io.cost.model": "8:16 ctrl=user model=linear rbps=1\n"})
	if _, err := h.ReadIOCostQOS(); !errors.Is(err, blkio.ErrNotSupported) {
		t.Errorf("without the file: %v", err)
	}
	models, err := h.ReadIOCostModel()
	checkError(t, err, "")
	if got := models[blkio.Dev{Major: 8, Minor: 16}]; !got.IsUser || got.Model.Rbps != 1 {
		t.Errorf("got %v", got)
	}
}
