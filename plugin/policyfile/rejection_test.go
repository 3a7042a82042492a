package policyfile

import (
	"errors"
	"strings"
	"testing"
	"unicode/utf8"

	"github.com/prometheus/client_golang/prometheus/testutil"
)

// TestRejection verifies that a rejection is one line of printable text of bounded length, and that the metric follows it.
func TestRejection(t *testing.T) {
	var w Watch
	metric := func(want float64) {
		t.Helper()
		if got := testutil.ToFloat64(&w); got != want {
			t.Errorf("the metric is %g, want %g", got, want)
		}
	}
	metric(0)
	for _, tt := range []struct {
		err  error
		want string
	}{
		{errors.New("line 3"), "line 3"},
		{errors.Join(errors.New("line 3"), errors.New("line\n4")), "line 3; line; 4"},
		{errors.New("\x1b[2J\xff"), `\x1b[2J\xff`},
		{errors.New(strings.Repeat("ü", maxRejection)), strings.Repeat("ü", (maxRejection-3)/2) + "..."},
	} {
		w.setRejection(tt.err)
		got := w.Rejection()
		if got != tt.want || len(got) > maxRejection || !utf8.ValidString(got) {
			t.Errorf("%.20q: %q, want %q", tt.err, got, tt.want)
		}
		metric(1)
	}
	w.setRejection(nil)
	metric(0)
	if got := w.Rejection() + (*Watch)(nil).Rejection(); got != "" {
		t.Errorf("without an error: %q", got)
	}
}
