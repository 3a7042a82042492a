package limits

import (
	"errors"
	"fmt"
	"io"
	"io/fs"
	"net/http"
	"os"
	"path/filepath"
	"regexp"
	"strconv"
	"strings"
	"time"

	"github.com/nri-blkio/nri-blkio/test/e2e/cgroup"
	"github.com/nri-blkio/nri-blkio/test/e2e/lab"
)

// soakMetrics is where the plugin serves its metrics.
const soakMetrics = "127.0.0.1:9467"

// footprint has the resources that the plugin uses while there are no pods.
type footprint struct {
	pid         int
	anon        int // KiB of RssAnon
	descriptors []string
	threads     int
	state       []string // files in its state directory
	dying       int      // removed cgroups that the kernel still has, on the whole node
}

func (f footprint) String() string {
	return fmt.Sprintf("process %d: RssAnon %d KiB, %d descriptors, %d threads, state %v; %d removed cgroups on the node",
		f.pid, f.anon, len(f.descriptors), f.threads, f.state, f.dying)
}

// podCgroup is the name of a cgroup of a test's pod, of a container, or of the plugin.
var podCgroup = regexp.MustCompile(`pod[0-9a-f]{16}[-_]e2e|[0-9a-f]{64}|nri-blkio`)

// atRest waits until nothing of the pods is left, and returns the resources that the plugin uses then.
func (s *soak) atRest() footprint {
	s.Helper()
	lab.Eventually(s.T, "no cgroup is left", func() error {
		left, err := podCgroups()
		if err == nil && len(left) > 0 {
			err = fmt.Errorf("cgroups of pods are left: %v", left)
		}
		return err
	})
	pid := s.p.Cmd.Process.Pid
	lab.Eventually(s.T, "the plugin knows no pod and has no child process", func() error {
		pods, err := scrape("nri_blkio_pods")
		if err == nil && pods > 0 {
			err = fmt.Errorf("%v pods", pods)
		}
		return errors.Join(err, noChildren(pid))
	})
	if s.pods >= soakComparable {
		// The garbage collector runs at least every two minutes, and then returns free memory.
		time.Sleep(150 * time.Second)
	}
	return s.footprint(pid)
}

// soakComparable is the number of pods from which memory is compared. A process allocates what it needs during
// its first 200 pods.
const soakComparable = 500

func (s *soak) footprint(pid int) footprint {
	s.Helper()
	proc := filepath.Join("/proc", strconv.Itoa(pid))
	status, err1 := os.ReadFile(filepath.Join(proc, "status"))
	stat, err2 := os.ReadFile(filepath.Join(cgroup.Root, "cgroup.stat"))
	if err := errors.Join(err1, err2); err != nil {
		s.Fatal(err)
	}
	f := footprint{pid: pid, state: names("/run/nri-blkio")}
	f.anon = number(string(status), "RssAnon:")
	f.threads = number(string(status), "Threads:")
	f.dying = number(string(stat), "nr_dying_descendants")
	for _, fd := range names(filepath.Join(proc, "fd")) {
		to, err := os.Readlink(filepath.Join(proc, "fd", fd))
		if err == nil { // an error means that it was closed meanwhile
			f.descriptors = append(f.descriptors, to)
		}
	}
	s.Log(f)
	return f
}

// number is the one after a word.
func number(text, word string) int {
	_, rest, _ := strings.Cut(text, word)
	n := 0
	_, _ = fmt.Sscan(rest, &n)
	return n
}

func names(dir string) []string {
	entries, _ := os.ReadDir(dir)
	var out []string
	for _, e := range entries {
		out = append(out, e.Name())
	}
	return out
}

// podCgroups are the cgroups of pods, of containers and of the plugin.
func podCgroups() ([]string, error) {
	var found []string
	err := filepath.WalkDir(cgroup.Root, func(path string, entry fs.DirEntry, err error) error {
		switch {
		case errors.Is(err, os.ErrNotExist):
			return nil // it has just gone
		case err == nil && entry.IsDir() && podCgroup.MatchString(entry.Name()):
			found = append(found, path)
		}
		return err
	})
	return found, err
}

// noChildren is an error if a process has children.
func noChildren(pid int) error {
	lists, err := filepath.Glob(fmt.Sprintf("/proc/%d/task/*/children", pid))
	if err != nil {
		return err
	}
	for _, list := range lists {
		if data, err := os.ReadFile(list); err == nil && len(data) > 0 {
			return fmt.Errorf("process %d has the children %s", pid, data)
		}
	}
	return nil
}

// scrape reads a metric without labels.
func scrape(name string) (float64, error) {
	client := http.Client{Timeout: 10 * time.Second}
	answer, err := client.Get("http://" + soakMetrics + "/metrics")
	if err != nil {
		return 0, err
	}
	defer answer.Body.Close()
	text, err := io.ReadAll(answer.Body)
	if err != nil {
		return 0, err
	}
	for line := range strings.Lines(string(text)) {
		if value, ok := strings.CutPrefix(line, name+" "); ok {
			return strconv.ParseFloat(strings.TrimSpace(value), 64)
		}
	}
	return 0, fmt.Errorf("no metric %s", name)
}

// compare checks that the plugin takes no more after further pods than before.
func (s *soak) compare(before, after footprint) {
	s.Helper()
	if before.pid != after.pid {
		s.Fatalf("the plugin was restarted: its process was %d and is %d", before.pid, after.pid)
	}
	if s.pods >= soakComparable && float64(after.anon) > 1.1*float64(before.anon) {
		s.Errorf("RssAnon has grown from %d to %d KiB", before.anon, after.anon)
	}
	if len(after.descriptors) > len(before.descriptors) {
		s.Errorf("the plugin has more descriptors than before: they were\n%v\nand are\n%v", before.descriptors, after.descriptors)
	}
	if len(after.state) > len(before.state) {
		s.Errorf("its state directory had %v and has %v", before.state, after.state)
	}
}

// goroutineCreator is the function that started a goroutine, in what SIGQUIT prints.
var goroutineCreator = regexp.MustCompile(`(?m)^created by (\S+)`)

// compareGoroutines compares what two processes have printed at their ends, both at rest:
// the first after fewer pods than the second.
func (s *soak) compareGoroutines(first, second *lab.Instance) {
	s.Helper()
	count := func(p *lab.Instance) (map[string]int, int) {
		byCreator, all := map[string]int{}, 0
		for _, found := range goroutineCreator.FindAllStringSubmatch(p.Log.String(), -1) {
			byCreator[found[1]]++
			all++
		}
		return byCreator, all
	}
	before, n := count(first)
	after, m := count(second)
	s.Logf("%d goroutines, and %d in the other process", n, m)
	if n == 0 {
		s.Error("the plugin printed no goroutine at its end: the test cannot compare them")
	}
	for creator, n := range after {
		if n > before[creator] {
			s.Logf("%d goroutines of %s, were %d", n, creator, before[creator])
		}
	}
	if m > n+soakGoroutines {
		s.Errorf("%d goroutines after %d pods, %d after fewer: some were not ended", m, s.pods, n)
	}
}

// soakGoroutines may be more for a moment: a timer that fires, a read that ends.
const soakGoroutines = 3

// noProcess checks that no process of the plugin is left.
func (s *soak) noProcess() {
	s.Helper()
	lab.Eventually(s.T, "no process of the plugin is left", func() error {
		comms, err := filepath.Glob("/proc/[0-9]*/comm")
		if err != nil {
			return err
		}
		for _, file := range comms {
			if name, _ := os.ReadFile(file); strings.TrimSpace(string(name)) == "nri-blkio" {
				return fmt.Errorf("%s is", filepath.Dir(file))
			}
		}
		return nil
	})
}

// report prints what happened.
func (s *soak) report(before, after footprint) {
	s.Helper()
	s.Logf("%d pods, %d containers; disturbances: %v", s.ran.Load(), s.containers.Load(), s.disturbed)
	s.Logf("%d containers refused, %d created though invalid while the plugin was away", s.refused.Load(), s.uncalled.Load())
	s.Logf("%d containers began without limits while the plugin was away, limited at most %v after its return",
		s.without.Load(), s.latest.Round(10*time.Millisecond))
	s.Logf("%d times a pod was interrupted by a restart of the runtime", s.again.Load())
	s.Logf("before: %v", before)
	s.Logf("after: %v", after)
}
