package inspect

import (
	"bufio"
	"context"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"slices"
	"strconv"
	"strings"

	"github.com/nri-blkio/nri-blkio/blkio/cgroupfs"
	"github.com/nri-blkio/nri-blkio/blkio/storage"
)

// Holder is a process that keeps an orphaned volume's filesystem busy.
type Holder struct {
	PID       int    `json:"pid"`
	Comm      string `json:"comm"`
	Namespace string `json:"namespace,omitempty"`
	Pod       string `json:"pod,omitempty"`
	UID       string `json:"uid,omitempty"` // of the pod; has "_" instead of "-"
	// Mountpoint is the place of the filesystem in the process's mount namespace. It is set
	// for the first process of each namespace, other than the node's, in which the
	// filesystem stays mounted when the node unmounts it.
	Mountpoint string `json:"mountpoint,omitempty"`
	OpenFiles  int    `json:"openFiles,omitempty"`
	WorkingDir bool   `json:"workingDir,omitempty"` // or its root directory
}

const (
	// maxNamespaces, maxFiles and maxFDs bound the number of mount tables, of all open
	// files, and of open files of one process that are read.
	maxNamespaces = 2048
	maxFiles      = 100_000
	maxFDs        = 4096
)

// holderFinder finds processes that hold orphaned volumes. It reads procfs only, and opens no path of a
// process. The mount ID of an open file shows whether the file is on a volume.
type holderFinder struct {
	proc  fs.FS
	names map[string]podName // by the UID with "_" for "-"

	orphans []Orphan
	parents []*storage.Mount    // of the orphans' mounts
	spaces  map[int]*mountSpace // by the number of the first mount that is seen there
	files   int
	denied  int // processes whose open files this process may not read
	partial bool
}

// mountSpace is a mount namespace, with the mounts of orphans in it.
type mountSpace struct {
	first  int             // the process whose table was read
	mounts map[int]int     // indexes of orphans by mount ID
	points map[string]int  // the same by mountpoint
	follow map[string]bool // mountpoints that are unmounted together with the node's
}

// find sets the holders of each orphan. It returns notes about processes that could not be read.
func (f *holderFinder) find(ctx context.Context, host *storage.MountTable, orphans []Orphan) (notes []string) {
	if len(orphans) == 0 {
		return nil
	}
	f.orphans, f.spaces = orphans, map[int]*mountSpace{}
	ids := host.ByID()
	for i := range orphans {
		f.parents = append(f.parents, ids[orphans[i].mount.Parent])
	}
	here := f.space(host, 0)
	for i := range orphans {
		for point, of := range here.points {
			if of == i && point != orphans[i].Mountpoint {
				orphans[i].Mounts = append(orphans[i].Mounts, point)
			}
		}
		slices.Sort(orphans[i].Mounts)
	}
	if key, err := f.firstMount(1); err == nil {
		f.spaces[key] = here
	}
	for _, pid := range f.processes() {
		if ctx.Err() != nil {
			f.partial = true
			break
		}
		f.examine(pid)
	}
	if f.denied > 0 {
		notes = append(notes, fmt.Sprintf("open files of %d processes are unreadable (requires CAP_SYS_PTRACE)", f.denied))
	}
	if f.partial {
		notes = append(notes, "not all processes and open files were read")
	}
	return notes
}

func (f *holderFinder) processes() []int {
	entries, _ := fs.ReadDir(f.proc, ".") // as many as there are
	var out []int
	for _, e := range entries {
		if pid, err := strconv.Atoi(e.Name()); err == nil {
			out = append(out, pid)
		}
	}
	slices.Sort(out)
	return out
}

// follows reports whether the kernel removes a mount of another namespace when the node unmounts the
// filesystem. It does in the namespaces of most services and agents: for mounts at the same place on the peers
// and slaves of the parent mount.
//
// Source: Documentation/filesystems/sharedsubtree.rst, "unmount".
func (f *holderFinder) follows(parent *storage.Mount, of int) bool {
	above := f.parents[of]
	return above != nil && above.Peers != 0 && parent != nil &&
		(parent.Peers == above.Peers || parent.Master == above.Peers)
}

// space finds the filesystems of orphans in a mount table. If an orphan is a mount of a
// part of a filesystem, only mounts of that part, or below it, count.
func (f *holderFinder) space(t *storage.MountTable, first int) *mountSpace {
	s := &mountSpace{first: first, mounts: map[int]int{}, points: map[string]int{}, follow: map[string]bool{}}
	var ids map[int]*storage.Mount
	for _, m := range t.All() {
		of := -1
		for i := range f.orphans {
			o := f.orphans[i].mount
			if m.ID == o.ID {
				of = i // itself, where two have the same
				break
			}
			if of < 0 && m.Dev == o.Dev && m.FSType == o.FSType && within(m.Root, o.Root) {
				of = i
			}
		}
		if of < 0 {
			continue
		}
		if ids == nil {
			ids = t.ByID()
		}
		s.mounts[m.ID], s.points[m.Mountpoint] = of, of
		if first != 0 && f.follows(ids[m.Parent], of) {
			s.follow[m.Mountpoint] = true
		}
	}
	return s
}

func within(p, dir string) bool {
	return p == dir || strings.HasPrefix(p, strings.TrimSuffix(dir, "/")+"/")
}

// examine adds the mounts and files of one process. It ignores errors: the process has ended, or access is
// denied.
func (f *holderFinder) examine(pid int) {
	key, err := f.firstMount(pid)
	if err != nil {
		return
	}
	s := f.spaces[key]
	if s == nil {
		if len(f.spaces) == maxNamespaces {
			f.partial = true
			return
		}
		if s = f.readSpace(pid); s == nil {
			return
		}
		f.spaces[key] = s
	}
	if len(s.mounts) == 0 {
		return
	}
	held := map[int]*Holder{}
	of := func(i int) *Holder {
		if held[i] == nil {
			held[i] = &Holder{PID: pid}
		}
		return held[i]
	}
	if s.first == pid {
		for point, i := range s.points {
			if s.follow[point] {
				continue
			}
			if h := of(i); h.Mountpoint == "" || point < h.Mountpoint {
				h.Mountpoint = point
			}
		}
	}
	for _, link := range []string{"cwd", "root"} {
		if i, ok := s.holds(f.readLink(pid, link)); ok {
			of(i).WorkingDir = true
		}
	}
	f.openFiles(pid, func(mount int) {
		if i, ok := s.mounts[mount]; ok {
			of(i).OpenFiles++
		}
	})
	for i, h := range held {
		f.describe(h)
		f.orphans[i].Holders = append(f.orphans[i].Holders, *h)
	}
}

func (f *holderFinder) file(pid int, name string) string { return strconv.Itoa(pid) + "/" + name }

// firstMount returns the ID of the first mount in a process's table, which identifies its
// mount namespace. So each table is read once, and the right to read the link to the
// namespace is not needed.
func (f *holderFinder) firstMount(pid int) (int, error) {
	file, err := f.proc.Open(f.file(pid, "mountinfo"))
	if err != nil {
		return 0, err
	}
	defer file.Close()
	line, err := bufio.NewReaderSize(file, 256).ReadString(' ')
	if err != nil {
		return 0, err
	}
	return strconv.Atoi(strings.TrimSuffix(line, " "))
}

func (f *holderFinder) readSpace(pid int) *mountSpace {
	file, err := f.proc.Open(f.file(pid, "mountinfo"))
	if err != nil {
		return nil
	}
	defer file.Close()
	t, err := storage.ParseMountTable(file)
	if err != nil {
		f.partial = true
		return nil
	}
	return f.space(t, pid)
}

// readLink returns the text of a link in procfs. The kernel makes it without access to the
// file.
func (f *holderFinder) readLink(pid int, name string) string {
	target, _ := fs.ReadLink(f.proc, f.file(pid, name)) // as for open files, which count those that are denied
	return target
}

// holds returns the index of the orphan that a path of the namespace is in.
func (s *mountSpace) holds(p string) (int, bool) {
	for strings.HasPrefix(p, "/") && p != "/" {
		if i, ok := s.points[p]; ok {
			return i, true
		}
		p = p[:strings.LastIndexByte(p, '/')]
	}
	return 0, false
}

// openFiles calls fn with the number of the mount of each open file.
//
//	mnt_id:	29
//
// Source: seq_show in fs/proc/fd.c; proc_pid_fdinfo(5).
func (f *holderFinder) openFiles(pid int, fn func(mount int)) {
	dir := f.file(pid, "fdinfo")
	entries, err := f.firstEntries(dir, maxFDs+1)
	if errors.Is(err, fs.ErrPermission) {
		f.denied++
	}
	for n, e := range entries {
		if n == maxFDs || f.files == maxFiles {
			f.partial = true
			return
		}
		f.files++
		if mount, ok := f.mountOf(dir + "/" + e.Name()); ok {
			fn(mount)
		}
	}
}

// firstEntries returns the first n entries of a directory: a process may have a million
// open files.
func (f *holderFinder) firstEntries(dir string, n int) ([]fs.DirEntry, error) {
	file, err := f.proc.Open(dir)
	if err != nil {
		return nil, err
	}
	defer file.Close()
	d, ok := file.(fs.ReadDirFile)
	if !ok {
		return nil, fs.ErrInvalid
	}
	entries, err := d.ReadDir(n)
	if errors.Is(err, io.EOF) {
		err = nil
	}
	return entries, err
}

// mountOf returns the ID of the mount that an open file is on. It reads only the first
// bytes of the file of procfs, which may be long.
func (f *holderFinder) mountOf(name string) (int, bool) {
	file, err := f.proc.Open(name)
	if err != nil {
		return 0, false
	}
	defer file.Close()
	buf := make([]byte, 256)
	n, err := io.ReadFull(file, buf)
	if err != nil && !errors.Is(err, io.ErrUnexpectedEOF) {
		return 0, false
	}
	_, rest, ok := strings.Cut(string(buf[:n]), "mnt_id:")
	if !ok {
		return 0, false
	}
	id, _, _ := strings.Cut(rest, "\n")
	mount, err := strconv.Atoi(strings.TrimSpace(id))
	return mount, err == nil
}

func (f *holderFinder) describe(h *Holder) {
	comm, _ := fs.ReadFile(f.proc, f.file(h.PID, "comm")) // it may have ended
	h.Comm = strings.TrimSuffix(string(comm), "\n")
	data, _ := fs.ReadFile(f.proc, f.file(h.PID, "cgroup"))
	for line := range strings.Lines(string(data)) {
		if dir, ok := strings.CutPrefix(strings.TrimSpace(line), "0::"); ok {
			h.UID = cgroupfs.PodUID(dir)
		}
	}
	name := f.names[h.UID]
	h.Namespace, h.Pod = name.namespace, name.name
}
