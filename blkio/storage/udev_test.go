package storage

import (
	"io/fs"
	"strings"
	"testing"
	"testing/fstest"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/nri-blkio/nri-blkio/blkio"
)

const (
	udevModel = "rbps=2706339840 rseqiops=89698 rrandiops=110036 wbps=1063126016 wseqiops=135560 wrandiops=130734"
	udevQOS   = "rpct=0.00 rlat=9000 wpct=0.00 wlat=94410 min=100.00 max=125.00"
)

// TestReadLinks covers the links of a disk in udev's database.
func TestReadLinks(t *testing.T) {
	const text = "S:disk/by-id/nvme-Some\\x20SSD\nS:disk/by-path/pci-0\nS:\nI:1\nE:DEVLINKS=/dev/other\nS:mapper/vg-lv"
	udev := fstest.MapFS{"b8:0": {Data: []byte(text)}, "b8:16": {}, "b8:32": {Data: make([]byte, maxUdev+1)}, "b8:48": {Mode: fs.ModeDir}}
	want := []string{`/dev/disk/by-id/nvme-Some\x20SSD`, "/dev/disk/by-path/pci-0", "/dev/mapper/vg-lv"}
	for minor, isError := range map[uint32]bool{0: false, 16: false, 1: false, 32: true, 48: true} {
		got, err := ReadLinks(udev, blkio.Dev{Major: 8, Minor: minor})
		if (err != nil) != isError || minor != 0 && got != nil {
			t.Errorf("8:%d: %v, %v", minor, got, err)
		}
		if d := cmp.Diff(want, got); minor == 0 && d != "" {
			t.Errorf("-want +got:\n%s", d)
		}
	}
	s := Storage{cfg: Config{UdevData: udev}}
	if got := s.Links(blkio.Dev{Major: 8}); len(got) != 3 || s.Links(blkio.Dev{Major: 8, Minor: 32}) != nil || (&Storage{}).Links(blkio.Dev{Major: 8}) != nil {
		t.Errorf("%q", got)
	}
}

func TestReadCostSolution(t *testing.T) {
	want := CostSolution{
		Model: blkio.CostModel{
			Rbps: 2706339840, RSeqIOPS: 89698, RRandIOPS: 110036, Wbps: 1063126016, WSeqIOPS: 135560, WRandIOPS: 130734,
		},
		QOS: blkio.CostQOS{RLat: 9 * time.Millisecond, WLat: 94410 * time.Microsecond, Min: 10000, Max: 12500},
	}
	named := func(name string) *CostSolution {
		s := want
		s.Name = name
		return &s
	}
	other := strings.ReplaceAll(udevModel, "89698", "1")
	for _, tt := range []struct {
		name, text string
		want       *CostSolution
		err        string
	}{
		{name: "none", text: "I:1\nE:ID_MODEL=x\n"},
		{name: "empty", text: ""},
		{name: "no names", text: "E:IOCOST_SOLUTIONS= \n"},
		{
			name: "naive before the first", want: named("naive"),
			text: "E:IOCOST_SOLUTIONS=isolation naive\nE:IOCOST_MODEL_ISOLATION=" + other + "\nE:IOCOST_QOS_ISOLATION=" + udevQOS +
				"\nE:IOCOST_MODEL_NAIVE=" + udevModel + "\nE:IOCOST_QOS_NAIVE=" + udevQOS,
		},
		{
			name: "the first, with a dash", want: named("isolated-bandwidth"),
			text: "E:IOCOST_QOS_ISOLATED_BANDWIDTH=" + udevQOS + "\nE:IOCOST_MODEL_ISOLATED_BANDWIDTH=" + udevModel + "\nE:IOCOST_SOLUTIONS=isolated-bandwidth bandwidth\n",
		},
		{name: "a part of it", text: "E:IOCOST_SOLUTIONS=naive\nE:IOCOST_MODEL_NAIVE=" + udevModel + "\n"},
		{name: "no value", text: "E:IOCOST_SOLUTIONS=naive\nE:IOCOST_MODEL_NAIVE=\nE:IOCOST_QOS_NAIVE=" + udevQOS, err: "b8:16: rbps=0 is too small"},
		{name: "no number", text: "E:IOCOST_SOLUTIONS=naive\nE:IOCOST_MODEL_NAIVE=rbps=x\nE:IOCOST_QOS_NAIVE=" + udevQOS, err: `invalid rbps "x"`},
		{
			name: "no percentage", text: "E:IOCOST_SOLUTIONS=naive\nE:IOCOST_MODEL_NAIVE=" + udevModel + "\nE:IOCOST_QOS_NAIVE=rpct=95%",
			err: `invalid rpct "95%"`,
		},
		{name: "a long line", text: "E:" + strings.Repeat("x", maxUdev-2), err: "token too long"},
	} {
		t.Run(tt.name, func(t *testing.T) {
			udev := fstest.MapFS{"b8:16": {Data: []byte(tt.text)}}
			got, err := ReadCostSolution(udev, blkio.Dev{Major: 8, Minor: 16})
			switch {
			case tt.err == "" && err != nil, tt.err != "" && (err == nil || !strings.Contains(err.Error(), tt.err)):
				t.Fatalf("%v, want %q", err, tt.err)
			case tt.err != "":
				return
			}
			if diff := cmp.Diff(tt.want, got); diff != "" {
				t.Error(diff)
			}
		})
	}
	if got, err := ReadCostSolution(fstest.MapFS{}, blkio.Dev{Major: 8}); got != nil || err != nil {
		t.Errorf("without a file: %v, %v", got, err)
	}
	if _, err := ReadCostSolution(fstest.MapFS{"b8:0": {Mode: fs.ModeDir}}, blkio.Dev{Major: 8}); err == nil {
		t.Error("a directory was read")
	}
}

// TestSizeOfUdev verifies that a file that is larger than the part that is read is refused. Without its end,
// the last value could be another one.
func TestSizeOfUdev(t *testing.T) {
	text := func(size int) string {
		return padded("E:IOCOST_SOLUTIONS=naive\nE:IOCOST_QOS_NAIVE="+udevQOS+"\n", "E:IOCOST_MODEL_NAIVE="+udevModel, size)
	}
	for size, want := range map[int]string{maxUdev: "", maxUdev + 2: "parse udev's database, b8:16: larger than 65536 bytes"} {
		got, err := ReadCostSolution(fstest.MapFS{"b8:16": {Data: []byte(text(size))}}, blkio.Dev{Major: 8, Minor: 16})
		checkError(t, err, want)
		if err == nil && (got == nil || got.Model.String() != udevModel) {
			t.Errorf("%d bytes: %+v", size, got)
		}
	}
}

// padded returns two texts with short lines between them, with a size as a whole.
func padded(begin, end string, size int) string {
	var b strings.Builder
	b.WriteString(begin)
	for size-b.Len()-len(end) > 100 {
		b.WriteString("E:ID_MODEL=x\n")
	}
	b.WriteString("E:" + strings.Repeat("x", size-b.Len()-len(end)-len("E:\n")) + "\n" + end)
	return b.String()
}

func FuzzParseCostSolution(f *testing.F) {
	f.Add("E:IOCOST_SOLUTIONS=naive\nE:IOCOST_MODEL_NAIVE=" + udevModel + "\nE:IOCOST_QOS_NAIVE=" + udevQOS)
	f.Fuzz(func(t *testing.T, text string) {
		got, err := parseCostSolution(strings.NewReader(text))
		if err == nil && got != nil && (got.Model.Check() != nil || got.QOS.Check() != nil) {
			t.Errorf("%q: %+v", text, got)
		}
	})
}
