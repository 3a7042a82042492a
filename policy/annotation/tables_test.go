package annotation

import (
	"strings"
	"testing"

	"github.com/nri-blkio/nri-blkio/blkio"
)

// TestTables verifies that the grammar accepts what its tables list, up to the bounds and not above.
func TestTables(t *testing.T) {
	for _, scope := range Scopes() {
		if errs := errorsOf(Parse(map[string]string{"limits." + Domain + "/" + scope: "* wbps=1Mi"}), "db"); len(errs) > 0 {
			t.Errorf("scope %s: %v", scope, errs)
		}
	}
	for _, suffix := range Suffixes() {
		if _, p := ParseAmount(blkio.Wbps, "1"+suffix); p != nil {
			t.Errorf("suffix %s: %v", suffix, p)
		}
	}
	for text, isValid := range map[string]bool{
		strings.Repeat("0", MaxNumber-1) + "1":    true,
		strings.Repeat("0", MaxNumber) + "1":      false,
		"1." + strings.Repeat("0", MaxDecimals):   true,
		"1." + strings.Repeat("0", MaxDecimals+1): false,
	} {
		if _, p := ParseAmount(blkio.Wbps, text); (p == nil) != isValid {
			t.Errorf("%s: %v", text, p)
		}
	}
	for entries, isValid := range map[int]bool{MaxEntries: true, MaxEntries + 1: false} {
		l := parseLimits(keyDB, strings.Repeat("* wbps=x;", entries))
		if last := l.errors[len(l.errors)-1]; (last.Entry > 0) != isValid {
			t.Errorf("%d entries: %v", entries, last)
		}
	}
}
