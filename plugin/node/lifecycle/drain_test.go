package lifecycle

import (
	"errors"
	"fmt"
	"math/rand/v2"
	"strings"
	"testing"
)

// TestDrainTable compares each pair of a phase and an event with the table in testdata.
func TestDrainTable(t *testing.T) {
	var out strings.Builder
	for p := range numDrainPhases {
		fmt.Fprintf(&out, "%v\n", p)
		for e := range numDrainEvents {
			others, err := NextDrain(p, e, true)
			last, lastErr := NextDrain(p, e, false)
			switch {
			case (err == nil) != (lastErr == nil):
				t.Errorf("%v in %v: %v, %v", e, p, err, lastErr)
			case err != nil:
				fmt.Fprintf(&out, "  %-17v unexpected\n", e)
			case others == last:
				fmt.Fprintf(&out, "  %-17v %v\n", e, others)
			default:
				fmt.Fprintf(&out, "  %-17v %v, the last one: %v\n", e, others, last)
			}
		}
	}
	compareGolden(t, "drain.txt", out.String())
}

func isInUse(p DrainPhase) bool { return p == InUse || p == InUseLeftovers }

func hasLeftovers(p DrainPhase) bool {
	return p == InUseLeftovers || p == Leftovers || p == LeftoversClean
}

// TestDrainProperties verifies properties of each pair of a phase and an event.
func TestDrainProperties(t *testing.T) {
	for p := range numDrainPhases {
		for e := range numDrainEvents {
			for _, others := range []bool{false, true} {
				next, err := NextDrain(p, e, others)
				if err != nil {
					if next != p || !errors.Is(err, ErrUnexpected) || isInUse(p) {
						t.Errorf("%v in %v: %v, %v", e, p, next, err)
					}
					continue
				}
				closes := e == ContainerWritten || e == ContainerLeft
				if open := e == ContainerBegan || isInUse(p) && (!closes || others); isInUse(next) != open {
					t.Errorf("%v in %v with others open: %v leads to %v", e, p, others, next)
				}
				if hasLeftovers(p) && !hasLeftovers(next) && (p != LeftoversClean || e != KernelClean) {
					t.Errorf("%v in %v loses leftovers", e, p)
				}
				if (e == ContainerLeft || e == EndedUnseen) && !hasLeftovers(next) {
					t.Errorf("%v in %v leaves no leftovers", e, p)
				}
				if p != Unused && next == Unused {
					t.Errorf("%v in %v leads to Unused", e, p)
				}
			}
		}
	}
	if _, err := NextDrain(numDrainPhases, KernelClean, false); err == nil {
		t.Error("an unknown phase has a transition")
	}
	if _, err := NextDrain(InUse, numDrainEvents, false); err == nil {
		t.Error("an unknown event has a transition")
	}
}

// TestDrainOfPod follows a pod in which the second container leaves data that the kernel writes later.
func TestDrainOfPod(t *testing.T) {
	var d Drain
	want := func(p DrainPhase) {
		t.Helper()
		if d.Phase() != p {
			t.Fatalf("phase %v, want %v", d.Phase(), p)
		}
	}
	want(Unused)
	d.Begin("a")
	d.Begin("b")
	d.Begin("b") // a repeat
	want(InUse)
	d.End("b", false)
	want(InUseLeftovers)
	d.End("b", true) // too late: it counts as left
	want(InUseLeftovers)
	if !d.open["a"] || d.open["b"] {
		t.Error("a is to be open, and b closed")
	}
	if _, ok := d.Ask(); ok {
		t.Error("the kernel is asked while a container runs")
	}
	d.End("a", true)
	want(Leftovers)
	q, ok := d.Ask()
	if !ok || d.Answer(q, true) {
		t.Error("one answer drains the pod")
	}
	want(LeftoversClean)
	if !d.Answer(q, true) {
		t.Error("the second answer does not drain the pod")
	}
	want(Drained)
	if d.Answer(q, true) {
		t.Error("a drained pod is drained again")
	}
	d.EndUnseen()
	want(Leftovers)
}

// TestDrainIgnoresOldAnswers verifies that an answer counts only if the pod is as it was
// when the kernel was asked.
func TestDrainIgnoresOldAnswers(t *testing.T) {
	changes := map[string]func(*Drain){
		"change":    (*Drain).Change,
		"container": func(d *Drain) { d.Begin("b"); d.End("b", false) },
		"unseen":    (*Drain).EndUnseen,
	}
	for name, change := range changes {
		t.Run(name, func(t *testing.T) {
			var d Drain
			d.Begin("a")
			d.End("a", false)
			first, _ := d.Ask()
			d.Answer(first, true)
			second, _ := d.Ask()
			change(&d)
			if d.Answer(second, true) || d.Phase() != Leftovers {
				t.Errorf("phase %v after an old answer, want Leftovers", d.Phase())
			}
			fresh, _ := d.Ask()
			d.Answer(fresh, true)
			d.Answer(fresh, false) // data again
			if d.Phase() != Leftovers {
				t.Errorf("phase %v after data was found, want Leftovers", d.Phase())
			}
		})
	}
}

// TestDrainTakesActions verifies that the drain makes of actions the events that they name.
func TestDrainTakesActions(t *testing.T) {
	for _, tt := range []struct {
		do   Actions
		w    Writes
		want DrainPhase
	}{
		{0, WritesLimited, InUse},
		{Begin, WritesLimited, InUse},
		{HandOver | RecordExit, WritesLimited, InUse},
		{FindLeftovers, WritesUnknown, InUseLeftovers},
		{LeaveNothing | RecordExit, WritesLimited, Drained},
		{LeaveData | RecordExit, WritesUnlimited, Drained},
		{LeaveData | RecordExit, WritesLimited, Leftovers},
		{LeaveData | RecordExit, WritesUnknown, Leftovers},
	} {
		var d Drain
		d.Apply("a", Begin, WritesUnknown)
		if d.Apply("a", tt.do, tt.w); d.Phase() != tt.want {
			t.Errorf("%q, %d: phase %v, want %v", tt.do, tt.w, d.Phase(), tt.want)
		}
		if _, ok := tt.do.DrainEvent(tt.w); !ok && (d.Phase() != InUse || !d.open["a"]) {
			t.Errorf("%q changes the drain", tt.do)
		}
	}
}

// TestDrainForgets verifies that a pod has nothing left after Forget, and that one which was used stays so.
func TestDrainForgets(t *testing.T) {
	for _, want := range []DrainPhase{Unused, Drained} {
		var d Drain
		if want == Drained {
			d.Begin("a")
			d.Begin("b")
			d.End("b", false)
		}
		asked := d.changes
		d.Forget()
		if d.Phase() != want || len(d.open) > 0 || d.changes == asked {
			t.Errorf("phase %v with %d open after %d changes, want %v", d.Phase(), len(d.open), d.changes, want)
		}
	}
}

// drainModel is the drain of a pod as two sets and a flag.
type drainModel struct {
	open            map[string]bool
	used, leftovers bool
	clean           int // answers since the last change
}

func (m *drainModel) drained() bool { return m.used && !m.leftovers && len(m.open) == 0 }

func (m *drainModel) do(d *Drain, rng *rand.Rand) string {
	id := string(rune('a' + rng.IntN(4)))
	q, asked := d.Ask()
	switch n := rng.IntN(8); n {
	case 0, 1:
		d.Begin(id)
		m.open[id], m.used, m.clean = true, true, 0
		return "begin " + id
	case 2, 3, 4:
		d.End(id, n != 2)
		if m.open[id] {
			m.leftovers, m.clean = m.leftovers || n == 2, 0
		}
		delete(m.open, id)
		return fmt.Sprintf("end %s, written %v", id, n != 2)
	case 5:
		d.EndUnseen()
		m.used, m.leftovers, m.clean = true, true, 0
		return "end unseen"
	case 6:
		d.Change()
		m.clean = 0
		return "change"
	}
	clean := rng.IntN(3) > 0
	d.Answer(q, clean)
	m.clean++
	if !clean {
		m.clean = 0
	}
	if asked && m.clean == 2 {
		m.leftovers = false
	}
	if !asked {
		m.clean = 0
	}
	return fmt.Sprint("answer ", clean)
}

// TestDrainModel compares random histories of a drain with the model.
func TestDrainModel(t *testing.T) {
	for seed := range uint64(2000) {
		rng := rand.New(rand.NewPCG(seed, 0))
		m := drainModel{open: map[string]bool{}}
		var d Drain
		var history []string
		for range 40 {
			history = append(history, m.do(&d, rng))
			inUse := len(m.open) > 0
			if isInUse(d.Phase()) != inUse || hasLeftovers(d.Phase()) != m.leftovers || (d.Phase() == Drained) != m.drained() {
				t.Fatalf("seed %d: phase %v, model %+v, after\n%s", seed, d.Phase(), m, strings.Join(history, "\n"))
			}
		}
	}
}
