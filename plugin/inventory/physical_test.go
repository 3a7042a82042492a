package inventory

import (
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/nri-blkio/nri-blkio/blkio"
	"github.com/nri-blkio/nri-blkio/policy/annotation"
)

// TestFindPhysical verifies that Find returns the disks below a volume's disk for weights.
func TestFindPhysical(t *testing.T) {
	h := newHost()
	h.below["/mnt/data/below"] = on(lowerDisk)
	f := Finder{Storage: h, KubeletRoot: "/var/lib/kubelet"}
	for key, want := range map[string]map[blkio.Dev][]blkio.Disk{
		"weight.blkio.noderesource.dev/containers": {dataDisk.Dev: {rootDisk, lowerDisk}}, "weight.blkio.noderesource.dev/pod-total": {dataDisk.Dev: {rootDisk, lowerDisk}}, containers: nil,
	} {
		value := "/data 5; * 100"
		if key == containers {
			value = "* wbps=1Mi"
		}
		c := NewContainer(&Spec{Mounts: []Mount{bind("/mnt/data", "/data", "rbind", "rw")}})
		if err := f.Find(t.Context(), &Pod{UID: "u1", Sandbox: "s1", Targets: annotation.Parse(map[string]string{key: value}).Targets()}, Layer{Dir: "/layers"}, &c); err != nil {
			t.Fatal(err)
		}
		if diff := cmp.Diff(want, c.Facts.Physical); diff != "" {
			t.Errorf("%s: -want +got:\n%s", key, diff)
		}
	}
}
