package weights

import (
	"errors"
	"fmt"
	"os"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"github.com/nri-blkio/nri-blkio/test/e2e/cri"
	"github.com/nri-blkio/nri-blkio/test/e2e/lab"
	"github.com/nri-blkio/nri-blkio/test/e2e/noise"
	"github.com/nri-blkio/nri-blkio/test/generated"
)

// The figures of docs/reference/weights-figures.md. They run with a proof only.

// anyWeight lets pods have any weight, and leaves the model to what was calibrated.
const anyWeight = "bounds: {weight: {max: 10000}}\n"

// figureRounds is how often each figure is measured.
const figureRounds = 5

// noisy is a case of TestNoisyNeighbour.
type noisy struct {
	name                       string
	bar                        string // its label in the plot; "" if it is not plotted
	policy                     string // "" without the plugin
	victim, neighbour          lab.Annotations
	victimIsIdle, hasNeighbour bool
	elsewhere                  bool // the neighbour uses another disk
}

// noisyNothing and noisyWeights are the cases that the test compares.
const (
	noisyNothing = 1
	noisyWeights = 3
)

func noisyCases() []noisy {
	heavy, light := lab.Annotations{lab.Weight + "containers": "1000"}, lab.Annotations{lab.Weight + "containers": "10"}
	return []noisy{
		{name: "none", bar: "no neighbour"},
		{name: "no settings", bar: "no settings", hasNeighbour: true},
		{
			name: "limit of 10 MiB/s and 200 reads/s", bar: "limit: 10 MiB/s, 200 reads/s",
			policy: anyWeight, neighbour: lab.Annotations{lab.Limits + "containers": "/data " + noise.Limit}, hasNeighbour: true,
		},
		{name: "weights 1000 : 10, model in the policy", bar: "weights 1000 : 10, model in the policy", policy: noise.Policy, victim: heavy, neighbour: light, hasNeighbour: true},
		{name: "weights 1000 : 10, calibrated", bar: "weights 1000 : 10, calibrated", policy: anyWeight, victim: heavy, neighbour: light, hasNeighbour: true},
		// What is missing here is what the neighbour takes of the node's two emulated processors.
		{name: "neighbour on another disk, 20 MiB/s", policy: anyWeight, neighbour: lab.Annotations{lab.Limits + "containers": "/data wbps=20Mi riops=60"}, hasNeighbour: true, elsewhere: true},
		{name: "no settings, no victim", hasNeighbour: true, victimIsIdle: true},
		{name: "weights, model in the policy, idle victim", policy: noise.Policy, victim: heavy, neighbour: light, hasNeighbour: true, victimIsIdle: true},
		{name: "weights, calibrated, idle victim", policy: anyWeight, victim: heavy, neighbour: light, hasNeighbour: true, victimIsIdle: true},
	}
}

// TestNoisyNeighbour measures a victim that commits and then reads, beside a neighbour with four
// buffered writers and a reader at depth 32.
//
//e2e:proof
func TestNoisyNeighbour(t *testing.T) {
	b := newSlowBench(t, sharedDisk)
	saved := t.TempDir()
	calibrate(t, sharedDisk, "--force", "--write-dir", b.dir, "--save", "--calibration-dir", saved)
	other := b.also(t, "vdb")
	cases := noisyCases()
	rows := make([]generated.Row, len(cases))
	for range figureRounds {
		for i := range cases {
			on := b
			if cases[i].elsewhere {
				on = other
			}
			rows[i].Add(b.noise(t, &cases[i], on, saved))
		}
	}
	for i := range cases {
		rows[i].Bar = cases[i].bar
		publish(t, &rows[i], cases[i].name)
	}
	with, _ := rows[noisyWeights].Figure("reads")
	without, _ := rows[noisyNothing].Figure("reads")
	if with.Median < 2*without.Median {
		t.Errorf("with weights the victim reads %.0f/s, without %.0f/s", with.Median, without.Median)
	}
}

// publish prints what the rounds of a case measured: for the log, and for the table that
// `make table T=weights` writes.
func publish(t *testing.T, r *generated.Row, name string) {
	t.Helper()
	r.Test, r.Name = t.Name(), name
	t.Log(r)
	if err := r.Print(os.Stdout); err != nil {
		t.Error(err)
	}
}

// startFor starts the plugin, and returns what ends it, and io.cost with it.
func (b *slowBench) startFor(t *testing.T, args ...string) (stop func()) {
	t.Helper()
	p := lab.StartPlugin(t, args...)
	return func() {
		p.Signal(t, unix.SIGTERM)
		p.Wait(t)
		b.disableCost()
	}
}

// also returns another disk with the same victim. The victim has a file there as well.
func (b *slowBench) also(t *testing.T, disk string) *slowBench {
	t.Helper()
	other := &slowBench{T: t, dir: t.TempDir(), number: lab.Know(t, disk), victim: b.victim}
	lab.Administer(t, "mount", "/dev/"+disk, other.dir)
	t.Cleanup(func() { lab.Administer(t, "umount", other.dir) })
	for _, at := range []*slowBench{b, other} { // the neighbour reads it
		at.fio("--rw=randread", "--direct=1", "--runtime=1")
	}
	return other
}

// noise measures one case, with the neighbour on a disk: operations per second, milliseconds, MiB
// per second.
func (b *slowBench) noise(t *testing.T, n *noisy, on *slowBench, saved string) map[string]float64 {
	t.Helper()
	if n.policy != "" {
		defer b.startFor(t, "--policy", lab.PolicyFile(t, n.policy), "--calibration-dir", saved)()
	}
	b.pods++
	victim, neighbour := b.holder(fmt.Sprint("victim", b.pods), n.victim), on.holder(fmt.Sprint("noisy", b.pods), n.neighbour)
	defer b.end(victim.pod)
	defer b.end(neighbour.pod)
	if n.victim != nil {
		b.awaitCost(true)
	}
	if n.hasNeighbour {
		stop, err := on.disk().Neighbour(neighbour.Cgroup)
		if err != nil {
			t.Fatal(err)
		}
		defer func() {
			if err := stop(); err != nil {
				t.Error(err)
			}
		}()
		time.Sleep(noise.Settle)
	}
	out := make(map[string]float64)
	rates, err := on.disk().While(neighbour.Cgroup, func() error { return b.phases(t, n, victim.Cgroup, neighbour.Cgroup, out) })
	if err != nil {
		t.Fatal(err)
	}
	if n.hasNeighbour {
		out["wrote"], out["read"], out["both"] = rates.Wrote, rates.Read, rates.Wrote+rates.Read
	}
	return out
}

// phases has the victim commit and then read, and adds to out what it and the neighbour do in each
// phase. An idle victim has one phase.
func (b *slowBench) phases(t *testing.T, n *noisy, victim, neighbour string, out map[string]float64) error {
	if n.victimIsIdle {
		return b.phase(n, "idle", "", neighbour, out, func() error {
			time.Sleep(10 * time.Second)
			return nil
		})
	}
	var commits, reads noise.Result
	err := b.phase(n, "commits", victim, neighbour, out, func() (err error) {
		commits, err = b.disk().Victim(t.Context(), victim, "--rw=randwrite", "--fdatasync=1")
		return err
	})
	readErr := b.phase(n, "reads", victim, neighbour, out, func() (err error) {
		reads, err = b.disk().Victim(t.Context(), victim, noise.Reads()...)
		return err
	})
	out["commits"], out["commit p99"], out["reads"], out["read p99"] = commits.Rate, commits.P99, reads.Rate, reads.P99
	return errors.Join(err, readErr)
}

// phase runs a phase, and adds to out what the neighbour does on the victim's disk meanwhile: MiB
// per second, and the percentage that it uses of what the victim leaves.
func (b *slowBench) phase(n *noisy, name, victim, neighbour string, out map[string]float64, run func() error) error {
	if !n.hasNeighbour || n.elsewhere {
		return run()
	}
	got, err := b.disk().Beside(victim, neighbour, run)
	if err == nil {
		out[name+": wrote"], out[name+": read"], out[name+": part"] = got.Wrote, got.Read, 100*got.Part
	}
	return err
}

// held is a pod with a container that has the disk and does nothing itself. Its memory is limited,
// so that it throttles its own writers: without that the dirty pages of one pod slow down the
// writers of all others, before any of them reaches a disk.
type held struct {
	*cri.Container
	pod lab.PodOf
}

func (b *slowBench) holder(name string, a lab.Annotations) held {
	b.Helper()
	pod := lab.RunPodOf(b.T, name, cri.PodConfig{QoS: cri.Burstable, Annotations: a})
	return held{pod.MustRun(cri.ContainerConfig{Name: "c", Args: []string{"sleep"}, Memory: lab.MemoryLimit, Mounts: []cri.Mount{{Host: b.dir, Path: "/data"}}}), pod}
}
