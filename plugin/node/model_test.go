package node

import (
	"math/rand/v2"
	"os"
	"slices"
	"strconv"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"
)

const (
	modelSlots   = 9   // pods at a time
	modelHistory = 400 // events that a failure prints
	modelRounds  = 6   // quiescent points of one seed
	modelEvents  = 60  // between two of them
)

// modelSetting reads one of the settings from the environment:
//
//	MODEL_SEED    the first seed; the next ones follow (a random one)
//	MODEL_TIME    how long new seeds are begun with (3s)
//	MODEL_EVENTS  how many events are at most begun with (no bound)
func modelSetting[T any](t *testing.T, name string, otherwise T, parse func(string) (T, error)) T {
	text := os.Getenv(name)
	if text == "" {
		return otherwise
	}
	value, err := parse(text)
	if err != nil {
		t.Fatalf("%s: %v", name, err)
	}
	return value
}

// TestModel drives a plugin with random events of many pods, beside its reconciler. Whenever all has come to
// rest, it compares the limits in force with a model. Every fourth seed has one event at a time, so that it
// does the same whenever it is repeated. The other seeds have the same events each time, in an order that the
// scheduler chooses. To repeat a seed that failed, set MODEL_SEED=SEED MODEL_EVENTS=1.
func TestModel(t *testing.T) {
	first := modelSetting(t, "MODEL_SEED", rand.Uint64()>>32, func(s string) (uint64, error) { return strconv.ParseUint(s, 10, 64) })
	length := modelSetting(t, "MODEL_TIME", 3*time.Second, time.ParseDuration)
	most := modelSetting(t, "MODEL_EVENTS", 0, strconv.Atoi)
	began, events, seed := time.Now(), 0, first
	for ; seed == first || time.Since(began) < length; seed++ {
		synctest.Test(t, func(t *testing.T) { events += runModel(t, seed) })
		if t.Failed() || most > 0 && events >= most {
			break
		}
	}
	t.Logf("seeds %d to %d: %d events in %v", first, seed, events, time.Since(began).Round(time.Millisecond))
}

// runModel runs the events of one seed, and returns how many there were.
func runModel(t *testing.T, seed uint64) int {
	r := newModelRuntime(t)
	rng := rand.New(rand.NewPCG(seed, 0))
	defer func() {
		if t.Failed() {
			t.Logf("seed %d failed; the last events were:\n%s", seed, strings.Join(r.history, "\n"))
		}
		r.end()
	}()
	r.crio = rng.IntN(4) == 0
	r.restart()
	r.connect()
	for range modelRounds {
		events := drawEvents(rng, modelEvents)
		r.calm = rng.IntN(3) == 0
		if seed%4 == 0 {
			r.runAlone(events)
		} else {
			r.runTogether(events)
		}
		var problems []string
		if synctest.Wait(); r.calm {
			time.Sleep(modelLate + time.Second) // until the last hand-over has had its sync
			synctest.Wait()
			problems = r.check(false)
		}
		r.rest()
		if problems = append(problems, r.check(true)...); len(problems) > 0 {
			t.Errorf("seed %d, calm %v: %s", seed, r.calm, strings.Join(problems, "\n\t"))
		}
		if t.Failed() {
			return r.events
		}
	}
	for slot := range modelSlots {
		if p := r.pods[slot]; p != nil {
			r.removePod(p, rng)
		}
	}
	r.rest()
	if known := r.plugin.known(); len(known.sandboxes)+len(known.containers)+len(known.left)+known.written > 0 {
		t.Errorf("seed %d: all pods were removed, and the plugin knows %v", seed, known)
	}
	return r.events
}

// runAlone makes the events happen one at a time.
func (r *modelRuntime) runAlone(events []modelEvent) {
	for _, e := range events {
		done := make(chan struct{})
		go func() {
			defer close(done)
			r.do(e)
		}()
		<-done
		synctest.Wait()
	}
}

// runTogether makes the events of each pod happen in their order, beside those of other pods.
func (r *modelRuntime) runTogether(events []modelEvent) {
	var all sync.WaitGroup
	for slot := -1; slot < modelSlots; slot++ {
		mine := slices.DeleteFunc(slices.Clone(events), func(e modelEvent) bool { return e.slot != slot })
		all.Go(func() {
			for _, e := range mine {
				r.do(e)
			}
		})
	}
	all.Wait()
}

// rest makes all disks answer and connects the plugin. It waits until nothing is left to do.
func (r *modelRuntime) rest() {
	r.heal()
	r.mu.Lock()
	r.broken = false
	r.mu.Unlock()
	r.undo()
	r.connect()
	synctest.Wait()
	for range 3 {
		time.Sleep(defaultResync + time.Second)
		synctest.Wait()
	}
	r.note("at rest")
}
