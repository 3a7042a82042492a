package handover

import (
	"context"
	"errors"
	"os"
	"path/filepath"
	"slices"
	"testing"
	"testing/fstest"

	"github.com/nri-blkio/nri-blkio/blkio"
	"github.com/nri-blkio/nri-blkio/blkio/storage"
	"github.com/nri-blkio/nri-blkio/plugin/inventory"
	"github.com/nri-blkio/nri-blkio/policy"
)

// withMounts is the storage of a node with the disks sda and sdb, and a mount table.
func withMounts(t *testing.T, mountinfo string) *storage.Storage {
	t.Helper()
	link := func(to string) *fstest.MapFile { return &fstest.MapFile{Data: []byte(to), Mode: os.ModeSymlink} }
	sys := fstest.MapFS{
		"devices/sda/dev": {Data: []byte("8:0\n")}, "block/sda": link("../devices/sda"), "dev/block/8:0": link("../../devices/sda"),
		"devices/sdb/dev": {Data: []byte("8:16\n")}, "block/sdb": link("../devices/sdb"), "dev/block/8:16": link("../../devices/sdb"),
	}
	table := filepath.Join(t.TempDir(), "mountinfo")
	if err := os.WriteFile(table, []byte(mountinfo), 0o644); err != nil {
		t.Fatal(err)
	}
	s, err := storage.Open(storage.Config{Sys: sys, Mountinfo: table, HostRoot: t.TempDir()})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { s.Close() })
	return s
}

// TestHidden verifies that a filesystem that another one hides at the end of a container is not synced by its
// path. The path leads to the other filesystem, and a network filesystem could hang. The data that the
// container has left is unknown then.
func TestHidden(t *testing.T) {
	const root, volume = "1 0 8:16 / / rw - ext4 /dev/sdb rw\n", "2 1 8:0 / /pods/p/vol rw - ext4 /dev/sda rw\n"
	facts := policy.Container{Mounts: []policy.Mount{{Backing: withMounts(t, root+volume).Resolve(t.Context(), "/pods/p/vol")}}}
	for name, tt := range map[string]struct {
		mounts string
		hidden bool
		local  bool
	}{
		"as before":                  {mounts: root + volume, local: true},
		"NFS over it":                {mounts: root + volume + "3 2 0:50 / /pods/p/vol rw - nfs4 server:/x rw\n", hidden: true},
		"NFS above it":               {mounts: root + volume + "3 1 0:50 / /pods rw - nfs4 server:/x rw\n", hidden: true},
		"NFS between":                {mounts: root + "3 1 0:50 / /pods rw - nfs4 server:/x rw\n2 3 8:0 / /pods/p/vol rw - ext4 /dev/sda rw\n", hidden: true},
		"FUSE over it":               {mounts: root + volume + "3 2 0:50 / /pods/p/vol rw - fuse.sshfs x rw\n", hidden: true},
		"another disk over it":       {mounts: root + volume + "3 2 8:16 / /pods/p/vol rw - ext4 /dev/sdb rw\n", hidden: true, local: true},
		"memory over it":             {mounts: root + volume + "3 2 0:50 / /pods/p/vol rw - tmpfs tmpfs rw\n", hidden: true, local: true},
		"unmounted":                  {mounts: root, local: true},
		"the same disk over it":      {mounts: root + volume + "3 2 8:0 / /pods/p/vol rw - ext4 /dev/sda rw\n", local: true},
		"NFS below it":               {mounts: root + volume + "3 2 0:50 / /pods/p/vol/in rw - nfs4 server:/x rw\n", local: true},
		"NFS over another directory": {mounts: root + volume + "3 1 0:50 / /pods/p/volume rw - nfs4 server:/x rw\n", local: true},
	} {
		s := withMounts(t, tt.mounts)
		got := find(t, s, &inventory.Container{Facts: facts}, map[blkio.Dev]bool{sda: true})
		paths := []string{}
		for _, v := range got.Volumes {
			paths = append(paths, v.Path)
		}
		want := []string{"/pods/p/vol"}
		if tt.hidden {
			want = []string{}
		}
		if !slices.Equal(paths, want) || got.More != tt.hidden {
			t.Errorf("%s: to be synced %q, want %q, more %t", name, paths, want, got.More)
		}
		// A sync that was queued before also finds the other filesystem.
		synced := false
		w := Writeout{Storage: s}
		err := w.OnlyLocal(func(context.Context, string) error { synced = true; return nil })(t.Context(), "/pods/p/vol")
		if synced != tt.local || errors.Is(err, errRemote) == tt.local {
			t.Errorf("%s: synced %t, %v", name, synced, err)
		}
	}
	synced := false
	w := Writeout{Storage: unreadable{withMounts(t, root+volume)}}
	err := w.OnlyLocal(func(context.Context, string) error { synced = true; return nil })(t.Context(), "/pods/p/vol")
	if !synced || err != nil {
		t.Errorf("while the mount table cannot be read: synced %t, %v", synced, err)
	}
	if (&Writeout{}).OnlyLocal(nil) != nil {
		t.Error("where no sync is wanted there is one")
	}
}

// unreadable is a Storage with a mount table that cannot be read any more.
type unreadable struct{ Storage }

func (unreadable) Refresh(context.Context) error { return errors.New("an I/O error") }
