package suite

import (
	"bytes"
	"context"
	"io"
	"os"
	"strconv"
	"testing"
	"time"

	"github.com/nri-blkio/nri-blkio/test/node"
	"github.com/nri-blkio/nri-blkio/test/payload"
)

// run is a node with the tests that are played there.
type run struct {
	cfg   node.Config
	tests string // a regular expression; "": all
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
	var output bytes.Buffer
	start := time.Now()
	code, err := n.Run(ctx, nil, io.MultiWriter(os.Stdout, &output), os.Stderr, r.command(limit, proof)...)
	o := outcome{node: r.cfg.String(), took: time.Since(start)}
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

// command is what runs on the node, in at most limit.
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
