package blkio

import (
	"path"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	"github.com/google/go-cmp/cmp/cmpopts"
	"github.com/moby/sys/mountinfo"
)

func FuzzParseIOMax(f *testing.F) {
	f.Add("8:16 rbps=2097152 wbps=max riops=max wiops=120\n253:0 rbps=max wbps=max riops=7 wiops=max\n")
	f.Add("(unknown) rbps=max wbps=1000 riops=max wiops=max\n8:0 rbps=4 dbps=5\n")
	f.Fuzz(func(t *testing.T, in string) {
		got, err := ParseIOMax(strings.NewReader(in))
		if err != nil {
			return
		}
		for dev, limits := range got {
			for k, r := range limits {
				if r == Unset {
					t.Errorf("%s %s is unset", dev, Key(k))
				}
			}
		}
		again, err := ParseIOMax(strings.NewReader(FormatIOMax(got)))
		sameAgain(t, got, again, err)
	})
}

func FuzzParseIOStat(f *testing.F) {
	f.Add("8:16 rbytes=1459200 wbytes=314773504 rios=192 wios=353 dbytes=0 dios=0\n")
	f.Add("7:1 7:0 8:16 rbytes=1 wbytes=2 rios=3 wios=4 dbytes=5 dios=6 cost.usage=7\n(unknown) rbytes=1\n")
	f.Fuzz(func(t *testing.T, in string) {
		got, err := ParseIOStat(strings.NewReader(in))
		if err != nil {
			return
		}
		again, err := ParseIOStat(strings.NewReader(FormatIOStat(got)))
		sameAgain(t, got, again, err)
	})
}

func FuzzParseIOWeight(f *testing.F) {
	f.Add("default 100\n8:16 200\n")
	f.Fuzz(func(t *testing.T, in string) {
		got, err := ParseIOWeight(strings.NewReader(in))
		if err != nil {
			return
		}
		again, err := ParseIOWeight(strings.NewReader(got.String()))
		sameAgain(t, got, again, err)
	})
}

func FuzzParseIOCostQOS(f *testing.F) {
	f.Add("8:16 enable=1 ctrl=auto rpct=95.00 rlat=75000 wpct=95.00 wlat=150000 min=50.00 max=150.00\n")
	f.Fuzz(func(_ *testing.T, in string) {
		_, _ = ParseIOCostQOS(strings.NewReader(in)) // it must only not panic
	})
}

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

func sameAgain(t *testing.T, got, again any, err error) {
	t.Helper()
	if err != nil {
		t.Fatalf("what was formatted does not parse: %v", err)
	}
	if diff := cmp.Diff(got, again, cmpopts.EquateEmpty()); diff != "" {
		t.Error(diff)
	}
}

func FuzzParseMountTable(f *testing.F) {
	f.Add(nodeMounts, "/var/lib/kubelet/pods/1/volumes/a")
	f.Add("36 35 98:0 /mnt1 /mnt2 rw,noatime master:1 - ext3 /dev/root rw,errors=continue\n", "/mnt2/a")
	f.Add("1 1 8:1 / / rw - ext4 /dev/a rw\n2 1 8:2 / /a\\040b rw - xfs /dev/b rw\n3 2 8:3 / /a\\040b rw - xfs /dev/c rw\n", "/a b/c")
	f.Add("1 1 8:1 / / rw - ext4 /dev/a rw\n2 1 8:2 /"+strings.Repeat("r", 70000)+" /a rw - xfs /dev/b rw\n", "/a/b")
	f.Add("1 1 8:1 / / rw - ext4 /dev/a rw\n2 1 8:2 / /"+strings.Repeat("d/", 40000)+" rw - xfs /dev/b rw\n", "/a/b")
	f.Fuzz(func(t *testing.T, in, p string) {
		table, err := ParseMountTable(strings.NewReader(in))
		if err != nil {
			t.Fatal(err)
		}
		checkAgainstLibrary(t, in)
		for i := range table.All() {
			if m := table.All()[i]; path.Clean(m.Mountpoint) != m.Mountpoint || m.Mountpoint[0] != '/' {
				t.Errorf("mountpoint %q", m.Mountpoint)
			}
		}
		checkBelow(t, table, path.Clean("/"+p))
		m, ok := table.Find(p)
		if !ok {
			return
		}
		// Only whole elements of the path count.
		clean := path.Clean(p)
		if rest, ok := strings.CutPrefix(clean, m.Mountpoint); !ok || m.Mountpoint != "/" && rest != "" && rest[0] != '/' {
			t.Errorf("%q was found for %q", m.Mountpoint, clean)
		}
	})
}

// checkAgainstLibrary parses each line with the library that container runtimes use.
// It knows no bounds, takes a number that is none for 0, and searches the separator
// from the end.
func checkAgainstLibrary(t *testing.T, in string) {
	t.Helper()
	for text := range strings.SplitSeq(in, "\n") {
		want, err := mountinfo.GetMountsFromReader(strings.NewReader(text+"\n"), nil)
		table, _ := ParseMountTable(strings.NewReader(text + "\n"))
		if err != nil || len(want) != 1 || len(table.All()) != 1 || strings.ContainsAny(text, "\r\\") || strings.Count(text, " - ") != 1 {
			continue
		}
		got, w := table.All()[0], want[0]
		if got.Unreadable != "" || len(w.Root) > maxMountPath {
			continue
		}
		peers, master := propagation(w.Optional)
		lib := &Mount{
			ID: w.ID, Parent: w.Parent, Dev: Dev{uint32(w.Major), uint32(w.Minor)}, Root: path.Clean(w.Root),
			Mountpoint: path.Clean(w.Mountpoint), FSType: w.FSType, Source: w.Source, Peers: peers, Master: master,
		}
		lib.setOptions(w.VFSOptions)
		if d := cmp.Diff(lib, got); d != "" {
			t.Errorf("%q (-library +got):\n%s", text, d)
		}
	}
}

// checkBelow compares with a look at each mount.
func checkBelow(t *testing.T, table *MountTable, dir string) {
	t.Helper()
	prefix := strings.TrimSuffix(dir, "/") + "/"
	want := 0
	for _, m := range table.All() {
		if m.Mountpoint != prefix && strings.HasPrefix(m.Mountpoint, prefix) {
			want++
		}
	}
	got := table.below(strings.TrimSuffix(dir, "/"))
	for i, m := range got {
		if below := m.Mountpoint != prefix && strings.HasPrefix(m.Mountpoint, prefix); below != (i < want) ||
			i > 0 && i < want && m.Mountpoint < got[i-1].Mountpoint {
			t.Errorf("%d mounts below %q, number %d is %q", want, dir, i, m.Mountpoint)
		}
	}
	if len(got) < want {
		t.Errorf("%d mounts below %q, got %d", want, dir, len(got))
	}
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
