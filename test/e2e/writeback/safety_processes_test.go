package writeback

import (
	"bufio"
	"context"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"maps"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"
	"sync"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"github.com/nri-blkio/nri-blkio/test/e2e/cgroup"
	"github.com/nri-blkio/nri-blkio/test/e2e/lab"
)

// arena is a directory in which two writers with different limits share files that a shaker moves.
type arena struct {
	*testing.T
	fs, disk string
	dir      string // of the shared files
	a, b     lab.Writer
	duration time.Duration
	starting sync.Mutex // held while a process is started, and while cgroups are frozen
}

func newArena(t *testing.T, fs, disk, volume string, duration time.Duration) *arena {
	t.Helper()
	dir, err := os.MkdirTemp(volume, "safety-")
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { os.RemoveAll(dir) })
	number, err := cgroup.Disk(disk)
	if err != nil {
		t.Fatal(err)
	}
	s := &arena{T: t, fs: fs, disk: disk, dir: dir, a: lab.NewWriter(t, fs+"-a"), b: lab.NewWriter(t, fs+"-b"), duration: duration}
	for w, limit := range map[lab.Writer]int{s.a: 8 * lab.MiB, s.b: 32 * lab.MiB} {
		if err := cgroup.Dir(w.Name).SetIOMax(fmt.Sprintf("%s wbps=%d", number, limit)); err != nil {
			t.Fatal(err)
		}
	}
	return s
}

// files returns the files that the arena has now.
func (s *arena) files() []string {
	var out []string
	// Files that are removed meanwhile are left out.
	_ = filepath.WalkDir(s.dir, func(path string, d fs.DirEntry, err error) error {
		if err == nil && d.Type().IsRegular() {
			out = append(out, path)
		}
		return nil
	})
	return out
}

// forget drops the files from the page cache, so that a reader gets what is on the disk.
// Without all caches the node would have to read its programs again as well.
func (s *arena) forget() {
	s.Helper()
	lab.Administer(s.T, "sync", "-f", s.dir)
	for _, file := range s.files() {
		f, err := os.Open(file)
		if err != nil {
			s.Fatal(err)
		}
		err = unix.Fadvise(int(f.Fd()), 0, 0, unix.FADV_DONTNEED)
		f.Close()
		if err != nil {
			s.Fatal(err)
		}
	}
}

// shake begins to shake the arena's files.
func (s *arena) shake() *shaker {
	s.Helper()
	return shake(s.T, s.fs, s.dir, s.files, s.a.Name, s.b.Name)
}

// process is a program in a cgroup.
type process struct {
	*exec.Cmd
	s   *arena
	out lab.LogBuffer
}

// prepare returns a process that is killed if it runs longer than the case and its deadlines.
func (s *arena) prepare(command ...string) *process {
	s.Helper()
	ctx, cancel := context.WithTimeout(context.Background(), s.duration+2*lab.Deadline)
	p := &process{Cmd: exec.CommandContext(ctx, command[0], command[1:]...), s: s}
	p.Stdout, p.Stderr = &p.out, &p.out
	p.SysProcAttr = &unix.SysProcAttr{}
	s.Cleanup(func() {
		cancel()
		if p.Process != nil && p.ProcessState == nil {
			_ = p.Wait() // killed
		}
	})
	return p
}

// pipes returns the standard input and output of a process that is not started yet.
func (p *process) pipes() (stdin io.WriteCloser, stdout io.Reader) {
	p.s.Helper()
	stdin, err := p.StdinPipe()
	if err != nil {
		p.s.Fatal(err)
	}
	p.Stdout = nil
	stdout, err = p.StdoutPipe()
	if err != nil {
		p.s.Fatal(err)
	}
	return stdin, stdout
}

// startIn starts the process in a cgroup. It holds the mutex so that the cgroup is not frozen
// between vfork and exec: this program, which has to thaw the cgroup, would wait for the exec.
func (p *process) startIn(w lab.Writer) *process {
	p.s.Helper()
	dir, err := os.Open(filepath.Join(cgroup.Root, w.Name))
	if err != nil {
		p.s.Fatal(err)
	}
	defer dir.Close()
	p.s.starting.Lock()
	defer p.s.starting.Unlock()
	p.s.setFrozen(w.Name, false)
	p.SysProcAttr.UseCgroupFD, p.SysProcAttr.CgroupFD = true, int(dir.Fd())
	if err := p.Start(); err != nil {
		p.s.Fatal(err)
	}
	return p
}

// ends waits for the end of the process and returns its output. It fails the test on an error.
func (p *process) ends() string {
	p.s.Helper()
	if err := p.Wait(); err != nil {
		p.s.Fatalf("%s: %v: %s", strings.Join(p.Args, " "), err, p.out.String())
	}
	return p.out.String()
}

// turn is long enough for a writer to win the votes and for the kernel to move a file.
const turn = 250 * time.Millisecond

// repeat calls each once per turn, with the number of the turn, until stop is called.
func (s *arena) repeat(each func(i int)) (stop func()) {
	quit := make(chan struct{})
	var done sync.WaitGroup
	done.Go(func() {
		for i := 0; ; i++ {
			each(i)
			select {
			case <-quit:
				return
			case <-time.After(turn):
			}
		}
	})
	stop = sync.OnceFunc(func() { close(quit); done.Wait() })
	s.Cleanup(stop)
	return stop
}

func (s *arena) setFrozen(c string, frozen bool) {
	value := "0"
	if frozen {
		value = "1"
	}
	err := os.WriteFile(filepath.Join(cgroup.Root, c, "cgroup.freeze"), []byte(value), 0)
	if err != nil && !errors.Is(err, os.ErrNotExist) {
		s.Error(err)
	}
}

// takeTurns freezes two cgroups in turn, so that each of them wins the votes in turn.
func (s *arena) takeTurns(cgroups ...string) (stop func()) {
	end := s.repeat(func(i int) {
		s.starting.Lock()
		defer s.starting.Unlock()
		s.setFrozen(cgroups[i%2], false)
		s.setFrozen(cgroups[(i+1)%2], true)
	})
	stop = sync.OnceFunc(func() {
		end()
		for _, c := range cgroups {
			s.setFrozen(c, false)
		}
	})
	s.Cleanup(stop)
	return stop
}

// wanders moves a process between two cgroups. Its writes are charged to the cgroup that it is in.
func (s *arena) wanders(p *process, first, second lab.Writer) (stop func()) {
	return s.repeat(func(i int) {
		to := []string{second.Name, first.Name}[i%2]
		err := os.WriteFile(filepath.Join(cgroup.Root, to, "cgroup.procs"), []byte(strconv.Itoa(p.Process.Pid)), 0)
		if err != nil && !errors.Is(err, unix.ESRCH) {
			s.Error(err)
		}
	})
}

// churning has the arguments of a churner; see churn.
type churning struct {
	size, ballast    int
	without, another string
	// before is called once the churner has its memory, while it is in its first cgroup.
	before func()
}

// churns runs a churner on a file. The churner moves between two cgroups.
func (s *arena) churns(name string, first, second lab.Writer, c churning) (ends func() string) {
	s.Helper()
	p := s.prepare("/proc/self/exe", churnCommand, filepath.Join(s.dir, name), strconv.Itoa(c.size), strconv.Itoa(c.ballast), c.without, c.another)
	stdin, stdout := p.pipes()
	p.startIn(first)
	lines := bufio.NewReader(stdout)
	if line, err := lines.ReadString('\n'); line != "ready\n" {
		s.Fatalf("%q, %v: %s", line, err, p.out.String())
	}
	if c.before != nil {
		c.before()
	}
	if _, err := fmt.Fprintln(stdin); err != nil {
		s.Fatal(err)
	}
	stop := s.wanders(p, first, second)
	return func() string {
		s.Helper()
		stdin.Close()
		did, _ := lines.ReadString('\n') // none if it fails
		stop()
		p.ends()
		return strings.TrimSpace(did)
	}
}

// few returns the least number of switches that a case needs. It is far less than the usual
// number, which depends on the machine.
func (s *arena) few() int { return max(3, int(s.duration/(3*time.Second))) }

// lacks returns what a case still needs to show something.
func (s *arena) lacks(k *shaker) error {
	if moves, writers := int(k.moves.Load()), k.writers.Load(); writers < 2 || moves < s.few() {
		return fmt.Errorf("files moved %d times to %d writers, want %d times to both", moves, writers, s.few())
	}
	return nil
}

// enough waits for the duration of a case, and longer until the files have moved often enough.
func (s *arena) enough(k *shaker) {
	s.Helper()
	time.Sleep(s.duration)
	lab.Eventually(s.T, "the files have moved between the writers", func() error { return s.lacks(k) })
}

// rounds is enough for a load that ends by itself: rounds starts it again.
func (s *arena) rounds(k *shaker, play func()) {
	s.Helper()
	for began := time.Now(); ; {
		play()
		took := time.Since(began)
		if took >= s.duration && s.lacks(k) == nil || took >= s.duration+lab.Deadline {
			return
		}
	}
}

// moved fails the test unless files moved between both writers often, and without errors.
func (s *arena) moved(k *shaker) {
	s.Helper()
	s.calm(k)
	if err := s.lacks(k); err != nil {
		s.Errorf("the case shows little: %v", err)
	}
}

// calm ends a shaker. It fails the test for each error of the shaker that is not among excused.
func (s *arena) calm(k *shaker, excused ...error) {
	s.Helper()
	got := k.ends()
	s.Log(&got)
	for _, err := range excused {
		maps.DeleteFunc(got.errs, func(text string, _ int) bool { return strings.HasSuffix(text, err.Error()) })
	}
	if len(got.errs) > 0 {
		s.Errorf("the shaker failed to move files: %v", got.errs)
	}
}
