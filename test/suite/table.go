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

	"github.com/nri-blkio/nri-blkio/test/generated"
)

// outcome is what the tests did on one node.
type outcome struct {
	node           string
	passed, failed int
	failures       []string
	scenarios      []string // rows of docs/writeback.md
	took           time.Duration
}

// rowMark begins a line of TestScenarios that is one of these.
const rowMark = "scenario-row "

// count reads the lines that go test prints for the outer tests and for their
// cases, "--- PASS: TestTargets/rootfs (2.31s)".
func (o *outcome) count(output []byte) {
	for line := range bytes.Lines(output) {
		if row, ok := strings.CutPrefix(string(line), rowMark); ok {
			o.scenarios = append(o.scenarios, row)
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

const tableHead = `# Where it was tested

Written by ` + "`make proof`" + `: the e2e tests of test/e2e on each node of the matrix, booted in
QEMU. A case is a test or one row of its table; none is skipped. A node that a later run did not
have keeps its row, so each row names the commit that was tested.

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

// writeScenarios writes what TestScenarios has measured on a node, if it ran.
func writeScenarios(file, commit string, o outcome) error {
	if len(o.scenarios) == 0 {
		return nil
	}
	text := fmt.Sprintf("%s, commit %s, %s.\n\n%s%s", time.Now().Format(time.DateOnly), commit, o.node, scenarioHead, strings.Join(o.scenarios, ""))
	return generated.Replace(file, text)
}

const scenarioHead = `| scenario | what is done | limited / its limit | unlimited / alone | pod / granted | charged, MiB | drained in | the file became its writer's in; then charged right, rate by what is due | |
|---|---|---|---|---|---|---|---|---|
`

// writeTable brings docs/matrix.md up to date with the nodes that were run.
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
