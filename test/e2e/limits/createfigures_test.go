package limits

import (
	"context"
	"fmt"
	"testing"
	"time"

	"github.com/nri-blkio/nri-blkio/test/e2e/cri"
	"github.com/nri-blkio/nri-blkio/test/e2e/lab"
	"github.com/nri-blkio/nri-blkio/test/generated"
)

// TestCreateFigures measures how long the runtime takes to create and start a container of a pod with a limit, with the plugin and without.
// Both are measured by turns, since the machine is not the same for long.
//
//e2e:proof
func TestCreateFigures(t *testing.T) {
	const rounds, containers = 5, 20
	var row generated.Row
	for round := range rounds {
		figures := map[string]float64{}
		figures["without"] = createAll(t, fmt.Sprintf("r%d-without", round), containers, lab.Disks{})
		p := lab.StartPlugin(t)
		figures["with"] = createAll(t, fmt.Sprintf("r%d-with", round), containers, raised)
		p.Kill(t)
		figures["ratio"] = figures["with"] / figures["without"]
		row.Add(figures)
	}
	row.Test, row.Name = t.Name(), "create and start, ms"
	t.Log(&row)
}

// createAll returns how many milliseconds it takes to create and start a container, in the mean of some in one pod.
func createAll(t *testing.T, name string, containers int, want lab.Disks) float64 {
	t.Helper()
	pod, err := lab.Node.CRI.RunPod(t.Context(), cri.PodConfig{
		Name: name, UID: name + "-create-e2e", Annotations: lab.Annotations{lab.Limits + "containers": "/data wbps=5Mi"},
	})
	if err != nil {
		t.Fatal(err)
	}
	defer func() {
		if err := pod.Remove(context.Background()); err != nil {
			t.Error(err)
		}
	}()
	began := time.Now()
	var last *cri.Container
	for i := range containers {
		if last, err = pod.Run(t.Context(), lab.Sleeper(fmt.Sprint("c", i), "/data", "ext4")); err != nil {
			t.Fatal(err)
		}
	}
	took := time.Since(began)
	lab.WantIOMax(t, last.Cgroup, want)
	return float64(took.Milliseconds()) / float64(containers)
}
