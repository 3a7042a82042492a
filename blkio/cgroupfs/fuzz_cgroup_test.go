package cgroupfs

import (
	"path"
	"strings"
	"testing"
)

func FuzzParseWritebackStats(f *testing.F) {
	f.Add(wbStats)
	f.Add("later: 1\nWbCgIno: 1\nWbWriteback: 1 kB\nWbReclaimable: 2 kB\nb_dirty: 3\nlater\n")
	f.Fuzz(func(t *testing.T, in string) {
		got, err := ParseWritebackStats(strings.NewReader(in))
		if err != nil {
			return
		}
		for _, w := range got {
			if w.Left() < w.Dirty || w.Left() < w.Writeback {
				t.Errorf("%+v: that is too much", w)
			}
			if w.Inodes >= 1<<32 {
				return // of several lines, which is not formatted as such
			}
		}
		again, err := ParseWritebackStats(strings.NewReader(FormatWritebackStats(got)))
		sameAgain(t, got, again, err)
	})
}

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
