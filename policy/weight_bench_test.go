package policy

import (
	"fmt"
	"testing"

	"github.com/nri-blkio/nri-blkio/blkio"
	"github.com/nri-blkio/nri-blkio/policy/annotation"
)

// BenchmarkPodTotalWeight is a pod with a weight in pod-total, and with many containers, which all
// have the same volumes: a logical volume each, on a few disks.
func BenchmarkPodTotalWeight(b *testing.B) {
	for _, n := range []int{1, 10, 100, 1000} {
		b.Run(fmt.Sprintf("%d containers", n), func(b *testing.B) {
			physical := map[blkio.Dev][]blkio.Disk{}
			var mounts []Mount
			for i := range 15 {
				lv := blkio.Disk{Dev: blkio.Dev{Major: 253, Minor: uint32(i)}, Name: fmt.Sprint("dm-", i)}
				physical[lv.Dev] = []blkio.Disk{sda, sdb, sdc}[:1+i%3]
				mounts = append(mounts, mount(fmt.Sprint("/volumes/", i), on(lv)))
			}
			cs := make([]Container, n)
			for i := range cs {
				cs[i] = Container{Name: fmt.Sprintf("c%04d", i), Rootfs: on(sda), Mounts: mounts, Stack: Stack{Physical: physical}}
			}
			p, r := Default(), annotation.Parse(map[string]string{keyWeight + "pod-total": "50"})
			b.ReportAllocs()
			for b.Loop() {
				if _, err := p.of(r).Total(cs); err != nil {
					b.Fatal(err)
				}
			}
		})
	}
}
