package limits

import (
	"context"
	"fmt"
	"regexp"
	"strings"
	"sync"
	"testing"

	"github.com/nri-blkio/nri-blkio/test/e2e/cri"
	"github.com/nri-blkio/nri-blkio/test/e2e/lab"
)

// registered matches what the log says of the time from the start of the process to its registration.
var registered = regexp.MustCompile(`since_start="?([0-9.a-zµ]+)`)

// TestRegistrationFigures measures how long the program takes from its start to its registration, on a node that is idle,
// and while 24 pods start on it, as after a boot. It runs in make proof only.
//
//e2e:proof
func TestRegistrationFigures(t *testing.T) {
	const rounds, pods = 5, 24
	measure := func() string {
		p := lab.Launch(t, "--only", "limits")
		defer p.Kill(t)
		p.Await(t, "Registered with the runtime", 1)
		m := registered.FindStringSubmatch(p.Log.String())
		if m == nil {
			t.Fatalf("the log does not say when it was registered:\n%s", p.Log)
		}
		return m[1]
	}
	var idle, busy []string
	for range rounds {
		idle = append(idle, measure())
	}
	for round := range rounds {
		starting := startPods(t, fmt.Sprintf("r%d", round), pods)
		busy = append(busy, measure())
		starting()
	}
	t.Logf("from the start of the process to its registration: idle %s; while %d pods start %s",
		strings.Join(idle, ", "), pods, strings.Join(busy, ", "))
}

// startPods has so many pods with a container start at the same time. The function that it returns waits for them, and
// removes them.
func startPods(t *testing.T, name string, pods int) (wait func()) {
	t.Helper()
	var all sync.WaitGroup
	started := make(chan error, pods)
	first := make(chan struct{}, pods)
	for i := range pods {
		all.Go(func() {
			pod, err := lab.Node.CRI.RunPod(t.Context(), cri.PodConfig{Name: fmt.Sprintf("%s-%d", name, i), UID: fmt.Sprintf("%s%d-registration-e2e", name, i)})
			first <- struct{}{}
			if err == nil {
				_, err = pod.Run(t.Context(), lab.Sleeper("c"))
				if removed := pod.Remove(context.Background()); err == nil {
					err = removed
				}
			}
			started <- err
		})
	}
	<-first // the runtime is at it
	return func() {
		t.Helper()
		all.Wait()
		for range pods {
			if err := <-started; err != nil {
				t.Error(err)
			}
		}
	}
}
