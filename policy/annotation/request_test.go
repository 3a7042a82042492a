package annotation

import (
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/nri-blkio/nri-blkio/blkio"
)

func TestTargetsOfAllScopes(t *testing.T) {
	r := Parse(map[string]string{
		keyDB: "/b wbps=1Mi; /a/ wbps=1Mi; /wrong wbps=x; @w wbps=x", keyEach: "/b rbps=1Mi; rootfs wbps=1Mi; @b wbps=1Mi",
		keyTotal: "/c wbps=max; @b wbps=1Mi; @a wbps=max",
		"limits.blkio.noderesource.dev/container.aux": "/d wbps=1Mi",
	})
	if diff := cmp.Diff([]string{"/a", "/b", "/c", "/d"}, r.Paths()); diff != "" || r.Star() {
		t.Errorf("star %t, -want +got:\n%s", r.Star(), diff)
	}
	if diff := cmp.Diff([]string{"a", "b"}, r.Volumes()); diff != "" {
		t.Errorf("-want +got:\n%s", diff)
	}
	for _, key := range []string{keyDB, keyEach, keyTotal} {
		if r := Parse(map[string]string{key: "* wbps=1Mi"}); !r.Star() || r.Paths() != nil {
			t.Errorf("%s: star %t, paths %q", key, r.Star(), r.Paths())
		}
	}
	var none *Request
	if none.Star() || none.Paths() != nil || none.Volumes() != nil {
		t.Error("no request has targets")
	}
}

func TestStarOf(t *testing.T) {
	for _, tt := range []struct {
		key, value string
		db, other  bool
	}{
		{keyDB, "* wbps=1Mi", true, false},
		{keyDB, "/data wbps=1Mi; * wbps=2Mi", true, false},
		{keyDB, "/data wbps=1Mi", false, false},
		{keyEach, "* wbps=1Mi", true, true},
		{keyTotal, "* wbps=1Mi", true, true},
		{keyTotal, "rootfs wbps=1Mi", false, false},
		{"weight.blkio.noderesource.dev/containers", "500", false, false},
	} {
		r := Parse(map[string]string{tt.key: tt.value})
		if db, other := r.StarOf("db"), r.StarOf("other"); db != tt.db || other != tt.other {
			t.Errorf("%s: %q is of db: %t, of another: %t", tt.key, tt.value, db, other)
		}
	}
	if Parse(nil).StarOf("db") {
		t.Error("nothing is asked for")
	}
}

// TestScopes: each annotation is with the scope that it names.
func TestScopes(t *testing.T) {
	const weight = "weight.blkio.noderesource.dev/"
	r := Parse(map[string]string{
		"example.com/other": "x", keyDB: "/a wbps=1Mi; @v rbps=max", keyTotal: "rootfs wiops=50", weight + "containers": " 70\n",
	})
	if r.Empty() || r.First() != keyDB || len(errorsOf(r, "db")) > 0 || r.Named("web") != nil {
		t.Errorf("%+v", r)
	}
	db, each, total := r.Named("db"), r.Each(), r.Total()
	if db.Limits.Key != keyDB || db.Weight != nil || each.Limits != nil || total.Limits.Key != keyTotal {
		t.Errorf("%+v, %+v, %+v", db, each, total)
	}
	if each.Weight.Key != weight+"containers" || each.Weight.Value != 70 {
		t.Errorf("weight %+v", each.Weight)
	}
	want := []Entry{
		{Number: 1, text: "/a wbps=1Mi", Target: Target{Kind: TargetPath, Path: "/a", Text: "/a"}, Limits: blkio.Limits{blkio.Wbps: 1 << 20}},
		{Number: 2, text: "@v rbps=max", Target: Target{Kind: TargetVolume, Volume: "v", Text: "@v"}, Limits: blkio.Limits{blkio.Rbps: blkio.Max}},
	}
	if diff := cmp.Diff(want, db.Limits.Entries, cmp.AllowUnexported(Entry{})); diff != "" {
		t.Error(diff)
	}
	if diff := cmp.Diff([]string{"db"}, r.ContainerNames()); diff != "" {
		t.Error(diff)
	}
	if !r.Rootfs() || r.Star() {
		t.Errorf("rootfs %t, star %t", r.Rootfs(), r.Star())
	}
}

// TestConcerns: a key of the domain is one of the plugin's, also with a kind that does not
// exist.
func TestConcerns(t *testing.T) {
	for key, want := range map[string]bool{
		keyDB: true, "nope.blkio.noderesource.dev/x": true, "blkio.noderesource.dev": true, "limits.blkio.noderesource.dev": true,
		"xblkio.noderesource.dev/x": false, "example.com/blkio.noderesource.dev": false, "": false,
	} {
		if got := Concerns(map[string]string{key: "", "a": "b"}); got != want || Parse(map[string]string{key: ""}).Empty() == want {
			t.Errorf("%q: %t, want %t", key, got, want)
		}
	}
}
