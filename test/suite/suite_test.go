// Package suite builds the program under test and what the e2e tests need,
// boots a node, and runs them there: `make e2e` for the default node or the one
// of the NODE_ variables, `make proof` for every node there is.
package suite

import (
	"errors"
	"os"
	"runtime"
	"testing"
	"time"

	"github.com/nri-blkio/nri-blkio/test/generated"
	"github.com/nri-blkio/nri-blkio/test/node"
	"github.com/nri-blkio/nri-blkio/test/payload"
)

// limit is the time that one node has to boot under emulation, and to run all tests. A
// proof measures longer, and scenarios of a minute each longest.
const (
	limit         = 80 * time.Minute
	proofLimit    = 4 * time.Hour
	scenarioLimit = 8 * time.Hour
)

// TestE2E runs the e2e tests on the nodes that NODE_MATRIX asks for: "full", or
// the one kind of node that the other variables name. On a machine with four CPUs two of these have one half of the tests each.
// E2E_PROOF has the tests measure as long as for the whole matrix, SCENARIO_TIME the scenarios for so
// long each, and SOAK_PODS is how many pods the soak has, with the seed SOAK_SEED; E2E_RUN chooses
// among them.
func TestE2E(t *testing.T) {
	cfg, err := node.ConfigFromEnv()
	if err != nil {
		t.Fatal(err)
	}
	if file := os.Getenv("SCENARIO_TABLE"); file != "" {
		if err := ofNode(file, cfg.String()); err != nil {
			t.Fatal(err) // now, not after hours
		}
	}
	commit, err := generated.Commit() // now: a table that is written changes the working tree
	if err != nil {
		t.Fatal(err)
	}
	dir := t.TempDir()
	if err := payload.Build(t.Context(), "..", dir, payload.Program{Name: "e2e.test", Package: "./e2e", Test: true, Helm: true}); err != nil {
		t.Fatal(err)
	}
	cfg.Log = os.Stderr
	var outcomes []outcome
	full := os.Getenv("NODE_MATRIX") == "full"
	proof := full || os.Getenv("E2E_PROOF") != ""
	nodes := 1 // a proof measures: it has the machine for itself
	if !proof {
		// A node has two processors. If the nodes have more together than the machine, their kernels spend most of the
		// time on waiting for processors that do not run, and a control plane misses its deadlines.
		nodes = max(1, min(2, runtime.NumCPU()/2))
	}
	for _, r := range matrix(cfg, full) {
		t.Run(r.cfg.String(), func(t *testing.T) { outcomes = append(outcomes, r.playOn(t, nodes, dir, proof)) })
		// After each node, and without an end: the whole matrix takes hours.
		if err := writeTables(outcomes, commit, full); err != nil {
			t.Error(err)
		}
	}
}

// writeTables writes the tables that MATRIX_TABLE, SCENARIO_TABLE, STORAGE_TABLE and WEIGHTS_TABLE
// ask for, and the plot of NEIGHBOUR_PLOT; all but the matrix and the weights are those of the first node.
func writeTables(outcomes []outcome, commit string, full bool) error {
	if len(outcomes) == 0 { // no node was played, which has failed
		return nil
	}
	var err error
	if file := os.Getenv("MATRIX_TABLE"); file != "" {
		err = writeTable(file, commit, outcomes)
	}
	if file := os.Getenv("SCENARIO_TABLE"); file != "" {
		err = errors.Join(err, writeScenarios(file, os.Getenv("SCENARIO_TIME")+", "+commit, outcomes[0]))
	}
	if file := os.Getenv("STORAGE_TABLE"); file != "" {
		err = errors.Join(err, writeStorage(file, commit, outcomes[0]))
	}
	if file := os.Getenv("NEIGHBOUR_PLOT"); file != "" {
		err = errors.Join(err, writePlot(file, commit, outcomes[0]))
	}
	last := outcomes[len(outcomes)-1]
	if file := os.Getenv("WEIGHTS_TABLE"); file != "" && hasWeights(last, full) {
		err = errors.Join(err, writeWeights(file, commit, last))
	}
	return err
}

// proofTests take so long that they run with a proof only. Otherwise they do not run at
// all, and so do not count as passed.
const proofTests = "^(TestSoak|TestNeighbour|TestNoisyNeighbour|TestShareFigures|TestPeriods|TestCostOverhead|TestCalibrationsAgree|TestUnpack|TestReloadFigures)$|^TestCluster$/^(LiveFigures|Stages|StorageOfPods|Tenants)$"

// gateTest is about the correction that the kernel 6.1-affected lacks. It is the one
// test for that kernel: on it the program leaves files to their owners by default.
const gateTest = "^TestKernelGate$"

// matrix returns the nodes to test. The containerds, runtimes and drivers are combined
// on the two kernels of Debian's releases; the newest kernel has the default ones.
func matrix(cfg node.Config, full bool) []run {
	tests := os.Getenv("E2E_RUN")
	if !full {
		return []run{{cfg: cfg, tests: tests}}
	}
	affected, newest := cfg, cfg
	affected.Kernel, newest.Kernel = "6.1-affected", "7.2"
	out := []run{{cfg: affected, tests: gateTest}, {cfg: newest, tests: tests}}
	for _, cfg.Kernel = range []string{"6.12", "6.1"} {
		for _, cfg.Containerd = range node.Choices("containerd") {
			for _, cfg.Runtime = range node.Choices("runtime") {
				for _, cfg.Driver = range node.Choices("driver") {
					out = append(out, run{cfg: cfg, tests: tests})
				}
			}
		}
	}
	return out
}
