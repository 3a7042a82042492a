package storage

import (
	"path"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	"github.com/moby/sys/mountinfo"

	"github.com/nri-blkio/nri-blkio/blkio"
)

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
			ID: w.ID, Parent: w.Parent, Dev: blkio.Dev{Major: uint32(w.Major), Minor: uint32(w.Minor)}, Root: path.Clean(w.Root),
			Mountpoint: path.Clean(w.Mountpoint), FSType: w.FSType, Source: w.Source, Peers: peers, Master: master,
		}
		lib.setOptions(w.VFSOptions)
		if d := cmp.Diff(lib, got); d != "" {
			t.Errorf("%q (-library +got):\n%s", text, d)
		}
	}
}

// checkBelow compares with a search through all mounts.
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
