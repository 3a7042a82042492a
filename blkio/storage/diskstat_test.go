package storage

import (
	"errors"
	"io/fs"
	"strings"
	"testing"
	"testing/fstest"
	"time"

	"github.com/nri-blkio/nri-blkio/blkio"
)

const statLine = "  446216   784926  9550688  4382310   424847   312726  5922052 19310380        3  3376340 23705160        0        0        0        0     1234     5678\n"

func TestReadDiskStat(t *testing.T) {
	f := sysfsOf(map[string]string{"devices/pci/sda/stat": statLine})
	s := NewSysfs(f)
	got, err := s.ReadDiskStat(blkio.Dev{Major: 8})
	want := DiskStat{Reads: 446216, Writes: 424847, ReadBytes: 9550688 * 512, WrittenBytes: 5922052 * 512, Active: 3376340 * time.Millisecond}
	if err != nil || got != want {
		t.Errorf("%+v, %v", got, err)
	}
	if _, err := s.ReadDiskStat(blkio.Dev{Major: 9}); !errors.Is(err, blkio.ErrNoDevice) {
		t.Errorf("a disk that is not there: %v", err)
	}
	diff := want.Sub(DiskStat{Reads: 1, Writes: 2, ReadBytes: 512, WrittenBytes: 1024, Active: time.Second})
	if diff != (DiskStat{446215, 424845, 9550687 * 512, 5922050 * 512, 3375340 * time.Millisecond}) {
		t.Errorf("%+v", diff)
	}
}

// TestDiskStatOfLeavingDisk verifies that the link to a disk can be there for a moment longer than its
// counters.
func TestDiskStatOfLeavingDisk(t *testing.T) {
	s := NewSysfs(sysfsOf(nil))
	if got, err := s.ReadDiskStat(blkio.Dev{Major: 8}); !errors.Is(err, blkio.ErrNoDevice) {
		t.Errorf("%+v, %v", got, err)
	}
}

func TestParseDiskStatErrors(t *testing.T) {
	for _, tt := range []struct{ line, want string }{
		{"", "0 columns, not 11 or more"},
		{"1 2 3", "3 columns"},
		{strings.Replace(statLine, "9550688", "x", 1), "column 3: "},
		{strings.Replace(statLine, "9550688", "-1", 1), "column 3: "},
	} {
		if s, err := parseDiskStat(tt.line); err == nil || !strings.Contains(err.Error(), tt.want) {
			t.Errorf("%q: %+v, %v", tt.line, s, err)
		}
	}
}

func FuzzDiskStat(f *testing.F) {
	f.Add(statLine)
	f.Fuzz(func(t *testing.T, line string) {
		if s, err := parseDiskStat(line); err != nil && s != (DiskStat{}) {
			t.Errorf("%+v with %v", s, err)
		}
	})
}

// sysfsOf returns a sysfs with the disk sda, 8:0.
func sysfsOf(files map[string]string) fstest.MapFS {
	f := fstest.MapFS{}
	for name, data := range files {
		f[name] = &fstest.MapFile{Data: []byte(data)}
	}
	f["dev/block/8:0"] = &fstest.MapFile{Data: []byte("../../devices/pci/sda"), Mode: fs.ModeSymlink | 0o777}
	return f
}
