package main

import (
	"errors"
	"strings"
	"testing"
)

// TestByOthers verifies that what the node uses, and waiting, do not count as use by other programs.
func TestByOthers(t *testing.T) {
	before := usage{all: 1000, busy: 400, node: 10}
	for name, tt := range map[string]struct {
		after usage
		want  float64
	}{
		"an idle machine":    {usage{all: 1200, busy: 500, node: 110}, 0},
		"a build beside it":  {usage{all: 1200, busy: 590, node: 110}, 0.45},
		"no time has passed": {before, 0},
		"rounded":            {usage{all: 1200, busy: 500, node: 110.5}, 0},
	} {
		got := tt.after.byOthers(before)
		if got != tt.want {
			t.Errorf("%s: %g by others, want %g", name, got, tt.want)
		}
		if text := busyText(got); (text != "") != (tt.want > mostByOthers) || tt.want > 0 && !strings.Contains(text, "45 %") {
			t.Errorf("%s: %q", name, text)
		}
	}
}

// TestVerdict verifies that a demo that fails on a busy machine says so.
func TestVerdict(t *testing.T) {
	for _, tt := range []struct {
		code          int
		busy          string
		err, reported string
	}{
		{0, "", "", ""},
		{0, "other programs", "", "demo: other programs\n"},
		{1, "", "the demo failed", ""},
		{1, "other programs", "may not be the fault of limits: other programs", ""},
	} {
		var stderr strings.Builder
		err := verdict(tt.code, tt.busy, &stderr)
		if stderr.String() != tt.reported || (err == nil) != (tt.err == "") || err != nil && !strings.Contains(err.Error(), tt.err) {
			t.Errorf("code %d, %q: %v, %q", tt.code, tt.busy, err, stderr.String())
		}
	}
}

func TestUsageOf(t *testing.T) {
	u, err := usageOf(func() (float64, error) { return 3, nil })
	if err != nil || u.busy <= 0 || u.all < u.busy || u.node != 3 {
		t.Errorf("%+v, %v", u, err)
	}
	gone := errors.New("no such process")
	if _, err := usageOf(func() (float64, error) { return 0, gone }); !errors.Is(err, gone) {
		t.Errorf("error %v, want %v", err, gone)
	}
}
