package limits

import (
	"context"
	"errors"
	"os"
	"path/filepath"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"github.com/google/go-cmp/cmp/cmpopts"
	"golang.org/x/sys/unix"

	"github.com/nri-blkio/nri-blkio/blkio/storage"
	"github.com/nri-blkio/nri-blkio/test/e2e/lab"
)

// TestMountList verifies that the mounts that the kernel lists are those of mountinfo when mounts are added,
// moved and removed. Kernels before 6.11 cannot list the mounts of a namespace by its ID. There the text is
// parsed, with the same result.
func TestMountList(t *testing.T) {
	const mountinfo = "/proc/self/mountinfo"
	s, err := storage.Open(storage.Config{Sys: os.DirFS("/sys"), Mountinfo: mountinfo, HostRoot: "/"})
	if err != nil {
		t.Fatal(err)
	}
	defer s.Close()
	switch err := s.ListMounts(t.Context()); {
	case errors.Is(err, unix.ENOTTY):
		t.Logf("this kernel's mounts are read as text: %v", err)
	case err != nil:
		t.Fatal(err)
	default:
		t.Log("this kernel's mounts are listed")
	}
	dir := t.TempDir()
	at := func(name string) string {
		p := filepath.Join(dir, name)
		if err := os.MkdirAll(p, 0o755); err != nil {
			t.Fatal(err)
		}
		return p
	}
	base, from, to := at("base"), filepath.Join(dir, "base/a"), filepath.Join(dir, "base/b")
	steps := []struct {
		name string
		do   func() error
	}{
		{"nothing", func() error { return nil }},
		{"tmpfs", func() error { return unix.Mount("none", base, "tmpfs", 0, "") }},
		{"private", func() error { return unix.Mount("", base, "", unix.MS_PRIVATE, "") }},
		{"directories", func() error { at("base/a"); at("base/b"); at("base/a/in"); return nil }},
		{"bind", func() error { return unix.Mount(lab.Volumes["ext4"], from, "", unix.MS_BIND, "") }},
		// Otherwise mounts on it would be mounts on the volume as well.
		{"private, too", func() error { return unix.Mount("", from, "", unix.MS_PRIVATE, "") }},
		{"on it", func() error { return unix.Mount("none", from, "tmpfs", 0, "") }},
		{"bind with what is below", func() error { return unix.Mount(from, to, "", unix.MS_BIND|unix.MS_REC, "") }},
		{"unmount", func() error { return unix.Unmount(to, 0) }},
		{"move", func() error { return unix.Mount(from, to, "", unix.MS_MOVE, "") }},
		{"all", func() error { return unix.Unmount(base, unix.MNT_DETACH) }},
	}
	for _, step := range steps {
		if err := step.do(); err != nil {
			t.Fatalf("%s: %v", step.name, err)
		}
		sameMounts(t, step.name, mountinfo, s)
	}
}

// sameMounts waits until a refreshed storage has the mounts of a mountinfo file. It tries again,
// because the node mounts and unmounts other filesystems between the two reads.
func sameMounts(t *testing.T, step, mountinfo string, s *storage.Storage) {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), 10*time.Second)
	defer cancel()
	for {
		if err := s.Refresh(ctx); err != nil {
			t.Fatal(err)
		}
		text, err := os.Open(mountinfo)
		if err != nil {
			t.Fatal(err)
		}
		want, err := storage.ParseMountTable(text)
		text.Close() // It was only read.
		if err != nil {
			t.Fatal(err)
		}
		// Without a source in statmount (before 6.13), only those are known that disks
		// depend on. A propagation type changes without a sign of it.
		ignored := cmpopts.IgnoreFields(storage.Mount{}, "Source", "Peers", "Master")
		d := cmp.Diff(want.All(), s.Mounts().All(), ignored, cmpopts.SortSlices(func(a, b *storage.Mount) bool { return a.ID < b.ID }))
		if d == "" {
			return
		}
		if ctx.Err() != nil {
			t.Fatalf("after %s (-text +storage):\n%s", step, d)
		}
	}
}
