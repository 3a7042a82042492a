package plugin

import (
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/nri-blkio/nri-blkio/blkio"
)

func TestDiff(t *testing.T) {
	sda, sdb := blkio.Dev{Major: 8}, blkio.Dev{Major: 8, Minor: 16}
	type table = map[blkio.Dev]blkio.Limits
	wbps := func(r blkio.Amount) blkio.Limits { return blkio.Limits{blkio.Wbps: r} }
	kernel := func(r blkio.Amount) blkio.Limits { // the read form has all keys
		return blkio.Limits{blkio.Max, r, blkio.Max, blkio.Max}
	}
	tests := []struct {
		name                   string
		want, recorded, actual table
		raise, lower           []blkio.DevLimits
	}{
		{name: "nothing asked, another tool's limit stays", actual: table{sda: kernel(5)}},
		{name: "in line", want: table{sda: wbps(5)}, recorded: table{sda: wbps(5)}, actual: table{sda: kernel(5)}},
		{
			name: "fresh cgroup", want: table{sda: wbps(5), sdb: wbps(7)},
			lower: []blkio.DevLimits{{Dev: sda, Limits: wbps(5)}, {Dev: sdb, Limits: wbps(7)}},
		},
		{
			name: "raised behind our back", want: table{sda: wbps(5)}, recorded: table{sda: wbps(5)}, actual: table{sda: kernel(50)},
			lower: []blkio.DevLimits{{Dev: sda, Limits: wbps(5)}},
		},
		{
			name: "lowered behind our back", want: table{sda: wbps(5)}, recorded: table{sda: wbps(5)}, actual: table{sda: kernel(2)},
			raise: []blkio.DevLimits{{Dev: sda, Limits: wbps(5)}},
		},
		{
			name: "wanted no more", recorded: table{sda: wbps(5)}, actual: table{sda: kernel(5)},
			raise: []blkio.DevLimits{{Dev: sda, Limits: wbps(blkio.Max)}},
		},
		{name: "wanted no more and gone already", recorded: table{sda: wbps(5)}},
		{
			name: "an explicit max", want: table{sda: wbps(blkio.Max)}, actual: table{sda: kernel(5)},
			raise: []blkio.DevLimits{{Dev: sda, Limits: wbps(blkio.Max)}},
		},
		{
			name: "one key up, one down", want: table{sda: {blkio.Rbps: 9, blkio.Wbps: 5}},
			actual: table{sda: {7, 8, blkio.Max, blkio.Max}},
			raise:  []blkio.DevLimits{{Dev: sda, Limits: blkio.Limits{blkio.Rbps: 9}}},
			lower:  []blkio.DevLimits{{Dev: sda, Limits: blkio.Limits{blkio.Wbps: 5}}},
		},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			raise, lower := diff(tt.want, tt.recorded, tt.actual)
			if d := cmp.Diff(tt.raise, raise); d != "" {
				t.Errorf("raise (-want +got):\n%s", d)
			}
			if d := cmp.Diff(tt.lower, lower); d != "" {
				t.Errorf("lower (-want +got):\n%s", d)
			}
		})
	}
}
