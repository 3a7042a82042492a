package lifecycle

import (
	"fmt"
	"iter"
	"maps"
)

// DrainPhase is the phase of the drain of a pod.
type DrainPhase int

// The phases of a pod's drain.
const (
	// Unused is a pod of which no container has run.
	Unused DrainPhase = iota
	// InUse is a pod with a container that runs, or whose data is being synced.
	InUse
	// InUseLeftovers is the same, and an ended container has left data besides.
	InUseLeftovers
	// Leftovers is a pod of which no container runs and one has left data. The kernel's
	// count of the pod's unwritten pages shows when that is on its disk.
	Leftovers
	// LeftoversClean is the same after one pass that found nothing left to write. The
	// kernel's count may be two seconds old, so a second pass has to find the same.
	LeftoversClean
	// Drained is a pod of which no container runs and none has left data. Its cgroup has
	// no limits: they would stay on the files that the cgroup owns.
	Drained

	numDrainPhases
)

// DrainEvent is an event of the drain of a pod.
type DrainEvent int

// The events of a pod's drain.
const (
	// ContainerBegan is a container that may write from now on.
	ContainerBegan DrainEvent = iota
	// ContainerWritten is an ended container whose data is all on its disk.
	ContainerWritten
	// ContainerLeft is an ended container whose data may not be on its disk.
	ContainerLeft
	// EndedUnseen is a container that ended before the plugin knew it.
	EndedUnseen
	// PodChanged is another change of the pod, after which the kernel is asked anew.
	PodChanged
	// KernelClean is a pass that found nothing left to write.
	KernelClean
	// KernelDirty is a pass that found data left to write, or could not find out.
	KernelDirty

	numDrainEvents
)

// drainCell is the transition of one drain phase by one event. to holds while another
// container is open, last if none is.
type drainCell struct {
	expected bool
	to, last DrainPhase
}

type drainRow [numDrainEvents]drainCell

func always(p DrainPhase) drainCell { return drainCell{true, p, p} }

func byOthers(others, last DrainPhase) drainCell { return drainCell{true, others, last} }

// drainRowOf returns the transitions of a drain phase. Without an open container none can
// be closed, so ContainerWritten and ContainerLeft are unexpected there.
func drainRowOf(p DrainPhase) drainRow {
	switch p {
	case InUse:
		return drainRow{
			ContainerBegan:   always(InUse),
			ContainerWritten: byOthers(InUse, Drained),
			ContainerLeft:    byOthers(InUseLeftovers, Leftovers),
			EndedUnseen:      always(InUseLeftovers),
			PodChanged:       always(InUse), KernelClean: always(InUse), KernelDirty: always(InUse),
		}
	case InUseLeftovers:
		stay := always(InUseLeftovers)
		return drainRow{
			ContainerBegan:   stay,
			ContainerWritten: byOthers(InUseLeftovers, Leftovers),
			ContainerLeft:    byOthers(InUseLeftovers, Leftovers),
			EndedUnseen:      stay, PodChanged: stay, KernelClean: stay, KernelDirty: stay,
		}
	case Leftovers:
		stay := always(Leftovers)
		return drainRow{
			ContainerBegan: always(InUseLeftovers),
			EndedUnseen:    stay, PodChanged: stay, KernelDirty: stay,
			KernelClean: always(LeftoversClean),
		}
	case LeftoversClean:
		again := always(Leftovers)
		return drainRow{
			ContainerBegan: always(InUseLeftovers),
			EndedUnseen:    again, PodChanged: again, KernelDirty: again,
			KernelClean: always(Drained),
		}
	case Unused, Drained: // they differ in the limits of the pod's cgroup alone
		stay := always(p)
		return drainRow{
			ContainerBegan: always(InUse),
			EndedUnseen:    always(Leftovers),
			PodChanged:     stay, KernelClean: stay, KernelDirty: stay,
		}
	}
	return drainRow{}
}

// NextDrain returns the phase of a drain after an event. othersOpen is true if a container
// is open apart from the one of the event. Unless the error is nil, the phase is the same.
// The error wraps ErrUnexpected.
func NextDrain(p DrainPhase, e DrainEvent, othersOpen bool) (DrainPhase, error) {
	if e < 0 || e >= numDrainEvents || !drainRowOf(p)[e].expected {
		return p, fmt.Errorf("%w: %v in phase %v", ErrUnexpected, e, p)
	}
	if c := drainRowOf(p)[e]; !othersOpen {
		return c.last, nil
	}
	return drainRowOf(p)[e].to, nil
}

// Drain is the drain of one pod: its phase, and its open containers. A container is open while it may write or
// its data is being synced. The zero value is Unused. Only its methods change a Drain. It is not safe for
// concurrent use.
type Drain struct {
	phase   DrainPhase
	open    map[string]bool // by container ID
	changes int             // of the pod so far, apart from the answers of the kernel
}

// Phase returns the current phase.
func (d *Drain) Phase() DrainPhase { return d.phase }

// Open returns the IDs of the open containers.
func (d *Drain) Open() iter.Seq[string] { return maps.Keys(d.open) }

// Begin opens a container.
func (d *Drain) Begin(id string) {
	if d.open == nil {
		d.open = map[string]bool{}
	}
	d.open[id] = true
	d.handle(ContainerBegan)
}

// End closes a container. It does nothing if the container is not open: of two reports of
// its end the first one counts.
// written is true if all its data is on its disk.
func (d *Drain) End(id string, written bool) {
	if !d.open[id] {
		return
	}
	delete(d.open, id)
	if written {
		d.handle(ContainerWritten)
	} else {
		d.handle(ContainerLeft)
	}
}

// Apply applies those actions of a container's transition that concern the drain.
func (d *Drain) Apply(id string, do Actions, w Writes) {
	switch e, _ := do.DrainEvent(w); {
	case do.Has(Begin):
		d.Begin(id)
	case do.Has(FindLeftovers):
		d.EndUnseen()
	case do.Has(LeaveNothing | LeaveData):
		d.End(id, e == ContainerWritten)
	}
}

// EndUnseen notes a container that ended before the plugin knew it.
func (d *Drain) EndUnseen() { d.handle(EndedUnseen) }

// Forget closes all containers, and forgets the data that those before left: no limit has delayed its writes.
func (d *Drain) Forget() {
	d.open = nil
	if d.changes++; d.phase != Unused {
		d.phase = Drained
	}
}

// Change notes another change of the pod.
func (d *Drain) Change() { d.handle(PodChanged) }

// Question is a question to the kernel whether a pod has data left to write.
type Question struct{ changes int }

// Ask returns the question, and false unless the drain waits for its answer.
func (d *Drain) Ask() (Question, bool) {
	return Question{d.changes}, d.phase == Leftovers || d.phase == LeftoversClean
}

// Answer notes the answer of the kernel, and reports whether the pod is drained by it. An
// answer from before a change of the pod does not count.
func (d *Drain) Answer(q Question, clean bool) (drained bool) {
	if q.changes != d.changes {
		return false
	}
	e := KernelDirty
	if clean {
		e = KernelClean
	}
	before := d.phase
	d.phase, _ = NextDrain(d.phase, e, len(d.open) > 0) // expected in each phase
	return d.phase == Drained && before != Drained
}

// handle makes the transition of an event that is a change of the pod. The methods above
// cause no unexpected event: a container is closed only while it is open.
func (d *Drain) handle(e DrainEvent) {
	d.changes++
	d.phase, _ = NextDrain(d.phase, e, len(d.open) > 0)
}
