package cgroupfs

import (
	"errors"
	"io/fs"
	"os"
	"strings"
	"testing"
	"testing/fstest"

	"github.com/google/go-cmp/cmp"

	"github.com/nri-blkio/nri-blkio/blkio"
)

// wbStats is in the format of Linux 6.10 to 6.18.
const wbStats = `WbCgIno:                    1
WbWriteback:                0 kB
WbReclaimable:             96 kB
WbDirtyThresh:              0 kB
WbDirtied:              33600 kB
WbWritten:              33600 kB
WbWriteBandwidth:         148 kBps
b_dirty:                    0
b_io:                       0
b_more_io:                  0
b_dirty_time:               0
state:                      1

WbCgIno:                 4208
WbWriteback:            59808 kB
WbReclaimable:         676480 kB
WbDirtyThresh:        6004624 kB
WbDirtied:           23348192 kB
WbWritten:           22614592 kB
WbWriteBandwidth:      593204 kBps
b_dirty:                    1
b_io:                       2
b_more_io:                  4
b_dirty_time:              80
state:                      f

`

func TestParseWritebackStats(t *testing.T) {
	tests := map[string]struct {
		in   string
		want []WritebackStat
		err  string
	}{
		"empty":        {in: ""},
		"the kernel's": {in: wbStats, want: []WritebackStat{{CgroupID: 1, Dirty: 96 << 10}, {4208, 676480 << 10, 59808 << 10, 7}}},
		"one twice":    {in: "WbCgIno: 5\nb_io: 1\nWbCgIno: 5\n", want: []WritebackStat{{CgroupID: 5, Inodes: 1}, {CgroupID: 5}}},
		"later lines":  {in: "Wb: x\nWbCgIno: 5\nWbNew: x y\n\nstate\n", want: []WritebackStat{{CgroupID: 5}}},
		"before any":   {in: "WbWriteback: x\n"},
		"large number": {in: "WbCgIno: 18446744073709551615\n", want: []WritebackStat{{CgroupID: 1<<64 - 1}}},
		"no number":    {in: "WbCgIno: x\n", err: `parse wb_stats, line 1 "WbCgIno: x": strconv.ParseUint: parsing "x": invalid syntax`},
		"other unit":   {in: "WbCgIno: 1\nWbWriteback: 1 MB\n", err: `parse wb_stats, line 2 "WbWriteback: 1 MB": not in kB`},
		"too large":    {in: "WbCgIno: 1\nWbReclaimable: 9007199254740992 kB\n", err: `parse wb_stats, line 2 "WbReclaimable: 9007199254740992 kB": strconv.ParseUint: parsing "9007199254740992": value out of range`},
		"no value":     {in: "WbCgIno: 1\nb_dirty:\n", err: `parse wb_stats, line 2 "b_dirty:": not one number`},
	}
	for name, tt := range tests {
		t.Run(name, func(t *testing.T) {
			got, err := ParseWritebackStats(strings.NewReader(tt.in))
			checkError(t, err, tt.err)
			if diff := cmp.Diff(tt.want, got); diff != "" {
				t.Error(diff)
			}
		})
	}
}

// denied is a debugfs that only root may read.
type denied struct{ fs.FS }

func (denied) ReadDir(string) ([]fs.DirEntry, error) { return nil, os.ErrPermission }

func TestReadWritebackStats(t *testing.T) {
	file := func(data string) *fstest.MapFile { return &fstest.MapFile{Data: []byte(data)} }
	got, err := ReadWritebackStats(fstest.MapFS{
		"bdi/8:0/wb_stats": file("WbCgIno: 5\n"), "bdi/btrfs-1/wb_stats": file("WbCgIno: 6\n"), "bdi/7:0/stats": file("x"),
	})
	checkError(t, err, "")
	want := map[string][]WritebackStat{"8:0": {{CgroupID: 5}}, "btrfs-1": {{CgroupID: 6}}}
	if diff := cmp.Diff(want, got); diff != "" {
		t.Error(diff)
	}
	for want, debugfs := range map[string]fs.FS{
		"not supported: debugfs is not mounted":                      fstest.MapFS{},
		"not supported: this kernel has no wb_stats":                 fstest.MapFS{"bdi/8:0/stats": file("")},
		"read debugfs: permission denied":                            denied{fstest.MapFS{}},
		`bdi 8:0: parse wb_stats, line 1 "WbCgIno:": not one number`: fstest.MapFS{"bdi/8:0/wb_stats": file("WbCgIno:\n")},
	} {
		_, err := ReadWritebackStats(debugfs)
		checkError(t, err, want)
		if errors.Is(err, blkio.ErrNotSupported) != strings.HasPrefix(want, "not supported") {
			t.Errorf("%v: is it ErrNotSupported?", err)
		}
	}
}
