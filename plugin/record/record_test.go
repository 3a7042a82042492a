package record

import (
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/nri-blkio/nri-blkio/blkio"
	"github.com/nri-blkio/nri-blkio/policy"
)

var (
	vda = blkio.Dev{Major: 254}
	vdb = blkio.Dev{Major: 254, Minor: 16}

	path     = policy.Source{Kind: policy.FromAnnotation, Name: "limits.blkio.noderesource.dev/container.db", Entry: 1, Target: "/data"}
	star     = policy.Source{Kind: policy.FromAnnotation, Name: "limits.blkio.noderesource.dev/containers", Entry: 2, IsStar: true, Target: "*"}
	backstop = policy.Source{Kind: policy.FromBackstop}
)

func set(key blkio.Key, dev blkio.Dev, amount blkio.Amount, source policy.Source) policy.Setting {
	return policy.Setting{Value: blkio.Value{Address: blkio.Address{Key: key, Dev: dev}, Amount: amount}, Source: source}
}

func example() *Record {
	return &Record{
		Kind: KindPod, Namespace: "prod", Pod: "db-0", UID: "u1",
		Settings: policy.NewSettings(
			set(blkio.Wbps, vda, 10, star), set(blkio.Wbps, vdb, 20, path), set(blkio.Riops, vdb, 30, backstop), set(blkio.Weight, blkio.Dev{}, 50, path),
		),
		Disks: map[blkio.Dev]string{vda: "vda", vdb: "vdb"},
	}
}

// TestGranted verifies that the backstop is no grant, that observed values are none, and that cleared ones are: an undo restores them.
func TestGranted(t *testing.T) {
	r := example()
	want := policy.Desired{
		Settings: policy.NewSettings(set(blkio.Wbps, vda, 10, star), set(blkio.Wbps, vdb, 20, path), set(blkio.Weight, blkio.Dev{}, 50, path)),
		Disks:    map[blkio.Dev]string{vda: "vda", vdb: "vdb"},
	}
	for _, r.Cleared = range []bool{false, true} {
		if diff := cmp.Diff(want, r.Granted()); diff != "" {
			t.Error(diff)
		}
	}
	observed := example()
	observed.Observed = true
	for _, r := range []*Record{nil, observed} {
		if got := r.Granted(); got.Settings != nil {
			t.Errorf("%+v grants %+v", r, got)
		}
	}
}

// TestAdd verifies that the values of a record stay, with the names of the disks.
func TestAdd(t *testing.T) {
	r := &Record{Settings: policy.NewSettings(set(blkio.Wbps, vda, 5, path)), Disks: map[blkio.Dev]string{vda: "vda"}}
	before := r.Settings
	r.Add(example(), example().Settings)
	want := policy.NewSettings(
		set(blkio.Wbps, vda, 5, path), set(blkio.Wbps, vdb, 20, path), set(blkio.Riops, vdb, 30, backstop), set(blkio.Weight, blkio.Dev{}, 50, path),
	)
	if diff := cmp.Diff(want, r.Settings); diff != "" {
		t.Error(diff)
	}
	if diff := cmp.Diff(map[blkio.Dev]string{vda: "vda", vdb: "vdb"}, r.Disks); diff != "" {
		t.Error(diff)
	}
	if len(before) != 1 {
		t.Errorf("settings that others share were changed: %v", before)
	}
}

func TestHasSettings(t *testing.T) {
	observed, other, warned := example(), example(), example()
	observed.Observed = true
	other.Settings = other.Settings[1:]
	warned.Warnings, warned.Error = []string{"w"}, "e"
	if r := example(); !r.HasSettings(example()) || !r.HasSettings(warned) {
		t.Error("the same settings are not seen")
	}
	for _, o := range []*Record{observed, other} {
		if example().HasSettings(o) {
			t.Errorf("has the settings of %+v", o)
		}
	}
	if (*Record)(nil).HasSettings(example()) {
		t.Error("no record has settings")
	}
}

func TestEmpty(t *testing.T) {
	if r := (&Record{Kind: KindPod, Pod: "db-0", Observed: true}); !r.Empty() {
		t.Error("nothing is asked for")
	}
	for _, r := range []*Record{
		example(), {Error: "e"}, {Warnings: []string{"w"}}, {Skipped: []string{"s"}}, {Exits: []Exit{{}}}, {Lowered: example().Settings}, {Weights: example().Settings}, {Lent: example().Settings},
	} {
		if r.Empty() {
			t.Errorf("%+v is empty", r)
		}
	}
}
