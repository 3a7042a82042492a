package limits

import (
	"flag"
	"fmt"
	"math/rand/v2"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/nri-blkio/nri-blkio/test/e2e/cri"
	"github.com/nri-blkio/nri-blkio/test/e2e/lab"
)

var whySeed = flag.Uint64("why-seed", 0, "the `seed` of TestWhyTrials; 0: a random one")

// stage has the pods of all trials: a victim of two containers, and two neighbours. Their limits and weights are set without the plugin,
// so that a trial takes seconds.
type stage struct {
	victim        lab.PodOf
	victims       [2]*cri.Container
	pods          [2]lab.PodOf
	neighbours    [2]*cri.Container
	system        lab.Writer // outside of pods
	dirs, numbers map[string]string
}

func newStage(t *testing.T) *stage {
	t.Helper()
	s := &stage{
		victim: lab.RunPod(t, "victim", nil), system: lab.NewWriter(t, "system"), numbers: map[string]string{},
		dirs: map[string]string{"vdb": lab.Volumes["ext4"], "vdc": lab.Volumes["part"], "vdd": lab.Volumes["xfs"]},
	}
	for i := range 2 {
		s.victims[i] = s.victim.MustRun(lab.Sleeper(fmt.Sprintf("c%d", i)))
		s.pods[i] = lab.RunPod(t, fmt.Sprintf("neighbour%d", i), nil)
		s.neighbours[i] = s.pods[i].MustRun(lab.Sleeper("c"))
	}
	lab.Administer(t, "mkfs.ext4", "-q", "-F", "/dev/"+journalDisk)
	for _, disk := range append(slowDisks[:2:2], journalDisk) {
		lab.Know(t, disk)
		dir := t.TempDir()
		s.dirs[disk] = dir
		options := "defaults"
		if disk == journalDisk {
			options = "dioread_lock"
		}
		lab.Administer(t, "mount", "-o", options, "/dev/"+disk, dir)
		t.Cleanup(func() { lab.Administer(t, "umount", dir) })
	}
	for disk, dir := range s.dirs {
		s.numbers[disk] = lab.Node.Disks[disk]
		s.dirs[disk] = dir + "/trials"
		lab.MustMkdir(t, s.dirs[disk])
		t.Cleanup(func() { lab.Administer(t, "rm", "-r", s.dirs[disk]) })
		lab.Administer(t, "dd", "status=none", "if=/dev/zero", "of="+s.dirs[disk]+"/"+readFile, "bs=1M", "count=64", "oflag=direct")
	}
	return s
}

// score counts the trials of a cause.
type score struct {
	alone, first, beside, among int
	instead                     map[string]int
}

// TestWhyTrials injects causes on the node, alone and two at a time, each for a container of its own of one pod and on a disk of its own, and
// asks why of the pod. Alone, the first cause of the answer must be the injected one. Of two, the first and the second must be these, in any
// order: both wait all the time, and which has more threads is of no interest. A pod that lacks CPU as well has the other cause first, and
// the part of the time that it waits for a CPU in the line. With nothing injected, only a neighbour is limited. A limit is blamed only where it
// was injected.
//
//e2e:proof
func TestWhyTrials(t *testing.T) {
	seed := *whySeed
	if seed == 0 {
		seed = rand.Uint64()
	}
	t.Logf("-why-seed=%d", seed)
	stage, scores := newStage(t), map[string]*score{}
	var trials [][]*injected
	for i, a := range injectedCauses {
		trials = append(trials, []*injected{a})
		for _, b := range injectedCauses[i+1:] {
			trials = append(trials, []*injected{a, b})
		}
	}
	rand.New(rand.NewPCG(seed, 0)).Shuffle(len(trials), func(i, j int) { trials[i], trials[j] = trials[j], trials[i] })
	run, right := 0, 0
	for i, causes := range trials {
		var names []string
		for _, c := range causes {
			names = append(names, c.name)
		}
		t.Run(fmt.Sprintf("%02d %s", i, strings.Join(names, " and ")), func(t *testing.T) {
			run++
			if stage.trial(t, rand.New(rand.NewPCG(seed, uint64(i+1))), causes, scores) {
				right++
			}
		})
	}
	t.Logf("%d of %d right\n%s", right, run, table(scores))
	if float64(right) < 0.95*float64(run) {
		t.Errorf("%d of %d trials are right, want 95 %%", right, run)
	}
}

// trial makes causes, and asks why. It returns whether the answer is right.
func (s *stage) trial(t *testing.T, random *rand.Rand, causes []*injected, scores map[string]*score) bool {
	used := map[string]bool{}
	var sides []*side
	began := time.Now()
	defer func() {
		end(sides)
		t.Logf("took %v", time.Since(began).Round(time.Second))
	}()
	// One with fewer disks chooses first.
	slices.SortStableFunc(causes, func(a, b *injected) int { return len(a.disks) - len(b.disks) })
	for slot, c := range causes {
		side := &side{T: t, Rand: random, injected: c, stage: s, slot: slot}
		free := slices.DeleteFunc(slices.Clone(c.disks), func(d string) bool { return used[d] })
		if len(free) > 0 {
			side.disk = free[random.IntN(len(free))]
			side.dir, side.number, used[side.disk] = s.dirs[side.disk], s.numbers[side.disk], true
		}
		sides = append(sides, side)
		c.make(side)
	}
	time.Sleep(2 * time.Second)
	got := whyOf(t, "4s", "default/"+s.victim.Name)
	return judge(t, got, sides, scores)
}

// end lifts limits, ends the programs, and writes what they left.
func end(sides []*side) {
	for _, s := range sides {
		for _, end := range s.ends {
			end()
		}
	}
	for _, s := range sides {
		if s.dir != "" {
			lab.Administer(s.T, "sync", "-f", s.dir)
		}
	}
}

func judge(t *testing.T, got answerOf, sides []*side, scores map[string]*score) bool {
	right := true
	for _, s := range sides {
		n := scores[s.name]
		if n == nil {
			n = &score{instead: map[string]int{}}
			scores[s.name] = n
		}
		named := s.isNamed(got, len(sides))
		right = right && named
		switch {
		case len(sides) == 1 && named:
			n.alone, n.first = n.alone+1, n.first+1
		case len(sides) == 1:
			n.alone++
		case named:
			n.beside, n.among = n.beside+1, n.among+1
		default:
			n.beside++
		}
		if !named {
			n.instead[got.Cause]++
		}
	}
	for i := range got.Causes {
		c := &got.Causes[i]
		t.Logf("%3.0f %% %s: %s", 100*c.Part, c.Cause, c.Text)
		if strings.HasSuffix(c.Cause, "-limit") && !slices.ContainsFunc(sides, func(s *side) bool { return s.is != nil && s.is(s, c) }) {
			t.Errorf("a limit is blamed that is not there: %+v", c)
			right = false
		}
	}
	if !right {
		t.Logf("WRONG")
	}
	return right
}

// isNamed reports whether the answer has the cause where it belongs.
func (s *side) isNamed(got answerOf, of int) bool {
	switch {
	case s.is != nil:
		first := got.Causes[:min(of, len(got.Causes))]
		return slices.ContainsFunc(first, func(c namedCause) bool { return s.is(s, &c) })
	case s.name == "none":
		return of > 1 || got.Cause == "nothing-of-disk"
	}
	return strings.Contains(got.Text, "for a CPU") && (of > 1 || got.Cause == "nothing-of-disk")
}

func table(scores map[string]*score) string {
	out := "| injected | alone: right | beside another: right | named instead |\n|---|---|---|---|\n"
	for _, c := range injectedCauses {
		if s := scores[c.name]; s != nil {
			out += fmt.Sprintf("| %s | %d of %d | %d of %d | %v |\n", c.name, s.first, s.alone, s.among, s.beside, s.instead)
		}
	}
	return out
}
