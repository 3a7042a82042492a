package suite

import (
	"bytes"
	"errors"
	"fmt"
	"maps"
	"os"
	"slices"
	"strings"
	"time"

	"github.com/nri-blkio/nri-blkio/test/dashboard"
	"github.com/nri-blkio/nri-blkio/test/generated"
)

// outcome is the result of the tests on one node.
type outcome struct {
	node           string
	passed, failed int
	failures       []string // names
	errors         []string // lines about the failures
	scenarios      []string // rows of docs/reference/scenarios-KERNEL.md
	storage        []string // rows of docs/reference/storage.md
	neighbours     []string // bars of docs/images/neighbour.svg
	weights        []string // rows of docs/reference/weights-figures.md, as JSON
	panels         []string // lines of docs/images/dashboard.svg, as JSON
	took           time.Duration
}

// These begin a line of TestScenarios, TestStorage or TestNeighbour that is a row of these.
const (
	rowMark       = "scenario-row "
	storageMark   = "storage-row "
	neighbourMark = "neighbour-row "
)

// count reads the lines that go test prints for the outer tests and for their
// cases, "--- PASS: TestLimits/Targets/rootfs (2.31s)".
func (o *outcome) count(output []byte) {
	o.errors = append(o.errors, failuresIn(output)...)
	for line := range bytes.Lines(output) {
		if row, ok := strings.CutPrefix(string(line), rowMark); ok {
			o.scenarios = append(o.scenarios, row)
			continue
		}
		if row, ok := strings.CutPrefix(string(line), storageMark); ok {
			o.storage = append(o.storage, row)
			continue
		}
		if row, ok := strings.CutPrefix(string(line), neighbourMark); ok {
			o.neighbours = append(o.neighbours, strings.TrimSpace(row))
			continue
		}
		if row, ok := strings.CutPrefix(string(line), generated.RowMark); ok {
			o.weights = append(o.weights, row)
			continue
		}
		if row, ok := strings.CutPrefix(string(line), dashboard.RowMark); ok {
			o.panels = append(o.panels, row)
			continue
		}
		verdict, rest, ok := strings.Cut(strings.TrimSpace(string(line)), ": ")
		if !ok {
			continue
		}
		name, _, _ := strings.Cut(rest, " ")
		switch verdict {
		case "--- PASS":
			o.passed++
		case "--- FAIL":
			o.failed++
			o.failures = append(o.failures, name)
		}
	}
}

// add makes o the outcome of both: they ran at the same time.
func (o *outcome) add(part outcome) {
	o.passed, o.failed, o.took = o.passed+part.passed, o.failed+part.failed, max(o.took, part.took)
	o.failures = append(o.failures, part.failures...)
	o.errors = append(o.errors, part.errors...)
	o.scenarios = append(o.scenarios, part.scenarios...)
	o.storage = append(o.storage, part.storage...)
	o.neighbours = append(o.neighbours, part.neighbours...)
	o.weights = append(o.weights, part.weights...)
	o.panels = append(o.panels, part.panels...)
}

const tableHead = `# Where it was tested

Written by ` + "`make proof`" + `: the e2e tests of test/e2e on each node of the matrix, booted in
QEMU. Rows that name folders are by ` + "`NODE_MATRIX=row make e2e`" + `, without the tests of ` + "`make proof`" + `.
A case is a test or one row of its table. None is skipped but TestFailClosed with containerd 1.7 and crio 1.34, which do not validate adjustments;
TestRootfsOfOtherRuntime with crio 1.34, which reports no processes; and all but the test of what the kernel lacks with 6.1-affected (corrections),
6.12-nothrottle (CONFIG_BLK_DEV_THROTTLING) and 6.12-iolatency (io.latency in place of io.cost).

crio 1.34 is v1.34.0 of the Go module proxy, a commit of May 2025 (5dd0877) that is in CRI-O 1.33.0 too.

| node | cases passed | failed | time | commit |
|---|---|---|---|---|
`

func (o *outcome) row(commit string) string {
	failed := fmt.Sprint(o.failed)
	if o.failed > 0 {
		failed += ": " + strings.Join(o.failures, ", ")
	}
	return fmt.Sprintf("| %s | %d | %s | %s | %s |\n", o.node, o.passed, failed, o.took.Round(time.Second), commit)
}

const scenarioHead = `# Scenario by scenario: %s

Written by ` + "`make table T=scenarios`" + `; [scenarios.md](scenarios.md) explains the columns. A row
that a later run did not measure stays, so each row names its duration and commit.

| scenario | what is done | result | moved after, s; right, %%; rate | extra written, %% | measured |
|---|---|---|---|---|---|
`

// writeScenarios brings a table of TestScenarios up to date with what was measured
// on a node, if it was: measured says for how long, and of which commit.
func writeScenarios(file, measured string, o outcome) error {
	if len(o.scenarios) == 0 {
		return nil
	}
	old, err := os.ReadFile(file)
	if err != nil && !errors.Is(err, os.ErrNotExist) {
		return err
	}
	_, table, _ := strings.Cut(string(old), "|---")
	_, table, _ = strings.Cut(table, "\n")
	rows := withScenarios(slices.Collect(strings.Lines(table)))
	for _, row := range o.scenarios {
		rows = place(rows, strings.TrimSuffix(row, "\n")+" "+measured+" |\n")
	}
	return os.WriteFile(file, []byte(fmt.Sprintf(scenarioHead, o.node)+strings.Join(withoutScenarios(rows), "")), 0o644)
}

// withScenarios puts the scenario into each row. On the page only its first row has it.
func withScenarios(rows []string) []string {
	scenario := ""
	for i, row := range rows {
		if rest, isEmpty := strings.CutPrefix(row, "|  | "); isEmpty {
			rows[i] = scenario + " | " + rest
		}
		scenario, _, _ = strings.Cut(rows[i], " | ")
	}
	return rows
}

// withoutScenarios is the inverse of withScenarios.
func withoutScenarios(rows []string) []string {
	scenario := ""
	for i, row := range rows {
		first, rest, _ := strings.Cut(row, " | ")
		if first == scenario {
			rows[i] = "|  | " + rest
		}
		scenario = first
	}
	return rows
}

const storageHead = `Measured on %s, of commit %s.

| stored on | filesystem | disks that are limited | writes, %% of the limit |
|---|---|---|---|
`

// writeStorage puts the table of TestStorage between the marks of a file, if it was
// played, and passed: rows are missing else.
func writeStorage(file, commit string, o outcome) error {
	switch {
	case len(o.storage) == 0:
		return nil
	case o.failed > 0:
		return fmt.Errorf("%s stays as it is: %s", file, strings.Join(o.failures, ", "))
	}
	isMemory := func(row string) bool { return strings.Contains(row, "is memory, not a disk") } // the page says so without a row
	o.storage = slices.DeleteFunc(o.storage, isMemory)
	slices.Sort(o.storage)
	return generated.Replace(file, "", fmt.Sprintf(storageHead, o.node, commit)+strings.Join(o.storage, ""))
}

// ofNode returns an error if a table of scenarios is another node's: its rows would be
// mixed with this one's.
func ofNode(file, node string) error {
	old, err := os.ReadFile(file)
	if errors.Is(err, os.ErrNotExist) {
		return nil
	}
	title, _, _ := strings.Cut(scenarioHead, "\n")
	if err == nil && !strings.HasPrefix(string(old), fmt.Sprintf(title, node)+"\n") {
		err = fmt.Errorf("%s is of another node than %s", file, node)
	}
	return err
}

// place puts a row where one of the same first two cells is, else behind the others
// of the same scenario, its first cell.
func place(rows []string, row string) []string {
	cells := strings.SplitN(row, " | ", 3)
	scenario, part := cells[0]+" | ", cells[1]+" | "
	at := len(rows)
	for i, old := range rows {
		if strings.HasPrefix(old, scenario+part) {
			rows[i] = row
			return rows
		}
		if strings.HasPrefix(old, scenario) {
			at = i + 1
		}
	}
	return slices.Insert(rows, at, row)
}

// writeTable brings docs/reference/matrix.md up to date with the nodes that were run.
func writeTable(file, commit string, outcomes []outcome) error {
	old, err := os.ReadFile(file)
	if err != nil && !errors.Is(err, os.ErrNotExist) {
		return err
	}
	rows := map[string]string{} // by node
	for line := range strings.Lines(string(old)) {
		if node, _, ok := strings.Cut(strings.TrimPrefix(line, "| "), " |"); ok && strings.HasPrefix(node, "kernel ") {
			rows[node] = line
		}
	}
	for _, o := range outcomes {
		rows[o.node] = o.row(commit)
	}
	var text strings.Builder
	text.WriteString(tableHead)
	for _, node := range slices.Sorted(maps.Keys(rows)) {
		text.WriteString(rows[node])
	}
	return os.WriteFile(file, []byte(text.String()), 0o644)
}
