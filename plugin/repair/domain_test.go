package repair

import (
	"os"
	"path/filepath"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/nri-blkio/nri-blkio/blkio"
	"github.com/nri-blkio/nri-blkio/blkio/cgroupfs"
	"github.com/nri-blkio/nri-blkio/blkio/writeback"
	"github.com/nri-blkio/nri-blkio/plugin/record"
	"github.com/nri-blkio/nri-blkio/policy"
)

// testTree returns a directory with the form of a cgroup tree, with records.
func testTree(t *testing.T, records map[string]record.Record) *modelTree {
	t.Helper()
	dir := t.TempDir()
	if err := os.WriteFile(filepath.Join(dir, "cgroup.controllers"), []byte("io memory\n"), 0o644); err != nil {
		t.Fatal(err)
	}
	tree, err := cgroupfs.OpenTree(dir)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { tree.Close() })
	for path, r := range records {
		if err := os.MkdirAll(filepath.Join(dir, path), 0o755); err != nil {
			t.Fatal(err)
		}
		if err := record.Write(tree.Cgroup(path), &r); err != nil {
			t.Fatal(err)
		}
	}
	return &modelTree{Hierarchy: tree, dir: dir, paths: map[uint64]string{}}
}

func limitsOf(dev, key string, amount blkio.Amount) policy.Settings {
	d, err := blkio.ParseDev(dev)
	k, known := blkio.ParseKey(blkio.IOMax, key)
	if err != nil || !known {
		panic(dev + " " + key)
	}
	return policy.Settings{{Value: blkio.Value{Address: blkio.Address{Key: k, Dev: d}, Amount: amount}}}
}

// TestDomains verifies that the domain of a cgroup is the nearest one with a limit on writes to the
// filesystem's disks.
func TestDomains(t *testing.T) {
	d := newDomains(testTree(t, map[string]record.Record{
		"pods/one":   {Namespace: "ns", Pod: "one", Settings: limitsOf("8:0", "wbps", 4<<20)},
		"pods/one/a": {Namespace: "ns", Pod: "one", Container: "a", Settings: limitsOf("8:0", "wiops", 100)},
		"pods/one/r": {Namespace: "ns", Pod: "one", Container: "r", Settings: limitsOf("8:0", "rbps", 100)},
		"pods/two/x": {Namespace: "ns", Pod: "two", Container: "x", Settings: limitsOf("8:0", "wbps", blkio.Max)},
		"pods/two/y": {Namespace: "ns", Pod: "two", Container: "y", Settings: limitsOf("8:16", "wbps", 1<<20)},
		"pods/two/z": {Namespace: "ns", Pod: "two", Container: "z", Settings: limitsOf("8:0", "wbps", 1<<20), Cleared: true},
		"pods/two":   {Namespace: "ns", Pod: "two", Exits: []record.Exit{{Container: "old", CgroupIDs: []uint64{77}}}},
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
	free := uint64(1009) // the last one, that no limit holds for
	d.paths[77], d.paths[78], d.paths[free] = place{gone: true}, place{gone: true}, place{gone: true}
	if !d.limited(d.of(77, sda)) || !d.limited(d.of(78, sda)) || d.limited(d.of(free, sda)) {
		t.Error("of the removed cgroups, all but the one that is known to have had no limit have to count as limited")
	}
	if got := d.participant(77).String(); got != "ns/two old (ended)" {
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

// TestRemovedOwnerOfRemovedPod verifies that files of a cgroup that was removed with its pod move to their
// writers. After a restart of this process nothing is known about such a cgroup, and its limit could throttle
// the writers.
func TestRemovedOwnerOfRemovedPod(t *testing.T) {
	d := newDomains(testTree(t, nil))
	fs := &filesystem{disks: []blkio.Dev{{Major: 8}}}
	l := newLedger(d)
	d.paths[77], d.paths[5] = place{gone: true}, place{path: "pods/free"}
	writes := func(owner uint64) []task {
		l.add(time.Now(), &sample{
			inode: writeback.Inode{Number: owner}, fs: fs, bytes: 1 << 20, span: span{0, 1 << 20},
			writer: member{d.of(5, fs), 5}, owner: member{d.of(owner, fs), owner}, charged: d.of(owner, fs),
		})
		return l.decide(time.Now())
	}
	if got := writes(77); len(got) != 1 || got[0].work != move {
		t.Errorf("of a cgroup that is not known: %v", got)
	}
	// One that was seen without a limit is left alone.
	l = newLedger(d)
	d.paths[78] = place{path: "pods/other"}
	d.of(78, fs)
	d.paths[78] = place{gone: true}
	if got := writes(78); len(got) > 0 {
		t.Errorf("of a cgroup without a limit: %v", got)
	}
}

// TestAccounts verifies that the parts of a pod are one account, however many cgroups they make.
func TestAccounts(t *testing.T) {
	for path, want := range map[string]account{
		"kubepods.slice/kubepods-podab.slice":                                  "ab",
		"kubepods.slice/kubepods-podab.slice/cri-containerd-1.scope/mine/more": "ab",
		"kubepods/burstable/podab/1/2":                                         "ab",
		"system.slice/a.service":                                               "system.slice/a.service",
		"user.slice/user-1.slice/user@1.service/app":                           "user.slice/user-1.slice",
		".": ".",
	} {
		if got := accountOf(path); got != want {
			t.Errorf("%s: got %q, want %q", path, got, want)
		}
	}
	d := newDomains(testTree(t, nil))
	d.paths[5] = place{path: "kubepods/podab/1"}
	d.of(5, testFS)
	d.paths[5], d.paths[6] = place{gone: true}, place{gone: true}
	if d.account(5) != "ab" || d.account(6) != "" {
		t.Errorf("of those that are gone: %q, %q", d.account(5), d.account(6))
	}
}

// TestRecordsReadAgain verifies that a record is decoded when it has changed, and counts then.
func TestRecordsReadAgain(t *testing.T) {
	tree := testTree(t, map[string]record.Record{
		"pods/a": {Namespace: "ns", Pod: "a", Settings: limitsOf("8:0", "wbps", 1<<20)},
		"pods/b": {Namespace: "ns", Pod: "b", Settings: limitsOf("8:0", "wbps", 1<<20)},
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
	r := record.Record{Namespace: "ns", Pod: "b", Settings: limitsOf("8:0", "wbps", 2<<20)}
	if err := record.Write(tree.Cgroup("pods/b"), &r); err != nil {
		t.Fatal(err)
	}
	refresh()
	if d.subjects["pods/a"].reading != a.reading {
		t.Error("a record that is the same was decoded again")
	}
	if got := d.subjects["pods/b"]; got.reading == b.reading || got.limits[0].Amount != 2<<20 {
		t.Errorf("of a record that has changed: %+v", got.reading)
	}
	if err := tree.Cgroup("pods/b").RemoveXattr(record.Xattr); err != nil {
		t.Fatal(err)
	}
	if refresh(); len(d.subjects) != 1 || len(d.readings) != 1 {
		t.Errorf("a record that has gone is known still: %v", d.subjects)
	}
}

// TestRemovedBelowLimit verifies that data of a removed cgroup below a container is under the container's limit
// while the container exists. Data of a removed container is under no limit.
func TestRemovedBelowLimit(t *testing.T) {
	tree := testTree(t, map[string]record.Record{
		"kubepods/podone/a": {Namespace: "ns", Pod: "one", Kind: record.KindContainer, Container: "a", Settings: limitsOf("8:0", "wbps", 1<<20)},
	})
	d := newDomains(tree)
	if err := d.refresh(); err != nil {
		t.Fatal(err)
	}
	fs := &filesystem{disks: []blkio.Dev{{Major: 8}}}
	const inner = 5
	outer := d.subjects["kubepods/podone/a"].id
	tree.paths = map[uint64]string{inner: "kubepods/podone/a/inner", outer: "kubepods/podone/a"}
	limited := domain{cgroup: "kubepods/podone/a"}
	if d.of(inner, fs) != limited || d.of(outer, fs) != limited {
		t.Fatalf("they run under %v and %v", d.of(inner, fs), d.of(outer, fs))
	}
	clear(tree.paths)
	d.forgetPlaces()
	if got := d.of(inner, fs); got != limited {
		t.Errorf("the removed inner cgroup runs under %v", got)
	}
	if got := d.of(outer, fs); got != (domain{removed: outer}) {
		t.Errorf("the removed container runs under %v", got)
	}
	if got := d.participant(outer); got.String() != "ns/one a (ended)" || d.account(outer) != "one" {
		t.Errorf("the removed container is %q, of %q", got, d.account(outer))
	}
	clear(d.subjects)
	if got := d.of(inner, fs); got != (domain{removed: inner}) {
		t.Errorf("when the container is gone too, the inner cgroup runs under %v", got)
	}
}

// TestParty verifies the names of cgroups in tables.
func TestParty(t *testing.T) {
	who := ContainerName{Namespace: "ns", Pod: "p", Container: "c"}
	for want, p := range map[string]NamedCgroup{
		"none":                 {},
		"ns/p c":               {ContainerName: who, CgroupID: 1, Cgroup: "kubepods/p/c"},
		"ns/p":                 {ContainerName: ContainerName{Namespace: "ns", Pod: "p"}, CgroupID: 1},
		"ns/p c (ended)":       {ContainerName: who, CgroupID: 1, Removed: true},
		"gone":                 {CgroupID: 1, Removed: true},
		"system.slice/a.scope": {CgroupID: 1, Cgroup: "system.slice/a.scope"},
	} {
		if got := p.String(); got != want {
			t.Errorf("%+v: got %q, want %q", p, got, want)
		}
	}
}

// TestOwnedByItself verifies that of a container that may write its record its io.max counts, as far as it
// limits writes.
func TestOwnedByItself(t *testing.T) {
	tree := testTree(t, nil)
	for cgroup, max := range map[string]string{
		"limited":   "8:0 rbps=1000 wbps=2000 riops=max wiops=max\n8:16 rbps=max wbps=max riops=max wiops=30\n",
		"unlimited": "8:0 rbps=1000 wbps=max riops=max wiops=max\n",
		"broken":    "nonsense",
		"none":      "",
	} {
		if err := os.MkdirAll(filepath.Join(tree.dir, cgroup), 0o755); err != nil {
			t.Fatal(err)
		}
		if max == "" {
			continue
		}
		if err := os.WriteFile(filepath.Join(tree.dir, cgroup, "io.max"), []byte(max), 0o644); err != nil {
			t.Fatal(err)
		}
	}
	want := map[blkio.Dev]blkio.Limits{
		{Major: 8}:            {blkio.Wbps: 2000},
		{Major: 8, Minor: 16}: {blkio.Wiops: 30},
	}
	got := newReading(ownedByItself(tree.Cgroup("limited"))).limits.DevLimits()
	if diff := cmp.Diff(want, got); diff != "" {
		t.Errorf("(-want, +got):\n%s", diff)
	}
	for _, cgroup := range []string{"unlimited", "broken", "none"} {
		if got := newReading(ownedByItself(tree.Cgroup(cgroup))); len(got.limits) > 0 {
			t.Errorf("%s: %v", cgroup, got.limits)
		}
	}
}
