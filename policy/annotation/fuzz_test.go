package annotation

import (
	"testing"

	"github.com/google/go-cmp/cmp"
)

// FuzzParse verifies that no text causes a panic, that each error is one short line of printable ASCII, and
// that an entry is parsed to the same from its own text.
func FuzzParse(f *testing.F) {
	for _, e := range entryErrors {
		if len(e.value) < 1000 {
			f.Add(keyDB, e.value)
		}
	}
	f.Add(keyEach, "# all\n* wbps=20Mi; \"/a b\\\"\" riops=2k;\nrootfs wiops=max")
	f.Add(limitsKey, "* bps=20Mi iops=9 bps.burst=1Gi/60s")
	f.Add(limitsKey, "wbps=20Mi; riops=9")
	f.Add("weight.blkio.noderesource.dev/container.db", "500")
	f.Add("weight.blkio.noderesource.dev/container.db", "/data 500; rootfs 5")
	f.Fuzz(func(t *testing.T, key, value string) {
		r := Parse(map[string]string{key: value, keyTotal: value})
		for _, e := range errorsOf(r, "db") {
			checkLine(t, e.Error())
		}
		if r.Empty() {
			t.Fatal("empty")
		}
		total := r.Total()
		if total == nil {
			return // too much
		}
		for _, e := range total.Limits.Entries {
			again := Entry{text: e.text, Number: e.Number}
			p := again.parse(parseTarget, (*Entry).parseLimits)
			if diff := cmp.Diff(e, again, cmp.AllowUnexported(Entry{})); p != nil || diff != "" {
				t.Errorf("%q: %v, %s", e.text, p, diff)
			}
			if e.Limits.IsZero() || e.Target.Kind == TargetPath && e.Target.Path[0] != '/' {
				t.Errorf("%+v", e)
			}
		}
	})
}
