package repair

import (
	"errors"
	"io/fs"
	"math/rand/v2"
	"sync"

	"github.com/nri-blkio/nri-blkio/blkio/writeback"
	"github.com/nri-blkio/nri-blkio/plugin/recovery"
)

// mappings pages files out of the processes that have mapped them. A mapped page stays in
// the page cache with its charge.
type mappings struct {
	cgroups Cgroups
	proc    string // where the host's procfs is
	process func(proc string, pid int, in writeback.Inode, from, to int64, limit int) (read int, err error)
	// recovery recovers from panics beside passes. It may be nil.
	recovery *recovery.Recovery

	mu sync.Mutex // guards all below
	// busy are the cgroups whose processes are being read, and byAccount counts them by
	// account. A process can make the reader of its mappings wait for ever, but then it
	// waits itself.
	busy      map[string]bool
	byAccount map[account]int
	err       error // of the last access to mappings, unless that was an access to a single process
}

const (
	// maxMappers is the number of processes of a container that are read for one file,
	// in random order.
	maxMappers = 64
	// maxReaders is how many cgroups of an account are read at a time, maxAllReaders how many
	// of all accounts together. Each can hold a thread for ever.
	maxReaders, maxAllReaders = 8, 128
	// maxMaps bytes of the lists of mappings are read for one file.
	maxMaps = 4 << 20
)

func newMappings(cgroups Cgroups, proc string) *mappings {
	return &mappings{cgroups: cgroups, proc: proc, process: writeback.PageOut, busy: map[string]bool{}, byAccount: map[account]int{}}
}

// pageOut pages a part of a file out of the processes of these cgroups, see
// [writeback.PageOut]. It does not wait.
func (m *mappings) pageOut(a account, in writeback.Inode, cgroups []string, from, to int64) {
	for _, c := range cgroups {
		if m.enter(a, c) {
			go func() {
				var err error
				defer func() { m.exit(a, c, err) }()
				m.recovery.Step("page files out of processes", func() { err = m.pageOutOf(in, c, from, to) })
			}()
		}
	}
}

// enter notes that the processes of a cgroup are read, and reports whether they may be.
func (m *mappings) enter(a account, cgroup string) bool {
	m.mu.Lock()
	defer m.mu.Unlock()
	if m.busy[cgroup] || m.byAccount[a] >= maxReaders || len(m.busy) >= maxAllReaders {
		return false
	}
	m.busy[cgroup] = true
	m.byAccount[a]++
	return true
}

// exit notes that they have been read.
func (m *mappings) exit(a account, cgroup string, err error) {
	m.mu.Lock()
	defer m.mu.Unlock()
	delete(m.busy, cgroup)
	if m.byAccount[a]--; m.byAccount[a] <= 0 {
		delete(m.byAccount, a)
	}
	m.err = err
}

// access returns the error of the last access to mappings.
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

// pageCache opens the filesystems that passes go over, see kernelCache. In tests it is a
// model of the kernel's.
type pageCache interface {
	Open(mountpoint, fstype string) (mount, error)
	Close()
}

// mount is an open filesystem, see writeback.Mount.
type mount interface {
	Open(in writeback.Inode) (openFile, error)
	Close() error
}

// openFile is an open inode, see writeback.File.
type openFile interface {
	Owner() (writeback.Owner, error)
	Path() (below string, ok bool)
	WriteOut(offset, length int64) error
	Drop(offset, length int64) error
	Cached(offset, length int64) (_ writeback.Cached, ok bool)
	Close() error
}

// kernelCache is the page cache of the running kernel.
type kernelCache struct{ *writeback.OwnerReader }

func (k kernelCache) Open(mountpoint, fstype string) (mount, error) {
	m, err := writeback.OpenMount(mountpoint, fstype)
	if err != nil {
		return nil, err
	}
	return kernelMount{m, k.OwnerReader}, nil
}

type kernelMount struct {
	*writeback.Mount
	owners *writeback.OwnerReader
}

func (m kernelMount) Open(in writeback.Inode) (openFile, error) {
	f, err := m.Mount.Open(in)
	if err != nil {
		return nil, err
	}
	return kernelFile{f, m.owners}, nil
}

type kernelFile struct {
	*writeback.File
	owners *writeback.OwnerReader
}

func (f kernelFile) Owner() (writeback.Owner, error) { return f.File.Owner(f.owners) }
