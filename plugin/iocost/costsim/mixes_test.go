package costsim

import (
	"fmt"
	"math/rand/v2"
	"testing"
)

// randomMix returns a function that adds the groups of a mix to a simulation. A steady mix has no pauses, and all of its
// workloads begin at once.
func randomMix(seed uint64, isSteady bool) func(*sim) {
	return func(s *sim) {
		r := rand.New(rand.NewPCG(seed, 7))
		for i := range 2 + r.IntN(3) {
			var workloads []*workload
			weight := pick(r, 10, 50, 100, 200, 500, 1000)
			for range 1 + r.IntN(2) {
				workloads = append(workloads, randomWorkload(r, isSteady))
			}
			s.add(string(rune('a'+i)), weight, workloads...)
		}
	}
}

func pick(r *rand.Rand, of ...float64) float64 { return of[r.IntN(len(of))] }

func randomWorkload(r *rand.Rand, isSteady bool) *workload {
	w := &workload{Size: int(pick(r, 4, 8, 16, 32, 64, 128, 256, 1024)) * kib, Depth: int(pick(r, 1, 1, 2, 4, 8, 16, 32))}
	w.Write, w.Sequential = r.IntN(2) == 0, r.IntN(2) == 0
	if w.Size == mib {
		w.Depth = min(w.Depth, 8)
	}
	if r.IntN(4) == 0 {
		w.Think = pick(r, .001, .005, .02)
	}
	if w.Write && r.IntN(3) == 0 {
		w.DebtEvery = 16
	}
	from, pauses := r.IntN(3) == 0, r.IntN(3) == 0
	if from && !isSteady {
		w.From = 40 * r.Float64()
	}
	if pauses && !isSteady {
		w.On, w.Off = pick(r, .3, 1, 3, 10, 25)*(.5+r.Float64()), pick(r, .3, 1, 3, 10, 25)*(.5+r.Float64())
	}
	return w
}

// mixResult compares a mix under the controller with the same mix by the safe model.
type mixResult struct {
	loss         float64
	where        string
	safeUse, use float64
	writes, late int // late are those in the second minute
	log          []string
}

const mixSeconds = 120

// steer is what changes the model or the rate. It returns nil for all but the controller.
type steer func(*sim) *driver

func runMix(seed uint64, isSteady bool, change func(*sim), by steer) mixResult {
	add := randomMix(seed, isSteady)
	begin := func(seed uint64) *sim {
		s := start(fixed, seed)
		change(s)
		add(s)
		return s
	}
	var safe []*trace
	for i := range uint64(3) {
		safe = append(safe, begin(seed+1000000*i).traced(mixSeconds, nil))
	}
	s := begin(seed)
	t := s.traced(mixSeconds, by(s))
	loss, group, at := t.loss(safe)
	out := mixResult{
		loss: loss, where: fmt.Sprintf("%s until %.2f", s.groups[group].Name, at),
		safeUse: safe[0].use, use: t.use, writes: len(t.writes), log: t.log,
	}
	for _, at := range t.writes {
		if at > 1+mixSeconds/2 {
			out.late++
		}
	}
	return out
}

// broken returns the property that a mix lacks, or "".
func (r *mixResult) broken(isSteady bool) string {
	switch {
	case r.loss > 1:
		return "a cgroup loses more than a second of its due within five"
	case r.use < .99*r.safeUse:
		return "the disk is used less than by the safe model"
	case r.writes > 6*mixSeconds/60, isSteady && r.late > 3:
		return "the controller writes often"
	}
	return ""
}

// disks are changes of the disk since its calibration.
func disks() map[string]func(*sim) {
	return map[string]func(*sim){
		"as calibrated": func(*sim) {},
		"with stalls":   func(s *sim) { s.stalls(.01, .04) },
		"slower":        func(s *sim) { s.disk.Ops, s.disk.Bytes = .985*diskOps, .985*diskBps },
		"merging less":  func(s *sim) { s.calibratedMerging(.3); s.disk.Merged = .1 },
	}
}

// calibratedMerging sets the safe model of a disk that merges a part of the sequential requests.
func (s *sim) calibratedMerging(part float64) {
	m := s.safe
	m.RSeqIOPS = uint64(float64(m.RRandIOPS) / (1 - part))
	m.WSeqIOPS = m.RSeqIOPS
	s.calibrated(m)
}

// TestProperties verifies the controller over random mixes: no oscillation, no cgroup that loses more than a second of what
// it is due, and at least the use of the safe model.
func TestProperties(t *testing.T) {
	for name, change := range disks() {
		for _, isSteady := range []bool{true, false} {
			t.Run(fmt.Sprintf("%s, steady %v", name, isSteady), func(t *testing.T) {
				t.Parallel()
				var moves int
				for seed := range uint64(mixes) {
					r := runMix(seed, isSteady, change, control)
					moves += r.writes
					if what := r.broken(isSteady); what != "" {
						t.Errorf("seed %d: %s: loss %.2f s (%s), use %.2f instead of %.2f, %d writes, %d of them in the second minute\n%q",
							seed, what, r.loss, r.where, r.use, r.safeUse, r.writes, r.late, r.log)
					}
				}
				if moves == 0 {
					t.Error("the controller never left the safe model")
				}
			})
		}
	}
}

// TestOtherWays verifies that the properties can fail: both other ways to use more of the disk lack them.
func TestOtherWays(t *testing.T) {
	for name, by := range map[string]steer{"vrate with latency targets": raiseRate, "two prices": followPrices} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			var broken int
			for seed := range uint64(mixes) {
				r := runMix(seed, true, func(*sim) {}, by)
				if r.loss > 1 {
					broken++
				}
			}
			if broken == 0 {
				t.Errorf("in none of %d mixes a cgroup loses more than a second of its due", mixes)
			}
		})
	}
}

// raiseRate lets io.cost raise its rate to where the model of 32 KiB needs it, while half of the requests meet their target.
func raiseRate(s *sim) *driver {
	q := fixedQOS()
	q.Max = 16600
	s.ioc.setQOS(q)
	return nil
}

func followPrices(s *sim) *driver {
	p := &naivePrices{s: s, price: .5, safe: .97, setTo: .5, safeTo: .97}
	s.ioc.set(p.model())
	s.every(.5, p.step)
	return nil
}

// mixes is the number of mixes of each kind. The properties also held for 60.
const mixes = 4
