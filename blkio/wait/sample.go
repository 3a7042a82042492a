package wait

import (
	"bytes"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"

	"golang.org/x/sys/unix"
)

// Samples counts threads by what they wait for at a moment, or the sum of many moments.
type Samples struct {
	Threads, Waiting int // all; those that wait uninterruptibly
	// By has those of Waiting whose cause is known. DirtyNode has all that wait for dirty pages: a stack does not
	// tell whether they are those of a cgroup.
	By map[Cause]int

	threads map[string]waiting // those in By, by directory
}

// waiting is a thread that waits: for what, and how often it had run before.
type waiting struct {
	cause Cause
	runs  string
}

// Since returns how many threads have waited for one thing since an earlier sample, without running meanwhile, by cause.
func (s *Samples) Since(earlier *Samples) map[Cause]int {
	out := map[Cause]int{}
	for dir, now := range s.threads {
		if now.runs != "" && now == earlier.threads[dir] {
			out[now.cause]++
		}
	}
	return out
}

// Sample classifies the threads of processes as the programs do: by the outermost of the functions that they attach to. It requires
// CAP_SYS_ADMIN, and CAP_SYS_PTRACE for processes of others. proc is where procfs is mounted. A process or a thread that has ended is
// left out.
func (s *Samples) Sample(proc string, pids []int) error {
	for _, pid := range pids {
		tasks, err := os.ReadDir(filepath.Join(proc, strconv.Itoa(pid), "task"))
		if err != nil && !hasEnded(err) {
			return fmt.Errorf("sample the threads of process %d: %w", pid, err)
		}
		for _, task := range tasks {
			dir := filepath.Join(proc, strconv.Itoa(pid), "task", task.Name())
			if err := s.sampleThread(dir); err != nil && !hasEnded(err) {
				return fmt.Errorf("sample the threads of process %d: %w", pid, err)
			}
		}
	}
	return nil
}

// MaySample returns an error if this process cannot read stacks.
func MaySample(proc string) error {
	if _, err := os.ReadFile(filepath.Join(proc, "thread-self", "stack")); errors.Is(err, fs.ErrPermission) {
		return errNotRoot
	}
	return nil
}

func hasEnded(err error) bool { return errors.Is(err, fs.ErrNotExist) || errors.Is(err, unix.ESRCH) }

func (s *Samples) sampleThread(dir string) error {
	stat, err := os.ReadFile(filepath.Join(dir, "stat"))
	if err != nil {
		return err
	}
	s.Threads++
	if !isUninterruptible(stat) {
		return nil
	}
	stack, err := os.ReadFile(filepath.Join(dir, "stack"))
	if err != nil {
		return err
	}
	s.Waiting++
	if cause, known := classify(string(stack)); known {
		if s.By == nil {
			s.By, s.threads = map[Cause]int{}, map[string]waiting{}
		}
		s.By[cause]++
		status, _ := os.ReadFile(filepath.Join(dir, "status")) // of a thread that has ended: none
		_, runs, _ := strings.Cut(string(status), "\nvoluntary_ctxt_switches:")
		s.threads[dir] = waiting{cause, runs}
	}
	return nil
}

// isUninterruptible parses stat of a thread.
//
//	2177 (dd) D 2176 ...
//
// The name of the program can have any character. Source: do_task_stat in fs/proc/array.c.
func isUninterruptible(stat []byte) bool {
	_, after, _ := bytes.Cut(stat[bytes.LastIndexByte(stat, ')')+1:], []byte(" "))
	return bytes.HasPrefix(after, []byte("D "))
}

// classify parses the stack of a thread. The first line is the innermost function.
//
//	[<0>] jbd2_log_wait_commit+0xe6/0x150 [jbd2]
//	[<0>] ext4_sync_file+0x1ae/0x380 [ext4]
//
// Source: proc_pid_stack in fs/proc/base.c.
func classify(stack string) (Cause, bool) {
	for _, line := range slices.Backward(strings.Split(stack, "\n")) {
		_, function, _ := strings.Cut(line, "] ")
		function, _, _ = strings.Cut(function, "+")
		for i := range hooks {
			if _, isHook := hooks[i].needs[function]; isHook {
				return hooks[i].causes[0], true
			}
		}
	}
	if slices.ContainsFunc(ioWaits, func(f string) bool { return strings.Contains(stack, "] "+f+"+") }) {
		return IO, true
	}
	return 0, false
}

// ioWaits are functions that wait in io_schedule, or in a wrapper of it. A stack does not have io_schedule itself: what is marked
// __sched is left out of it.
//
// Source: in_sched_functions in kernel/sched/core.c.
var ioWaits = []string{"__iomap_dio_rw", "folio_wait_bit_common", "submit_bio_wait", "__blkdev_direct_IO_simple", "__wait_on_buffer"} // constant
