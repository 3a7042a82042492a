package annotation

import (
	"fmt"
	"slices"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/nri-blkio/nri-blkio/blkio"
)

const keyWeights = "weight.blkio.noderesource.dev/containers"

func TestParseWeights(t *testing.T) {
	for value, want := range map[string][]string{
		"500":                            {"0 * 500"},
		" 1\n":                           {"0 * 1"},
		"/data 500; * 100":               {"1 /data 500", "2 * 100"},
		"# the log\n@log 50\nrootfs 7;":  {"1 @log 50", "2 rootfs 7"},
		`"/with blank"  10000`:           {`1 "/with blank" 10000`},
		"* 100":                          {"1 * 100"},
		"/data 500; /data/ 5; * 1; * 2;": {"1 /data 500", "3 * 1"},
	} {
		r := Parse(map[string]string{keyWeights: value})
		var got []string
		for _, e := range r.Each().Weights.Entries {
			if !e.Limits.IsZero() {
				t.Errorf("%q has limits: %+v", value, e)
			}
			got = append(got, fmt.Sprintf("%d %s %d", e.Number, e.Target.Text, e.Weight))
		}
		if diff := cmp.Diff(want, got); diff != "" {
			t.Errorf("%q: %s", value, diff)
		}
	}
}

func TestWeightEntryErrors(t *testing.T) {
	const hint = " (write a whole number from 1 to 10000; the default is 100)"
	for value, want := range map[string]string{
		"/data":                               `entry 1 "/data": no weight after the target (write for example "/data 500")`,
		"/data;":                              `entry 1 "/data": no weight after the target (write for example "/data 500")`,
		"/data 0":                             `entry 1 "/data 0": invalid weight "0"` + hint,
		"/data 10001":                         `entry 1 "/data 10001": invalid weight "10001"` + hint,
		"/data 1.5":                           `entry 1 "/data 1.5": invalid weight "1.5"` + hint,
		"/data weight=5":                      `entry 1 "/data weight=5": invalid weight "weight=5"` + hint,
		"/data 5 6":                           `entry 1 "/data 5 6": "6" after the weight (separate entries by ";")`,
		"500; * 100":                          `entry 1 "500": unknown target "500" (write "/path", @VOLUME, rootfs or *)`,
		"/data 5; /data 6":                    `entry 2 "/data 6": duplicate target "/data", first in entry 1 (write one weight for it)`,
		"/a\x00 5":                            `entry 1 "/a\x00 5": control character in the entry (remove it)`,
		"data 5":                              `entry 1 "data 5": unknown target "data" (write "/path", @VOLUME, rootfs or *)`,
		"500x":                                `"500x": invalid weight` + hint,
		"# nothing":                           `the value is empty (write for example "/data 500", or remove the annotation)`,
		"/x 1;" + strings.Repeat("* 1;", 256): `entry 3 "* 1": duplicate target "*", first in entry 2 (write one weight for it)`,
	} {
		r := Parse(map[string]string{keyWeights: value})
		errs := r.Each().Errors()
		if len(errs) == 0 || errs[0].Error() != "nri-blkio: "+keyWeights+": "+want {
			t.Errorf("%.40q:\n got %v\nwant %s", value, errs, want)
		}
	}
}

// TestWeightTargets verifies that the disks that a weight names have to be found, as those of a limit.
func TestWeightTargets(t *testing.T) {
	r := Parse(map[string]string{keyWeights: "/data 5; @log 6; rootfs 7"})
	if !slices.Equal(r.Targets().Paths, []string{"/data"}) || !slices.Equal(r.Targets().Volumes, []string{"log"}) || !r.Targets().HasRootfs() || r.Targets().HasStar() {
		t.Errorf("paths %q, volumes %q, rootfs %t, star %t", r.Targets().Paths, r.Targets().Volumes, r.Targets().HasRootfs(), r.Targets().HasStar())
	}
	for _, key := range []string{keyWeights, "weight.blkio.noderesource.dev/pod-total", "weight.blkio.noderesource.dev/container.a"} {
		if !Parse(map[string]string{key: "5"}).Targets().Weights {
			t.Errorf("%s is no weight", key)
		}
	}
	if Parse(map[string]string{keyDB: "/a wbps=1Mi"}).Targets().Weights || Parse(nil).Targets().Weights {
		t.Error("a weight without an annotation")
	}
	r = Parse(map[string]string{keyWeights: "500"})
	if !r.Targets().HasStar() || !r.Targets().HasRootfs() || r.StarOf("any") {
		t.Errorf("star %t, rootfs %t; undeclared disks are watched: %t", r.Targets().HasStar(), r.Targets().HasRootfs(), r.StarOf("any"))
	}
}

func TestTooManyWeights(t *testing.T) {
	annotations := map[string]string{}
	for i := range 10 {
		var entries []string
		for k := range 250 {
			entries = append(entries, fmt.Sprintf("/d%d 5", k))
		}
		annotations[fmt.Sprintf("weight.blkio.noderesource.dev/container.c%d", i)] = strings.Join(entries, ";")
	}
	if errs := Parse(annotations).PodWide(); len(errs) != 1 || !strings.Contains(errs[0].Error(), "entries in the annotations of one pod together") {
		t.Errorf("%v", errs)
	}
}

// FuzzWeights verifies that a weight that was parsed is parsed again to the same from its own text, and is in
// its bounds. Each error is one short line, the same each time.
func FuzzWeights(f *testing.F) {
	for _, value := range []string{"500", " 7\n", "/data 500; rootfs 5", "* 010\r\n@v 10000", `"/a;b" 1;`, "0", "/a 5 6", "\u00a05", "/a 10001;/a 5", "#\n5"} {
		f.Add(value)
	}
	f.Fuzz(func(t *testing.T, value string) {
		l, again := parseWeights(keyDB, value), parseWeights(keyDB, value)
		for i, e := range l.errors {
			checkLine(t, e.Error())
			if e.Error() != again.errors[i].Error() {
				t.Errorf("%s, then %s", e, again.errors[i])
			}
		}
		for _, e := range l.Entries {
			back := parseWeights(keyDB, e.text)
			if e.Weight < blkio.MinWeight || e.Weight > blkio.MaxWeight || !e.Limits.IsZero() || len(back.errors) > 0 || back.Entries[0].Weight != e.Weight || !back.Entries[0].Target.is(&e.Target) {
				t.Errorf("%q: %+v", e.text, e)
			}
		}
		if len(l.Entries)+len(l.errors) == 0 {
			t.Errorf("%q: neither a weight nor an error", value)
		}
	})
}
