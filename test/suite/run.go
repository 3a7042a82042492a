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

// run is a node with the folders whose tests are played there.
type run struct {
	cfg     node.Config
	folders []folder
	part    string // begins each line of the output; "" for nothing
	took    *times
	// deadline is when the node ends; zero for none.
	deadline time.Time
	options
}

// reporting is how long before the node's end that of a test binary is: its report names the test that hangs.
const reporting = time.Minute

// playOn plays the tests on n nodes of one kind at the same time.
func (r *run) playOn(t *testing.T, n int, dir string) outcome {
	if n == 1 {
		return r.play(t, dir)
	}
	o := outcome{node: r.cfg.String()}
	var mu sync.Mutex // guards o
	t.Run("part", func(t *testing.T) {
		for i, folders := range parts(r.folders, n, r.took) {
			part := *r
			part.folders, part.part = folders, "node "+strconv.Itoa(i+1)
			t.Run(part.part, func(t *testing.T) {
				t.Parallel()
				did := part.play(t, dir)
				mu.Lock()
				defer mu.Unlock()
				o.add(did)
			})
		}
	})
	return o
}

// play boots a node and plays the tests of one folder after another there.
func (r *run) play(t *testing.T, dir string) outcome {
	ctx := t.Context()
	if !r.deadline.IsZero() {
		var cancel context.CancelFunc
		ctx, cancel = context.WithDeadline(ctx, r.deadline)
		defer cancel()
	}
	n, err := node.Start(ctx, r.cfg)
	if err != nil {
		t.Error(err)
		return outcome{node: r.cfg.String(), failed: 1, failures: []string{"boot"}, errors: []string{shortened("boot: " + err.Error())}}
	}
	defer n.Stop()
	if err := n.Copy(ctx, dir, payload.Guest); err != nil {
		t.Error(err)
	}
	o, watch := outcome{node: r.cfg.String()}, newStopwatch()
	start := time.Now()
	for _, f := range r.folders {
		o.add(r.playFolder(ctx, t, n, f, watch))
	}
	o.took = time.Since(start)
	t.Logf("%d tests in %v; the slowest are %s", len(watch.took), o.took.Round(time.Second), watch.slowest(15))
	if r.tests == "" && !r.proof && !t.Failed() {
		if err := r.took.add(watch.took); err != nil {
			t.Error(err)
		}
	}
	return o
}

func (r *run) playFolder(ctx context.Context, t *testing.T, n *node.Node, f folder, watch *stopwatch) (o outcome) {
	t.Helper()
	var printed bytes.Buffer
	code, err := n.Run(ctx, nil, io.MultiWriter(printer(r.part), &printed, watch), os.Stderr, r.command(f, time.Now())...)
	watch.next("")
	o.count(printed.Bytes())
	switch {
	case err != nil:
		o.errors = append(o.errors, shortened(f.name+": "+err.Error()))
		t.Errorf("%s: %v\nthe node's console:\n%s", f.name, err, n.Console(100))
	case code != 0:
		t.Errorf("the tests of %s ended with status %d", f.name, code)
	case o.passed == 0:
		t.Errorf("no test of %s ran on the node", f.name)
	}
	return o
}

// command returns the command that runs the tests of a folder on the node.
func (r *run) command(f folder, now time.Time) []string {
	limit := time.Duration(0) // none
	if !r.deadline.IsZero() {
		limit = max(time.Second, r.deadline.Sub(now)-reporting)
	}
	cmd := []string{
		payload.Guest + "/" + payload.Tests(f.name).Name, "-test.v", "-test.timeout=" + limit.Round(time.Second).String(),
		"-proof=" + strconv.FormatBool(r.proof),
	}
	for _, o := range []struct{ name, value string }{
		{"-scenario", r.scenario}, {"-soak", r.soak}, {"-soak-seed", r.seed}, {"-test.run", r.tests},
	} {
		if o.value != "" {
			cmd = append(cmd, o.name+"="+o.value)
		}
	}
	if !r.proof {
		cmd = append(cmd, "-test.skip="+only(f.proofs...))
	}
	return cmd
}
