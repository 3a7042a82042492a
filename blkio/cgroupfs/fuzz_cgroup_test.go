package cgroupfs

import (
	"encoding/binary"
	"path"
	"slices"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	"golang.org/x/sys/unix"
)

func FuzzContainerCgroup(f *testing.F) {
	f.Add("kubepods-besteffort-pod1.slice:cri-containerd:abc", "/kubepods.slice/kubepods-besteffort.slice/kubepods-besteffort-pod1.slice")
	f.Add("/kubepods/besteffort/pod1/abc", "/kubepods/besteffort/pod1")
	f.Add("-.slice:a:b", "")
	f.Add("..:a:b", "/x/..")
	f.Add("/..00", "") // dots, but no way up
	f.Fuzz(func(t *testing.T, cgroupsPath, podParent string) {
		inside := func(p string, err error) {
			if err != nil {
				return
			}
			if p == "" || p == "." || path.Clean("/"+p) != "/"+p {
				t.Errorf("%q is no clean path below the root", p)
			}
			if h := new(Hierarchy); h.Cgroup(p).Path() != p {
				t.Errorf("Cgroup(%q) is %q", p, h.Cgroup(p).Path())
			}
		}
		inside(ContainerCgroup(cgroupsPath, podParent))
		inside(PodCgroup(podParent))
		if p := new(Hierarchy).Cgroup(cgroupsPath).Path(); p == ".." || strings.HasPrefix(p, "../") || strings.HasPrefix(p, "/") {
			t.Errorf("Cgroup(%q) escapes as %q", cgroupsPath, p)
		}
	})
}

// direntOf is an entry of a directory as the kernel returns it (linux_dirent64).
func direntOf(kind byte, name string) []byte {
	size := (19 + len(name) + 1 + 7) / 8 * 8
	e := make([]byte, size)
	binary.NativeEndian.PutUint16(e[16:], uint16(size))
	e[18] = kind
	copy(e[19:], name)
	return e
}

// FuzzAppendDirectories verifies that entries that are cut off, or have a wrong length, end the list. The
// entries before them count.
func FuzzAppendDirectories(f *testing.F) {
	f.Add("a", "io.max", []byte{}, uint8(0))
	f.Add(".", "..", []byte{1, 2, 3}, uint8(8))
	f.Add("kubepods.slice", "x", slices.Repeat([]byte{0xff}, 64), uint8(3))
	f.Fuzz(func(t *testing.T, dir, file string, after []byte, cut uint8) {
		if len(dir) > 255 || len(file) > 255 || strings.ContainsAny(dir+file, "/\x00") {
			return // the kernel has no such names
		}
		entries := append(direntOf(unix.DT_REG, file), direntOf(unix.DT_DIR, dir)...)
		var want []string
		if dir != "." && dir != ".." {
			want = append(want, dir)
		}
		if diff := cmp.Diff(want, appendDirectories(nil, -1, entries)); diff != "" {
			t.Errorf("(-want, +got):\n%s", diff)
		}
		got := appendDirectories(nil, -1, append(slices.Clone(entries), after...))
		if len(got) < len(want) || !slices.Equal(got[:len(want)], want) {
			t.Errorf("with %x after it: %q, want %q first", after, got, want)
		}
		short := entries[:len(entries)-min(int(cut), len(entries))]
		if got := appendDirectories(nil, -1, short); cut > 0 && len(got) > 0 {
			t.Errorf("of %d bytes less: %q", cut, got)
		}
		for _, name := range got {
			if name == "." || name == ".." || strings.ContainsRune(name, 0) {
				t.Errorf("a directory is called %q", name)
			}
		}
	})
}
