// Package cgroupfs reads and writes cgroups: their I/O files, extended attributes, IDs,
// and the end of their last process.
package cgroupfs

import (
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"path"
	"path/filepath"
	"slices"
	"strings"

	"golang.org/x/sys/unix"

	"github.com/nri-blkio/nri-blkio/blkio"
)

// Hierarchy is a mounted cgroup v2 tree. It is safe for concurrent use.
type Hierarchy struct {
	dir  string
	fd   int // of dir, O_PATH
	fake Fake
	// isKernel is true for a mounted tree. In a directory of plain files, a removed file stays readable.
	isKernel bool
	held     heldFiles
}

// Fake has what replaces the kernel in a directory of plain files. Its functions may be nil.
type Fake struct {
	// Write replaces a write to a file, by its path below the directory. It can act like the kernel, for example merge a
	// line into io.max.
	Write func(name, data string) error
	// WriteXattr fails the change of an extended attribute of a cgroup, or lets it happen.
	WriteXattr func(cgroup, name string) error
}

// OpenHierarchy opens the cgroup v2 tree that is mounted at dir, "/sys/fs/cgroup". The
// error is ErrNotSupported on a cgroup v1 or hybrid system, and without the io controller.
// Its text is one line that names the remedy.
func OpenHierarchy(dir string) (*Hierarchy, error) {
	if err := checkCgroup2(dir); err != nil {
		return nil, fmt.Errorf("open cgroups at %s: %w", dir, err)
	}
	h, err := OpenTree(dir)
	if err == nil {
		h.isKernel = true
	}
	return h, err
}

const unifiedHint = "boot with systemd.unified_cgroup_hierarchy=1 for cgroup v2 alone"

// checkCgroup2 is apart so that unit tests can use a plain directory.
func checkCgroup2(dir string) error {
	var st unix.Statfs_t
	if err := unix.Statfs(dir, &st); err != nil {
		return err
	}
	switch st.Type {
	case unix.CGROUP2_SUPER_MAGIC:
		return nil
	case unix.CGROUP_SUPER_MAGIC:
		return fmt.Errorf("%w: a cgroup v1 controller is mounted there; %s", blkio.ErrNotSupported, unifiedHint)
	case unix.TMPFS_MAGIC:
		layout := "cgroup v1 system"
		err := unix.Statfs(filepath.Join(dir, "unified"), &st)
		if err == nil && st.Type == unix.CGROUP2_SUPER_MAGIC {
			layout = "hybrid system (cgroup v1, with v2 for systemd alone)"
		}
		return fmt.Errorf("%w: this is a %s; %s", blkio.ErrNotSupported, layout, unifiedHint)
	}
	return fmt.Errorf("%w: no cgroup v2 is mounted there (filesystem type %#x); give the host's cgroup mount",
		blkio.ErrNotSupported, st.Type)
}

// OpenTree opens a directory with the layout of a cgroup v2 tree, such as a fixture, or a
// copy of a node's tree.
func OpenTree(dir string) (*Hierarchy, error) {
	fd, err := unix.Open(dir, unix.O_PATH|unix.O_DIRECTORY|unix.O_CLOEXEC, 0)
	if err != nil {
		return nil, fmt.Errorf("open cgroups at %s: %w", dir, err)
	}
	h := &Hierarchy{dir: dir, fd: fd}
	controllers, err := h.readFile("cgroup.controllers")
	if err == nil && !hasField(controllers, "io") {
		err = fmt.Errorf("%w: cgroup.controllers lists no io controller, only %q; it is not built into this kernel, or cgroup v1 holds it",
			blkio.ErrNotSupported, strings.TrimSpace(string(controllers)))
	}
	if err != nil {
		h.Close() // the error that counts is the one before
		return nil, fmt.Errorf("open cgroups at %s: %w", dir, err)
	}
	return h, nil
}

// OpenFake is OpenTree for a directory of plain files.
func OpenFake(dir string, fake Fake) (*Hierarchy, error) {
	h, err := OpenTree(dir)
	if err == nil {
		h.fake = fake
	}
	return h, err
}

func hasField(data []byte, field string) bool {
	return slices.Contains(strings.Fields(string(data)), field)
}

// Close closes the tree. Its cgroups must not be used afterwards.
func (h *Hierarchy) Close() error {
	h.CloseUnread()
	h.CloseUnread() // those that were read before the first one
	return unix.Close(h.fd)
}

// Cgroup returns the cgroup at a path below the root. The cgroup need not exist. Elements
// ".." of the path do not lead above the root.
func (h *Hierarchy) Cgroup(p string) Cgroup {
	if !fs.ValidPath(p) { // a valid path is clean; cleaning costs a pass over the node too much
		p = path.Clean("/" + p)[1:]
	}
	if p == "" {
		p = "."
	}
	return Cgroup{h: h, path: p}
}

// open opens a file below the root, and none elsewhere. It refuses symlinks, which cgroupfs does not have.
// os.Root gives the same with an openat for each path element. That takes 36 us for one io.max instead of 9,
// which with 250 pods is more than a reconcile of a node may take.
func (h *Hierarchy) open(name string, flags int) (int, error) {
	how := unix.OpenHow{
		Flags:   uint64(flags | unix.O_CLOEXEC),
		Resolve: unix.RESOLVE_BENEATH | unix.RESOLVE_NO_SYMLINKS,
	}
	fd, err := ignoreEINTR(func() (int, error) { return unix.Openat2(h.fd, name, &how) })
	if !errors.Is(err, unix.ENOSYS) && !errors.Is(err, unix.EPERM) {
		return fd, err
	}
	// No openat2 under this kernel or seccomp filter: name is clean, so
	// that os.Root finds the same file.
	return h.openRooted(name, flags)
}

func (h *Hierarchy) openRooted(name string, flags int) (int, error) {
	root, err := os.OpenRoot(h.dir)
	if err != nil {
		return -1, err
	}
	defer root.Close()
	f, err := root.OpenFile(name, flags, 0)
	if err != nil {
		return -1, err
	}
	defer f.Close()
	return unix.FcntlInt(f.Fd(), unix.F_DUPFD_CLOEXEC, 0)
}

func (h *Hierarchy) readFile(name string) ([]byte, error) {
	return h.readInto(make([]byte, 0, 1024), name)
}

// readInto is readFile into a buffer, as far as that is long enough.
func (h *Hierarchy) readInto(buf []byte, name string) ([]byte, error) {
	fd, err := h.open(name, unix.O_RDONLY)
	if err != nil {
		return nil, err
	}
	defer unix.Close(fd)
	buf = buf[:0]
	for {
		n, err := ignoreEINTR(func() (int, error) { return unix.Read(fd, buf[len(buf):cap(buf)]) })
		if err != nil {
			return nil, err
		}
		buf = buf[:len(buf)+n]
		// These cgroup files are one record of seq_file: a read that does not fill the
		// buffer is the last one.
		if len(buf) < cap(buf) {
			return buf, nil
		}
		buf = slices.Grow(buf, max(cap(buf), 1024))
	}
}

// readToEnd is readFile for a file of many records. With each read, the kernel returns as many records as fit
// into a page: cgroup.procs has one for each process.
//
// Source: fs/seq_file.c, seq_read_iter.
func (h *Hierarchy) readToEnd(name string) ([]byte, error) {
	fd, err := h.open(name, unix.O_RDONLY)
	if err != nil {
		return nil, err
	}
	f := os.NewFile(uintptr(fd), name)
	defer f.Close()
	return io.ReadAll(f)
}

// writeFile writes data to a file below the root in one write, which the kernel takes as one command. It never
// creates a file. O_TRUNC, which a shell's ">" has too, has no effect in the kernel here. In a plain directory
// the file then holds the last write.
func (h *Hierarchy) writeFile(name, data string) error {
	if h.fake.Write != nil {
		return h.fake.Write(name, data)
	}
	fd, err := h.open(name, unix.O_WRONLY|unix.O_TRUNC)
	if err != nil {
		return err
	}
	defer unix.Close(fd) // errors of cgroupfs are those of the write
	_, err = ignoreEINTR(func() (int, error) { return unix.Write(fd, []byte(data)) })
	return err
}

func (h *Hierarchy) exists(name string) (bool, error) {
	fd, err := h.open(name, unix.O_PATH)
	if errors.Is(err, fs.ErrNotExist) || errors.Is(err, unix.ENODEV) {
		return false, nil
	}
	if err != nil {
		return false, err
	}
	return true, unix.Close(fd)
}

func ignoreEINTR(fn func() (int, error)) (int, error) {
	for {
		n, err := fn()
		if !errors.Is(err, unix.EINTR) {
			return n, err
		}
	}
}

// Features lists the kernel's I/O controls. A control counts as present if a cgroup with
// the io controller has its file. Unknown means that no cgroup has the io controller.
type Features struct {
	IOMax    blkio.Tri `json:"ioMax"`    // blk-throttle
	IOWeight blkio.Tri `json:"ioWeight"` // built in; its effect depends on the disk, see ReadIOCostQOS
	IOCost   blkio.Tri `json:"ioCost"`   // io.cost.qos, only in the host's root cgroup
	// Namespaced is true if the tree's root is the root of a cgroup namespace, and not the
	// host's.
	Namespaced bool `json:"namespaced"`
}

// Probe finds out which controls the kernel has.
func (h *Hierarchy) Probe() (Features, error) {
	var f Features
	var err error
	// Flagged CFTYPE_NOT_ON_ROOT: it is only where a parent is above.
	if f.Namespaced, err = h.exists("cgroup.events"); err != nil {
		return f, fmt.Errorf("probe cgroups: %w", err)
	}
	probe := func(dir, file string, answer *blkio.Tri) {
		if err != nil {
			return
		}
		var ok bool
		ok, err = h.exists(dir + "/" + file)
		switch {
		case err == nil && ok:
			*answer = blkio.Yes
		case err == nil:
			*answer = blkio.No
		}
	}
	if !f.Namespaced {
		probe(".", "io.cost.qos", &f.IOCost)
	}
	if dir, found := h.ioCgroup(f.Namespaced); found {
		probe(dir, blkio.IOMax, &f.IOMax)
		probe(dir, blkio.IOWeight, &f.IOWeight)
	}
	if err != nil {
		return f, fmt.Errorf("probe cgroups: %w", err)
	}
	return f, nil
}

// Missing returns those of io.max and io.weight that the kernel does not have. It is nil if that is unknown.
func (f *Features) Missing() (files []string) {
	if f.IOMax == blkio.No {
		files = append(files, blkio.IOMax)
	}
	if f.IOWeight == blkio.No {
		files = append(files, blkio.IOWeight)
	}
	return files
}

// ioCgroup finds a cgroup with the io controller: the files of a controller
// are in no other, and not in the host's root.
func (h *Hierarchy) ioCgroup(namespaced bool) (string, bool) {
	if namespaced && h.hasIO(".") {
		return ".", true
	}
	names, err := h.visit(".", func(Cgroup, int, *unix.Stat_t) error { return nil })
	if err != nil {
		return "", false
	}
	for _, name := range names {
		if h.hasIO(name) {
			return name, true
		}
	}
	return "", false
}

func (h *Hierarchy) hasIO(dir string) bool {
	controllers, err := h.readFile(dir + "/cgroup.controllers")
	return err == nil && hasField(controllers, "io")
}

// ReadIOCostQOS reads io.cost.qos, see [blkio.ParseIOCostQOS]. The error is ErrNotSupported
// if the kernel does not have it.
func (h *Hierarchy) ReadIOCostQOS() (map[blkio.Dev]blkio.CostQOSLine, error) {
	return readCgroup(h.Cgroup("."), blkio.IOCostQOS, blkio.ParseIOCostQOS)
}

// ReadIOCostModel reads io.cost.model, see [blkio.ParseIOCostModel]. The error is
// ErrNotSupported if the kernel does not have it.
func (h *Hierarchy) ReadIOCostModel() (map[blkio.Dev]blkio.CostModelLine, error) {
	return readCgroup(h.Cgroup("."), blkio.IOCostModel, blkio.ParseIOCostModel)
}
