package policy

import (
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/nri-blkio/nri-blkio/blkio"
)

func TestKeepGranted(t *testing.T) {
	const each, total = "limits/containers", "limits/pod-total"
	sda, sdb := blkio.Disk{Dev: blkio.Dev{Major: 8}}, blkio.Disk{Dev: blkio.Dev{Major: 8, Minor: 16}}
	limits := func(disk blkio.Disk, key blkio.Key, rate blkio.Amount, annotation string, entry int) DiskLimits {
		l := DiskLimits{Disk: disk}
		l.Limits[key], l.Sources[key] = rate, from(annotation, entry, "")
		return l
	}
	refused := func(entry int) []*Error { return []*Error{{Annotation: each, Entry: entry}} }
	warned := Desired{Warnings: []string{stillGranted}, WarningKinds: []blkio.WarningKind{StillGranted}}
	for name, tt := range map[string]struct {
		now, former, want Desired
	}{
		"nothing refused": {
			former: Desired{Disks: []DiskLimits{limits(sda, blkio.Wbps, 5, each, 1)}},
		},
		"nothing granted": {
			now:  Desired{Errors: refused(1)},
			want: Desired{Errors: refused(1)},
		},
		"the entry": {
			now:    Desired{Errors: refused(2), Disks: []DiskLimits{limits(sdb, blkio.Rbps, 7, each, 1)}},
			former: Desired{Disks: []DiskLimits{limits(sda, blkio.Wbps, 5, each, 2), limits(sdb, blkio.Wbps, 6, each, 1)}},
			want: Desired{
				Errors: refused(2), Disks: []DiskLimits{limits(sda, blkio.Wbps, 5, each, 2), limits(sdb, blkio.Rbps, 7, each, 1)},
				Warnings: warned.Warnings, WarningKinds: warned.WarningKinds,
			},
		},
		"another annotation's": {
			now:    Desired{Errors: refused(1)},
			former: Desired{Disks: []DiskLimits{limits(sda, blkio.Wbps, 5, total, 1)}},
			want:   Desired{Errors: refused(1)},
		},
		"something else holds there": {
			now:    Desired{Errors: refused(1), Disks: []DiskLimits{limits(sda, blkio.Wbps, 9, each, 2)}},
			former: Desired{Disks: []DiskLimits{limits(sda, blkio.Wbps, 5, each, 1)}},
			want:   Desired{Errors: refused(1), Disks: []DiskLimits{limits(sda, blkio.Wbps, 9, each, 2)}},
		},
		"a weight": {
			now:    Desired{Errors: refused(0)},
			former: Desired{Weight: 500, WeightSource: from(each, 0, "")},
			want: Desired{
				Errors: refused(0), Weight: 500, WeightSource: from(each, 0, ""),
				Warnings: warned.Warnings, WarningKinds: warned.WarningKinds,
			},
		},
	} {
		t.Run(name, func(t *testing.T) {
			tt.now.KeepGranted(tt.former)
			if d := cmp.Diff(tt.want, tt.now); d != "" {
				t.Errorf("-want +got:\n%s", d)
			}
		})
	}
}
