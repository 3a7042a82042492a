// Package suite builds the program under test and what the e2e tests need,
// boots a node, and runs them there: `make e2e` for the default node or the one
// of the NODE_ variables, `make proof` for every node there is.
package suite

import (
	"bytes"
	"context"
	"errors"
	"io"
	"os"
	"strconv"
	"testing"
	"time"

	"github.com/nri-blkio/nri-blkio/test/generated"
	"github.com/nri-blkio/nri-blkio/test/node"
	"github.com/nri-blkio/nri-blkio/test/payload"
)

// limit is for one node: to boot under emulation, and to run all tests there. A
// proof measures longer, and scenarios of a minute each longest.
const (
	limit         = 80 * time.Minute
	proofLimit    = 4 * time.Hour
	scenarioLimit = 8 * time.Hour
)

// TestE2E runs the e2e tests on the nodes that NODE_MATRIX asks for: "full", or
// the one node that the other variables name. E2E_PROOF has the tests measure as
// long as for the whole matrix, SCENARIO_TIME the scenarios for so long each, and SOAK_PODS
// is how many pods the soak has, with the seed SOAK_SEED; E2E_RUN chooses among them.
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
	cfg.Log = os.Stderr
	dir := t.TempDir()
	if err := payload.Build(t.Context(), "..", dir, payload.Program{Name: "e2e.test", Package: "./e2e", Test: true}); err != nil {
		t.Fatal(err)
	}
	var outcomes []outcome
	full := os.Getenv("NODE_MATRIX") == "full"
	proof := full || os.Getenv("E2E_PROOF") != ""
	for _, r := range matrix(cfg, full) {
		t.Run(r.cfg.String(), func(t *testing.T) { outcomes = append(outcomes, r.run(t, dir, proof)) })
		if err := writeTables(outcomes); err != nil {
			t.Fatal(err) // after each node: the whole matrix takes hours
		}
	}
}

// writeTables writes the tables that MATRIX_TABLE, SCENARIO_TABLE and STORAGE_TABLE ask
// for, and the plot of NEIGHBOUR_PLOT; all but the matrix are those of the first node.
func writeTables(outcomes []outcome) error {
	commit, err := generated.Commit()
	if err != nil {
		return err
	}
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
	return err
}

// proofTests take so long that they run with a proof only. Otherwise they do not run at
// all, and so do not count as passed.
const proofTests = "^(TestSoak|TestNeighbour)$"

// run is a node with the tests that run there.
type run struct {
	cfg   node.Config
	tests string // a regular expression; "": all
}

// gateTest is about the correction that the kernel 6.1-affected lacks. It is the one
// test for that kernel: on it the program leaves files to their owners by default.
const gateTest = "^TestKernelGate$"

// matrix returns the nodes to test. The containerds, runtimes and drivers are combined
// on the two kernels of Debian's releases; the newest kernel has the default ones.
func matrix(cfg node.Config, full bool) []run {
	tests := os.Getenv("E2E_RUN")
	if !full {
		return []run{{cfg, tests}}
	}
	affected, newest := cfg, cfg
	affected.Kernel, newest.Kernel = "6.1-affected", "7.2"
	out := []run{{affected, gateTest}, {newest, tests}}
	for _, cfg.Kernel = range []string{"6.12", "6.1"} {
		for _, cfg.Containerd = range node.Choices("containerd") {
			for _, cfg.Runtime = range node.Choices("runtime") {
				for _, cfg.Driver = range node.Choices("driver") {
					out = append(out, run{cfg, tests})
				}
			}
		}
	}
	return out
}

// run boots the node and runs the tests there.
func (r run) run(t *testing.T, dir string, proof bool) outcome {
	cfg := r.cfg
	limit := limit
	if proof {
		limit = proofLimit
	}
	if os.Getenv("SCENARIO_TIME") != "" {
		limit = scenarioLimit
	}
	ctx, cancel := context.WithTimeout(t.Context(), limit)
	defer cancel()
	n, err := node.Start(ctx, cfg)
	if err != nil {
		t.Error(err)
		return outcome{node: cfg.String(), failed: 1, failures: []string{"boot"}}
	}
	defer n.Stop()
	if err := n.Copy(ctx, dir, payload.Guest); err != nil {
		t.Error(err)
	}
	// Inner deadline first: its report names the test that hung.
	cmd := []string{
		payload.Guest + "/e2e.test", "-test.v", "-test.timeout=" + (limit - 5*time.Minute).String(), "-proof=" + strconv.FormatBool(proof),
	}
	if each := os.Getenv("SCENARIO_TIME"); each != "" {
		cmd = append(cmd, "-scenario="+each)
	}
	for env, option := range map[string]string{"SOAK_PODS": "-soak=", "SOAK_SEED": "-soak-seed="} {
		if value := os.Getenv(env); value != "" {
			cmd = append(cmd, option+value)
		}
	}
	if !proof {
		cmd = append(cmd, "-test.skip="+proofTests)
	}
	if r.tests != "" {
		cmd = append(cmd, "-test.run="+r.tests)
	}
	var output bytes.Buffer
	start := time.Now()
	code, err := n.Run(ctx, nil, io.MultiWriter(os.Stdout, &output), os.Stderr, cmd...)
	o := outcome{node: cfg.String(), took: time.Since(start)}
	o.count(output.Bytes())
	switch {
	case err != nil:
		t.Errorf("%v\nthe node's console:\n%s", err, n.Console(100))
	case code != 0:
		t.Errorf("the tests on the node ended with status %d", code)
	case o.passed == 0:
		t.Error("no test ran on the node")
	}
	return o
}
