package costsim

import (
	"container/heap"
	"math/rand/v2"
	"slices"

	"github.com/nri-blkio/nri-blkio/blkio"
)

// sim is a disk with io.cost, and the workloads that use it. It is a function of its seed.
type sim struct {
	now       float64
	events    events
	order     int
	random    *rand.Rand
	ioc       ioc
	disk      disk
	groups    []*group
	workloads []*workload
	frozen    bool
	held      []*request       // came while the queue is frozen
	pending   *blkio.CostModel // is written as soon as the queue is empty
	Grace     float64          // of RCU, in seconds
	graceEnd  float64
	writes    []float64 // when the model was written
	safe      blkio.CostModel
}

type event struct {
	at    float64
	order int
	do    func()
}

type events []event

func (e events) Len() int { return len(e) }
func (e events) Less(i, j int) bool {
	return e[i].at < e[j].at || e[i].at == e[j].at && e[i].order < e[j].order
}
func (e events) Swap(i, j int) { e[i], e[j] = e[j], e[i] }
func (e *events) Push(x any)   { *e = append(*e, x.(event)) }
func (e *events) Pop() any {
	last := (*e)[len(*e)-1]
	*e = (*e)[:len(*e)-1]
	return last
}

func newSim(seed uint64) *sim {
	s := &sim{random: rand.New(rand.NewPCG(seed, 1)), now: 1, Grace: .025}
	s.ioc = ioc{sim: s, base: 1, rate: 1, periodAt: 1}
	s.disk = disk{sim: s, Ops: 1500, Bytes: 60 << 20, Burst: .1, Latency: .0005}
	return s
}

func (s *sim) at(t float64, do func()) {
	s.order++
	heap.Push(&s.events, event{max(t, s.now), s.order, do})
}

func (s *sim) after(d float64, do func()) { s.at(s.now+d, do) }

// stalls makes the disk do nothing for part of the time, in pauses of some length at most, in seconds.
func (s *sim) stalls(part, longest float64) {
	s.after(longest/part*s.random.Float64(), func() {
		pause := longest * s.random.Float64()
		s.disk.pump()
		s.disk.when, s.disk.pumping = s.now+pause, true
		s.after(pause, s.disk.pump)
		s.stalls(part, longest)
	})
}

// run runs the simulation for a time.
func (s *sim) run(seconds float64) {
	end := s.now + seconds
	for len(s.events) > 0 && s.events[0].at <= end {
		e := heap.Pop(&s.events).(event)
		s.now = e.at
		e.do()
	}
	s.now = end
}

// every calls a function each interval.
func (s *sim) every(interval float64, do func()) {
	s.after(interval, func() {
		do()
		s.every(interval, do)
	})
}

// counters are those of io.stat of a cgroup, and of the disk. Times are in seconds.
type counters struct {
	Ops, Bytes, Cost, Wait, InDebt float64
}

func (a counters) minus(b counters) counters {
	return counters{a.Ops - b.Ops, a.Bytes - b.Bytes, a.Cost - b.Cost, a.Wait - b.Wait, a.InDebt - b.InDebt}
}

// disk has a limit of operations and one of bytes, as QEMU's and those of cloud volumes: each is a bucket that leaks, and
// a request passes while no bucket is filled to more than its burst. Requests pass in the order in which they come.
type disk struct {
	sim              *sim
	Ops, Bytes       float64 // per second
	Burst            float64 // seconds of each rate
	Latency          float64 // mean, beside the limits
	Merged           float64 // part of the sequential requests that are merged with the one before
	ops, bytes, when float64 // levels of the buckets, and when they were right
	queue            []*request
	inflight         int // including those in the queue
	pumping          bool
	total            counters
	queued           float64 // sum of the times that requests were in the disk
}

func (d *disk) enter(r *request) {
	r.entered = d.sim.now
	d.inflight++
	g := r.w.group
	g.total.Ops, g.total.Bytes = g.total.Ops+1, g.total.Bytes+float64(r.size)
	d.queue = append(d.queue, r)
	if !d.pumping {
		d.pump()
	}
}

func (d *disk) pump() {
	d.pumping = false
	passed := max(0, d.sim.now-d.when)
	d.ops, d.bytes, d.when = max(0, d.ops-passed*d.Ops), max(0, d.bytes-passed*d.Bytes), d.sim.now
	for len(d.queue) > 0 {
		if wait := max(d.ops/d.Ops, d.bytes/d.Bytes) - d.Burst; wait > 1e-9 {
			d.pumping = true
			d.sim.after(wait, d.pump)
			return
		}
		r := d.queue[0]
		d.queue = d.queue[1:]
		d.bytes += float64(r.size)
		if d.ops++; r.w.Sequential {
			d.ops -= d.Merged
		}
		d.sim.after(d.Latency*(.5+d.sim.random.Float64()), func() { d.complete(r) })
	}
}

func (d *disk) complete(r *request) {
	d.inflight--
	d.queued += d.sim.now - r.entered
	d.total.Ops, d.total.Bytes = d.total.Ops+1, d.total.Bytes+float64(r.size)
	if d.sim.ioc.enabled {
		d.sim.ioc.completed(r, d.sim.now-r.entered)
	}
	r.w.completed(r)
	d.sim.thaw()
}

// write writes the model as the kernel does: requests that wait for io.cost or are in the disk go on, new ones are held
// until those are done. It takes a grace period of RCU at least.
func (s *sim) write(m blkio.CostModel) {
	s.frozen, s.pending, s.graceEnd = true, &m, s.now+s.Grace
	s.at(s.graceEnd, s.thaw)
}

func (s *sim) thaw() {
	if !s.frozen || s.now < s.graceEnd || s.disk.inflight > 0 || slices.ContainsFunc(s.groups, func(g *group) bool { return len(g.waiting) > 0 }) {
		return
	}
	s.ioc.set(*s.pending)
	s.writes = append(s.writes, s.now)
	held := s.held
	s.frozen, s.held = false, nil
	for _, r := range held {
		s.after(0, func() { s.submit(r) })
	}
}

func (s *sim) submit(r *request) {
	if s.frozen {
		s.held = append(s.held, r)
		return
	}
	s.ioc.throttle(r)
}

// request is a request of a workload.
type request struct {
	w              *workload
	size           int
	write, debt    bool
	abs, cost      float64 // of the disk, and of the group's share
	began, entered float64 // by the workload, and to the disk
}

// workload keeps Depth requests under way. Each slot thinks between two requests. While one request waits for io.cost
// its thread can submit no other one.
type workload struct {
	Size, Depth       int
	Write, Sequential bool
	Threads           int     // 0 for one
	Think             float64 // mean seconds
	DebtEvery         int     // so many requests are one that io.cost lets pass for debt, such as of metadata; 0 for none
	From, On, Off     float64 // begins so late, and pauses Off seconds after each On; 0 for no pauses
	sim               *sim
	group             *group
	ready, blocked    int
	count             int
	done              counters
	latencies         []float64
}

// add adds a cgroup with workloads.
func (s *sim) add(name string, weight float64, workloads ...*workload) {
	g := &group{Name: name, Weight: weight}
	s.groups = append(s.groups, g)
	for _, w := range workloads {
		w.sim, w.group, w.Threads = s, g, max(w.Threads, 1)
		s.workloads = append(s.workloads, w)
		s.after(w.From, func() {
			w.ready = w.Depth
			w.issue()
		})
	}
}

func (w *workload) issue() {
	for w.ready > 0 && w.blocked < w.Threads {
		w.ready--
		w.count++
		r := &request{w: w, size: w.Size, write: w.Write, began: w.sim.now}
		r.debt = w.DebtEvery > 0 && w.count%w.DebtEvery == 0
		w.sim.submit(r)
	}
}

func (w *workload) completed(r *request) {
	w.done.Ops, w.done.Bytes = w.done.Ops+1, w.done.Bytes+float64(r.size)
	w.latencies = append(w.latencies, w.sim.now-r.began)
	again := w.Think * (.5 + w.sim.random.Float64())
	if cycle := w.On + w.Off; w.Off > 0 {
		began := w.sim.now + again - w.From - 1
		if at := began - cycle*float64(int(began/cycle)); at > w.On {
			again += cycle - at
		}
	}
	w.sim.after(again, func() {
		w.ready++
		w.issue()
	})
}
