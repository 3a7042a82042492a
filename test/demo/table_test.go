package main

import (
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/nri-blkio/nri-blkio/policy"
	"github.com/nri-blkio/nri-blkio/policy/annotation"
	"github.com/nri-blkio/nri-blkio/test/e2e/cgroup"
	"github.com/nri-blkio/nri-blkio/test/e2e/noise"
)

func someOutcomes() []outcome {
	return []outcome{
		{name: "no neighbour", victim: noise.Result{Rate: 1500, P99: 2.7}},
		{name: "no settings", victim: noise.Result{Rate: 39, P99: 350}, throughput: 49.1},
		{name: "limit", victim: noise.Result{Rate: 1106, P99: 9.8}, throughput: 18.1},
		{name: "weights", victim: noise.Result{Rate: 1487, P99: 3}, throughput: 18.6},
	}
}

func TestPrintNeighbour(t *testing.T) {
	var out strings.Builder
	printNeighbour(&out, someOutcomes())
	const want = `A victim reads 4 KiB at random, on a disk of 1,500 operations and 60 MiB per second.
Its neighbour writes with four buffered writers, and reads at depth 32.

SITUATION     VICTIM READS/S  P99, MS  NEIGHBOUR MIB/S
no neighbour  1500            2.7      0
no settings   39              350      49.1
limit         1106            9.8      18.1
weights       1487            3        18.6

Victim's reads per second
  no neighbour |######################################## 1500
  no settings  |# 39
  limit        |############################# 1106
  weights      |######################################## 1487

99th percentile of their latency, ms
  no neighbour |# 2.7
  no settings  |######################################## 350
  limit        |# 9.8
  weights      |# 3

Neighbour's writes and reads, MiB/s
  no neighbour | 0
  no settings  |######################################## 49.1
  limit        |############### 18.1
  weights      |############### 18.6

`
	if diff := cmp.Diff(want, out.String()); diff != "" {
		t.Error(diff)
	}
}

func TestCheckNeighbour(t *testing.T) {
	results := someOutcomes()
	if err := checkNeighbour(results); err != nil {
		t.Error(err)
	}
	results[withWeights].victim.Rate = 77
	if err := checkNeighbour(results); err == nil {
		t.Error("weights without effect: no error")
	}
}

// TestCheckLimits verifies that a limit that is not in force, and one that the container exceeds, are errors.
func TestCheckLimits(t *testing.T) {
	for _, c := range []struct {
		inForce string
		amount  int64
		ok      bool
	}{{"wbps=1000", 1000, true}, {"wbps=1000", 1200, false}, {"", 1000, false}} {
		r := result{pod: pod{name: "a", requested: 1000}, inForce: c.inForce, measured: cgroup.Measurement{Amount: c.amount, Elapsed: time.Second}}
		if err := checkLimits([]result{r}); (err == nil) != c.ok {
			t.Errorf("checkLimits of %+v: error %v, want success %t", c, err, c.ok)
		}
	}
}

// TestSituations verifies that checkNeighbour compares the intended situations, and that the policy of the demo
// accepts their annotations.
func TestSituations(t *testing.T) {
	all := situations()
	if n := all[withNothing]; !n.noisy || n.victim != nil || n.neighbour != nil {
		t.Errorf("the situation without settings is %+v, want a noisy one without annotations", n)
	}
	if w := all[withWeights]; !w.noisy || w.victim == nil || w.neighbour == nil {
		t.Errorf("the situation with weights is %+v, want a noisy one with annotations of both pods", w)
	}
	p, err := policy.ParseFile([]byte(noise.PolicyHead + noise.Policy))
	if err != nil {
		t.Fatal(err)
	}
	for _, s := range all {
		for _, a := range []map[string]string{s.victim, s.neighbour} {
			r := annotation.Parse(a)
			if errs := append(r.PodWide(), p.ForPod(&policy.PodFacts{}, r).Check()...); len(errs) > 0 || r.Empty() != (a == nil) {
				t.Errorf("%s: the policy rejects its annotations: %v", s.name, errs)
			}
		}
	}
}
