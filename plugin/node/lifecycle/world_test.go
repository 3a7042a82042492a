package lifecycle

import (
	"fmt"
	"testing"
)

// truth is the state of a container in the runtime and the kernel.
type truth int

const (
	unborn   truth = iota // not created
	made                  // created, without a cgroup
	waiting               // its cgroup has a process, which waits for the start
	restored              // started from a checkpoint, without a cgroup so far
	empty                 // the same, with a cgroup that has no process so far
	alive                 // its cgroup has a process that runs
	dead                  // its last process has ended, and its cgroup is removed soon
	removed               // the runtime does not know it any more
)

func (s truth) hasProcess() bool { return s == waiting || s == alive }

func (s truth) hasCgroup() bool { return s.hasProcess() || s == empty || s == dead }

// world is a container with all that the tables depend on. The events of the runtime are
// delivered or lost, and those of passes can be late.
type world struct {
	truth    truth
	c        Container
	drain    DrainPhase
	open     bool // in the drain
	handing  bool // a hand-over is under way
	starting bool // StartContainer was not answered yet
	armed    bool // the exit watch watches the cgroup
	arming   bool // the plugin has not noted that yet
	saw      bool // a pass saw a process, and has not noted that yet
	missed   bool // a write found no cgroup, and has not noted that yet
	ran      bool // it was alive
}

// step is a world that follows another one.
type step struct {
	name string
	world
}

// explorer walks through all worlds that events lead to.
type explorer struct {
	t    *testing.T
	came map[world]string // how each world was reached
	next []world
}

// after returns the world after an event of the container.
func (x *explorer) after(w world, e Event) world {
	from := w.c.Phase()
	do, err := w.c.Handle(e)
	if err != nil {
		x.t.Fatalf("%v\nafter %s", err, x.came[w])
	}
	if de, ok := do.DrainEvent(WritesLimited); ok {
		w = x.drained(w, de)
	}
	if do.Has(HandOver) {
		w.handing = true
	}
	if e == StartContainer && from != Exited {
		w.starting = true
	}
	if w.c.Phase() == Absent { // work under way does not know the new container
		w.starting, w.arming, w.saw, w.missed = false, false, false, false
	}
	return w
}

// drained returns the world after an event of the drain, as Drain does it.
func (x *explorer) drained(w world, e DrainEvent) world {
	switch e {
	case ContainerBegan:
		w.open = true
	case ContainerWritten, ContainerLeft:
		if !w.open {
			return w
		}
		w.open = false
	}
	next, err := NextDrain(w.drain, e, false)
	if err != nil {
		x.t.Fatalf("%v\nafter %s", err, x.came[w])
	}
	w.drain = next
	return w
}

// runtimeSteps returns the worlds after a step of the runtime or the container itself.
func (x *explorer) runtimeSteps(w world) (out []step) {
	become := func(name string, to truth, events ...Event) {
		next := w
		next.truth, next.starting = to, w.starting && to < dead
		next.ran = w.ran || to == alive
		out = append(out, step{name, next}) // no event, or it is lost
		for _, e := range events {
			out = append(out, step{fmt.Sprint(name, ", ", e), x.after(next, e)})
		}
	}
	switch w.truth {
	case unborn:
		become("create", made, CreateContainer)
	case made:
		become("start", waiting, StartContainer)
		become("restore", restored, StartContainer)
		become("die", dead, StopContainer)
	case waiting:
		become("run", alive)
		become("die", dead, StopContainer)
	case restored:
		become("make the cgroup", empty)
		become("die", dead, StopContainer)
	case empty:
		become("run", alive)
		become("die", dead, StopContainer)
	case alive:
		become("die", dead, StopContainer)
	case dead:
		become("stop", dead, StopContainer)
		become("remove", removed, RemoveContainer, RemovePodSandbox)
	}
	if w.starting {
		refused := x.after(w, StartRefused)
		refused.starting = false
		out = append(out, step{"refuse", refused})
		answered := w
		answered.starting = false
		out = append(out, step{"answer", answered})
	}
	return out
}

// listEvents returns the events of Synchronize. containerd does not list containers that
// have ended, and CRI-O does.
func (s truth) listEvents() []Event {
	switch s {
	case made, waiting, restored, empty:
		return []Event{ListedCreated}
	case alive:
		return []Event{ListedRunning}
	case dead:
		return []Event{ListedStopped, NotListed}
	}
	return []Event{NotListed}
}

// pluginSteps returns the worlds after a step of the plugin.
func (x *explorer) pluginSteps(w world) (out []step) {
	add := func(name string, next world) { out = append(out, step{name, next}) }
	for _, e := range w.truth.listEvents() {
		add(fmt.Sprint("list, ", e), x.after(w, e))
	}
	out = append(out, x.passSteps(w)...)
	if w.armed && !w.truth.hasProcess() { // the watch takes an empty cgroup for an end
		next := w
		next.armed = false
		add("fire", x.after(next, WatchFired))
	}
	lost := w
	lost.armed, lost.arming = false, false
	add("lose the watch", x.after(lost, WatchLost))
	if w.handing {
		next := w
		next.handing = false
		add("synced", x.drained(next, ContainerWritten))
		add("sync failed", x.drained(next, ContainerLeft))
	}
	add("other change", x.drained(w, PodChanged))
	add("kernel clean", x.drained(w, KernelClean))
	add("kernel dirty", x.drained(w, KernelDirty))
	return out
}

// passSteps returns the worlds after a step of a pass. The state that the step reads can be outdated by the
// time that it is noted.
func (x *explorer) passSteps(w world) (out []step) {
	add := func(name string, next world, e Event) { out = append(out, step{name, x.after(next, e)}) }
	p, next := w.c.Phase(), w
	if next.saw = true; w.truth.hasProcess() && (p.MayRun() || p.MayHaveStarted()) {
		out = append(out, step{"see a process", next})
	}
	if next = w; w.saw {
		next.saw = false
		add("note the process", next, CgroupPopulated)
	}
	if next = w; p.MayRun() && !w.truth.hasProcess() {
		next.missed = true
		out = append(out, step{"miss the cgroup", next})
	}
	if next = w; w.missed {
		next.missed = false
		add("note the missing cgroup", next, CgroupMissing)
	}
	if next = w; p.MayBeWatched() && w.truth.hasCgroup() {
		next.armed, next.arming = true, true
		out = append(out, step{"arm", next})
	}
	if next = w; w.arming {
		next.arming = false
		add("armed", next, WatchArmed)
	}
	return out
}

func (x *explorer) visit(s step, from world) {
	if _, known := x.came[s.world]; known {
		return
	}
	x.came[s.world] = x.came[from] + "\n\t" + s.name
	x.next = append(x.next, s.world)
}

// check verifies the invariants of each world.
func (x *explorer) check(w world) {
	p := w.c.Phase()
	bad := func(text string) { x.t.Errorf("%s: %+v\nafter %s", text, w, x.came[w]) }
	if isLive(p) && !w.open {
		bad("a container that may run is not open in the drain")
	}
	if w.open && !isLive(p) && !w.handing {
		bad("a container that has ended stays open in the drain")
	}
	if w.drain == Drained && (p.MayRun() || w.open) {
		bad("a pod is drained of which a container may run")
	}
	if w.drain == Unused && (p.MayRun() || w.open) {
		bad("a pod is unused of which a container may run")
	}
	if p == Exited && w.truth < dead {
		bad("a container runs that counts as exited")
	}
	if (p == Watched || p == Stopping) && !w.armed {
		bad("an exit watch is waited for that does not watch")
	}
	if next := x.after(w, CgroupMissing); p == Starting && w.truth == restored && !next.c.Phase().MayRun() {
		bad("a container whose cgroup is not made yet has no desired limits")
	}
	if w.truth == alive {
		x.checkAlive(w, bad)
	}
	for _, e := range []Event{ListedStopped, NotListed} {
		if next := x.after(w, e); p == Created && w.ran && w.truth >= dead && !hasLeftovers(next.drain) {
			bad("nothing looks for the data of a container that ended unseen")
		}
	}
	if w.truth == removed {
		next := x.after(w, NotListed)
		if next.c.Phase() != Absent || next.open && !next.handing {
			bad("a container that is removed stays")
		}
	}
}

// checkAlive verifies the invariants of a running container.
func (x *explorer) checkAlive(w world, bad func(string)) {
	p := w.c.Phase()
	if p != Absent && !p.MayRun() && !p.MayHaveStarted() {
		bad("no pass looks for a process of a container that runs")
	}
	if next := x.after(w, ListedRunning).c.Phase(); !next.MayRun() || next == Refused {
		bad("a container that runs and is listed has no desired limits, or counts as refused")
	}
	if next := x.after(w, CgroupPopulated).c.Phase(); p != Absent && !next.MayRun() {
		bad("a container that runs and has a process has no desired limits")
	}
}

// TestWorlds explores every order of the events of one container, including lost and late ones. It verifies in
// each world that no container is lost, that each running container has desired limits, and that no event is
// unexpected.
func TestWorlds(t *testing.T) {
	x := &explorer{t: t, came: map[world]string{{}: "the beginning"}, next: []world{{}}}
	phases := map[Phase]bool{}
	drains := map[DrainPhase]bool{}
	for len(x.next) > 0 && !t.Failed() {
		w := x.next[0]
		x.next = x.next[1:]
		phases[w.c.Phase()], drains[w.drain] = true, true
		x.check(w)
		for _, s := range append(x.runtimeSteps(w), x.pluginSteps(w)...) {
			x.visit(s, w)
		}
	}
	t.Logf("%d worlds", len(x.came))
	if len(phases) != int(numPhases) || len(drains) != int(numDrainPhases) {
		t.Errorf("explored %d phases of %d, and %d drain phases of %d", len(phases), numPhases, len(drains), numDrainPhases)
	}
}

// TestWorldsRest verifies that each world comes to rest. Once the watch works, the runtime has listed its
// containers, and passes find no data, a removed container leaves no state.
func TestWorldsRest(t *testing.T) {
	x := &explorer{t: t, came: map[world]string{}}
	for p := range numPhases {
		for d := range numDrainPhases {
			for _, handing := range []bool{false, true} {
				w := world{truth: removed, c: Container{p}, drain: d, handing: handing, open: isLive(p) || handing}
				if w.open != isInUse(d) || handing && isLive(p) {
					continue // no such world
				}
				w = x.after(w, NotListed)
				if w.handing {
					w = x.drained(w, ContainerWritten)
				}
				w = x.drained(x.drained(w, KernelClean), KernelClean)
				if w.c.Phase() != Absent || w.open || w.drain != Drained && w.drain != Unused {
					t.Errorf("%v and %v come to rest as %v and %v", p, d, w.c.Phase(), w.drain)
				}
			}
		}
	}
}
