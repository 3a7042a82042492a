package repair

import (
	"os"
	"path/filepath"
	"testing"

	"github.com/nri-blkio/nri-blkio/blkio"
	"github.com/nri-blkio/nri-blkio/plugin"
)

// testTree is a directory that looks like a cgroup tree, with records.
func testTree(t *testing.T, records map[string]plugin.Record) *blkio.Hierarchy {
	t.Helper()
	dir := t.TempDir()
	if err := os.WriteFile(filepath.Join(dir, "cgroup.controllers"), []byte("io memory\n"), 0o644); err != nil {
		t.Fatal(err)
	}
	tree, err := blkio.OpenTree(dir)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { tree.Close() })
	for path, r := range records {
		if err := os.MkdirAll(filepath.Join(dir, path), 0o755); err != nil {
			t.Fatal(err)
		}
		r.Version = 1
		if err := plugin.WriteRecord(tree.Cgroup(path), &r); err != nil {
			t.Fatal(err)
		}
	}
	return tree
}

func limitsOf(dev, key string, rate blkio.Rate) []plugin.LimitRecord {
	return []plugin.LimitRecord{{Dev: dev, Key: key, Rate: rate}}
}

// TestDomains: the domain of a cgroup is the nearest one with a limit on writes to
// the filesystem's disks.
func TestDomains(t *testing.T) {
	d := newDomains(testTree(t, map[string]plugin.Record{
		"pods/one":   {Namespace: "ns", Pod: "one", Limits: limitsOf("8:0", "wbps", 4<<20)},
		"pods/one/a": {Namespace: "ns", Pod: "one", Container: "a", Limits: limitsOf("8:0", "wiops", 100)},
		"pods/one/r": {Namespace: "ns", Pod: "one", Container: "r", Limits: limitsOf("8:0", "rbps", 100)},
		"pods/two/x": {Namespace: "ns", Pod: "two", Container: "x", Limits: limitsOf("8:0", "wbps", blkio.Max)},
		"pods/two/y": {Namespace: "ns", Pod: "two", Container: "y", Limits: limitsOf("8:16", "wbps", 1<<20)},
		"pods/two/z": {Namespace: "ns", Pod: "two", Container: "z", Limits: limitsOf("8:0", "wbps", 1<<20), Cleared: true},
		"pods/two":   {Namespace: "ns", Pod: "two", Exits: []plugin.ExitRecord{{Container: "old", CgroupIDs: []uint64{77}}}},
	}))
	if err := d.refresh(); err != nil {
		t.Fatal(err)
	}
	sda, both := &filesystem{disks: []blkio.Dev{{Major: 8}}}, &filesystem{disks: []blkio.Dev{{Major: 8}, {Major: 8, Minor: 16}}}
	for i, tt := range []struct {
		path string
		fs   *filesystem
		want domain
	}{
		{"pods/one", sda, domain{cgroup: "pods/one"}},
		{"pods/one/a", sda, domain{cgroup: "pods/one/a"}},
		{"pods/one/a/inner/deep", sda, domain{cgroup: "pods/one/a"}},
		{"pods/one/r", sda, domain{cgroup: "pods/one"}}, // its own is on reads
		{"pods/one/free", sda, domain{cgroup: "pods/one"}},
		{"pods/two/x", sda, domain{}},
		{"pods/two/y", sda, domain{}}, // on another disk
		{"pods/two/y", both, domain{cgroup: "pods/two/y"}},
		{"pods/two/z", sda, domain{}}, // cleared
		{".", sda, domain{}},
	} {
		id := uint64(1000 + i)
		d.paths[id] = place{path: tt.path}
		if got := d.of(id, tt.fs); got != tt.want {
			t.Errorf("%s: got %+v, want %+v", tt.path, got, tt.want)
		}
	}
	d.paths[77], d.paths[78] = place{gone: true}, place{gone: true}
	if !d.limited(d.of(77, sda)) || d.limited(d.of(78, sda)) {
		t.Error("of the dead, those of which a record has the end were limited")
	}
	if got := d.who(77).String(); got != "ns/two old (ended)" {
		t.Errorf("got %q", got)
	}
	for _, tt := range []struct {
		a, b domain
		want bool
	}{
		{domain{cgroup: "pods/one/a"}, domain{cgroup: "pods/one"}, true}, // both limits hold for it
		{domain{cgroup: "pods/one"}, domain{cgroup: "pods/one/a"}, false},
		{domain{cgroup: "pods/one"}, domain{}, true},
		{domain{}, domain{}, false},
	} {
		if got := d.stricter(tt.a, tt.b, sda); got != tt.want {
			t.Errorf("%v stricter than %v: %v", tt.a, tt.b, got)
		}
	}
}

// TestMapping: the part of a mapping that shows a part of a file.
func TestMapping(t *testing.T) {
	page := uint64(os.Getpagesize())
	for _, tt := range []struct {
		name, address, offset string
		from, to              uint64
		want                  addressRange
		ok                    bool
	}{
		{"all", "10000-14000", "0", 0, 4 * page, addressRange{0x10000, 0x4000}, true},
		{"the middle", "10000-14000", "0", page, page, addressRange{0x10000 + page, page}, true},
		{"mapped from behind", "10000-12000", "2000", 0, 100 * page, addressRange{0x10000, 0x2000}, true},
		{"before", "10000-12000", "2000", 0, page - 1, addressRange{}, false},
		{"behind", "10000-12000", "0", 2 * page, 9 * page, addressRange{}, false},
		{"no addresses", "x-y", "0", 0, 1, addressRange{}, false},
		{"upside down", "2000-1000", "0", 0, 1, addressRange{}, false},
	} {
		got, ok := parseMapping(tt.address, tt.offset, tt.from, tt.to)
		if page == 4096 && (got != tt.want || ok != tt.ok) {
			t.Errorf("%s: got %+v, %v", tt.name, got, ok)
		}
	}
}

// TestRecordsReadAgain: a record is decoded when it has changed, and counts then.
func TestRecordsReadAgain(t *testing.T) {
	tree := testTree(t, map[string]plugin.Record{
		"pods/a": {Namespace: "ns", Pod: "a", Limits: limitsOf("8:0", "wbps", 1<<20)},
		"pods/b": {Namespace: "ns", Pod: "b", Limits: limitsOf("8:0", "wbps", 1<<20)},
	})
	d := newDomains(tree)
	refresh := func() {
		t.Helper()
		if err := d.refresh(); err != nil {
			t.Fatal(err)
		}
	}
	refresh()
	a, b := d.subjects["pods/a"], d.subjects["pods/b"]
	r := plugin.Record{Version: 1, Namespace: "ns", Pod: "b", Limits: limitsOf("8:0", "wbps", 2<<20)}
	if err := plugin.WriteRecord(tree.Cgroup("pods/b"), &r); err != nil {
		t.Fatal(err)
	}
	refresh()
	if d.subjects["pods/a"].reading != a.reading {
		t.Error("a record that is the same was decoded again")
	}
	if got := d.subjects["pods/b"]; got.reading == b.reading || got.limits[0].Limits[blkio.Wbps] != 2<<20 {
		t.Errorf("of a record that has changed: %+v", got.reading)
	}
	if err := tree.Cgroup("pods/b").RemoveXattr(plugin.RecordXattr); err != nil {
		t.Fatal(err)
	}
	if refresh(); len(d.subjects) != 1 || len(d.readings) != 1 {
		t.Errorf("a record that has gone is known still: %v", d.subjects)
	}
}
