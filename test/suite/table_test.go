package suite

import (
	"slices"
	"testing"
)

func TestCount(t *testing.T) {
	var o outcome
	o.count([]byte("=== RUN   TestA\n--- PASS: TestA (1.00s)\n    --- PASS: TestA/b (0.10s)\n    --- FAIL: TestA/c_d (0.10s)\n--- nothing\nPASS\n"))
	if o.passed != 2 || o.failed != 1 || !slices.Equal(o.failures, []string{"TestA/c_d"}) {
		t.Errorf("%+v", o)
	}
}
