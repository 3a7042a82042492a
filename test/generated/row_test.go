package generated

import (
	"math"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
)

// TestRow verifies that a printed row can be parsed, and that a figure has the median and the spread of its
// rounds.
func TestRow(t *testing.T) {
	r := Row{Test: "TestA", Name: "a | b", Bar: "<a>"}
	for _, v := range []float64{1490.4, 8.125, 1234.5, 0.05, 999.7} {
		r.Add(map[string]float64{"reads": v, "p99": 2})
	}
	var out strings.Builder
	if err := r.Print(&out); err != nil {
		t.Fatal(err)
	}
	line, ok := strings.CutPrefix(out.String(), RowMark)
	if !ok || strings.Count(line, "\n") != 1 {
		t.Fatalf("printed %q, want one line with the mark %q", out.String(), RowMark)
	}
	got, err := ParseRow(line)
	if err != nil {
		t.Fatal(err)
	}
	if diff := cmp.Diff(r, got); diff != "" {
		t.Error(diff)
	}
	if want := "a | b | p99 2 (2–2) | reads 1000 (0.05–1490)"; got.String() != want {
		t.Errorf("got %s, want %s", got.String(), want)
	}
	if f, ok := got.Figure("writes"); ok {
		t.Errorf("the figure writes, which was not measured, is %v", f)
	}
}

// TestRowInvalid verifies that a figure that is not a number cannot be printed, and that text that is not a row
// cannot be parsed.
func TestRowInvalid(t *testing.T) {
	r := Row{Name: "a", Rounds: map[string][]float64{"reads": {math.NaN()}}}
	var out strings.Builder
	if err := r.Print(&out); err == nil {
		t.Errorf("a row with NaN was printed as %q, want an error", out.String())
	}
	for _, text := range []string{"", "a|1|2|3", `{"Rounds": 3}`} {
		if got, err := ParseRow(text); err == nil {
			t.Errorf("ParseRow(%q) is %v, want an error", text, got)
		}
	}
}

func TestNumber(t *testing.T) {
	for v, want := range map[float64]string{0: "0", 2.718: "2.72", 98.76: "98.8", 999.4: "999", 999.6: "1000", 64123.4: "64123"} {
		if got := Number(v); got != want {
			t.Errorf("Number(%g) is %s, want %s", v, got, want)
		}
	}
}
