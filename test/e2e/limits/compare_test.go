package limits

import (
	"encoding/json"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"github.com/nri-blkio/nri-blkio/test/e2e/cri"
	"github.com/nri-blkio/nri-blkio/test/e2e/lab"
	"github.com/nri-blkio/nri-blkio/test/generated"
)

const (
	// compareRounds is how often each situation is measured in each way.
	compareRounds = 3
	// compareWarm is the time in which queues fill, and files move to their writers, before a rate is measured.
	compareWarm = "2"
)

// Files of the same class, for the runtime and for the plugin, with the limit in MiB/s.
const (
	runtimeClass = "Classes:\n  slow:\n  - Devices: [\"/dev/vda\", \"/dev/vdb\"]\n    ThrottleWriteBps: %dMi\n"
	pluginClass  = "classes: {slow: {limits: [\"* wbps=%dMi\"]}}\n"
)

// way is how two containers of a pod, "limited" and "ended", get their limit. The third one, "free", has none.
type way struct {
	name        string // of the column in docs/explanation/comparison.md
	annotations lab.Annotations
	change      func(mib int) // the limit; nil: there is none
	ready       func()        // returns once all is in force for containers that run; nil: at once
}

// comparison has the rows of docs/explanation/comparison.md.
type comparison struct{ rows []generated.Row }

// TestCompare measures the runtime's own blockio class beside a class of the plugin with the same limit, and beside no limit. It
// runs for `make table T=compare` and in make proof only.
//
//e2e:proof
func TestCompare(t *testing.T) {
	c := &comparison{}
	t.Run("nothing", func(t *testing.T) { c.measure(t, way{name: "nothing"}) })
	t.Run("class", func(t *testing.T) {
		const key = "blockio.resources.beta.kubernetes.io/container."
		classes := filepath.Join(t.TempDir(), "blockio.yaml")
		original := lab.ReadConfig(t)
		t.Cleanup(func() { lab.ConfigureRuntime(t, original) })
		configure := func(mib int) {
			lab.WriteFile(t, classes, fmt.Sprintf(runtimeClass, mib))
			lab.ConfigureRuntime(t, withClasses(original, classes)) // it reads the file when it starts
		}
		configure(2)
		c.measure(t, way{"class", lab.Annotations{key + "limited": "slow", key + "ended": "slow"}, configure, nil})
	})
	t.Run("nri-blkio", func(t *testing.T) {
		const key = "class.blkio.noderesource.dev/container."
		policy := lab.PolicyFile(t, fmt.Sprintf(pluginClass, 2))
		p := lab.StartPlugin(t, "--policy", policy)
		reloads := 0
		change := func(mib int) {
			lab.WritePolicy(t, policy, fmt.Sprintf(pluginClass, mib))
			reloads++
			p.Await(t, lab.LogReloaded, reloads)
		}
		ready := func() { lab.AwaitWatched(t, "ext4") } // once a container with a limit uses it
		c.measure(t, way{"nri-blkio", lab.Annotations{key + "limited": "slow", key + "ended": "slow"}, change, ready})
	})
	if t.Failed() {
		return
	}
	for _, row := range c.rows {
		if err := row.Print(os.Stdout); err != nil {
			t.Error(err)
		}
	}
}

// add adds a figure of one round.
func (c *comparison) add(t *testing.T, situation string, w way, value float64) {
	t.Helper()
	at := slices.IndexFunc(c.rows, func(r generated.Row) bool { return r.Name == situation })
	if at < 0 {
		at = len(c.rows)
		c.rows = append(c.rows, generated.Row{Test: "TestCompare", Name: situation})
	}
	t.Logf("%s: %.2f", situation, value)
	c.rows[at].Add(map[string]float64{w.name: value})
}

// measure measures all situations in one way.
func (c *comparison) measure(t *testing.T, w way) {
	pod := lab.RunPod(t, w.name, w.annotations)
	limited := pod.MustRun(lab.Sleeper("limited", "/data", "ext4"))
	free := pod.MustRun(lab.Sleeper("free", "/data", "ext4"))
	if w.ready != nil {
		w.ready()
	}
	own := compared{t, limited, "own"}
	for range compareRounds {
		c.add(t, "direct writes to the node's root disk, MiB/s", w, compared{t, limited, ""}.rate("--direct"))
		c.add(t, "direct writes to a volume on another disk, MiB/s", w, own.rate("--direct"))
		c.add(t, "buffered writes to a file of its own, MiB/s", w, own.rate())
		c.add(t, "buffered writes to a file that a container without a limit made, MiB/s", w, compared{t, limited, "of-free"}.by(free).rate())
		c.add(t, "a container without a limit writes to a file that the limited one made, MiB/s", w, compared{t, free, "of-limited"}.by(limited).rate())
		if w.change != nil {
			w.change(4)
			c.add(t, "direct writes after the class was changed to 4 MiB/s, MiB/s", w, own.rate("--direct"))
			w.change(2)
		}
		c.add(t, "sync of the volume after a container with 32 MiB of unwritten data was removed, s", w, syncAfterEnd(t, pod))
	}
}

// compared is a container that writes to a file of the volume, or if that is "", of its writable layer.
type compared struct {
	*testing.T
	*cri.Container
	file string
}

func (c compared) path() string {
	if c.file == "" {
		return "/compare"
	}
	return "/data/compare-" + c.file
}

// by makes the file anew, by another container.
func (c compared) by(maker *cri.Container) compared {
	c.Helper()
	lab.Administer(c.T, "rm", "-f", filepath.Join(lab.Volumes["ext4"], filepath.Base(c.path())))
	compared{c.T, maker, c.file}.does("--size", "16Mi", "--fsync")
	return c
}

// rate returns the rate of a writer that has each MiB on the disk before it writes the next one, in MiB/s.
func (c compared) rate(how ...string) float64 {
	c.Helper()
	if c.file != "" {
		c.Cleanup(func() { os.Remove(filepath.Join(lab.Volumes["ext4"], filepath.Base(c.path()))) })
	}
	how = append([]string{"--span", "16Mi", "--sync", "1Mi"}, how...)
	c.does(append(how, "--seconds", compareWarm)...)
	return c.does(append(how, "--seconds", "5")...).Rate() / lab.MiB
}

// does runs iotool in the container until it ends.
func (c compared) does(how ...string) (r lab.IOReport) {
	c.Helper()
	out, err := c.Exec(c.Context(), 2*lab.Deadline, append([]string{"/bin/iotool", "write", "--path", c.path()}, how...)...)
	if err == nil {
		err = json.Unmarshal([]byte(out), &r)
	}
	if err != nil {
		c.Fatalf("iotool %s: %v", strings.Join(how, " "), err)
	}
	return r
}

// syncAfterEnd removes a container that has 32 MiB of unwritten data, and returns how many seconds a sync of the volume then takes.
func syncAfterEnd(t *testing.T, pod lab.PodOf) float64 {
	t.Helper()
	k := pod.By(t).MustRun(lab.Sleeper("ended", "/data", "ext4"))
	file := compared{t, k, "ended"}
	file.does("--size", "32Mi")
	defer os.Remove(filepath.Join(lab.Volumes["ext4"], filepath.Base(file.path()))) // the next round has pages of its own
	if err := k.Remove(t.Context()); err != nil {
		t.Fatal(err)
	}
	dir, err := os.Open(lab.Volumes["ext4"])
	if err != nil {
		t.Fatal(err)
	}
	defer dir.Close()
	start := time.Now()
	if err := unix.Syncfs(int(dir.Fd())); err != nil {
		t.Fatal(err)
	}
	return time.Since(start).Seconds()
}
