package annotation

import (
	"fmt"
	"strings"
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
	if diff := cmp.Diff([]string{"/a", "/b", "/c", "/d"}, r.Targets().Paths); diff != "" || r.Targets().HasStar() {
		t.Errorf("star %t, -want +got:\n%s", r.Targets().HasStar(), diff)
	}
	if diff := cmp.Diff([]string{"a", "b"}, r.Targets().Volumes); diff != "" {
		t.Errorf("-want +got:\n%s", diff)
	}
	for _, key := range []string{keyDB, keyEach, keyTotal} {
		if r := Parse(map[string]string{key: "* wbps=1Mi"}); !r.Targets().HasStar() || r.Targets().Paths != nil {
			t.Errorf("%s: star %t, paths %q", key, r.Targets().HasStar(), r.Targets().Paths)
		}
	}
	none := new(Request)
	if !none.Empty() || none.Targets().HasStar() || none.Targets().HasRootfs() || none.Targets().Paths != nil || none.Targets().Volumes != nil || none.ContainerNames() != nil {
		t.Error("no request has targets")
	}
	if r := Parse(map[string]string{keyEach: "* wbps=1Mi"}); !r.Targets().HasRootfs() {
		t.Error("* does not select the writable layer")
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
		t.Error("a request without annotations has a *")
	}
	r := Parse(map[string]string{keyDB: "* wbps=1Mi", keyEach: "/data wbps=1Mi", keyTotal: "rootfs wbps=1Mi"})
	if !r.StarOf("db") || r.StarOf("other") {
		t.Error("the * of one container is one of another, whose scopes have other targets")
	}
}

// TestScopes verifies that each annotation is with the scope that it names.
func TestScopes(t *testing.T) {
	const weight = "weight.blkio.noderesource.dev/"
	r := Parse(map[string]string{
		"example.com/other": "x", keyDB: "/a wbps=1Mi; @v rbps=max", keyTotal: "rootfs wiops=50", weight + "containers": " 70\n",
	})
	if r.Empty() || r.First() != keyDB || len(errorsOf(r, "db")) > 0 || r.Named("web") != nil {
		t.Errorf("%+v", r)
	}
	db, each, total := r.Named("db"), r.Each(), r.Total()
	if db.Limits.From.Annotation != keyDB || db.Weights != nil || each.Limits != nil || total.Limits.From.Annotation != keyTotal {
		t.Errorf("%+v, %+v, %+v", db, each, total)
	}
	if w := each.Weights; w.From.Annotation != weight+"containers" || len(w.Entries) != 1 || w.Entries[0].Weight != 70 {
		t.Errorf("weight %+v", w)
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
	if !r.Targets().HasRootfs() || !r.Targets().HasStar() { // the weight is about all disks
		t.Errorf("rootfs %t, star %t", r.Targets().HasRootfs(), r.Targets().HasStar())
	}
}

// TestScopesOfSeveralKinds verifies that the limits and the weight of a scope are kept together, in whichever
// order their keys are sorted.
func TestScopesOfSeveralKinds(t *testing.T) {
	for _, scope := range []string{"container.db", "containers", "pod-total"} {
		r := Parse(map[string]string{"limits." + Domain + "/" + scope: "/a wbps=1Mi", "weight." + Domain + "/" + scope: "70", "class." + Domain + "/" + scope: "gold"})
		q := map[string]*Scope{"container.db": r.Named("db"), "containers": r.Each(), "pod-total": r.Total()}[scope]
		if isTotal := scope == "pod-total"; q.Limits == nil || q.Weights == nil || (q.Class == nil) != isTotal || (len(q.Errors()) == 1) != isTotal {
			t.Errorf("%s: %+v", scope, q)
		}
	}
}

// TestConcerns verifies that a key of the domain is one of the plugin's, also with a kind that does not exist.
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

// TestTooMuch verifies that a request that is too large has only the error, in any order of the map.
func TestTooMuch(t *testing.T) {
	key := func(i int) string { return fmt.Sprintf("limits.blkio.noderesource.dev/container.c%02d", i) }
	keys := func(n int) map[string]string {
		m := map[string]string{"example.com/other": "x"}
		for i := range n {
			m[key(i)] = "/data wbps=1Mi"
		}
		return m
	}
	entries := func(last int) map[string]string {
		m := keys(0)
		for i := range 4 {
			m[key(i)] = strings.Repeat("/data wbps=x;", 255) // wrong ones count as well
		}
		m[key(4)] = strings.Repeat("/data wbps=1Mi;", last)
		return m
	}
	for _, tt := range []struct {
		name        string
		annotations map[string]string
		want        string
	}{
		{"64 keys", keys(64), ""},
		{"65 keys", keys(65), key(0) + ": more than 64 annotations of blkio.noderesource.dev on one pod (write /containers once for what all containers share)"},
		{"1024 entries", entries(4), ""},
		{"1025 entries", entries(5), key(4) + ": more than 1024 entries in the annotations of one pod together (name fewer targets, or use *)"},
	} {
		for range 3 {
			r := Parse(tt.annotations)
			if tt.want == "" {
				if len(r.PodWide()) > 0 || r.Empty() {
					t.Errorf("%s: %v", tt.name, r.PodWide())
				}
				continue
			}
			errs := errorsOf(r, "c00")
			if len(errs) != 1 || errs[0].Error() != "nri-blkio: "+tt.want || errs[0].Kind() != Invalid {
				t.Errorf("%s: %v, want %s", tt.name, errs, tt.want)
			}
			if r.Empty() || r.ContainerNames() != nil || r.Targets().Paths != nil || r.Targets().Volumes != nil || r.Targets().HasStar() || r.Targets().HasRootfs() || r.Each() != nil || r.Total() != nil {
				t.Errorf("%s: something was kept: %+v", tt.name, r)
			}
		}
	}
}

// BenchmarkParse measures the largest annotations that a tenant can write.
func BenchmarkParse(b *testing.B) {
	like := strings.Repeat("/a", 50)
	var many strings.Builder
	for i := range 255 {
		fmt.Fprintf(&many, "%s/x%03d wbps=1Mi;", like, i)
	}
	full := map[string]string{}
	for i := range 4 {
		full[fmt.Sprintf("limits.blkio.noderesource.dev/container.c%d", i)] = many.String()
	}
	huge := map[string]string{
		keyDB: "/" + strings.Repeat("a/", 32<<10-20) + " wbps=1Mi", keyEach: `"/` + strings.Repeat(`\"`, 32<<10-20) + `" wbps=1Mi`,
		keyTotal: strings.Repeat(" ;\t;\n", 13<<10) + "*",
	}
	for name, annotations := range map[string]map[string]string{"1020entries": full, "192KiB": huge, "one": {keyDB: "/data wbps=50Mi riops=2k"}} {
		b.Run(name, func(b *testing.B) {
			b.ReportAllocs()
			for b.Loop() {
				Parse(annotations)
			}
		})
	}
}

// TestKeys verifies that the plugin's keys are sorted. Of too many there is one, and of none an empty text.
func TestKeys(t *testing.T) {
	r := Parse(map[string]string{keyTotal: "x", keyDB: "* wbps=1", "a." + Domain: "", "other": "", keyEach: ""})
	want := []string{"a." + Domain, keyDB, keyEach, keyTotal}
	if d := cmp.Diff(want, r.Keys()); d != "" || r.First() != want[0] || r.Empty() {
		t.Errorf("first %q, -want +got:\n%s", r.First(), d)
	}
	none := Parse(map[string]string{"other": ""})
	if none.Keys() != nil || none.First() != "" || !none.Empty() || none.Each().Errors() != nil || none.Named("db").hasStar() {
		t.Errorf("%+v", none)
	}
	many := map[string]string{}
	for i := range MaxKeys + 1 {
		many[fmt.Sprintf("limits.%s/container.c%02d", Domain, i)] = ""
	}
	if r := Parse(many); len(r.Keys()) != 1 || r.First() != "limits."+Domain+"/container.c00" {
		t.Errorf("%q", r.Keys())
	}
}

// TestKindsTogether verifies that all kinds of annotations count for the number of keys, and limits and weights
// together for that of entries. A value is bounded by its bytes.
func TestKindsTogether(t *testing.T) {
	full := func(kind, entry string, n int) (string, string) {
		var b strings.Builder
		for i := range n {
			fmt.Fprintf(&b, "/d%d %s;", i, entry)
		}
		return kind + "." + Domain + "/", b.String()
	}
	for _, tt := range []struct {
		limits, weights int // entries of the last annotation of each kind, beside 255 in each of two
		want            string
	}{
		{2, 2, ""}, {3, 2, "more than 1024 entries"}, {2, 3, "more than 1024 entries"},
	} {
		annotations := map[string]string{}
		for kind, last := range map[string]int{"limits": tt.limits, "weight": tt.weights} {
			for scope, n := range map[string]int{"container.a": 255, "container.b": 255, "pod-total": last} {
				prefix, value := full(kind, map[string]string{"limits": "wbps=1Mi", "weight": "5"}[kind], n)
				annotations[prefix+scope] = value
			}
		}
		got := ""
		for _, e := range Parse(annotations).PodWide() {
			got += e.Error()
		}
		if tt.want == "" && got != "" || !strings.Contains(got, tt.want) {
			t.Errorf("%+v: %s", tt, got)
		}
	}
	pad := func(value string, bytes int) string { return value + strings.Repeat("\n", bytes-len(value)) }
	for kind, value := range map[string]string{"limits": "* wbps=1Mi", "weight": "5", "class": "gold"} {
		for bytes, isValid := range map[int]bool{MaxValue: true, MaxValue + 1: false} {
			if errs := Parse(map[string]string{kind + "." + Domain + "/containers": pad(value, bytes)}).Each().Errors(); (len(errs) == 0) != isValid {
				t.Errorf("%s with %d bytes: %v", kind, bytes, errs)
			}
		}
	}
}
