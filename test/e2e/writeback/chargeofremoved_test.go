package writeback

import (
	"fmt"
	"os"
	"strings"
	"testing"

	"golang.org/x/sys/unix"

	"github.com/nri-blkio/nri-blkio/blkio/writeback"
	"github.com/nri-blkio/nri-blkio/test/e2e/lab"
)

// reparents reports whether the kernel charges the page cache of a removed cgroup to its
// parent (Linux 7.1). The program reads it from the kernel's BTF; this is another source.
func reparents(t *testing.T) bool {
	t.Helper()
	symbols, err := os.ReadFile("/proc/kallsyms")
	if err != nil {
		t.Fatal(err)
	}
	return strings.Contains(string(symbols), " lru_reparent_memcg\n") || strings.Contains(string(symbols), " lru_gen_reparent_memcg\n")
}

// TestChargeOfRemoved verifies which cgroup is charged for the pages that a removed cgroup has left in the page
// cache. If it is the parent, these pages are votes for the parent, and the file moves to it.
func TestChargeOfRemoved(t *testing.T) {
	filesystems := filesystemsWithOwners
	if !*lab.Proof {
		filesystems = filesystems[:1]
	}
	for _, fs := range filesystems {
		t.Run(fs, func(t *testing.T) {
			pod, b := lab.NewWriter(t, "pod"), lab.NewWriter(t, "b")
			writeCgroup(t, pod.Name, "cgroup.subtree_control", "+memory +io")
			a := lab.NewWriter(t, "pod.slice/a")
			o := watch(t, fs)
			file := lab.File(t, fs, "f")
			a.Writes(file, 1, "1M", "conv=notrunc,fsync")
			a.Writes(file, 1, "1M", "conv=notrunc") // dirty: its owner keeps it
			a.Remove()
			want := a.ID
			if reparents(t) {
				want = pod.ID
			}
			if got := lab.OwnerOf(t, file); got.CgroupID != a.ID || got.State != "gone" {
				t.Fatalf("the owner is %+v, want the removed cgroup %d: the test cannot show anything", got, a.ID)
			}
			b.Writes(file, 1, "1M", "conv=notrunc,fsync") // what is dirty is not seen to become so
			if got := chargedWith(t, o, file, func() { b.Writes(file, 1, "1M", "conv=notrunc,fsync") }); len(got) != 1 || !got[want] {
				t.Errorf("charged are the cgroups %v, want %d alone", got, want)
			}
			if want != pod.ID {
				return
			}
			lab.Eventually(t, "the owner of the file is the parent", func() error {
				b.Writes(file, 1, "1M", "conv=notrunc,fsync")
				if got := lab.OwnerOf(t, file); got.CgroupID != pod.ID {
					return fmt.Errorf("the owner is %+v, want cgroup %d", got, pod.ID)
				}
				return nil
			})
		})
	}
}

// chargedWith returns the cgroups that are charged with what is written to a file.
func chargedWith(t *testing.T, o *writeback.Observer, file string, do func()) map[uint64]bool {
	t.Helper()
	if _, _, err := o.Read(); err != nil { // what was before
		t.Fatal(err)
	}
	do()
	found, _, err := o.Read()
	if err != nil {
		t.Fatal(err)
	}
	var st unix.Stat_t
	if err := unix.Stat(file, &st); err != nil {
		t.Fatal(err)
	}
	out := map[uint64]bool{}
	for _, d := range found {
		if d.Number == st.Ino {
			out[d.Charged] = true
		}
	}
	return out
}
