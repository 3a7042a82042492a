package e2e

import (
	"fmt"
	"os"
	"path/filepath"
	"testing"
	"time"
)

// The owner is that of an inode, which a process may reach by more than one name.

// awaitOwner waits until a file belongs to a writer.
func (w writer) awaitOwner(file string) {
	w.t.Helper()
	within(w.t, time.Minute, filepath.Base(file)+" belongs to its writer", func() error {
		if o := ownerOf(w.t, file); o.CgroupID != w.id {
			return fmt.Errorf("the owner is %+v, want cgroup %d", o, w.id)
		}
		return nil
	})
}

// TestRepairHardLink verifies that a file moves to its writer whichever of its names the writer and the owner
// use, and that the report has one file.
func TestRepairHardLink(t *testing.T) {
	startRepair(t)
	a, b := newWriter(t, "a"), newWriter(t, "b")
	a.limit("ext4", 4*mib)
	file, link := testFile(t, "ext4", "f"), testFile(t, "ext4", "link")
	b.writes(file, 8, "1M", "conv=notrunc,fsync")
	if err := os.Link(file, link); err != nil {
		t.Fatal(err)
	}
	awaitWatched(t, "ext4")
	end := a.starts(waysToWrite[0].command(link)...)
	a.awaitOwner(file)
	if got := ownerOf(t, link); got.CgroupID != a.id {
		t.Errorf("by its other name it belongs to %+v", got)
	}
	if files := report(t).Files; len(files) > 1 {
		t.Errorf("two names are %d files: %+v", len(files), files)
	}
	end()
	// And back, after the name by which it was moved has been removed.
	if err := os.Remove(link); err != nil {
		t.Fatal(err)
	}
	b.starts(waysToWrite[0].command(file)...)
	b.awaitOwner(file)
}

// TestRepairCopyUp verifies that the copy of a file of a lower layer, which overlayfs makes at the first write,
// is charged to the writing cgroup, at its limit, and belongs to it. Like any file of the upper layer's
// filesystem, it moves later to another writer that writes to it through the overlay.
func TestRepairCopyUp(t *testing.T) {
	const size, rate = 8, 4 // MiB
	startRepair(t)
	a, b := newWriter(t, "a"), newWriter(t, "b")
	a.limit("ext4", rate*mib)
	dir := testFile(t, "ext4", "layers")
	t.Cleanup(func() { os.RemoveAll(dir) })
	for _, name := range []string{"lower", "upper", "work", "merged"} {
		mustMkdir(t, filepath.Join(dir, name))
	}
	administer(t, "dd", "status=none", "if=/dev/urandom", "of="+dir+"/lower/f", "bs=1M", fmt.Sprint("count=", size), "conv=fsync")
	merged := filepath.Join(dir, "merged")
	administer(t, "mount", "-t", "overlay", "overlay", "-o", "lowerdir="+dir+"/lower,upperdir="+dir+"/upper,workdir="+dir+"/work", merged)
	t.Cleanup(func() { administer(t, "umount", merged) })
	awaitWatched(t, "ext4")
	before, began := a.written("ext4"), time.Now()
	a.does("sh", "-c", "echo more >>"+merged+"/f") // overlayfs syncs the copy
	took, charged := time.Since(began), a.written("ext4")-before
	t.Logf("%.1f of %d MiB are charged to the writer, in %v", float64(charged)/mib, size, took.Round(10*time.Millisecond))
	if charged < size*mib*9/10 {
		t.Errorf("%d bytes of the copy are charged to the writer, want at least 90 %% of %d MiB", charged, size)
	}
	if least := size * time.Second / rate / 2; took < least {
		t.Errorf("the copy took %v, at the writer's limit it takes at least %v", took, least)
	}
	upper := filepath.Join(dir, "upper", "f")
	if got := ownerOf(t, upper); got.CgroupID != a.id {
		t.Errorf("the owner of the copy is %+v, want cgroup %d", got, a.id)
	}
	b.starts(waysToWrite[0].command(filepath.Join(merged, "f"))...)
	b.awaitOwner(upper)
}
