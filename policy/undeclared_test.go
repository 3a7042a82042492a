package policy

import (
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/nri-blkio/nri-blkio/blkio"
	"github.com/nri-blkio/nri-blkio/policy/annotation"
)

// TestUndeclared verifies that "*", and no other target, selects an undeclared disk of a container.
func TestUndeclared(t *testing.T) {
	reaches := func(mounts ...Mount) Container {
		return Container{Name: "db", Rootfs: on(sda), Mounts: mounts, Undeclared: []blkio.Disk{sdc}}
	}
	for _, tt := range []struct {
		name, value string
		c           Container
		want        []string
	}{
		{"star", "* wbps=1Mi", reaches(mount("/data", on(sdb))), []string{"sda wbps=1048576", "sdb wbps=1048576", "sdc wbps=1048576"}},
		{"the only disk", "* rbps=1Mi", Container{Name: "db", Rootfs: tmpfs(), Undeclared: []blkio.Disk{sdc}}, []string{"sdc rbps=1048576"}},
		{"a path beats it", "/data wbps=2Mi; * wbps=1Mi", reaches(mount("/data", on(sdc))), []string{"sda wbps=1048576", "sdc wbps=2097152"}},
		{"paths alone", "/data wbps=1Mi; rootfs wbps=2Mi", reaches(mount("/data", on(sdb))), []string{"sda wbps=2097152", "sdb wbps=1048576"}},
	} {
		d, err := Default().of(annotation.Parse(map[string]string{keyDB: tt.value})).Container(tt.c)
		if err != nil {
			t.Errorf("%s: %v", tt.name, err)
		}
		if diff := cmp.Diff(tt.want, limits(d)); diff != "" {
			t.Errorf("%s: -want +got:\n%s", tt.name, diff)
		}
	}
	d, err := Default().of(annotation.Parse(map[string]string{keyTotal: "* wbps=1Mi"})).Total([]Container{reaches()})
	if diff := cmp.Diff([]string{"sda wbps=1048576", "sdc wbps=1048576"}, limits(d)); err != nil || diff != "" {
		t.Errorf("pod-total: %v, -want +got:\n%s", err, diff)
	}
}
