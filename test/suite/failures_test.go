package suite

import (
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
)

// TestFailuresIn verifies that of each failed test the last messages are there, cut, and none of other tests or of a plugin's log.
func TestFailuresIn(t *testing.T) {
	output := `=== RUN   TestWhy
=== RUN   TestWhy/own_limit
    why_test.go:92: 99 % of that for its own limit
=== RUN   TestWhy/top
    why_test.go:169: too early
    why_test.go:170: 1
    why_test.go:170: 2
    why_test.go:170: 3
    why_test.go:170: 4
=== NAME  TestWhy
    plugin.go:80: end of the log of nri-blkio run:
        time="2026-11-28T16:47:11Z" level=info msg=Started
=== NAME  TestWhy/top
    why_test.go:171: third
    why_test.go:171: fourth
    why_test.go:175: got another row:
        -want +got
demo-row 1
        of another program
    why_test.go:176: ` + strings.Repeat("é", messageLength) + `
--- FAIL: TestWhy (65.34s)
    --- PASS: TestWhy/own_limit (8.22s)
    --- FAIL: TestWhy/top (13.23s)
=== RUN   TestStorage
    storage_test.go:1: as expected
--- PASS: TestStorage (1.00s)
=== RUN   TestSilent
--- FAIL: TestSilent (0.00s)
=== RUN   TestHangs
panic: test timed out after 1m0s
FAIL
`
	want := []string{
		"TestHangs: panic: test timed out after 1m0s",
		"TestWhy/top failed:",
		"    why_test.go:170: 1",
		"    why_test.go:170: 2",
		"    why_test.go:170: 3",
		"    why_test.go:170: 4",
		"    why_test.go:171: third",
		"    why_test.go:171: fourth",
		"    why_test.go:175: got another row:\n        -want +got",
		"    why_test.go:176: " + strings.Repeat("é", (messageLength-len("why_test.go:176: "))/2) + " […]",
		"TestSilent failed:",
	}
	if diff := cmp.Diff(want, failuresIn([]byte(output))); diff != "" {
		t.Errorf("-want +got:\n%s", diff)
	}
	if got := failuresIn([]byte("=== RUN   TestA\n    a_test.go:1: logged\n--- PASS: TestA (1.00s)\nPASS\n")); len(got) != 0 {
		t.Errorf("without a failure: %q", got)
	}
}
