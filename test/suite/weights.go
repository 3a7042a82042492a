package suite

import (
	"errors"
	"fmt"
	"path/filepath"
	"slices"
	"strings"

	"github.com/nri-blkio/nri-blkio/test/generated"
	"github.com/nri-blkio/nri-blkio/test/node"
)

// weightTable is one of docs/reference/weights-figures.md, or that of comparison.md or of benchmarks.md: the rows of a test.
type weightTable struct {
	test    string
	cases   string // head of the first column
	columns []weightColumn
	// second has the columns of another table below it, of the cases that have any of them, and intro
	// is the text between the two.
	intro  string
	second []weightColumn
}

// weightColumn is a figure of generated.Row, and how the table heads it.
type weightColumn struct{ figure, head string }

// noisyTest has the one table with a plot.
const noisyTest = "TestNoisyNeighbour"

// noisyTable returns the tables of TestNoisyNeighbour.
func noisyTable() weightTable {
	return weightTable{
		test: noisyTest, cases: "neighbour",
		columns: []weightColumn{
			{"commits", "victim's commits/s"},
			{"commit p99", "p99, ms"},
			{"reads", "victim's reads/s"},
			{"read p99", "p99, ms"},
			{"wrote", "neighbour writes, MiB/s"},
			{"read", "neighbour reads, MiB/s"},
		},
		intro: "The part of what the victim leaves of the disk that the neighbour uses, %:",
		second: []weightColumn{
			{"commits: part", "beside commits"},
			{"reads: part", "beside reads"},
			{"idle: part", "beside an idle victim, of the disk"},
		},
	}
}

func weightTables() []weightTable {
	return []weightTable{
		noisyTable(),
		{test: "TestShareFigures", cases: "I/O", columns: []weightColumn{
			{"share", "share of weight 300 beside 200, %"}, {"isolation", "1st percentile of isolation, %"},
		}},
		{test: "TestMixedShares", cases: "I/O", columns: []weightColumn{
			{"part", "share of weight 300 beside 200, %"}, {"operations", "of the operations, %"}, {"bytes", "of the bytes, %"},
		}},
		{test: "TestBFQ", cases: "I/O", columns: []weightColumn{
			{"share", "share of weight 300 beside 200, %"}, {"isolation", "1st percentile of isolation, %"},
		}},
		{test: "TestPeriods", cases: "I/O and io.cost", columns: []weightColumn{{"share", "share of weight 300 beside 200, %"}}},
		{test: "TestPriorities", cases: "scheduler", columns: []weightColumn{
			{"nothing", "commits/s, no class"},
			{"nothing p99", "p99, ms"},
			{"rt", "victim real-time"},
			{"idle", "neighbours idle"},
			{"both", "both"},
			{"both p99", "p99, ms"},
		}},
		{test: "TestCostOverhead", cases: "one container alone", columns: []weightColumn{
			{"without", "operations/s without io.cost"}, {"with", "with io.cost"}, {"part", "part, %"},
		}},
		{test: "TestUnpack", cases: "beside", columns: []weightColumn{
			{"unpacked", "image unpacked in, s"},
			{"processor", "waits for a processor, s"},
			{"disk", "waits for I/O, s"},
			{"synced", "filesystem synced after, s"},
			{"pods", "pods write, MiB/s"},
			{"started", "another pod starts and ends in, s"},
		}},
		{test: "TestLatencyTargets", cases: "beside eight writers, and where the target is", columns: []weightColumn{
			{"reads", "victim's operations/s"},
			{"p99", "p99, ms"},
			{"wrote", "writers, MiB/s"},
			{"after", "in the 10 s after the victim"},
			{"second reads", "second victim's"},
			{"second p99", "p99, ms"},
		}},
		{test: "TestCalibrationsAgree", cases: "measured by", columns: []weightColumn{
			{"random", "4 KiB random reads/s"}, {"rbps", "model: rbps, MiB/s"}, {"rrandiops", "rrandiops"}, {"wbps", "wbps, MiB/s"}, {"wrandiops", "wrandiops"},
		}},
	}
}

// compareTables has the table of docs/explanation/comparison.md.
func compareTables() []weightTable {
	return []weightTable{{test: "TestCompare", cases: "what is done", columns: []weightColumn{
		{"nothing", "no limit"}, {"class", "blockio class of containerd"}, {"nri-blkio", "class of nri-blkio"},
	}}}
}

// depthTables has the table of docs/reference/benchmarks.md.
func depthTables() []weightTable {
	return []weightTable{{test: "TestDepths", cases: "neighbour", columns: []weightColumn{
		{"reads", "victim's reads/s"},
		{"kept", "kept, %"},
		{"p99", "p99, ms"},
		{"times", "p99, times that alone"},
		{"neighbour", "neighbour reads, MiB/s"},
		{"cpu", "CPU pressure, %"},
	}}}
}

// rowsBy is the author in the marks of a table.
func rowsBy(name, test string) string { return "make table T=" + name + ", " + test + " -->" }

// hasWeights reports whether the page has the weights of a node of the whole matrix: it has those of the default
// node.
func hasWeights(o outcome) bool { return o.node == node.Config{}.String() }

// writeWeights writes the tables of docs/reference/weights-figures.md, and draws docs/images/weights.svg, which the page shows.
func writeWeights(file, commit string, o outcome) error {
	return writeRows("weights", weightTables(), file, commit, o)
}

// writeCompare writes the table of docs/explanation/comparison.md.
func writeCompare(file, commit string, o outcome) error {
	return writeRows("compare", compareTables(), file, commit, o)
}

// writeDepths writes the table of docs/reference/benchmarks.md.
func writeDepths(file, commit string, o outcome) error {
	return writeRows("depths", depthTables(), file, commit, o)
}

// writeRows puts each of some tables whose test was played, and passed, between its marks of a file. name is that of `make table`.
func writeRows(name string, tables []weightTable, file, commit string, o outcome) error {
	rows := make(map[string][]generated.Row) // by test
	for _, text := range o.weights {
		r, err := generated.ParseRow(text)
		if err != nil {
			return err
		}
		rows[r.Test] = append(rows[r.Test], r)
	}
	var errs []error
	for _, table := range tables {
		failed := slices.ContainsFunc(o.failures, func(name string) bool {
			outer, _, _ := strings.Cut(name, "/")
			return outer == table.test
		})
		switch of := rows[table.test]; {
		case len(of) == 0:
		case failed:
			errs = append(errs, fmt.Errorf("%s: the table stays as it is: %s failed", file, table.test))
		default:
			errs = append(errs, table.write(name, file, commit, o, of))
		}
	}
	return errors.Join(errs...)
}

func (w weightTable) write(name, file, commit string, o outcome, rows []generated.Row) error {
	text := fmt.Sprintf("Measured on %s, of commit %s.\n\n", o.node, commit)
	if w.test == noisyTest {
		image := filepath.Join(filepath.Dir(file), "..", "images", "weights.svg")
		if err := drawWeights(image, commit, o, rows); err != nil {
			return err
		}
		text += "![The victim's reads and their latency, and what the neighbour does, beside one another.](../images/weights.svg)\n\n"
	}
	text += w.markdown(w.columns, rows)
	if w.second != nil {
		some := slices.DeleteFunc(slices.Clone(rows), func(r generated.Row) bool { return !w.hasSecond(&r) })
		text += "\n" + w.intro + "\n\n" + w.markdown(w.second, some)
	}
	return generated.Replace(file, rowsBy(name, w.test), text)
}

// hasSecond reports whether a case has a figure of the second table.
func (w weightTable) hasSecond(r *generated.Row) bool {
	return slices.ContainsFunc(w.second, func(c weightColumn) bool {
		_, ok := r.Figure(c.figure)
		return ok
	})
}

// markdown returns a table of some columns. A figure that a case does not have is empty.
func (w weightTable) markdown(columns []weightColumn, rows []generated.Row) string {
	var text strings.Builder
	line := func(cells ...string) { fmt.Fprintf(&text, "| %s |\n", strings.Join(cells, " | ")) }
	heads := []string{w.cases}
	for _, c := range columns {
		heads = append(heads, c.head)
	}
	line(heads...)
	text.WriteString("|" + strings.Repeat("---|", len(heads)) + "\n")
	for _, r := range rows {
		cells := []string{r.Name}
		for _, c := range columns {
			cell := ""
			if f, ok := r.Figure(c.figure); ok {
				cell = f.String()
			}
			cells = append(cells, cell)
		}
		line(cells...)
	}
	return text.String()
}

// drawWeights draws the cases of TestNoisyNeighbour that have a label.
func drawWeights(file, commit string, o outcome, rows []generated.Row) error {
	panels := []panel{
		{Title: "The victim's reads of 4 KiB per second"},
		{Title: "Latency of these reads, 99th percentile, ms"},
		{Title: "What the neighbour writes and reads, MiB/s"},
	}
	rounds := 0
	for _, r := range rows {
		for i, figure := range []string{"reads", "read p99", "both"} {
			if f, ok := r.Figure(figure); ok && r.Bar != "" {
				panels[i].Rows = append(panels[i].Rows, plotted{r.Bar, f})
				rounds = len(r.Rounds[figure])
			}
		}
	}
	return draw(file, "A victim beside a noisy neighbour: nothing, a limit, and weights", caption(fmt.Sprint(rounds, " runs of make table T=weights"), commit, o), panels...)
}
