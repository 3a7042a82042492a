package policy

import (
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/nri-blkio/nri-blkio/blkio"
	"github.com/nri-blkio/nri-blkio/policy/annotation"
)

func TestKeepGranted(t *testing.T) {
	const each, total = "limits/containers", "limits/pod-total"
	names := map[blkio.Dev]string{sda.Dev: sda.Name, sdb.Dev: sdb.Name}
	limits := func(list ...Setting) Desired {
		out := Desired{Settings: list, Disks: map[blkio.Dev]string{}}
		for _, s := range list {
			if s.Key.IsRate() {
				out.Disks[s.Dev] = names[s.Dev]
			}
		}
		return out
	}
	of := func(disk blkio.Disk, key blkio.Key, amount blkio.Amount, annotation string, entry int) Setting {
		return Setting{set(disk, key, amount).Value, from(annotation, entry, "")}
	}
	with := func(d Desired, errs []*annotation.Error) Desired {
		d.Errors = errs
		return d
	}
	warned := func(d Desired) Desired {
		d.Warnings, d.WarningKinds = []string{stillGranted}, []blkio.WarningKind{StillGranted}
		return d
	}
	refused := func(entry int) []*annotation.Error { return []*annotation.Error{{Annotation: each, Entry: entry}} }
	for name, tt := range map[string]struct {
		now, former, want Desired
	}{
		"nothing refused": {former: limits(of(sda, blkio.Wbps, 5, each, 1))},
		"nothing granted": {now: Desired{Errors: refused(1)}, want: Desired{Errors: refused(1)}},
		"the entry": {
			now:    with(limits(of(sdb, blkio.Rbps, 7, each, 1)), refused(2)),
			former: limits(of(sda, blkio.Wbps, 5, each, 2), of(sdb, blkio.Wbps, 6, each, 1)),
			want:   warned(with(limits(of(sda, blkio.Wbps, 5, each, 2), of(sdb, blkio.Rbps, 7, each, 1)), refused(2))),
		},
		"another annotation's": {
			now:    Desired{Errors: refused(1)},
			former: limits(of(sda, blkio.Wbps, 5, total, 1)),
			want:   Desired{Errors: refused(1)},
		},
		"something else holds there": {
			now:    with(limits(of(sda, blkio.Wbps, 9, each, 2)), refused(1)),
			former: limits(of(sda, blkio.Wbps, 5, each, 1)),
			want:   with(limits(of(sda, blkio.Wbps, 9, each, 2)), refused(1)),
		},
		"a weight": {
			now:    Desired{Errors: refused(0)},
			former: limits(of(blkio.Disk{}, blkio.Weight, 500, each, 0)),
			want:   warned(with(limits(of(blkio.Disk{}, blkio.Weight, 500, each, 0)), refused(0))),
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
