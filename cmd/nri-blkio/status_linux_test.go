package main

import (
	"errors"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/nri-blkio/nri-blkio/blkio"
	"github.com/nri-blkio/nri-blkio/plugin/inspect"
	"github.com/nri-blkio/nri-blkio/plugin/record"
	"github.com/nri-blkio/nri-blkio/policy"
)

func TestStatusStates(t *testing.T) {
	dev := blkio.Dev{Major: 8}
	kernel := func(wbps blkio.Amount) actual {
		return actual{values: blkio.Values{{Key: blkio.Wbps, Dev: dev}: wbps, {Key: blkio.Rbps, Dev: dev}: blkio.Max, {Key: blkio.Weight}: 100}}
	}
	limit := func(amount blkio.Amount) record.Record {
		return record.Record{Settings: policy.Settings{asked(blkio.Wbps, dev, amount)}, Disks: map[blkio.Dev]string{dev: "sda"}}
	}
	weight := func(amount blkio.Amount) policy.Setting { return asked(blkio.Weight, blkio.Dev{}, amount) }
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
		{name: "in force", record: limit(1 << 20), got: kernel(1 << 20), want: []string{"1Mi 1Mi ok"}},
		{name: "other value", record: limit(1 << 20), got: kernel(2 << 20), want: []string{"1Mi 2Mi drift"}},
		{name: "no limit on the key", record: limit(1 << 20), got: kernel(blkio.Max), want: []string{"1Mi max missing"}},
		{name: "no line", record: limit(1 << 20), want: []string{"1Mi max missing"}},
		{name: "max asked", record: limit(blkio.Max), want: []string{"max max ok"}},
		{name: "max asked, a limit there", record: limit(blkio.Max), got: kernel(5), want: []string{"max 5 drift"}},
		{
			name: "disk gone", record: limit(1 << 20), got: actual{gone: map[blkio.Dev]bool{dev: true}},
			want: []string{"1Mi max missing: the disk was removed"},
		},
		{name: "observed", record: with(limit(1<<20), func(r *record.Record) { r.Observed = true }), want: []string{"1Mi max observed"}},
		{name: "cleared", record: with(limit(1<<20), func(r *record.Record) { r.Cleared = true }), want: []string{"1Mi max cleared"}},
		{
			name: "not read", record: with(limit(1<<20), func(r *record.Record) { r.Settings = append(r.Settings, weight(500)) }),
			got:  actual{err: errors.New("x")},
			want: []string{"1Mi  error: the kernel's value cannot be read", "500  error: the kernel's value cannot be read"},
		},
		{name: "weight", record: record.Record{Settings: policy.Settings{weight(100)}}, got: kernel(5), want: []string{"100 100 ok"}},
		{name: "weight put back by systemd", record: record.Record{Settings: policy.Settings{weight(500)}}, got: kernel(5), want: []string{"500 100 drift"}},
		{name: "error alone", record: record.Record{Error: "no"}, want: []string{"  error: no"}},
		{name: "nothing asked"},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			var got []string
			for _, r := range statusRows(inspect.Recorded{Record: &tt.record}, tt.got) {
				got = append(got, r.Asked+" "+r.InForce+" "+r.state())
			}
			if d := cmp.Diff(tt.want, got); d != "" {
				t.Errorf("-want +got:\n%s", d)
			}
		})
	}
}

func asked(key blkio.Key, dev blkio.Dev, amount blkio.Amount) policy.Setting {
	return policy.Setting{Value: blkio.Value{Address: blkio.Address{Key: key, Dev: dev}, Amount: amount}}
}
