package inspect

import (
	"testing"

	"github.com/nri-blkio/nri-blkio/blkio"
	"github.com/nri-blkio/nri-blkio/blkio/cgroupfs"
	"github.com/nri-blkio/nri-blkio/blkio/storage"
	"github.com/nri-blkio/nri-blkio/internal/fakenode"
)

func TestMaxSupport(t *testing.T) {
	for kernel, want := range map[blkio.Tri]Support{
		blkio.Yes:     {OK: blkio.Yes},
		blkio.No:      {blkio.No, "the kernel has no io.max (CONFIG_BLK_DEV_THROTTLING)"},
		blkio.Unknown: {blkio.Unknown, noIOCgroup},
	} {
		if got := maxSupport(cgroupfs.Features{IOMax: kernel}); got != want {
			t.Errorf("%v: got %v, want %v", kernel, got, want)
		}
	}
}

// TestWeight verifies that io.cost has to be on for each physical disk below.
func TestWeight(t *testing.T) {
	sda, sdb, dm0 := blkio.Dev{Major: 8}, blkio.Dev{Major: 8, Minor: 16}, blkio.Dev{Major: 253}
	on := cgroupfs.Features{IOWeight: blkio.Yes}
	for _, tt := range []struct {
		name      string
		features  cgroupfs.Features
		qos       []blkio.Dev
		bfq       []blkio.Dev // given to bfq by this program
		dev       blkio.Dev
		scheduler string
		want      Support
	}{
		{name: "no io.weight", features: cgroupfs.Features{IOWeight: blkio.No}, dev: sda, want: Support{blkio.No, "the kernel has no io.weight (CONFIG_BLK_CGROUP_IOCOST)"}},
		{name: "no cgroup with io", dev: sda, want: Support{blkio.Unknown, noIOCgroup}},
		{
			name: "in a namespace", features: cgroupfs.Features{IOWeight: blkio.Yes, Namespaced: true}, dev: sda,
			want: Support{blkio.Unknown, "io.cost.qos is not visible in this cgroup namespace"},
		},
		{name: "on", features: on, qos: []blkio.Dev{sda}, dev: sda, want: Support{OK: blkio.Yes}},
		{name: "off", features: on, qos: []blkio.Dev{sdb}, dev: sda, want: Support{blkio.No, "io.cost is off"}},
		{name: "off, with bfq", features: on, dev: sda, scheduler: "bfq", want: Support{blkio.No, "io.cost is off, and bfq uses only io.bfq.weight"}},
		{name: "given to bfq", features: cgroupfs.Features{IOWeight: blkio.No}, bfq: []blkio.Dev{sda}, dev: sda, want: Support{OK: blkio.Yes}},
		{name: "one of each below", features: on, qos: []blkio.Dev{sda}, bfq: []blkio.Dev{sdb}, dev: dm0, want: Support{OK: blkio.Yes}},
		{name: "on for both below", features: on, qos: []blkio.Dev{sda, sdb}, dev: dm0, want: Support{OK: blkio.Yes}},
		{name: "removed", features: on, dev: blkio.Dev{Major: 8, Minor: 200}, want: Support{blkio.Unknown, "block device 8:200: no such disk"}},
		{name: "on for one below", features: on, qos: []blkio.Dev{sdb}, dev: dm0, want: Support{blkio.No, "io.cost is off on sda below"}},
	} {
		t.Run(tt.name, func(t *testing.T) {
			b := &treeBuilder{sys: storage.NewSysfs(fakenode.Sysfs())}
			b.features, b.qos, b.bfq = tt.features, map[blkio.Dev]blkio.CostQOSLine{}, map[blkio.Dev]bool{}
			for _, d := range tt.qos {
				b.qos[d] = blkio.CostQOSLine{Enabled: true}
			}
			for _, d := range tt.bfq {
				b.bfq[d] = true
			}
			disk := storage.DiskInfo{Disk: blkio.Disk{Dev: tt.dev}, Queue: storage.Queue{Scheduler: tt.scheduler}}
			if got := b.weightOf(disk); got != tt.want {
				t.Errorf("got %v, want %v", got, tt.want)
			}
		})
	}
}

// TestBuffered verifies that only a filesystem without cgroup writeback escapes write limits.
func TestBuffered(t *testing.T) {
	for _, tt := range []struct {
		warning *blkio.Warning
		want    Support
	}{
		{nil, Support{OK: blkio.Yes}},
		{&blkio.Warning{Kind: blkio.NoCgroupWriteback, Text: "none"}, Support{blkio.No, "none"}},
		{&blkio.Warning{Kind: blkio.StallsFsync, Text: "another"}, Support{blkio.Yes, "another"}},
	} {
		if got := bufferedOf(tt.warning); *got != tt.want {
			t.Errorf("%v: got %v, want %v", tt.warning, *got, tt.want)
		}
	}
}
