package limits

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"sync/atomic"
	"syscall"
	"testing"
	"time"

	"github.com/nri-blkio/nri-blkio/test/e2e/cgroup"
	"github.com/nri-blkio/nri-blkio/test/e2e/cri"
	"github.com/nri-blkio/nri-blkio/test/e2e/lab"
)

const (
	soakWorkers = 4
	// soakGrace is how soon after the plugin's return containers that were created without
	// it have their limits.
	soakGrace = 5 * time.Second
)

// TestSoak runs pods with random annotations while the plugin is killed or stopped, or
// the runtime restarted. No container that is created while the plugin serves is ever
// without its limits, the others get theirs soon after its return, and nothing is left.
// It takes minutes: test/suite runs it with a proof only.
//
//e2e:proof
func TestSoak(t *testing.T) {
	s := newSoak(t)
	kills := []func(){s.killed, s.stopped, s.restarted}
	s.phase("killed, stopped, restarted", s.pods*2/5, kills)
	first := s.replaced()
	// From here on one process lives: what it keeps is what its life leaves.
	stays := []func(){s.stopped, s.restarted}
	s.phase("stopped, restarted", s.pods/5, stays)
	before := s.atRest()
	s.phase("stopped, restarted", s.pods-s.pods*2/5-s.pods/5, stays)
	after := s.atRest()
	s.report(before, after)
	s.compare(before, after)
	s.p.Signal(t, syscall.SIGQUIT) // it prints its goroutines, and ends
	s.p.Wait(t)
	s.compareGoroutines(first, s.p)
	s.noProcess()
}

// soak is pods on their way through their lives, and what happens to the plugin meanwhile.
type soak struct {
	*testing.T
	began  time.Time
	seed   uint64
	random *rand.Rand // of the disturbances
	pods   int
	p      *lab.Instance
	plugin presence // when the plugin serves the runtime
	cri    presence // when the runtime serves the CRI

	workers sync.WaitGroup

	next                                      atomic.Uint64
	ran, containers, refused, again, uncalled atomic.Int64
	without                                   atomic.Int64 // containers that the plugin did not see created
	disturbed                                 map[string]int
	mu                                        sync.Mutex // guards latest
	latest                                    time.Duration
}

func newSoak(t *testing.T) *soak {
	t.Helper()
	s := &soak{T: t, began: time.Now(), seed: *lab.SoakSeed, pods: *lab.SoakPods, disturbed: map[string]int{}}
	if s.seed == 0 {
		s.seed = rand.Uint64()
	}
	t.Logf("%d pods, seed %d", s.pods, s.seed)
	s.random = rand.New(rand.NewPCG(s.seed, ^uint64(0)))
	t.Cleanup(func() {
		ctx, cancel := context.WithTimeout(context.Background(), 2*lab.Deadline)
		defer cancel()
		if err := lab.Node.CRI.RemovePods(ctx); err != nil {
			t.Error(err)
		}
		for volume := range soakVolumes {
			files, _ := filepath.Glob(filepath.Join(lab.Volumes[volume], "soak-*"))
			for _, file := range files {
				os.Remove(file)
			}
		}
	})
	s.start()
	s.cri.returns()
	t.Cleanup(s.workers.Wait) // a failure must not leave them without their test
	return s
}

// start starts the plugin, which then serves.
func (s *soak) start() {
	s.Helper()
	s.p = lab.StartPlugin(s.T, "--metrics-address", soakMetrics)
	s.plugin.returns()
}

// phase runs so many pods to their end, while one after another of the disturbances
// happens, at random.
func (s *soak) phase(name string, pods int, disturbances []func()) {
	s.Helper()
	began := time.Now()
	var taken atomic.Int64
	for range soakWorkers {
		s.workers.Go(func() {
			for taken.Add(1) <= int64(pods) && !s.Failed() {
				s.live(newSoakPod(s.seed, s.next.Add(1)))
			}
		})
	}
	done := make(chan struct{})
	go func() { s.workers.Wait(); close(done) }()
	for {
		select {
		case <-done:
			s.Logf("%s: %d pods in %v", name, pods, time.Since(began).Round(time.Second))
			return
		case <-time.After(s.pause()):
			disturbances[s.random.IntN(len(disturbances))]()
		}
	}
}

// pause is between two disturbances. Shorter ones would interrupt pods again and again.
func (s *soak) pause() time.Duration {
	return 10*time.Second + time.Duration(s.random.Int64N(int64(15*time.Second)))
}

func (s *soak) killed() {
	s.Helper()
	s.disturbed["killed"]++
	s.plugin.leaves()
	s.p.Kill(s.T)
	s.start()
}

// stopped: if that is longer than the runtime waits, the plugin has to connect again.
func (s *soak) stopped() {
	s.Helper()
	s.disturbed["stopped"]++
	synchronized := s.p.Count(lab.LogServing)
	s.plugin.leaves()
	s.p.Signal(s.T, syscall.SIGSTOP)
	time.Sleep(s.stop())
	s.p.Signal(s.T, syscall.SIGCONT)
	continued := time.Now()
	lab.Eventually(s.T, "the plugin serves again", func() error {
		if s.p.Count(lab.LogServing) > synchronized {
			s.disturbed["stopped until the runtime dropped it"]++
			return nil
		}
		// The plugin notices within a second whether it is still connected.
		connected, err := scrape("nri_blkio_connected")
		if err == nil && (connected == 0 || time.Since(continued) < time.Second) {
			err = errors.New("the plugin may not have noticed yet that it is disconnected")
		}
		return err
	})
	s.plugin.returns()
}

// stop returns the time for which the plugin is stopped. In half of the cases it is long enough
// that a runtime which sends a request meanwhile closes the connection.
func (s *soak) stop() time.Duration {
	stop := time.Second + time.Duration(s.random.Int64N(int64(2*time.Second)))
	if s.random.IntN(2) == 0 {
		stop += 10 * time.Second // which is RequestTimeout
	}
	return stop
}

func (s *soak) restarted() {
	s.Helper()
	s.disturbed["runtime restarted"]++
	synchronized := s.p.Count(lab.LogServing)
	s.plugin.leaves()
	s.cri.leaves()
	lab.RestartRuntime(s.T)
	s.p.Await(s.T, lab.LogServing, synchronized+1)
	s.plugin.returns()
	s.cri.returns() // it may refuse calls until its plugins are registered
}

// replaced ends the process, so that it prints its goroutines, and starts another one.
func (s *soak) replaced() *lab.Instance {
	s.Helper()
	s.atRest()
	old := s.p
	s.plugin.leaves()
	old.Signal(s.T, syscall.SIGQUIT)
	old.Wait(s.T)
	s.start()
	return old
}

// live takes a pod through its life, again if a restart of the runtime interrupts it.
func (s *soak) live(p soakPod) {
	for attempt := range 20 {
		began := time.Now()
		uid := fmt.Sprintf("%08x%08x-e2e", p.number, attempt)
		err := s.try(p, uid)
		if err == nil {
			if n := s.ran.Add(1); n%100 == 0 {
				s.Logf("%d pods in %v", n, time.Since(s.began).Round(time.Second))
			}
			return
		}
		if s.cri.since(began) {
			s.Errorf("pod %d failed although the runtime ran all the time: %v", p.number, err)
			return
		}
		s.again.Add(1)
		if err := s.discard(uid); err != nil {
			s.Error(err)
			return
		}
		time.Sleep(time.Second) // it has just come back
	}
	s.Errorf("pod %d: each try was interrupted by a restart", p.number)
}

// discard removes what is there of a pod that was interrupted.
func (s *soak) discard(uid string) error {
	ctx, cancel := context.WithTimeout(context.Background(), 2*lab.Deadline)
	defer cancel()
	return lab.Node.CRI.RemovePod(ctx, uid)
}

// try runs a pod, checks what is in force for as long as it lives, and removes it. An
// error is one of the runtime.
func (s *soak) try(p soakPod, uid string) error {
	pod, err := lab.Node.CRI.RunPod(s.Context(), cri.PodConfig{Name: "soak-" + uid, UID: uid, Annotations: p.annotations})
	if err != nil {
		return err
	}
	began := time.Now()
	checks := []func() error{func() error { return lab.CheckIOMax(pod.Cgroup, p.whole().ioMax()) }}
	for i, c := range p.containers {
		k, err := s.create(p, pod, c, p.invalid && i == 0)
		if err != nil {
			return err
		}
		if k != nil {
			checks = append(checks, func() error { return c.check(k) })
		}
	}
	if !p.invalid { // a container of that may be there or not
		s.holds(p, began, p.life, func() error {
			for _, check := range checks {
				if err := check(); err != nil {
					return err
				}
			}
			return nil
		})
	}
	return pod.Remove(context.Background())
}

// check compares what is in force for a container with what it asked for.
func (c soakContainer) check(k *cri.Container) error {
	if err := lab.CheckIOMax(k.Cgroup, c.want.ioMax()); err != nil {
		return err
	}
	if c.weight == 0 {
		return nil
	}
	got, err := cgroup.Dir(k.Cgroup).Weight()
	if err == nil && got != c.weight {
		err = fmt.Errorf("io.weight of %s is %d, want %d", k.Cgroup, got, c.weight)
	}
	return err
}

// create creates and starts a container, and waits for its limits. It returns nil for one
// that is refused, as it has to be, or that is created though its annotation is invalid
// because the plugin was away.
func (s *soak) create(p soakPod, pod *cri.Pod, c soakContainer, invalid bool) (*cri.Container, error) {
	began := time.Now()
	k, err := pod.Create(s.Context(), c.cfg)
	switch {
	case invalid && isRefusal(err):
		s.refused.Add(1)
		return nil, nil
	case err != nil:
		return nil, err
	case invalid && s.plugin.since(began):
		s.Errorf("pod %d: a container with the invalid annotations %v was created", p.number, p.annotations)
	}
	switch err := k.Start(s.Context()); {
	case invalid && isRefusal(err): // the plugin has come back since it was created
		s.refused.Add(1)
		return nil, nil
	case err != nil:
		return nil, err
	}
	s.containers.Add(1)
	if invalid {
		s.uncalled.Add(1)
		return nil, nil
	}
	if s.holds(p, began, 0, func() error { return c.check(k) }) {
		s.without.Add(1)
	}
	return k, nil
}

// isRefusal reports whether the runtime's answer is an error of the plugin.
func isRefusal(err error) bool { return err != nil && strings.Contains(err.Error(), "nri-blkio") }

// holds checks that limits are in force for so long, from now on. It waits for them first
// if the plugin was away since the beginning: then late is true.
func (s *soak) holds(p soakPod, began time.Time, life time.Duration, check func() error) (late bool) {
	err := check()
	if late = err != nil; late && s.plugin.since(began) {
		s.Errorf("pod %d with %v, created while the plugin served, is not limited: %v", p.number, p.annotations, err)
		return late
	}
	for ; err != nil; err = check() {
		if s.plugin.up() > soakGrace {
			s.Errorf("pod %d with %v is not limited %v after the plugin's return: %v", p.number, p.annotations, soakGrace, err)
			return late
		}
		time.Sleep(50 * time.Millisecond)
	}
	if late {
		s.after(s.plugin.up())
	}
	for end := time.Now().Add(life); time.Now().Before(end); time.Sleep(250 * time.Millisecond) {
		if err := check(); err != nil {
			s.Errorf("pod %d with %v lost a limit: %v", p.number, p.annotations, err)
			return late
		}
	}
	return late
}

// after notes how long after the plugin's return a container had its limits.
func (s *soak) after(took time.Duration) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.latest = max(s.latest, took)
}

// presence is since when something serves.
type presence struct {
	mu   sync.Mutex // guards from
	from time.Time  // zero while it is away
}

func (p *presence) leaves()  { p.set(time.Time{}) }
func (p *presence) returns() { p.set(time.Now()) }

func (p *presence) set(from time.Time) {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.from = from
}

// up is how long it has served; 0 while it is away.
func (p *presence) up() time.Duration {
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.from.IsZero() {
		return 0
	}
	return time.Since(p.from)
}

// since reports whether it has served all the time since then.
func (p *presence) since(then time.Time) bool { return p.up() > time.Since(then) }
