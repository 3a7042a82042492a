package migrate

import (
	"strings"
	"testing"

	"github.com/nri-blkio/nri-blkio/policy/annotation"
)

// TestPolicyName verifies that a name of a class of the policy stays as it is, and any other becomes one.
func TestPolicyName(t *testing.T) {
	for name, want := range map[string]string{
		"bronze": "bronze", "b--2": "b--2", "LowPrio": "lowprio", "low_prio.fast": "low-prio-fast", "-a-": "a", "": "class", "\xff": "class", "...": "class", "Ünïcode": "n-code",
		"none": "none-2", "NONE": "none-2", "none-2": "none-2", " x ": "x", "a\nb": "a-b",
		strings.Repeat("a", 63): strings.Repeat("a", 63), strings.Repeat("a", 64): strings.Repeat("a", 63), strings.Repeat("a.", 40): strings.Repeat("a-", 31) + "a", strings.Repeat("a", 62) + ".b": strings.Repeat("a", 62),
	} {
		if got := policyName(name); got != want || !annotation.IsLabel(got) || policyName(got) != got {
			t.Errorf("%q: %q, want %q", name, got, want)
		}
	}
}
