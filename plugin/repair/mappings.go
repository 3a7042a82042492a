package repair

import (
	"errors"
	"io/fs"
	"math/rand/v2"
	"sync"

	"github.com/nri-blkio/nri-blkio/blkio/writeback"
)

// mappings takes files out of the mappings of who has mapped them. What is mapped
// stays in the page cache with its charge.
type mappings struct {
	cgroups Cgroups
	proc    string // where the host's procfs is
	process func(proc string, pid int, in writeback.Inode, from, to int64, limit int) (read int, err error)

	mu sync.Mutex // guards all below
	// busy are the cgroups whose processes are looked at, and how many of each account
	// are: a process can have who looks at its mappings wait for ever, but then it waits
	// itself.
	busy map[string]bool
	of   map[account]int
	err  error // that there is no access to any
}

const (
	// maxMappers is how many processes of a container are looked at at a time, any
	// of them.
	maxMappers = 64
	// maxLooks are the cgroups of an account that are looked at at a time.
	maxLooks = 8
	// maxMaps bytes of the lists of mappings are read for one file.
	maxMaps = 4 << 20
)

func newMappings(cgroups Cgroups, proc string) *mappings {
	return &mappings{cgroups: cgroups, proc: proc, process: writeback.PageOut, busy: map[string]bool{}, of: map[account]int{}}
}

// pageOut pages a part of a file out of the processes of these cgroups, see
// [writeback.PageOut]. It does not wait.
func (m *mappings) pageOut(a account, in writeback.Inode, cgroups []string, from, to int64) {
	for _, c := range cgroups {
		if m.enter(a, c) {
			go func() {
				var err error
				defer func() { m.exit(a, c, err) }()
				err = m.pageOutOf(in, c, from, to)
			}()
		}
	}
}

// enter reports whether the processes of a cgroup are to be looked at now.
func (m *mappings) enter(a account, cgroup string) bool {
	m.mu.Lock()
	defer m.mu.Unlock()
	if m.busy[cgroup] || m.of[a] >= maxLooks {
		return false
	}
	m.busy[cgroup] = true
	m.of[a]++
	return true
}

// exit notes that they have been.
func (m *mappings) exit(a account, cgroup string, err error) {
	m.mu.Lock()
	defer m.mu.Unlock()
	delete(m.busy, cgroup)
	if m.of[a]--; m.of[a] <= 0 {
		delete(m.of, a)
	}
	m.err = err
}

// access is why mappings cannot be looked at, as of the last time.
func (m *mappings) access() error {
	m.mu.Lock()
	defer m.mu.Unlock()
	return m.err
}

var (
	errOtherPIDs = errors.New("requires the node's PID namespace (hostPID)")
	errNoAccess  = errors.New("requires CAP_SYS_PTRACE and CAP_SYS_NICE")
)

// pageOutOf returns only an error that keeps it from paging out of any process.
func (m *mappings) pageOutOf(in writeback.Inode, cgroup string, from, to int64) error {
	pids, err := m.cgroups.Cgroup(cgroup).Processes()
	if err != nil {
		return nil // it has ended
	}
	rand.Shuffle(len(pids), func(i, j int) { pids[i], pids[j] = pids[j], pids[i] })
	left := maxMaps
	for _, pid := range pids[:min(len(pids), maxMappers)] {
		if left <= 0 {
			return nil
		}
		if pid == 0 {
			return errOtherPIDs
		}
		read, err := m.process(m.proc, pid, in, from, to, left)
		if errors.Is(err, fs.ErrPermission) {
			return errNoAccess
		}
		left -= read
	}
	return nil
}
