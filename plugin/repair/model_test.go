package repair

import (
	"fmt"
	"sync"
	"time"

	"github.com/nri-blkio/nri-blkio/blkio"
	"github.com/nri-blkio/nri-blkio/blkio/cgroupfs"
	"github.com/nri-blkio/nri-blkio/blkio/writeback"
)

// modelCache is a page cache in which files behave as the kernel documents. It models which cgroup a page is
// charged to, which cgroup owns a file, and how rounds of writeback change that. The verdict of a round is that
// of [writeback.Votes], which is tested with traces of real kernels.
type modelCache struct {
	mu        sync.Mutex // guards all below, and the files
	files     map[writeback.Inode]*modelFile
	offline   map[uint64]bool // cgroups that were removed: they do not vote
	bandwidth uint64          // pages per second
	noStat    bool            // a kernel without cachestat(2)
	opened    map[string]int  // mountpoints, by how often
	openErr   error
}

// switchDelay is how long the kernel takes to switch an inode (inode_switch_wbs waits for
// a grace period of RCU).
const switchDelay = 20 * time.Millisecond

// modelFile is one inode.
type modelFile struct {
	cache *modelCache
	writeback.Inode
	owner   uint64
	next    uint64 // the owner after the switch that is under way
	at      time.Time
	votes   writeback.Votes
	pages   map[int64]*modelPage
	disk    time.Duration // how long the disk takes for a round
	rounds  int
	written int64 // pages that rounds wrote out
	path    string
	mapped  bool  // by its writer: its pages are not dropped
	err     error // of each call
}

type modelPage struct {
	charged uint64
	dirty   bool
	until   time.Time // it is under writeback
}

func newModelCache() *modelCache {
	return &modelCache{
		files: map[writeback.Inode]*modelFile{}, offline: map[uint64]bool{},
		bandwidth: 25600, opened: map[string]int{}, // 100 MiB/s
	}
}

// add makes a file that belongs to a cgroup.
func (c *modelCache) add(in writeback.Inode, owner uint64) *modelFile {
	c.mu.Lock()
	defer c.mu.Unlock()
	f := &modelFile{cache: c, Inode: in, owner: owner, pages: map[int64]*modelPage{}, path: fmt.Sprintf("f%d", in.Number)}
	c.files[in] = f
	return f
}

// writes makes pages dirty, and returns an event for each run of them that is charged to the same cgroup. A
// page is charged to the cgroup that brings it into the cache. An inode is given to the cgroup that is charged
// for its first dirty page.
func (f *modelFile) writes(cgroup uint64, first, pages int64) (out []writeback.Dirtied) {
	f.cache.mu.Lock()
	defer f.cache.mu.Unlock()
	f.finishSwitch()
	for i := first; i < first+pages; i++ {
		p := f.pages[i]
		if p == nil {
			p = &modelPage{charged: cgroup}
			f.pages[i] = p
		}
		owner := f.owner
		if f.owner == 0 {
			f.owner = p.charged
		}
		if p.dirty {
			continue
		}
		p.dirty = true
		at := uint64(i * writeback.PageSize())
		if n := len(out); n > 0 && out[n-1].Charged == p.charged {
			out[n-1].Bytes += uint64(writeback.PageSize())
			out[n-1].Last = at
			continue
		}
		out = append(out, writeback.Dirtied{
			Inode: f.Inode, Writer: cgroup, Charged: p.charged, Owner: owner,
			Bytes: uint64(writeback.PageSize()), First: at, Last: at,
		})
	}
	return out
}

// clean writes out all of a file without votes, as the kernel's flusher does.
func (f *modelFile) clean() {
	f.cache.mu.Lock()
	defer f.cache.mu.Unlock()
	for _, p := range f.pages {
		p.dirty = false
	}
}

// finishSwitch completes the switch that is under way. The kernel forgets the votes then (inode_do_switch_wbs).
func (f *modelFile) finishSwitch() {
	if f.next != 0 && !time.Now().Before(f.at) {
		f.owner, f.next, f.votes = f.next, 0, writeback.Votes{}
	}
}

// in calls fn for the cached pages of a range.
func (f *modelFile) in(offset, length int64, fn func(i int64, p *modelPage)) {
	first, last := offset/writeback.PageSize(), (offset+length-1)/writeback.PageSize()
	for i, p := range f.pages {
		if first <= i && i <= last {
			fn(i, p)
		}
	}
}

// round is wbc_detach_inode after a round over a range.
func (f *modelFile) round(offset, length int64) {
	votes := map[uint64]uint64{}
	now := time.Now()
	f.in(offset, length, func(_ int64, p *modelPage) {
		if !p.dirty || now.Before(p.until) {
			return
		}
		p.dirty, p.until = false, now.Add(f.disk)
		f.written++
		if !f.cache.offline[p.charged] {
			votes[p.charged]++
		}
	})
	if len(votes) == 0 {
		return
	}
	f.rounds++
	winner := f.owner
	for cgroup, pages := range votes {
		if pages > votes[winner] {
			winner = cgroup
		}
	}
	var moves bool
	took := writeback.RoundTime(max(votes[winner], 1), f.cache.bandwidth)
	if f.votes, moves = f.votes.Round(took, winner != f.owner); moves && f.next == 0 {
		f.next, f.at = winner, now.Add(switchDelay)
	}
}

func (c *modelCache) Close() {}

func (c *modelCache) Open(mountpoint, _ string) (mount, error) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.opened[mountpoint]++
	return modelMount{c}, c.openErr
}

type modelMount struct{ *modelCache }

func (modelMount) Close() error { return nil }

func (m modelMount) Open(in writeback.Inode) (openFile, error) {
	m.mu.Lock()
	defer m.mu.Unlock()
	f := m.files[in]
	if f == nil {
		return nil, writeback.ErrNoFile
	}
	return f, nil
}

func (f *modelFile) Close() error { return nil }

func (f *modelFile) Path() (string, bool) { return f.path, f.path != "" }

func (f *modelFile) Owner() (writeback.Owner, error) {
	f.cache.mu.Lock()
	defer f.cache.mu.Unlock()
	f.finishSwitch()
	return writeback.Owner{
		Cgroup: f.owner, Dev: f.Dev, Generation: f.Generation, Votes: f.votes, Bandwidth: f.cache.bandwidth,
	}, f.err
}

func (f *modelFile) WriteOut(offset, length int64) error {
	f.cache.mu.Lock()
	defer f.cache.mu.Unlock()
	f.finishSwitch()
	f.round(offset, length)
	return f.err
}

// Drop removes the pages that were clean before it, as POSIX_FADV_DONTNEED does.
func (f *modelFile) Drop(offset, length int64) error {
	f.cache.mu.Lock()
	defer f.cache.mu.Unlock()
	f.finishSwitch()
	now := time.Now()
	f.in(offset, length, func(i int64, p *modelPage) {
		if !p.dirty && !now.Before(p.until) && !f.mapped {
			delete(f.pages, i)
		}
	})
	f.round(offset, length)
	return f.err
}

// pageOut is process_madvise(MADV_PAGEOUT) of all of its mappings.
func (f *modelFile) pageOut() {
	f.cache.mu.Lock()
	defer f.cache.mu.Unlock()
	for i, p := range f.pages {
		if !p.dirty {
			delete(f.pages, i)
		}
	}
}

func (f *modelFile) Cached(offset, length int64) (out writeback.Cached, ok bool) {
	f.cache.mu.Lock()
	defer f.cache.mu.Unlock()
	now := time.Now()
	f.in(offset, length, func(_ int64, p *modelPage) {
		if p.dirty {
			out.Dirty += uint64(writeback.PageSize())
		}
		if now.Before(p.until) {
			out.Writeback += uint64(writeback.PageSize())
		}
	})
	return out, !f.cache.noStat
}

// modelTree is a directory that stands for the cgroup tree. The number of a cgroup is the
// inode number of its directory, as in cgroupfs.
type modelTree struct {
	*cgroupfs.Hierarchy
	dir   string
	paths map[uint64]string
	err   error // of ByID
}

// ByID finds the cgroups of the test, as the kernel finds those of a number.
func (m *modelTree) ByID(id uint64) (cgroupfs.Cgroup, error) {
	if m.err != nil {
		return cgroupfs.Cgroup{}, m.err
	}
	path, ok := m.paths[id]
	if !ok {
		return cgroupfs.Cgroup{}, fmt.Errorf("find cgroup %d: %w", id, blkio.ErrGone)
	}
	return m.Cgroup(path), nil
}
