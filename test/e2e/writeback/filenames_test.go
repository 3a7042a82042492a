package writeback

import (
	"fmt"
	"os"
	"path/filepath"
	"testing"
	"time"

	"github.com/nri-blkio/nri-blkio/test/e2e/lab"
)

// The owner is that of an inode, which a process may reach by more than one name.

// TestRepairHardLink verifies that a file moves to its writer whichever of its names the writer and the owner
// use, and that the report has one file.
func TestRepairHardLink(t *testing.T) {
	lab.StartRepair(t)
	a, b := lab.NewWriter(t, "a"), lab.NewWriter(t, "b")
	a.Limit("ext4", 4*lab.MiB)
	file, link := lab.File(t, "ext4", "f"), lab.File(t, "ext4", "link")
	b.Writes(file, 8, "1M", "conv=notrunc,fsync")
	if err := os.Link(file, link); err != nil {
		t.Fatal(err)
	}
	lab.AwaitWatched(t, "ext4")
	end := a.Starts(lab.WaysToWrite[0].Command(link)...)
	a.AwaitOwner(file)
	if got := lab.OwnerOf(t, link); got.CgroupID != a.ID {
		t.Errorf("by its other name it belongs to %+v", got)
	}
	if files := lab.Report(t).Files; len(files) > 1 {
		t.Errorf("two names are %d files: %+v", len(files), files)
	}
	end()
	// And back, after the name by which it was moved has been removed.
	if err := os.Remove(link); err != nil {
		t.Fatal(err)
	}
	b.Starts(lab.WaysToWrite[0].Command(file)...)
	b.AwaitOwner(file)
}

// TestRepairCopyUp verifies that the copy of a file of a lower layer, which overlayfs makes at the first write,
// is charged to the writing cgroup, at its limit, and belongs to it. Like any file of the upper layer's
// filesystem, it moves later to another writer that writes to it through the overlay.
func TestRepairCopyUp(t *testing.T) {
	const size, rate = 8, 4 // MiB
	lab.StartRepair(t)
	a, b := lab.NewWriter(t, "a"), lab.NewWriter(t, "b")
	a.Limit("ext4", rate*lab.MiB)
	dir := lab.File(t, "ext4", "layers")
	t.Cleanup(func() { os.RemoveAll(dir) })
	for _, name := range []string{"lower", "upper", "work", "merged"} {
		lab.MustMkdir(t, filepath.Join(dir, name))
	}
	lab.Administer(t, "dd", "status=none", "if=/dev/urandom", "of="+dir+"/lower/f", "bs=1M", fmt.Sprint("count=", size), "conv=fsync")
	merged := filepath.Join(dir, "merged")
	lab.Administer(t, "mount", "-t", "overlay", "overlay", "-o", "lowerdir="+dir+"/lower,upperdir="+dir+"/upper,workdir="+dir+"/work", merged)
	t.Cleanup(func() { lab.Administer(t, "umount", merged) })
	lab.AwaitWatched(t, "ext4")
	before, began := a.Written("ext4"), time.Now()
	a.Does("sh", "-c", "echo more >>"+merged+"/f") // overlayfs syncs the copy
	took, charged := time.Since(began), a.Written("ext4")-before
	t.Logf("%.1f of %d MiB are charged to the writer, in %v", float64(charged)/lab.MiB, size, took.Round(10*time.Millisecond))
	if charged < size*lab.MiB*9/10 {
		t.Errorf("%d bytes of the copy are charged to the writer, want at least 90 %% of %d MiB", charged, size)
	}
	if least := size * time.Second / rate / 2; took < least {
		t.Errorf("the copy took %v, at the writer's limit it takes at least %v", took, least)
	}
	upper := filepath.Join(dir, "upper", "f")
	if got := lab.OwnerOf(t, upper); got.CgroupID != a.ID {
		t.Errorf("the owner of the copy is %+v, want cgroup %d", got, a.ID)
	}
	b.Starts(lab.WaysToWrite[0].Command(filepath.Join(merged, "f"))...)
	b.AwaitOwner(upper)
}
