package suite

import (
	"bytes"
	"fmt"
	"os"
	"strings"
	"time"
)

// outcome is what the tests did on one node.
type outcome struct {
	node           string
	passed, failed int
	failures       []string
	took           time.Duration
}

// count reads the lines that go test prints for the outer tests and for their
// cases, "--- PASS: TestTargets/rootfs (2.31s)".
func (o *outcome) count(output []byte) {
	for line := range bytes.Lines(output) {
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
QEMU. A case is a test or one row of its table; none is skipped.

| node | cases passed | failed | time |
|---|---|---|---|
`

// writeTable writes docs/matrix.md.
func writeTable(file string, outcomes []outcome) error {
	var b strings.Builder
	b.WriteString(tableHead)
	for _, o := range outcomes {
		failed := fmt.Sprint(o.failed)
		if o.failed > 0 {
			failed += ": " + strings.Join(o.failures, ", ")
		}
		fmt.Fprintf(&b, "| %s | %d | %s | %s |\n", o.node, o.passed, failed, o.took.Round(time.Second))
	}
	return os.WriteFile(file, []byte(b.String()), 0o644)
}
