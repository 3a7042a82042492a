package writeback

import (
	"encoding/json"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/nri-blkio/nri-blkio/test/e2e/cri"
	"github.com/nri-blkio/nri-blkio/test/e2e/lab"
)

// In each scenario the writer of a file and the cgroup that its writeback is charged to differ in another way. Each runs with some
// of the plugin's measures disabled, one run after another on one node, so that the figures can be compared. test/suite takes the
// lines that begin with rowMark into docs/reference/scenarios-KERNEL.md.
const (
	noParts  = "nothing"
	allParts = "all"
	rowMark  = "scenario-row "
	// limit is that of the limited container, a. Where a changed limit or
	// another limited container is played, that is raised.
	limit, raised = 2 * lab.MiB, 4 * lab.MiB
	// drainDeadline is more than anything queued here takes at a limit.
	drainDeadline = 40 * time.Second
)

// parts are combinations of measures, as a policy, and a volume. A proof runs all scenarios with each
// of them. "make test" runs only those with all measures: without a measure nothing is promised. What the parts
// without a row show is a sentence each in docs/reference/scenarios.md.
var parts = []part{
	{noParts, allOff, "ext4", true},
	{noParts + ", XFS", allOff, "xfs", false},
	{noParts + ", btrfs", allOff, "btrfs", false},
	{"backstop", "writeback: {backstop: true, handOver: false, repair: false}\n", "ext4", false},
	{"backstop and hand-over", "writeback: {repair: false}\n", "ext4", false},
	{allParts, allOn, "ext4", true},
	{allParts + ", XFS", allOn, "xfs", true},
	{allParts + ", btrfs", allOn, "btrfs", true},
	{allParts + ", btrfs over two disks", allOn, twoDisks, false},
	{allParts + ", LVM", allOn, "LVM", false},
	{allParts + ", dm-crypt", allOn, "dm-crypt", false},
}

const (
	allOn  = "" // the default
	allOff = "writeback: {backstop: false, handOver: false, repair: false}\n"
)

type part struct {
	name, policy string
	volume       string // of volumeOf
	hasRow       bool   // on the page
}

// scenario plays on a volume at /data, with one of another disk at /other. Only a proof plays one
// that is neither beside others nor alone.
type scenario struct {
	name string
	play func(s *stage)
	// beside are the volumes on which "make test" plays it while others are played on the other
	// volumes.
	beside []string
	// alone is true if "make test" plays it on ext4 with nothing beside it: it stops the plugin or
	// the volume, or waits until nothing on the node is dirty.
	alone bool
	// once is true if the scenario runs on ext4 only, because it is not about the owners of files.
	once bool
}

// stage has the plugin and the volume of a scenario, and its result.
type stage struct {
	*testing.T
	plugin   *lab.Instance
	shared   *shared
	parts    string
	volume   volume
	duration time.Duration // of the measurement
	result
}

// result is a row. Ratios are 0 if they were not measured.
type result struct {
	limited float64       // rate of the limited writer, divided by its limit
	free    float64       // rate of the unlimited writer, divided by its rate without another writer
	pod     float64       // rate of the pod, divided by the limits of its containers
	drained time.Duration // time until the queued data was on the disk; 0: nothing was queued
	extra   string        // bytes on the disk in excess of those of the programs, in percent of the latter
	moved   moved
	note    string
}

// TestScenarios verifies the limits that the project promises, and prints a row for each scenario.
func TestScenarios(t *testing.T) {
	if !*lab.Proof {
		playSome(t)
		return
	}
	for i := range parts {
		p := &parts[i]
		t.Run(p.name, func(t *testing.T) {
			on := volumeOf(t, p.volume)
			plugin := lab.StartPlugin(t, "--policy", lab.PolicyFile(t, p.policy))
			p.plays(t, plugin, on, func(sc *scenario) bool { return !sc.once || p.volume == "ext4" })
		})
	}
}

// playSome plays some scenarios with everything on: first on all volumes at the same time, and
// then those that need the node for themselves. The last one has the runtime give up the plugin.
func playSome(t *testing.T) {
	on := map[string]volume{}
	var beside []*part
	for i := range parts {
		p := &parts[i]
		isPlayed := slices.ContainsFunc(scenarios, func(sc scenario) bool { return slices.Contains(sc.beside, p.volume) })
		if p.policy == allOn && isPlayed {
			beside = append(beside, p)
			on[p.volume] = volumeOf(t, p.volume)
		}
	}
	plugin := lab.StartPlugin(t, "--policy", lab.PolicyFile(t, allOn))
	t.Run("beside others", func(t *testing.T) {
		for _, p := range beside {
			t.Run(p.name, func(t *testing.T) {
				t.Parallel()
				p.plays(t, plugin, on[p.volume], func(sc *scenario) bool { return slices.Contains(sc.beside, p.volume) })
			})
		}
	})
	alone := part{allParts, allOn, "ext4", true}
	t.Run("alone", func(t *testing.T) {
		alone.plays(t, plugin, volumeOf(t, alone.volume), func(sc *scenario) bool { return sc.alone })
	})
}

// plays plays the scenarios that are chosen, one after another.
func (p *part) plays(t *testing.T, plugin *lab.Instance, on volume, chosen func(sc *scenario) bool) {
	pods := &shared{t: t, volume: on, casts: map[string]*cast{}, itself: map[string]itself{}}
	for _, sc := range scenarios {
		if !chosen(&sc) {
			continue
		}
		t.Run(sc.name, func(t *testing.T) {
			s := &stage{T: t, plugin: plugin, shared: pods, parts: p.name, volume: on, duration: *lab.ScenarioTime}
			sc.play(s)
			s.promised()
			// Printed at once, because a later scenario may fail.
			if p.hasRow {
				fmt.Println(rowMark + s.row(sc.name))
			}
		})
	}
}

// promised fails the test for a pod that exceeds the sum of its limits in spite of the backstop. The
// tolerance is larger for a short measurement, in which a burst counts for more.
func (s *stage) promised() {
	tolerated := 1.1
	if s.duration >= time.Minute {
		tolerated = 1.05
	}
	if !strings.HasPrefix(s.parts, noParts) && s.pod > tolerated {
		s.Errorf("the pod wrote at %.2f times its limits, want at most %.2f", s.pod, tolerated)
	}
}

func ratio(f float64) string {
	if f == 0 {
		return ""
	}
	return fmt.Sprintf("%.2f", f)
}

func seconds(d time.Duration) string { return fmt.Sprint(d.Seconds()) }

func (s *stage) row(name string) string {
	var results []string
	for _, r := range []struct {
		of   string
		rate float64
	}{{"limited", s.limited}, {"unlimited", s.free}, {"pod", s.pod}} {
		if r.rate != 0 {
			results = append(results, r.of+" "+ratio(r.rate))
		}
	}
	switch {
	case s.drained >= drainDeadline:
		results = append(results, fmt.Sprintf("drained in over %.0f s", drainDeadline.Seconds()))
	case s.drained > 0:
		results = append(results, fmt.Sprintf("drained in %.1f s", s.drained.Seconds()))
	}
	if s.note != "" {
		results = append(results, s.note)
	}
	cells := []string{name, s.parts, strings.Join(results, ", "), s.moved.String(), s.extra}
	return "| " + strings.Join(cells, " | ") + " |"
}

// due returns the bytes per second that a limit allows on the volume: the limit holds for each disk, and
// RAID 0 writes to all of them at once.
func (s *stage) due(limit int) float64 { return float64(limit * len(s.volume.disks)) }

// file is a new file of the scenario, by its path in a container.
func (s *stage) file(name string) string {
	s.Helper()
	host := filepath.Join(s.volume.dir, strings.NewReplacer("/", "_", " ", "_", ",", "").Replace(s.Name())+"_"+name)
	// To remove it drops what is queued.
	s.Cleanup(func() { os.RemoveAll(host) })
	return "/data/" + filepath.Base(host)
}

// pods and containers

// actor is a container that programs run in.
type actor struct {
	*cri.Container
	s *stage
}

// cast is a pod with containers.
type cast struct {
	pod        lab.PodOf
	containers map[string]*cri.Container
}

// shared are the pods that several scenarios play with, one after another: to run
// one takes longer than most of these.
type shared struct {
	t      *testing.T // that the pods end with
	volume volume
	casts  map[string]*cast
	itself map[string]itself // see byItself
}

// usual is the shared pod of this name, with the containers a and b.
func (s *stage) usual(name string, limited lab.Annotations) (lab.PodOf, map[string]actor) {
	s.Helper()
	c := s.shared.casts[name]
	if c == nil {
		c = newCast(s.shared.t, s.volume, name, limited, "a", "b")
		s.shared.casts[name] = c
	}
	return c.pod.By(s.T), s.actors(c)
}

// cast is a pod of the scenario's own with these containers. Of the annotations
// the scope is left out.
func (s *stage) cast(name string, limited lab.Annotations, names ...string) (lab.PodOf, map[string]actor) {
	s.Helper()
	c := newCast(s.T, s.volume, name, limited, names...)
	return c.pod, s.actors(c)
}

func newCast(t *testing.T, on volume, name string, limited lab.Annotations, names ...string) *cast {
	t.Helper()
	a := lab.Annotations{}
	for scope, value := range limited {
		a[lab.Limits+scope] = value
	}
	c := &cast{lab.RunPod(t, name, a), map[string]*cri.Container{}}
	for _, n := range names {
		c.containers[n] = c.pod.MustRun(stageContainer(n, on))
	}
	return c
}

func stageContainer(name string, on volume) cri.ContainerConfig {
	return cri.ContainerConfig{
		Name: name, Args: []string{"sleep"},
		Mounts: []cri.Mount{{Path: "/data", Host: on.dir}, {Path: "/other", Host: on.other()}},
	}
}

func (s *stage) actors(c *cast) map[string]actor {
	out := map[string]actor{}
	for n, k := range c.containers {
		out[n] = actor{k, s}
	}
	return out
}

func (s *stage) enter(pod lab.PodOf, name string) actor {
	s.Helper()
	return actor{pod.MustRun(stageContainer(name, s.volume)), s}
}

// does runs iotool in the container until it ends.
func (a actor) does(args ...string) lab.IOReport {
	a.s.Helper()
	out, err := a.Exec(a.s.Context(), 3*a.s.duration+4*time.Minute, append([]string{"/bin/iotool"}, args...)...)
	if err != nil {
		a.s.Fatal(err)
	}
	var r lab.IOReport
	if err := json.Unmarshal([]byte(out), &r); err != nil {
		a.s.Fatalf("output of iotool %q: %v", out, err)
	}
	return r
}

// makes writes a file and has it on the disk.
func (a actor) makes(file, size string) {
	a.s.Helper()
	a.does("write", "--path", file, "--size", size, "--fsync")
}

// writes is a writer that has each MiB on the disk before the next.
func (a actor) writes(file string, args ...string) lab.IOReport {
	a.s.Helper()
	args = append([]string{"write", "--path", file, "--sync", "1Mi", "--fsync", "--seconds", seconds(a.s.duration)}, args...)
	return a.does(args...)
}

// alone returns the rate of an unlimited writer without another writer.
func (a actor) alone() float64 {
	a.s.Helper()
	file := a.s.file("alone")
	a.makes(file, "16Mi")
	return a.does("write", "--path", file, "--sync", "1Mi", "--span", "16Mi", "--seconds", "2").Rate()
}

// measuring

// account has the bytes that cgroups have written so far.
type account struct {
	s     *stage
	pod   string
	of    map[string]string // cgroups
	start int64
	began time.Time
	film  *film // nil: nothing is to be moved
}

// count begins to count what is charged to a pod.
func (s *stage) count(pod lab.PodOf, actors map[string]actor, names ...string) *account {
	s.Helper()
	a := &account{s: s, pod: pod.Cgroup, of: map[string]string{}, start: s.written(pod.Cgroup), began: time.Now()}
	for _, n := range names {
		a.of[n] = actors[n].Cgroup
	}
	return a
}

func (s *stage) written(dir string) int64 {
	s.Helper()
	n, err := s.volume.written(dir)
	if err != nil {
		s.Fatal(err)
	}
	return n
}

// done sets the pod's rate and the bytes beyond those of its programs. granted is the sum of the
// containers' limits, 0 if one has none. wrote is the number of bytes that the programs
// wrote and synced, 0 if some of them are not the pod's.
func (a *account) done(granted float64, wrote int64) {
	a.s.Helper()
	if a.film != nil {
		a.s.moved = a.film.end()
	}
	whole, took := a.s.written(a.pod)-a.start, time.Since(a.began)
	if wrote > 0 {
		a.s.extra = fmt.Sprintf("%.1f", 100*(float64(whole)/float64(wrote)-1))
	}
	if granted > 0 {
		a.s.pod = float64(whole) / took.Seconds() / granted
	}
}

// drains waits until all queued data is on the disk, or until drainDeadline.
func (s *stage) drains(since time.Time) {
	s.Helper()
	for {
		left, err := lab.Pending()
		if err != nil {
			s.Fatal(err)
		}
		s.drained = time.Since(since)
		if left < lab.MiB || s.drained >= drainDeadline {
			return
		}
		time.Sleep(50 * time.Millisecond)
	}
}
