package limits

import (
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/nri-blkio/nri-blkio/test/e2e/cri"
	"github.com/nri-blkio/nri-blkio/test/e2e/lab"
)

// reloaded are the cgroups of containers that a reload changes.
type reloaded struct {
	*testing.T
	containers []*cri.Container
	wrong      []string // limits that were neither the old nor the new one
}

// have returns how many containers have a limit. It notes those that have neither this nor the former one.
func (r *reloaded) have(value, former string) (count int) {
	for _, k := range r.containers {
		got, err := lab.IOMax(k.Cgroup)
		switch now := got["vda"]; {
		case err != nil || len(got) != 1 || now != value && now != former:
			r.wrong = append(r.wrong, fmt.Sprintf("%s: %v, %v", k.Cgroup, got, err))
		case now == value:
			count++
		}
	}
	return count
}

// TestReloadFigures measures how long a reload takes that changes the limits of all pods, from the first to the last of their
// containers, and verifies that each container has the old or the new limit all the time. The containers share 50 pods, since the
// node has no memory for the shims of 250. It runs in make proof only.
//
//e2e:proof
func TestReloadFigures(t *testing.T) {
	const (
		pods, ofPod = 50, 5
		format      = "classes: {c: {limits: ['* wbps=%dMi']}}\nrules: [{name: all, class: c}]\n"
	)
	value := func(mib int) string { return fmt.Sprintf("wbps=%d", mib<<20) }
	file := lab.PolicyFile(t, fmt.Sprintf(format, 4))
	lab.StartPlugin(t, "--only", "limits", "--policy", file)
	r := &reloaded{T: t}
	for i := range pods {
		pod := lab.RunPod(t, fmt.Sprintf("pod%d", i), nil)
		for j := range ofPod {
			r.containers = append(r.containers, pod.MustRun(lab.Sleeper(fmt.Sprintf("c%d", j))))
		}
	}
	if n := r.have(value(4), ""); n != len(r.containers) {
		t.Fatalf("%d of %d containers have their limit, first without: %s", n, len(r.containers), r.wrong[0])
	}
	before := 4
	var took []string
	for _, mib := range []int{8, 2, 6, 3, 4} {
		lab.WritePolicy(t, file, fmt.Sprintf(format, mib))
		var first, last time.Time
		lab.Within(t, lab.Deadline, "all have the new limit", func() error {
			n := r.have(value(mib), value(before))
			if n > 0 && first.IsZero() {
				first = time.Now()
			}
			if n < len(r.containers) {
				return fmt.Errorf("%d of %d have it, %d times a wrong one: %s", n, len(r.containers), len(r.wrong), strings.Join(r.wrong[:min(1, len(r.wrong))], ""))
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
	t.Logf("%d containers: %s from the first new limit to the last", len(r.containers), strings.Join(took, ", "))
}
