package main

import (
	"errors"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/nri-blkio/nri-blkio/blkio"
	"github.com/nri-blkio/nri-blkio/plugin/record"
)

func TestStatusStates(t *testing.T) {
	dev := blkio.Dev{Major: 8}
	kernel := func(wbps blkio.Amount) actual {
		return actual{limits: map[blkio.Dev]blkio.Limits{dev: {blkio.Max, wbps, blkio.Max, blkio.Max}}, weight: 100}
	}
	limit := func(key string, rate blkio.Amount) record.Record {
		return record.Record{Limits: []record.Limit{{Dev: "8:0", Disk: "sda", Key: key, Rate: rate}}}
	}
	with := func(r record.Record, change func(*record.Record)) record.Record {
		change(&r)
		return r
	}
	tests := []struct {
		name   string
		record record.Record
		got    actual
		want   []string // asked, in force, state
	}{
		{name: "in force", record: limit("wbps", 1<<20), got: kernel(1 << 20), want: []string{"1Mi 1Mi ok"}},
		{name: "other value", record: limit("wbps", 1<<20), got: kernel(2 << 20), want: []string{"1Mi 2Mi drift"}},
		{name: "no limit on the key", record: limit("wbps", 1<<20), got: kernel(blkio.Max), want: []string{"1Mi max missing"}},
		{name: "no line", record: limit("wbps", 1<<20), want: []string{"1Mi max missing"}},
		{name: "max asked", record: limit("wbps", blkio.Max), want: []string{"max max ok"}},
		{name: "max asked, a limit there", record: limit("wbps", blkio.Max), got: kernel(5), want: []string{"max 5 drift"}},
		{
			name: "disk gone", record: limit("wbps", 1<<20), got: actual{gone: map[blkio.Dev]bool{dev: true}},
			want: []string{"1Mi max missing: the disk is gone"},
		},
		{name: "observed", record: with(limit("wbps", 1<<20), func(r *record.Record) { r.Observed = true }), want: []string{"1Mi max observed"}},
		{name: "cleared", record: with(limit("wbps", 1<<20), func(r *record.Record) { r.Cleared = true }), want: []string{"1Mi max cleared"}},
		{
			name: "not read", record: with(limit("wbps", 1<<20), func(r *record.Record) { r.Weight = 500 }),
			got:  actual{err: errors.New("x")},
			want: []string{"1Mi  error: the kernel's value cannot be read", "500  error: the kernel's value cannot be read"},
		},
		{name: "a later version's key", record: limit("xbps", 7), want: []string{"7  error: the record is of a later version"}},
		{name: "weight", record: record.Record{Weight: 100}, got: kernel(5), want: []string{"100 100 ok"}},
		{name: "weight put back by systemd", record: record.Record{Weight: 500}, got: kernel(5), want: []string{"500 100 drift"}},
		{name: "error alone", record: record.Record{Error: "no"}, want: []string{"  error: no"}},
		{name: "nothing asked"},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			var got []string
			for _, r := range statusRows(recorded{record: &tt.record}, tt.got) {
				got = append(got, r.Asked+" "+r.InForce+" "+r.state())
			}
			if d := cmp.Diff(tt.want, got); d != "" {
				t.Errorf("-want +got:\n%s", d)
			}
		})
	}
}

func TestLifted(t *testing.T) {
	r := record.Record{Limits: []record.Limit{
		{Dev: "8:16", Key: "wbps", Rate: 5},
		{Dev: "8:0", Key: "wiops", Rate: 5},
		{Dev: "8:0", Key: "rbps", Rate: blkio.Max},
		{Dev: "8:0", Key: "later", Rate: 5}, // not ours to touch
	}}
	var got []string
	for _, l := range lifted(&r) {
		got = append(got, l.String())
	}
	if d := cmp.Diff([]string{"8:0 rbps=max wiops=max", "8:16 wbps=max"}, got); d != "" {
		t.Errorf("-want +got:\n%s", d)
	}
}
