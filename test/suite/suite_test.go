// Package suite builds the program under test and the tests of the folders of test/e2e, boots a node, and runs them
// there: `make e2e` for the default node or the one of the NODE_ variables, `make proof` for every node there is,
// `make table` for those that a table of the documentation is made of.
package suite

import (
	"fmt"
	"os"
	"testing"
	"time"

	"github.com/nri-blkio/nri-blkio/test/generated"
	"github.com/nri-blkio/nri-blkio/test/node"
	"github.com/nri-blkio/nri-blkio/test/payload"
)

// errorsOnNodes are the failed tests of TestE2E, with their messages. TestMain prints them last: CI shows only the end of the output.
var errorsOnNodes []string

func TestMain(m *testing.M) {
	code := m.Run()
	for _, line := range errorsOnNodes {
		fmt.Println(line)
	}
	os.Exit(code)
}

// TestE2E runs the e2e tests that the environment asks for: see request. Its deadline is that of go test
// (-timeout), and each node has an equal share of the time that is left.
func TestE2E(t *testing.T) {
	cfg, err := node.ConfigFromEnv()
	if err != nil {
		t.Fatal(err)
	}
	cfg.Log = os.Stderr
	r, err := requestFrom(cfg, os.Getenv)
	if err != nil {
		t.Fatal(err)
	}
	commit, err := generated.Commit() // now: a table that is written changes the working tree
	if err != nil {
		t.Fatal(err)
	}
	dir := t.TempDir()
	var programs []payload.Program
	for _, f := range r.folders {
		programs = append(programs, payload.Tests(f.name))
	}
	if err := payload.Build(t.Context(), "..", dir, programs...); err != nil {
		t.Fatal(err)
	}
	if r.proof && r.table == "" {
		if err := payload.AddEarlier(t.Context(), "..", dir, programs...); err != nil {
			t.Fatal(err)
		}
	}
	runs := r.runs()
	var outcomes []outcome
	for i, run := range runs {
		run.deadline = share(t, len(runs)-i)
		t.Run(run.cfg.String(), func(t *testing.T) {
			o := run.playOn(t, r.nodes(), dir)
			outcomes, errorsOnNodes = append(outcomes, o), append(errorsOnNodes, o.errors...)
		})
		// After each node, and without an end: the whole matrix takes hours.
		if err := r.write(outcomes, commit); err != nil {
			t.Error(err)
		}
	}
}

// share returns when one of n nodes has to have ended, zero without a deadline. The last minute is left for what
// go test prints of the others.
func share(t *testing.T, n int) time.Time {
	t.Helper()
	end, ok := t.Deadline()
	if !ok {
		return time.Time{}
	}
	return time.Now().Add((time.Until(end) - time.Minute) / time.Duration(n))
}
