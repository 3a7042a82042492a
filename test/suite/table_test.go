package suite

import (
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
)

func TestCount(t *testing.T) {
	var o outcome
	o.count([]byte("=== RUN   TestA\n--- PASS: TestA (1.00s)\n    --- PASS: TestA/b (0.10s)\n    --- FAIL: TestA/c_d (0.10s)\n--- nothing\nPASS\n"))
	if o.passed != 2 || o.failed != 1 || !slices.Equal(o.failures, []string{"TestA/c_d"}) {
		t.Errorf("outcome is %+v, want 2 passed tests and the failure of TestA/c_d", o)
	}
}

func TestAddOutcome(t *testing.T) {
	o := outcome{node: "n", passed: 2, took: time.Minute, storage: []string{"a"}}
	o.add(outcome{node: "n", passed: 3, failed: 1, failures: []string{"TestX"}, took: 2 * time.Minute, storage: []string{"b"}})
	want := outcome{node: "n", passed: 5, failed: 1, failures: []string{"TestX"}, took: 2 * time.Minute, storage: []string{"a", "b"}}
	if diff := cmp.Diff(want, o, cmp.AllowUnexported(outcome{})); diff != "" {
		t.Error(diff)
	}
}

// TestWriteScenarios verifies that measured rows replace the former ones, that other rows are unchanged, and
// that new rows are added after those of their scenario, which only the first one names.
func TestWriteScenarios(t *testing.T) {
	file := filepath.Join(t.TempDir(), "table.md")
	for _, run := range []struct {
		measured  string
		scenarios []string
	}{
		{"10s, c1", []string{"| a | nothing | 1 |\n", "| b | nothing | 2 |\n"}},
		{"20s, c2", []string{"| a | all | 3 |\n", "| a | all, XFS | 6 |\n", "| b | nothing | 4 |\n", "| ab | nothing | 5 |\n"}},
	} {
		if err := writeScenarios(file, run.measured, outcome{node: "kernel 6.12", scenarios: run.scenarios}); err != nil {
			t.Fatal(err)
		}
	}
	if err := ofNode(file, "kernel 6.12"); err != nil {
		t.Error(err)
	}
	if err := ofNode(file, "kernel 6.1"); err == nil {
		t.Error("a file with the rows of another node: no error")
	}
	got, err := os.ReadFile(file)
	if err != nil {
		t.Fatal(err)
	}
	const want = "|---|\n| a | nothing | 1 | 10s, c1 |\n|  | all | 3 | 20s, c2 |\n|  | all, XFS | 6 | 20s, c2 |\n| b | nothing | 4 | 20s, c2 |\n| ab | nothing | 5 | 20s, c2 |\n"
	if !strings.HasSuffix(string(got), want) || !strings.HasPrefix(string(got), "# Scenario by scenario: kernel 6.12\n") {
		t.Errorf("the page is\n%s\nwant the rows\n%s", got, want)
	}
}

// TestWriteStorage verifies that a run with a failure removes no rows.
func TestWriteStorage(t *testing.T) {
	file := filepath.Join(t.TempDir(), "storage.md")
	const marks = "# Storage\n\n<!-- what follows is written by a test -->\n<!-- until here -->\nend\n"
	if err := os.WriteFile(file, []byte(marks), 0o644); err != nil {
		t.Fatal(err)
	}
	var o outcome
	o.count([]byte("storage-row | b | 2 |\nstorage-row | a | 1 |\n--- PASS: TestStorage (1.00s)\n"))
	o.node = "kernel 6.12"
	if err := writeStorage(file, "c1", o); err != nil {
		t.Fatal(err)
	}
	o.count([]byte("--- FAIL: TestStorage/c (1.00s)\n"))
	o.storage = o.storage[:1]
	if err := writeStorage(file, "c2", o); err == nil {
		t.Error("a table without the failed rows was written: no error")
	}
	got, err := os.ReadFile(file)
	if err != nil {
		t.Fatal(err)
	}
	const want = "|---|---|---|---|\n| a | 1 |\n| b | 2 |\n\n<!-- until here -->\nend\n"
	if !strings.HasSuffix(string(got), want) || !strings.Contains(string(got), "Measured on kernel 6.12, of commit c1.") {
		t.Errorf("the page is\n%s\nwant the rows\n%s", got, want)
	}
}

// TestWritePlot verifies that the longest bar has the whole width, and that text that is not a figure is an
// error.
func TestWritePlot(t *testing.T) {
	file := filepath.Join(t.TempDir(), "images", "plot.svg")
	var o outcome
	o.count([]byte("neighbour-row alone|2|1|4\nneighbour-row <writer>|100|90|200\n--- PASS: TestNeighbour (1.00s)\n"))
	o.node = "kernel 6.12"
	if err := writePlot(file, "c1", o); err != nil {
		t.Fatal(err)
	}
	got, err := os.ReadFile(file)
	if err != nil {
		t.Fatal(err)
	}
	for _, want := range []string{
		`width="3" height="26"`, `width="190" height="26"`, `x1="421" x2="630"`, "&lt;writer&gt;", "kernel 6.12, commit c1",
	} {
		if !strings.Contains(string(got), want) {
			t.Errorf("the plot has no %q:\n%s", want, got)
		}
	}
	o.neighbours = append(o.neighbours, strings.Repeat("w", 40)+"|1|1|1")
	if err := writePlot(file, "c1", o); err != nil {
		t.Fatal(err)
	}
	if got, err = os.ReadFile(file); err != nil || !strings.Contains(string(got), `<text x="340" y="52" dx="-10"`) {
		t.Errorf("a label of 40 characters, which are of 8 pixels at most, has not its room: %v\n%s", err, got)
	}
	for _, row := range []string{"alone", "alone|1|2", "alone|1|2|x", "alone|0|0|0"} {
		if err := writePlot(file, "c2", outcome{neighbours: []string{row}}); err == nil {
			t.Errorf("a plot was drawn of the invalid row %q", row)
		}
	}
	o.failed = 1
	if err := writePlot(file, "c3", o); err == nil {
		t.Error("a plot of a failed run was written: no error")
	}
}
