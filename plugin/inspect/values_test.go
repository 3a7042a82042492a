package inspect

import (
	"errors"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/nri-blkio/nri-blkio/blkio"
	"github.com/nri-blkio/nri-blkio/blkio/storage"
	"github.com/nri-blkio/nri-blkio/internal/fakenode"
	"github.com/nri-blkio/nri-blkio/plugin/record"
	"github.com/nri-blkio/nri-blkio/policy"
)

func TestValues(t *testing.T) {
	dev := blkio.Dev{Major: 8}
	kernel := func(wbps blkio.Amount) actual {
		return actual{values: blkio.Values{{Key: blkio.Wbps, Dev: dev}: wbps, {Key: blkio.Rbps, Dev: dev}: blkio.Max, {Key: blkio.Weight}: 100}}
	}
	limit := func(amount blkio.Amount) record.Record {
		return record.Record{Settings: policy.Settings{limitOf(blkio.Wbps, dev, amount)}, Disks: map[blkio.Dev]string{dev: "sda"}}
	}
	weight := func(amount blkio.Amount) policy.Setting { return limitOf(blkio.Weight, blkio.Dev{}, amount) }
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
		{name: "no line for a disk that exists", record: limit(1 << 20), got: actual{gone: map[blkio.Dev]bool{dev: false}}, want: []string{"1Mi max missing"}},
		{
			name: "cleared, disk gone", record: with(limit(1<<20), func(r *record.Record) { r.Cleared = true }), got: actual{gone: map[blkio.Dev]bool{dev: true}},
			want: []string{"1Mi max cleared"},
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
			for _, r := range valuesOf(Recorded{Record: &tt.record}, tt.got) {
				got = append(got, strings.TrimSuffix(r.Asked+" "+r.InForce+" "+r.State+": "+r.Error, ": "))
			}
			if d := cmp.Diff(tt.want, got); d != "" {
				t.Errorf("-want +got:\n%s", d)
			}
		})
	}
}

// TestValuesOfNode covers the values of a node's records and those of the kernel, and an error for a
// file that cannot be parsed. A removed cgroup is left out without an error.
func TestValuesOfNode(t *testing.T) {
	dir := t.TempDir()
	fakenode.WriteFiles(t, dir, map[string]string{
		"cgroup.controllers": "io\n", "good/io.max": "8:0 rbps=max wbps=1048576 riops=max wiops=max\n",
		"good/io.weight": "default 200\n", "bad/io.max": "8:0 wbps=x\n", "bad/io.weight": "default 200\n", "empty/io.max": "",
	})
	tree := fakenode.OpenCgroups(t, dir)
	gone := blkio.Dev{Major: 8, Minor: 200}
	rec := func(settings ...policy.Setting) *record.Record {
		return &record.Record{
			Namespace: "prod", Pod: "db-0", UID: "1", Container: "db", Settings: policy.NewSettings(settings...),
			Disks: map[blkio.Dev]string{{Major: 8}: "sda", gone: "sdz"}, Warnings: []string{"a warning"}, Skipped: []string{"a target"},
		}
	}
	wbps := limitOf(blkio.Wbps, blkio.Dev{Major: 8}, 1<<20)
	records := []Recorded{
		{tree.Cgroup("good"), rec(wbps, limitOf(blkio.Wbps, gone, 1), limitOf(blkio.Weight, blkio.Dev{}, 200))},
		{tree.Cgroup("bad"), rec(wbps, limitOf(blkio.Weight, blkio.Dev{}, 200))},
		{tree.Cgroup("empty"), rec(wbps)},
		{tree.Cgroup("removed"), rec(wbps)},
	}
	values, err := Values(records, storage.NewSysfs(fakenode.Sysfs()))
	if err == nil || !strings.HasSuffix(err.Error(), "(cgroup bad)") || strings.Contains(err.Error(), "removed") {
		t.Errorf("errors: %v", err)
	}
	var got []string
	for _, v := range values {
		got = append(got, strings.Join([]string{v.Cgroup, v.Disk, v.Key, v.Asked, v.InForce, v.State, v.Error}, " "))
	}
	want := []string{
		"good sda wbps 1Mi 1Mi ok ", "good sdz wbps 1 max missing the disk was removed", "good  weight 200 200 ok ",
		"bad sda wbps 1Mi  error the kernel's value cannot be read", "bad  weight 200  error the kernel's value cannot be read",
		"empty sda wbps 1Mi max missing ", "removed sda wbps 1Mi  error the kernel's value cannot be read",
	}
	if d := cmp.Diff(want, got); d != "" {
		t.Errorf("-want +got:\n%s", d)
	}
	wantNotes := []Note{{"warning", "prod", "db-0", "db", "a warning"}, {"skipped", "prod", "db-0", "db", "a target"}}
	if d := cmp.Diff(wantNotes, Notes(records[:1])); d != "" {
		t.Errorf("notes, -want +got:\n%s", d)
	}
}
