package policy

import (
	"errors"
	"slices"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/nri-blkio/nri-blkio/blkio"
	"github.com/nri-blkio/nri-blkio/policy/annotation"
)

// unknown is a place whose disk could not be found this time.
func unknown() blkio.Backing {
	return blkio.Backing{Reason: "this node failed to look where it is stored", Err: errors.New("input/output error")}
}

// errorsOf returns kind and cause of each error.
func errorsOf(d Desired) (out []string) {
	for _, e := range d.Errors {
		out = append(out, e.Kind().String()+": "+e.Cause)
	}
	return out
}

// TestUnknownDisk verifies that a disk that could not be found is an internal error of the entry that selects
// it, reported once for an entry. The known disks are limited.
func TestUnknownDisk(t *testing.T) {
	const failed = " cannot be limited now: this node failed to look where it is stored"
	three := []Mount{mount("/a", unknown()), mount("/b", unknown()), mount("/c", on(sdb))}
	for _, tt := range []struct {
		name, value string
		rootfs      blkio.Backing
		mounts      []Mount
		errs        []string
		want        []string
	}{
		{"named", "/a wbps=1Mi; /c wbps=2Mi", on(sda), three, []string{`internal: "/a"` + failed}, []string{"sdb wbps=2097152"}},
		{"the layer", "rootfs wbps=1Mi", unknown(), nil, []string{"internal: rootfs" + failed}, nil},
		{"all of several", "* wbps=1Mi", on(sda), three, []string{`internal: "/a"` + failed}, []string{"sda wbps=1048576", "sdb wbps=1048576"}},
		{"all, and none is known", "* wbps=1Mi", unknown(), three[:2], []string{"internal: rootfs" + failed}, nil},
		{"two entries", "* wbps=1Mi; /b rbps=1Mi", on(sda), three, []string{`internal: "/a"` + failed, `internal: "/b"` + failed}, []string{"sda wbps=1048576", "sdb wbps=1048576"}},
		{"no limit", "* wbps=max", unknown(), three, nil, []string{"sdb wbps=max"}},
		{"writes, and a read-only mount", "* wbps=1Mi", on(sda), []Mount{readOnly(mount("/a", unknown()))}, nil, []string{"sda wbps=1048576"}},
		{"reads, and a read-only mount", "* rbps=1Mi", on(sda), []Mount{readOnly(mount("/a", unknown()))}, []string{`internal: "/a"` + failed}, []string{"sda rbps=1048576"}},
		{"injected", "* wbps=1Mi", on(sda), []Mount{injected(mount("/etc/hosts", unknown()))}, nil, []string{"sda wbps=1048576"}},
	} {
		c := Container{Name: "db", Rootfs: tt.rootfs, Mounts: tt.mounts}
		d, err := Default().of(annotation.Parse(map[string]string{keyDB: tt.value})).Container(c)
		if (err != nil) != (tt.errs != nil) {
			t.Errorf("%s: %v", tt.name, err)
		}
		if diff := cmp.Diff(tt.errs, errorsOf(d)); diff != "" {
			t.Errorf("%s: errors, -want +got:\n%s", tt.name, diff)
		}
		if diff := cmp.Diff(tt.want, limits(d)); diff != "" {
			t.Errorf("%s: -want +got:\n%s", tt.name, diff)
		}
	}
}

// TestConflicts verifies that of two values for one disk the lower one holds, in either order. An entry that
// contradicts others is one error, however many keys and disks it concerns.
func TestConflicts(t *testing.T) {
	conflict := func(key, path, rate, other, entry, otherRate string) string {
		return "invalid: conflicting " + key + " on disk sdb 8:16: " + `"` + path + `" has ` + rate + `, "` + other + `" in entry ` + entry + " has " + otherRate
	}
	for value, tt := range map[string]struct {
		errs []string
		want []string
	}{
		"/data wbps=2Mi; /logs wbps=1Mi":                           {[]string{conflict("wbps", "/logs", "1Mi", "/data", "1", "2Mi")}, []string{"sdb wbps=1048576"}},
		"/data wbps=1Mi; /logs wbps=2Mi":                           {[]string{conflict("wbps", "/logs", "2Mi", "/data", "1", "1Mi")}, []string{"sdb wbps=1048576"}},
		"/data wbps=1Mi; /logs wbps=1Mi":                           {nil, []string{"sdb wbps=1048576"}},
		"/data wbps=1Mi; /logs rbps=2Mi":                           {nil, []string{"sdb rbps=2097152 wbps=1048576"}},
		"/data rbps=1Mi wbps=1Mi; /logs rbps=2Mi wbps=2Mi":         {[]string{conflict("rbps", "/logs", "2Mi", "/data", "1", "1Mi")}, []string{"sdb rbps=1048576 wbps=1048576"}},
		"/data wbps=1Mi; /logs wbps=2Mi; /data/x wbps=3Mi":         {[]string{conflict("wbps", "/logs", "2Mi", "/data", "1", "1Mi"), conflict("wbps", "/data/x", "3Mi", "/data", "1", "1Mi")}, []string{"sdb wbps=1048576"}},
		"* wbps=9Mi; rootfs wbps=8Mi; /data wbps=max":              {nil, []string{"sda wbps=8388608", "sdb wbps=max", "sdc wbps=9437184"}},
		"/data wbps=max; /logs wbps=2Mi":                           {[]string{conflict("wbps", "/logs", "2Mi", "/data", "1", "max")}, []string{"sdb wbps=2097152"}},
		"/data wbps=2Mi; @pgdata wbps=2Mi; /logs wbps=2Mi":         {nil, []string{"sdb wbps=2097152"}},
		"/data wbps=2Mi; @pgdata wbps=3Mi":                         {[]string{conflict("wbps", "@pgdata", "3Mi", "/data", "1", "2Mi")}, []string{"sdb wbps=2097152"}},
		"/data riops=20 wiops=30; /logs riops=20; /logs/x riops=9": {[]string{conflict("riops", "/logs/x", "9", "/data", "1", "20")}, []string{"sdb riops=9 wiops=30"}},
	} {
		d, _ := Default().of(annotation.Parse(map[string]string{keyDB: value})).Container(db()) // Errors has all
		if diff := cmp.Diff(tt.errs, errorsOf(d)); diff != "" {
			t.Errorf("%s: errors, -want +got:\n%s", value, diff)
		}
		if diff := cmp.Diff(tt.want, limits(d)); diff != "" {
			t.Errorf("%s: -want +got:\n%s", value, diff)
		}
	}
}

// TestTotalOrder verifies that the error of pod-total is about the first container by name, in any order of
// their creation.
func TestTotalOrder(t *testing.T) {
	r := annotation.Parse(map[string]string{keyTotal: "* wbps=1Mi; /a wbps=1Mi; /b wbps=2Mi"})
	var cs []Container
	for _, name := range []string{"a", "b", "c"} {
		cs = append(cs, Container{Name: name, Rootfs: unknown(), Mounts: []Mount{mount("/a", on(sda)), mount("/b", on(sda))}})
	}
	want := []string{
		`internal: rootfs of container "a" cannot be limited now: this node failed to look where it is stored`,
		`invalid: conflicting wbps on disk sda 8:0: "/b" has 2Mi, "/a" in entry 2 has 1Mi`,
	}
	for _, order := range [][]int{{0, 1, 2}, {2, 1, 0}, {1, 2, 0}} {
		given := []Container{cs[order[0]], cs[order[1]], cs[order[2]]}
		d, _ := Default().of(r).Total(given) // Errors has all
		if diff := cmp.Diff(want, errorsOf(d)); diff != "" {
			t.Errorf("%v: -want +got:\n%s", order, diff)
		}
		if given[0].Name != cs[order[0]].Name {
			t.Errorf("%v: the caller's list was sorted", order)
		}
	}
}

// TestVolumeHint verifies that a volume that is mounted several times is one name to guess.
func TestVolumeHint(t *testing.T) {
	c := Container{Name: "db", Rootfs: on(sda), Mounts: []Mount{
		of("data", "empty-dir", mount("/a", on(sda))), of("wal", "empty-dir", mount("/b", on(sda))), of("data", "empty-dir", mount("/c", on(sda))), mount("/d", on(sda)),
	}}
	_, err := Default().ForPod(&PodFacts{Volumes: NewVolumes(nil)}, annotation.Parse(map[string]string{keyDB: "@dat wbps=1Mi"})).Container(c)
	if e := asError(t, err); e == nil || e.Hint != `did you mean "data"?` {
		t.Errorf("%v", err)
	}
}

// TestBackingOf verifies that a path is on the deepest mount below the volume that covers it.
func TestBackingOf(t *testing.T) {
	m := Mount{Destination: "/data", Backing: new(on(sda)), Below: []Below{{"/data/a/", new(on(sdb))}, {"/data/a/b", new(on(sdc))}, {"/data/a/b", new(tmpfs())}, {"/data/abc", new(tmpfs())}}}
	index := IndexMounts([]Mount{m})
	for path, want := range map[string]*blkio.Backing{
		"/data": m.Backing, "/data/x": m.Backing, "/data/a": m.Below[0].Backing, "/data/a/x/y": m.Below[0].Backing, "/data/a/bc": m.Below[0].Backing,
		"/data/a/b": m.Below[1].Backing, "/data/a/b/c": m.Below[1].Backing, "/data/abc/x": m.Below[3].Backing, "/data/ab": m.Backing, "/dat": m.Backing,
	} {
		if got := m.BackingOf(path); got != want {
			t.Errorf("%s: %+v, want %+v", path, got, want)
		}
		if strings.HasPrefix(path, "/data") {
			if got := index.backing(0, path); !cmp.Equal(got, want) {
				t.Errorf("%s by the index: %+v, want %+v", path, got, want)
			}
		}
	}
}

// TestUnmatchedEnded verifies that of a container that has ended only its name is known, so that no mount
// counts as missing.
func TestUnmatchedEnded(t *testing.T) {
	r := annotation.Parse(map[string]string{keyEach: "/nowhere wbps=1Mi", "limits.blkio.noderesource.dev/container.other": "rootfs wbps=1Mi"})
	const other, nowhere = `container.other: the pod has no container "other"`, keyEach + `: entry 1: no container of the pod has a mount at "/nowhere"`
	for _, tt := range []struct {
		stages []Stage
		want   []string
	}{
		{[]Stage{Running, Created}, []string{other, nowhere}},
		{[]Stage{Running, Ended}, []string{other}},
		{[]Stage{Ended, Running}, []string{other}},
	} {
		var cs []Container
		for i, s := range tt.stages {
			c := db()
			c.Name, c.Stage = string(rune('a'+i)), s
			cs = append(cs, c)
		}
		if got := Default().of(r).Unmatched(cs); !slices.Equal(got, tt.want) {
			t.Errorf("%v: %q, want %q", tt.stages, got, tt.want)
		}
	}
}

// TestDevLimits covers the keys of io.max of each disk, and no weights.
func TestDevLimits(t *testing.T) {
	s := Settings{wbps(sda, 1), set(sda, blkio.Riops, 2), wbps(sdb, blkio.Max), weight(50)}
	want := map[blkio.Dev]blkio.Limits{sda.Dev: {blkio.Wbps: 1, blkio.Riops: 2}, sdb.Dev: {blkio.Wbps: blkio.Max}}
	if d := cmp.Diff(want, s.DevLimits()); d != "" {
		t.Errorf("-want +got:\n%s", d)
	}
}
