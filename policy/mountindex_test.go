package policy

import (
	"fmt"
	"slices"
	"strings"
	"testing"

	"github.com/nri-blkio/nri-blkio/blkio"
	"github.com/nri-blkio/nri-blkio/policy/annotation"
)

// FuzzMountIndex compares with a search through all mounts.
func FuzzMountIndex(f *testing.F) {
	f.Add("/a\n/a/b\n/\n/a/b/c\n/ab\n/a", "/a/b/cd")
	f.Add("/host\n/host/ext4\n/host/ext4/a/b", "/host/ext4/a/b")
	f.Add("a\n.\n/a", "/a/b")
	f.Add("/a\n/a/b/c/d", "/a/b/c")
	f.Add("a", "/x/a")
	f.Add("", "/")
	f.Fuzz(func(t *testing.T, dirs, path string) {
		var mounts []Mount
		var below []Below
		for dir := range strings.SplitSeq(dirs, "\n") {
			if dir == "" || strings.Contains(dir, "//") || dir != "/" && strings.HasSuffix(dir, "/") {
				return // not clean
			}
			mounts, below = append(mounts, Mount{Destination: dir}), append(below, Below{dir, new(blkio.Backing)})
		}
		want := -1
		for i, m := range mounts {
			if covers(m.Destination, path) && (want < 0 || len(m.Destination) >= len(mounts[want].Destination)) {
				want = i
			}
		}
		if strings.Contains(path, "//") || strings.HasSuffix(path, "/") {
			return
		}
		var index dirIndex
		for i := range mounts {
			index.dirs = append(index.dirs, mounts[i].Destination)
		}
		found := IndexMounts(mounts)
		if got, tree := found.Find(path), index.findInTree(path); got != want || tree != want {
			t.Errorf("%q is on mount %d, by the tree %d, want %d", path, got, tree, want)
		}
		of := &Mount{Below: below}
		one := IndexMounts([]Mount{*of})
		if got, want := one.backing(0, path), of.BackingOf(path); indexOf(below, got) != indexOf(below, want) {
			t.Errorf("%q is below at %d, want %d", path, indexOf(below, got), indexOf(below, want))
		}
	})
}

func indexOf(below []Below, b *blkio.Backing) int {
	return slices.IndexFunc(below, func(o Below) bool { return o.Backing == b })
}

// BenchmarkContainerHostile has 1,024 paths below 4,000 mounts at one place.
func BenchmarkContainerHostile(b *testing.B) {
	annotations := map[string]string{}
	for i, key := range []string{keyDB, keyEach, keyTotal} {
		for k := range 256 {
			annotations[key] += fmt.Sprintf("/a/%d%d%s wbps=1Mi;", i, k, strings.Repeat("x", 200))
		}
	}
	r := annotation.Parse(annotations)
	c := Container{Name: "db", Rootfs: on(sda), Mounts: slices.Repeat([]Mount{mount("/a", on(sda))}, 4000)}
	b.ReportAllocs()
	for b.Loop() {
		if d, err := Default().of(r).Container(c); err != nil || len(d.Settings) != 1 {
			b.Fatal(d, err)
		}
	}
}
