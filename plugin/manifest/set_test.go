package manifest

import (
	"testing"

	"github.com/google/go-cmp/cmp"
)

func TestOtherKinds(t *testing.T) {
	var s Set
	for _, kind := range []string{"Service", "", "ConfigMap", "Service"} {
		s.Others = append(s.Others, Other{Object: Object{Kind: kind}})
	}
	if d := cmp.Diff([]string{"ConfigMap", "Service"}, s.OtherKinds()); d != "" {
		t.Errorf("-want +got:\n%s", d)
	}
	if got := (&Set{}).OtherKinds(); got != nil {
		t.Errorf("of an empty set: %q", got)
	}
}
