package suite

import (
	"bytes"
	"context"
	"io"
	"os"
	"strconv"
	"sync"
	"testing"
	"time"

	"github.com/nri-blkio/nri-blkio/test/node"
	"github.com/nri-blkio/nri-blkio/test/payload"
)

// run is a node with the tests that are played there.
type run struct {
	cfg   node.Config
	tests string // a regular expression; "": all
	part  string // begins each line of the output; "" for nothing
}

// parts divides a run of all tests among nodes.
func (r run) parts(n int) ([]run, error) {
	if r.tests != "" || n < 2 {
		return []run{r}, nil
	}
	tests, err := e2eTests("../e2e")
	if err != nil {
		return nil, err
	}
	var out []run
	for i, part := range parts(tests, n) {
		out = append(out, run{cfg: r.cfg, tests: part, part: "node " + strconv.Itoa(i+1)})
	}
	return out, nil
}

// playOn plays the tests on n nodes of one kind at the same time.
func (r run) playOn(t *testing.T, n int, dir string, proof bool) outcome {
	all, err := r.parts(n)
	if err != nil {
		t.Fatal(err)
	}
	if len(all) == 1 {
		return r.play(t, dir, proof)
	}
	o := outcome{node: r.cfg.String()}
	var mu sync.Mutex // guards o
	t.Run("part", func(t *testing.T) {
		for _, part := range all {
			t.Run(part.part, func(t *testing.T) {
				t.Parallel()
				did := part.play(t, dir, proof)
				mu.Lock()
				defer mu.Unlock()
				o.add(did)
			})
		}
	})
	return o
}

// play boots a node and plays the tests there.
func (r run) play(t *testing.T, dir string, proof bool) outcome {
	limit := limit
	if proof {
		limit = proofLimit
	}
	if os.Getenv("SCENARIO_TIME") != "" {
		limit = scenarioLimit
	}
	ctx, cancel := context.WithTimeout(t.Context(), limit)
	defer cancel()
	n, err := node.Start(ctx, r.cfg)
	if err != nil {
		t.Error(err)
		return outcome{node: r.cfg.String(), failed: 1, failures: []string{"boot"}}
	}
	defer n.Stop()
	if err := n.Copy(ctx, dir, payload.Guest); err != nil {
		t.Error(err)
	}
	var printed bytes.Buffer
	start := time.Now()
	code, err := n.Run(ctx, nil, io.MultiWriter(printer(r.part), &printed), os.Stderr, r.command(limit, proof)...)
	o := outcome{node: r.cfg.String(), took: time.Since(start)}
	o.count(printed.Bytes())
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

// command returns the command that runs on the node, in at most limit.
func (r run) command(limit time.Duration, proof bool) []string {
	cmd := []string{
		// Inner deadline first: its report names the test that hung.
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
	return cmd
}
