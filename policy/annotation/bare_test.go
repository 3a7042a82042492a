package annotation

import (
	"maps"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/nri-blkio/nri-blkio/blkio"
)

const (
	keyLimits = "limits.blkio.noderesource.dev"
	keyWeight = "weight.blkio.noderesource.dev"
	keyClass  = "class.blkio.noderesource.dev"
)

// TestBareKey verifies that a key without a scope means the scope containers, alone and beside the same value with that scope. It
// keeps its own name, which errors and the record have.
func TestBareKey(t *testing.T) {
	for _, suffix := range []string{"", "/containers"} {
		annotations := map[string]string{keyLimits: "* wbps=1Mi", keyWeight: "50", keyClass: "gold"}
		for key, value := range maps.Clone(annotations) {
			if suffix != "" {
				annotations[key+suffix] = value
			}
		}
		r := Parse(annotations)
		each := r.Each()
		if errs := errorsOf(r, "db"); len(errs) > 0 || r.OfClaim() != nil || !r.StarOf("db") {
			t.Errorf("%q: %v, %+v", suffix, errs, r)
		}
		if got := []string{each.Limits.From.Annotation, each.Weights.From.Annotation, each.Class.Key}; !cmp.Equal(got, []string{keyLimits + suffix, keyWeight + suffix, keyClass + suffix}) {
			t.Errorf("%q: %q", suffix, got)
		}
		if l := each.Limits.Entries; len(l) != 1 || l[0].Limits[blkio.Wbps] != 1<<20 || each.Weights.Entries[0].Weight != 50 || each.Class.Name != "gold" {
			t.Errorf("%q: %+v", suffix, each)
		}
	}
}

// TestBareKeyTwice verifies that a key without a scope is an error beside another value with the scope containers. The latter is
// what counts if the policy ignores errors. Other scopes are others.
func TestBareKeyTwice(t *testing.T) {
	for key, values := range map[string][2]string{keyLimits: {"* wbps=1Mi", "* wbps=2Mi"}, keyWeight: {"50", " 50"}, keyClass: {"gold", "bronze"}} {
		r := Parse(map[string]string{key: values[0], key + "/containers": values[1]})
		errs := errorsOf(r, "db")
		want := "nri-blkio: " + key + ": the key without a scope means /containers, and both have different values (remove one of them)"
		if len(errs) != 1 || errs[0].Error() != want || errs[0].Kind() != Invalid {
			t.Errorf("%s: %v", key, errs)
		}
		if len(r.Total().Errors())+len(r.PodWide()) > 0 {
			t.Errorf("%s: it is an error of the pod", key)
		}
		switch each := r.Each(); key {
		case keyLimits:
			if each.Limits.Entries[0].Limits[blkio.Wbps] != 2<<20 {
				t.Errorf("%+v", each.Limits)
			}
		case keyClass:
			if each.Class.Name != "bronze" {
				t.Errorf("%+v", each.Class)
			}
		}
	}
	r := Parse(map[string]string{keyLimits: "* wbps=1Mi", keyTotal: "* wbps=2Mi", keyDB: "* wbps=3Mi"})
	if errs := errorsOf(r, "db"); len(errs) > 0 || r.Total() == nil || r.Named("db") == nil || r.Each() == nil {
		t.Errorf("%v", errs)
	}
}

// TestOfClaim verifies that the annotation of a claim on a pod is ignored, and no other one is.
func TestOfClaim(t *testing.T) {
	for value, isOfClaim := range map[string]bool{
		"wbps=50Mi":                          true,
		"wbps=50Mi riops=100+3/Gi":           true,
		"# a claim\n; wbps=50Mi;\triops=9\n": true,
		"wbps=0 bps=x-y":                     true, // the claim has the error
		"wpbs=1":                             false,
		"rootfs=50Mi":                        false,
		"all=5":                              false,
		"wbps=50Mi,* wbps=1Mi":               false,
		"wbps=50Mi * wbps=1Mi":               false,
		"wbps.burst=100Mi/60s wbps=20Mi":     false, // no such key
		"":                                   false,
		"# wbps=1":                           false,
		";# wbps=1":                          false,
		"* wbps=50Mi":                        false,
		"data wbps=50Mi":                     false,
		"wbps":                               false,
		"=5":                                 false,
		"/a=b":                               false,
		"@a=b":                               false,
		"*=5":                                false,
		"wbps=50Mi; /data rbps=1":            false,
		"/data rbps=1\nwbps=50Mi":            false,
	} {
		r := Parse(map[string]string{keyLimits: value})
		if got := r.OfClaim() != nil; got != isOfClaim || r.Empty() != isOfClaim || isOfClaim && len(errorsOf(r, "db")) > 0 {
			t.Errorf("%q: of a claim %t, %v", value, got, errorsOf(r, "db"))
			continue
		}
		if isOfClaim {
			checkLine(t, r.OfClaim().Error())
		}
	}
	// Mixed entries are an error.
	for value, want := range map[string]string{
		"wbps=50Mi; /data rbps=1": `entry 1 "wbps=50Mi": no target before "wbps=50Mi" (write "/path", @VOLUME, rootfs or * first)`,
		"/data rbps=1\nwbps=50Mi": `entry 2 "wbps=50Mi": no target before "wbps=50Mi" (write "/path", @VOLUME, rootfs or * first)`,
	} {
		if err := first(Parse(map[string]string{keyLimits: value}), "db"); err == nil || err.Error() != "nri-blkio: "+keyLimits+": "+want {
			t.Errorf("%q: %v", value, err)
		}
	}
	// With a scope it is an error.
	if err := first(Parse(map[string]string{keyEach: "wbps=50Mi"}), "db"); err == nil {
		t.Error("limits without a target have an effect")
	}
	r := Parse(map[string]string{keyLimits: "wbps=50Mi", keyEach: "* wbps=1Mi", keyWeight: "50"})
	const want = `nri-blkio: limits.blkio.noderesource.dev: "wbps=50Mi": limits without a target are those of a claim, and have no effect on a pod (write "* wbps=50Mi" to limit each container)`
	if errs := errorsOf(r, "db"); len(errs) > 0 || r.OfClaim().Error() != want || r.Each().Limits == nil || !cmp.Equal(r.Keys(), []string{keyEach, keyWeight}) {
		t.Errorf("%v, %v, %q", errs, r.OfClaim(), r.Keys())
	}
	if new(Request).OfClaim() != nil || Parse(map[string]string{keyWeight: "wbps=50Mi"}).OfClaim() != nil {
		t.Error("limits of a claim without them")
	}
}
