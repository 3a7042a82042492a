package e2e

import (
	"fmt"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/nri-blkio/nri-blkio/test/e2e/cri"
)

// reloaded are the cgroups of containers that a reload changes.
type reloaded struct {
	*testing.T
	containers []*cri.Container
	wrong      []string // limits that were neither the old nor the new one
}

// values counts the containers by their limit, and notes wrong ones.
func (r *reloaded) values(allowed ...string) map[string]int {
	count := map[string]int{}
	for _, k := range r.containers {
		got, err := ioMax(k.Cgroup)
		value := got["vda"]
		if err != nil || len(got) != 1 || !slices.Contains(allowed, value) {
			r.wrong = append(r.wrong, fmt.Sprintf("%s: %v, %v", k.Cgroup, got, err))
		}
		count[value]++
	}
	return count
}

// TestReloadFigures measures how long a reload takes that changes the limits of all pods, from the first to the last of their
// containers, and verifies that each container has the old or the new limit all the time. It runs in make proof only.
func TestReloadFigures(t *testing.T) {
	const (
		pods   = 250
		format = "classes: {c: {limits: ['* wbps=%dMi']}}\nrules: [{name: all, class: c}]\n"
	)
	value := func(mib int) string { return fmt.Sprintf("wbps=%d", mib<<20) }
	file := policyFile(t, fmt.Sprintf(format, 4))
	startPlugin(t, "--only", "limits", "--policy", file)
	r := &reloaded{T: t}
	for i := range pods {
		r.containers = append(r.containers, runPod(t, fmt.Sprintf("pod%d", i), nil).run(sleeper("c")))
	}
	if n := r.values(value(4))[value(4)]; n != pods {
		t.Fatalf("%d of %d containers have their limit", n, pods)
	}
	before := 4
	var took []string
	for _, mib := range []int{8, 2, 6, 3, 4} {
		writePolicy(t, file, fmt.Sprintf(format, mib))
		var first, last time.Time
		within(t, deadline, "all have the new limit", func() error {
			n := r.values(value(before), value(mib))[value(mib)]
			if n > 0 && first.IsZero() {
				first = time.Now()
			}
			if n < pods {
				return fmt.Errorf("%d of %d have it", n, pods)
			}
			last = time.Now()
			return nil
		})
		took = append(took, last.Sub(first).Round(time.Millisecond).String())
		before = mib
	}
	if len(r.wrong) > 0 {
		t.Errorf("%d times a limit was neither the old nor the new one, first %s", len(r.wrong), r.wrong[0])
	}
	t.Logf("%d pods: %s from the first new limit to the last", pods, strings.Join(took, ", "))
}
