package weights

import (
	"fmt"
	"math"
	"testing"
	"time"

	"github.com/nri-blkio/nri-blkio/test/e2e/lab"
	"github.com/nri-blkio/nri-blkio/test/e2e/noise"
	"github.com/nri-blkio/nri-blkio/test/generated"
)

const (
	// periodRounds is how often each figure of TestPeriods is measured.
	periodRounds = 3
	// periodSeconds is how long one measurement takes, in seconds.
	periodSeconds = 15
)

// periodCase is a model and a period of io.cost, with which two containers use a disk.
type periodCase struct {
	rate   float64       // of the model, as a part of what the disk does
	period time.Duration // 0 is the one that the plugin chooses
	rw     string        // fio's name of what the containers do
	// fails is true if weights are known to lose their effect.
	fails bool
}

func periodCases() []periodCase {
	var out []periodCase
	for _, ms := range []time.Duration{1, 10, 43, 50, 200} {
		out = append(out, periodCase{rate: 0.97, period: ms * time.Millisecond, rw: "randread", fails: ms == 1})
	}
	return append(out, periodCase{rate: 1, rw: "randwrite", fails: true}, periodCase{rate: 0.97, rw: "randwrite"})
}

// String names the case in the table.
func (c periodCase) String() string {
	what := map[string]string{"randread": "direct reads", "randwrite": "direct writes"}[c.rw]
	if c.period == 0 {
		return fmt.Sprintf("%s, model of %.0f %% of the disk", what, 100*c.rate)
	}
	return fmt.Sprintf("%s, period of %d ms", what, c.period.Milliseconds())
}

// TestPeriods measures how weights 200 and 300 divide a disk with several periods of io.cost, and with
// a model that has all of what the disk does.
//
//e2e:proof
func TestPeriods(t *testing.T) {
	b := newSlowBench(t, sharedDisk)
	for i := range 2 { // the files are there before anything is measured
		b.fio("--rw=randread", "--direct=1", "--runtime=1", "--filename="+b.shareFile(i), shareSize)
	}
	cases := periodCases()
	rows := make([]generated.Row, len(cases))
	for range periodRounds {
		for i, c := range cases {
			rows[i].Add(map[string]float64{"share": 100 * b.periodShare(t, c)})
		}
	}
	for i, c := range cases {
		publish(t, &rows[i], c.String())
		if got, _ := rows[i].Figure("share"); !c.fails && math.Abs(got.Median-60) > 10 {
			t.Errorf("%s: weight 300 beside 200 gets %.1f %%, want 50 to 70 %%", c, got.Median)
		}
	}
}

// periodShare returns the part of the disk that a container with 300 gets beside one with 200.
func (b *slowBench) periodShare(t *testing.T, c periodCase) float64 {
	t.Helper()
	defer b.startFor(t, "--policy", lab.PolicyFile(t, noise.PolicyWith(c.rate, c.period)))()
	b.pods++
	pair := []held{
		b.holder(fmt.Sprint("light", b.pods), lab.Annotations{lab.Weight + "containers": "200"}),
		b.holder(fmt.Sprint("heavy", b.pods), lab.Annotations{lab.Weight + "containers": "300"}),
	}
	defer b.end(pair[0].pod)
	defer b.end(pair[1].pod)
	b.awaitCost(true)
	share, _ := b.share(t, pair, shareCase{
		name: c.String(), args: []string{"--rw=" + c.rw, "--direct=1", "--ioengine=libaio", "--iodepth=16"}, seconds: periodSeconds,
	})
	return share
}
