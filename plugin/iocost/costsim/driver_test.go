package costsim

import (
	"fmt"
	"slices"
	"time"

	"github.com/nri-blkio/nri-blkio/blkio/diskmodel"
	"github.com/nri-blkio/nri-blkio/internal/fakenode"
	"github.com/nri-blkio/nri-blkio/plugin/iocost/follow"
)

// driver lets the controller look at a simulation, and writes what it decides.
type driver struct {
	sim        *sim
	controller follow.Controller
	decision   follow.Decision
	hasWait    bool // the kernel prints cost.wait
	from       float64
	groups     []counters
	disk       counters
	log        []string
}

// control adds a controller to a simulation whose safe model is the one in force.
func control(s *sim) *driver {
	d := &driver{sim: s, hasWait: true, controller: follow.Controller{
		Limits: diskmodel.Limits{Ops: diskOps, Bytes: diskBps}, Safe: s.safe, Name: func(group string) string { return group },
	}}
	d.restart()
	return d
}

// restart begins an interval, after a write as soon as the queue is open again.
func (d *driver) restart() {
	if d.sim.frozen {
		d.sim.after(.01, d.restart)
		return
	}
	d.from, d.groups, d.disk = d.sim.now, d.sim.stat(), d.sim.disk.total
	d.sim.after(d.decision.Interval().Seconds(), d.step)
}

// stat reads io.stat of the groups.
func (s *sim) stat() (out []counters) {
	for _, g := range s.groups {
		c := g.total
		if g.waitSince > 0 {
			c.Wait += s.now - g.waitSince
		}
		out = append(out, c)
	}
	return out
}

func (d *driver) step() {
	seconds := d.sim.now - d.from
	disk := d.sim.disk.total.minus(d.disk)
	l := follow.Look{
		At:   time.Duration(d.sim.now * float64(time.Second)),
		Past: time.Duration(seconds * float64(time.Second)),
		Uses: map[string]follow.Use{}, Ops: disk.Ops / seconds, Bytes: disk.Bytes / seconds,
	}
	for i, c := range d.sim.stat() {
		c, g := c.minus(d.groups[i]), d.sim.groups[i]
		if c.Ops == 0 && c.Wait == 0 {
			continue
		}
		u := follow.Use{Weight: g.Weight, Ops: c.Ops / seconds, Bytes: c.Bytes / seconds, Cost: c.Cost / seconds, Wait: c.Wait / seconds}
		if !d.hasWait {
			u.Wait = -1
		}
		l.Uses[g.Name] = u
	}
	before := d.decision
	d.decision = d.controller.Next(before, l)
	if d.decision.Reason != before.Reason || d.decision.State != before.State {
		d.log = append(d.log, fmt.Sprintf("%.2f %s: %s", d.sim.now, d.decision.State, d.decision.Reason))
	}
	if d.decision.Write {
		d.sim.write(d.decision.Model)
	}
	d.restart()
}

// trace has what each group got in each window of a simulation, in seconds of the disk by the safe model.
type trace struct {
	windows [][]float64
	largest []float64 // charge of a group's largest request
	use     float64   // sum of the parts of both limits
	writes  []float64
	log     []string
}

const window = .25

// charge returns what operations cost by the safe model, in seconds of the disk.
func charge(n counters) float64 {
	of, _ := fakenode.RandomOf(fixedModel(.97))
	return n.Ops*of.Base + n.Bytes/4096*of.Page
}

// traced runs a simulation and returns its trace.
func (s *sim) traced(seconds float64, d *driver) *trace {
	t := &trace{largest: make([]float64, len(s.groups))}
	last := make([]counters, len(s.workloads))
	group := func(w *workload) int { return slices.Index(s.groups, w.group) }
	for _, w := range s.workloads {
		t.largest[group(w)] = max(t.largest[group(w)], charge(counters{Ops: 1, Bytes: float64(w.Size)}))
	}
	s.every(window, func() {
		row := make([]float64, len(s.groups))
		for i, w := range s.workloads {
			n := w.done.minus(last[i])
			row[group(w)] += charge(n)
			last[i] = w.done
		}
		t.windows = append(t.windows, row)
	})
	s.run(seconds)
	t.use = s.disk.total.Ops/diskOps/seconds + s.disk.total.Bytes/diskBps/seconds
	t.writes = s.writes
	if d != nil {
		t.log = d.log
	}
	return t
}

// loss returns the largest part of a group's due that it lost within five seconds, in seconds, compared with what it got by
// the safe model. That is the least of some traces with other random latencies, and of the windows beside.
func (t *trace) loss(safe []*trace) (most float64, group int, at float64) {
	const span = 5 / window
	for g := range t.largest {
		lost := make([]float64, len(t.windows))
		for w := 1; w < len(t.windows)-1; w++ {
			got, has := t.windows[w][g], safe[0].windows[w][g]
			for _, s := range safe {
				has = min(has, s.windows[w-1][g], s.windows[w][g], s.windows[w+1][g])
			}
			if short := .95*has - got; has > 2*t.largest[g] && short > 0 {
				lost[w] = window * short / has
			}
			var sum float64
			for _, x := range lost[max(0, w-span):] {
				sum += x
			}
			if sum > most {
				most, group, at = sum, g, float64(w)*window
			}
		}
	}
	return most, group, at
}
