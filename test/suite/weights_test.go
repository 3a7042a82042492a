package suite

import (
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/nri-blkio/nri-blkio/test/generated"
	"github.com/nri-blkio/nri-blkio/test/node"
)

// weightsPage is a page with the marks of two tables.
func weightsPage(t *testing.T) (file string) {
	t.Helper()
	file = filepath.Join(t.TempDir(), "reference", "weights-figures.md")
	if err := os.Mkdir(filepath.Dir(file), 0o755); err != nil {
		t.Fatal(err)
	}
	var text strings.Builder
	for _, test := range []string{noisyTest, "TestShareFigures"} {
		text.WriteString("<!-- what follows is written by " + rowsBy("weights", test) + "\nold " + test + "\n<!-- until here -->\n")
	}
	if err := os.WriteFile(file, []byte(text.String()), 0o644); err != nil {
		t.Fatal(err)
	}
	return file
}

// output returns an example of what tests print: their rows, and their verdicts.
func output(t *testing.T, verdicts string, rows ...generated.Row) []byte {
	t.Helper()
	var out strings.Builder
	for _, r := range rows {
		if err := r.Print(&out); err != nil {
			t.Fatal(err)
		}
	}
	return []byte(out.String() + verdicts)
}

func read(t *testing.T, file string) string {
	t.Helper()
	data, err := os.ReadFile(file)
	if err != nil {
		t.Fatal(err)
	}
	return string(data)
}

func noisyRows() []generated.Row {
	return []generated.Row{
		{Test: noisyTest, Name: "none", Bar: "<none>", Rounds: map[string][]float64{"reads": {1500, 1400, 1600}, "read p99": {2, 3, 4}}},
		{Test: noisyTest, Name: "no settings", Bar: "no settings", Rounds: map[string][]float64{
			"reads": {38, 39, 40}, "read p99": {300, 350, 400}, "wrote": {44, 45, 46}, "read": {4, 5, 6}, "both": {48, 50, 52},
			"commits: wrote": {41, 42, 43}, "commits: read": {1, 2, 3}, "commits: part": {70, 71, 72},
			"reads: wrote": {47, 48, 49}, "reads: read": {7, 8, 9}, "reads: part": {80, 81, 82},
		}},
		{Test: noisyTest, Name: "idle victim", Rounds: map[string][]float64{"wrote": {44, 45, 46}, "idle: part": {88, 89, 90}}},
	}
}

// TestWriteWeights verifies that the table of a test that failed, or did not run, is unchanged.
func TestWriteWeights(t *testing.T) {
	file := weightsPage(t)
	var o outcome
	share := generated.Row{Test: "TestShareFigures", Name: "direct reads", Rounds: map[string][]float64{"share": {60, 59, 61}, "isolation": {95, 96, 97}}}
	o.count(output(t, "--- PASS: "+noisyTest+" (1.00s)\n    --- FAIL: TestShareFigures/reads (1.00s)\n", append(noisyRows(), share)...))
	o.node = "kernel 6.12, containerd 2"
	if err := writeWeights(file, "c1", o); err == nil || !strings.Contains(err.Error(), "TestShareFigures failed") {
		t.Errorf("write the tables after a failed test: error %v, want that TestShareFigures failed", err)
	}
	got := read(t, file)
	for _, want := range []string{
		"Measured on kernel 6.12, containerd 2, of commit c1.", "](../images/weights.svg)",
		"| neighbour | victim's commits/s | p99, ms | victim's reads/s | p99, ms | neighbour writes, MiB/s | neighbour reads, MiB/s |\n|---|---|---|---|---|---|---|\n",
		"| none |  |  | 1500 (1400–1600) | 3 (2–4) |  |  |\n",
		"| no settings |  |  | 39 (38–40) | 350 (300–400) | 45 (44–46) | 5 (4–6) |\n",
		// The second table, without the case that has none of its figures.
		"uses, %:\n\n| neighbour | beside commits | beside reads | beside an idle victim, of the disk |\n|---|---|---|---|\n" +
			"| no settings | 71 (70–72) | 81 (80–82) |  |\n" +
			"| idle victim |  |  | 89 (88–90) |\n\n<!-- until here -->",
		"old TestShareFigures",
	} {
		if !strings.Contains(got, want) {
			t.Errorf("the page has no %q:\n%s", want, got)
		}
	}
	o = outcome{}
	o.count(output(t, "--- PASS: TestShareFigures (1.00s)\n", share))
	if err := writeWeights(file, "c2", o); err != nil {
		t.Fatal(err)
	}
	if got := read(t, file); !strings.Contains(got, "| direct reads | 60 (59–61) | 96 (95–97) |\n") || !strings.Contains(got, "of commit c1.") {
		t.Errorf("the page has no row of direct reads, or lost commit c1:\n%s", got)
	}
	if err := writeWeights(file, "c3", outcome{weights: []string{"x"}}); err == nil {
		t.Error("a row that is not JSON: no error")
	}
}

// TestWriteCompare verifies that a figure that a row does not have leaves its cell empty.
func TestWriteCompare(t *testing.T) {
	file := filepath.Join(t.TempDir(), "comparison.md")
	marks := "<!-- what follows is written by " + rowsBy("compare", "TestCompare") + "\nold\n<!-- until here -->\n"
	if err := os.WriteFile(file, []byte(marks), 0o644); err != nil {
		t.Fatal(err)
	}
	var o outcome
	row := generated.Row{Test: "TestCompare", Name: "direct writes", Rounds: map[string][]float64{"class": {2, 1, 3}, "nri-blkio": {4, 5, 6}}}
	o.count(output(t, "--- PASS: TestCompare (1.00s)\n", row))
	if err := writeCompare(file, "c1", o); err != nil {
		t.Fatal(err)
	}
	if got, want := read(t, file), "| direct writes |  | 2 (1–3) | 5 (4–6) |\n"; !strings.Contains(got, want) {
		t.Errorf("the page has no %q:\n%s", want, got)
	}
}

// TestHasWeights verifies that a run of the whole matrix writes the weights of one node, which is the default
// node.
func TestHasWeights(t *testing.T) {
	r, err := requestOf(t, map[string]string{"NODE_MATRIX": "full"})
	if err != nil {
		t.Fatal(err)
	}
	count := 0
	for _, run := range r.runs() {
		if hasWeights(outcome{node: run.cfg.String()}) {
			count++
		}
	}
	if count != 1 {
		t.Errorf("the weights of %d nodes of the matrix are written, want 1", count)
	}
	if hasWeights(outcome{node: node.Config{KernelArgs: "threadirqs"}.String()}) {
		t.Error("the weights of a node with another kernel command line are written")
	}
}

// TestDrawWeights verifies that each panel has a scale of its own, and shows the cases that have a label.
func TestDrawWeights(t *testing.T) {
	file := weightsPage(t)
	var o outcome
	o.count(output(t, "--- PASS: "+noisyTest+" (1.00s)\n", noisyRows()...))
	o.node = "kernel 6.12, containerd 2"
	if err := writeWeights(file, "c1", o); err != nil {
		t.Fatal(err)
	}
	got := read(t, filepath.Join(filepath.Dir(file), "..", "images", "weights.svg"))
	for _, want := range []string{
		"&lt;none&gt;", "of 3 runs of make table T=weights; kernel 6.12, commit c1", "What the neighbour writes and reads, MiB/s",
		`y="34" width="356" height="26"`,  // 1500 of at most 1600 reads
		`y="152" width="2" height="26"`,   // 3 of at most 400 ms
		`y="270" width="365" height="26"`, // 50 of at most 52 MiB/s
	} {
		if !strings.Contains(got, want) {
			t.Errorf("the plot has no %q:\n%s", want, got)
		}
	}
	if strings.Contains(got, "idle victim") || strings.Count(got, "<line ") != 5 {
		t.Errorf("the plot has %d lines, want 5, and no idle victim:\n%s", strings.Count(got, "<line "), got)
	}
}

// TestMarksOfTables verifies that each page has the marks of its tables.
func TestMarksOfTables(t *testing.T) {
	for name, of := range map[string][]weightTable{"weights": weightTables(), "compare": compareTables(), "depths": depthTables()} {
		page := read(t, tables(node.Config{})[name].file)
		for _, table := range of {
			if strings.Count(page, "<!-- what follows is written by "+rowsBy(name, table.test)+"\n") != 1 {
				t.Errorf("the page of table %s does not have exactly one mark %q", name, rowsBy(name, table.test))
			}
		}
	}
}
