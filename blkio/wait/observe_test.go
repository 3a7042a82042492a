package wait

import (
	"os"
	"path/filepath"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/nri-blkio/nri-blkio/blkio"
)

func TestDirtyThreshold(t *testing.T) {
	file := filepath.Join(t.TempDir(), "vmstat")
	for text, want := range map[string]uint64{
		"nr_free_pages 5\nnr_dirty_threshold 389325\nnr_dirty_background_threshold 194423\n": 389325,
		"nr_dirty_background_threshold 194423\n":                                             0,
		"nr_dirty_threshold x\n":                                                             0,
	} {
		if err := os.WriteFile(file, []byte(text), 0o600); err != nil {
			t.Fatal(err)
		}
		if got, err := dirtyThreshold(file); got != want || (err == nil) != (want > 0) {
			t.Errorf("%q: %d, %v, want %d", text, got, err, want)
		}
	}
}

// TestHeldTime verifies that the time counts of what is held now.
func TestHeldTime(t *testing.T) {
	for name, tt := range map[string]struct {
		held held
		want Time
	}{
		"none now":            {held{Wall: 5, Sum: 7, Count: 2, Last: 100}, Time{Wall: 5, Sum: 7, Count: 2}},
		"three now":           {held{Wall: 5, Sum: 7, Count: 2, Bios: 3, Last: 100}, Time{Wall: 15, Sum: 37, Count: 2}},
		"changed in the read": {held{Wall: 5, Sum: 7, Bios: 3, Last: 111}, Time{Wall: 5, Sum: 7}},
	} {
		if got := tt.held.time(110); got != tt.want {
			t.Errorf("%s: %+v, want %+v", name, got, tt.want)
		}
	}
}

// TestAdd verifies that waits which last are added to those which have ended, and that a cause with an unknown number is left out.
func TestAdd(t *testing.T) {
	got := Times{At: map[Place]Time{}}
	got.add(key{Cgroup: 7, By: 8, Dev: 254<<20 | 16, Cause: uint16(Limit), Op: uint16(Read)}, Time{Sum: time.Second, Wall: time.Second, Count: 1})
	got.add(key{Cgroup: 7, By: 8, Dev: 254<<20 | 16, Cause: uint16(Limit), Op: uint16(Read)}, Time{Sum: time.Second})
	got.add(key{Cause: uint16(numCauses)}, Time{Sum: time.Second})
	got.add(key{Op: uint16(numOps)}, Time{Sum: time.Second})
	want := map[Place]Time{
		{Cause: Limit, Op: Read, Cgroup: 7, By: 8, Dev: blkio.Dev{Major: 254, Minor: 16}}: {Sum: 2 * time.Second, Wall: time.Second, Count: 1},
	}
	if diff := cmp.Diff(want, got.At); diff != "" {
		t.Errorf("-want, +got:\n%s", diff)
	}
}
