package cgroupfs

import (
	"bytes"
	"errors"
	"fmt"
	"io/fs"
	"math"
	"path"
	"slices"
	"strconv"
	"strings"

	"golang.org/x/sys/unix"

	"github.com/nri-blkio/nri-blkio/blkio"
)

// Cgroup names a cgroup by its path. It holds no descriptor, so the cgroup may be removed
// and created again at any time. Methods return ErrGone if the cgroup was removed, and
// ErrNotSupported if it does not have the file. Cgroups are comparable with ==.
type Cgroup struct {
	h    *Hierarchy
	path string
}

// Path returns the path below the cgroup root, without a slash in front; "."
// is the root.
func (c Cgroup) Path() string { return c.path }

// Exists reports whether the cgroup exists. It also returns true if that is unknown, for example for lack of
// file descriptors, because callers forget the limits of a cgroup that does not exist.
func (c Cgroup) Exists() bool {
	ok, err := c.h.exists(c.path)
	return ok || err != nil
}

// ReadValues reads the values of a control file, see blkio.ParseValues.
func (c Cgroup) ReadValues(file string) (blkio.Values, error) {
	return readCgroup(c, file, func(text string) (blkio.Values, error) { return blkio.ParseValues(file, text) })
}

// ReadIOMax reads io.max. Devices without a limit are not listed.
func (c Cgroup) ReadIOMax() (map[blkio.Dev]blkio.Limits, error) {
	return readCgroup(c, "io.max", blkio.ParseIOMax)
}

// ReadText reads the text of a control file, for callers that only compare it with an
// earlier text. It uses buf if buf is long enough.
func (c Cgroup) ReadText(file string, buf []byte) ([]byte, error) {
	data, err := c.h.readInto(buf, c.path+"/"+file)
	if err != nil {
		return nil, c.fileError("read", file, "", err)
	}
	return data, nil
}

// Populated reports whether a process is in the cgroup or below it. It returns false for a
// removed cgroup. With an error, for example for lack of file descriptors, it is unknown.
func (c Cgroup) Populated() (bool, error) {
	data, err := c.h.readFile(c.path + "/cgroup.events")
	if errors.Is(err, fs.ErrNotExist) || errors.Is(err, unix.ENODEV) {
		return false, nil
	}
	if err != nil {
		return false, c.fileError("read", "cgroup.events", "", err)
	}
	return strings.Contains(string(data), "populated 1"), nil
}

// NoMemoryMax is the result of MemoryMax for a memory.max of "max".
const NoMemoryMax uint64 = math.MaxUint64

// MemoryMax returns the cgroup's memory.max in bytes. It returns NoMemoryMax if the file
// cannot be read, as for a removed cgroup.
func (c Cgroup) MemoryMax() uint64 {
	data, err := c.h.readFile(c.path + "/memory.max")
	if err != nil {
		return NoMemoryMax
	}
	limit, err := strconv.ParseUint(strings.TrimSpace(string(data)), 10, 64)
	if err != nil {
		return NoMemoryMax
	}
	return limit
}

// ReadIOStat reads io.stat. Devices without I/O are not listed.
func (c Cgroup) ReadIOStat() (map[blkio.Dev]blkio.Stat, error) {
	return readCgroup(c, "io.stat", blkio.ParseIOStat)
}

// ReadIOPressure reads io.pressure. The error is ErrNotSupported where the kernel has no pressure stall information.
func (c Cgroup) ReadIOPressure() (blkio.Pressure, error) {
	return readCgroup(c, "io.pressure", blkio.ParsePressure)
}

// ReadWeights reads io.weight or io.bfq.weight.
func (c Cgroup) ReadWeights(file string) (blkio.Weights, error) {
	return readCgroup(c, file, blkio.ParseIOWeight)
}

func readCgroup[T any](c Cgroup, name string, parse func(string) (T, error)) (T, error) {
	var zero T
	data, err := c.h.readFile(c.path + "/" + name)
	if err != nil {
		return zero, c.fileError("read", name, "", err)
	}
	v, err := parse(string(data))
	if err != nil {
		return zero, c.fileError("read", name, "", err)
	}
	return v, nil
}

// Write writes a line to its control file. The kernel applies all values of the line or
// none. The error is ErrNoDevice if the line's device number is not that of a whole disk.
func (c Cgroup) Write(l blkio.Line) error { return c.write(l.File, l.Text) }

func (c Cgroup) write(name, data string) error {
	if err := c.h.writeFile(c.path+"/"+name, data); err != nil {
		return c.fileError("write", name, data, err)
	}
	return nil
}

// Owner returns the UID that owns the cgroup's directory. That user may set its extended
// attributes.
func (c Cgroup) Owner() (uid int, err error) {
	st, err := c.stat()
	return int(st.Uid), err
}

// IsOwn reports whether a user ID is that of this process.
func IsOwn(uid int) bool { return uid == unix.Geteuid() }

// CountChildren returns the number of child cgroups, without reading them. The error is blkio.ErrGone if the
// cgroup was removed.
//
// Source: kernfs_refresh_inode in fs/kernfs/inode.c: a directory has a link for each child, and two of its own.
func (c Cgroup) CountChildren() (int, error) {
	st, err := c.stat()
	return int(max(st.Nlink, 2) - 2), err
}

// Children returns the child cgroups. A removed cgroup has none.
func (c Cgroup) Children() ([]Cgroup, error) {
	var out []Cgroup
	err := c.withDir(func(fd int) error {
		var st unix.Stat_t
		if err := unix.Fstat(fd, &st); err != nil {
			return err
		}
		names, err := subdirectories(fd, &st)
		for _, name := range names {
			out = append(out, c.child(name))
		}
		return err
	})
	if errors.Is(err, fs.ErrNotExist) {
		return nil, nil
	}
	if err != nil {
		return nil, c.fileError("read", "directory", "", err)
	}
	return out, nil
}

// ReadXattr reads an extended attribute of the cgroup's directory, such as
// "user.nri-blkio". It returns nil without an error if there is no such attribute.
func (c Cgroup) ReadXattr(name string) ([]byte, error) {
	// By path, in one system call instead of three: a pass over the node
	// does this for each cgroup. The path is clean, and cgroupfs has no
	// symlinks.
	file := c.h.dir + "/" + c.path
	var small [xattrSize]byte
	n, err := unix.Lgetxattr(file, name, small[:])
	switch {
	case err == nil:
		return bytes.Clone(small[:n]), nil
	case errors.Is(err, unix.ENODATA):
		return nil, nil
	case errors.Is(err, unix.ENOENT): // of the directory: a pod that is created has none yet
		return nil, &CgroupError{Op: "read xattr", Name: name, Cgroup: c.path, Err: blkio.ErrGone}
	case errors.Is(err, unix.ERANGE):
		var value []byte
		value, err = getxattr(make([]byte, 4*xattrSize), func(buf []byte) (int, error) { return unix.Lgetxattr(file, name, buf) })
		if err == nil {
			return value, nil
		}
	}
	return nil, c.xattrError("read", name, err)
}

// Above returns the directory and the name under which an extended attribute about a
// container is stored: the parent of the container's cgroup, and "XATTR.CGROUP". The
// container may be able to write attributes of its own cgroup's directory, but its cgroup
// namespace does not show the parent.
func (c Cgroup) Above(xattr string) (dir Cgroup, name string) {
	return Cgroup{h: c.h, path: path.Dir(c.path)}, xattr + "." + path.Base(c.path)
}

// ListAbove returns the child cgroups, removed ones included, for which c has an extended
// attribute, see [Cgroup.Above].
func (c Cgroup) ListAbove(xattr string) ([]Cgroup, error) {
	var out []Cgroup
	file := c.h.dir + "/" + c.path
	names, err := listXattrs(make([]byte, xattrSize), xattr, func(buf []byte) (int, error) { return unix.Llistxattr(file, buf) })
	for _, name := range names {
		if name != xattr {
			out = append(out, c.child(name[len(xattr)+1:]))
		}
	}
	return out, c.xattrError("list", xattr, err)
}

func (c Cgroup) child(name string) Cgroup { return Cgroup{h: c.h, path: path.Join(c.path, name)} }

// WriteXattr creates or replaces an extended attribute of the cgroup's directory. The
// kernel stores at most 128 of them for each cgroup, together at most 128 KiB.
func (c Cgroup) WriteXattr(name string, value []byte) error {
	if fail := c.h.fake.WriteXattr; fail != nil {
		if err := fail(c.path, name); err != nil {
			return c.xattrError("write", name, err)
		}
	}
	err := c.changeXattrs(func(fd int) error {
		return replaceXattr(value, xattrOf{
			get:    func(buffer []byte) (int, error) { return unix.Fgetxattr(fd, name, buffer) },
			set:    func(value []byte) error { return unix.Fsetxattr(fd, name, value, 0) },
			remove: func() error { return unix.Fremovexattr(fd, name) },
		})
	})
	return c.xattrError("write", name, err)
}

// maxXattr is the largest size of an attribute (XATTR_SIZE_MAX in include/uapi/linux/limits.h).
const maxXattr = 64 << 10

// xattrOf has the calls of the kernel for one attribute.
type xattrOf struct {
	get    func(buffer []byte) (size int, err error)
	set    func(value []byte) error
	remove func() error
}

// replaceXattr sets an attribute. The kernel counts the old value until it has stored the new one. If both together are too large,
// replaceXattr first removes the old value. If the new one alone is too large, it stores the old one again. If the process is
// killed between the two steps, the attribute is lost.
//
// Source: kernfs_vfs_user_xattr_add in fs/kernfs/inode.c.
func replaceXattr(value []byte, x xattrOf) error {
	err := x.set(value)
	if !errors.Is(err, unix.ENOSPC) {
		return err
	}
	old := make([]byte, maxXattr)
	size, getErr := x.get(old)
	if getErr != nil {
		return err // no old value, so removing it cannot help
	}
	if removeErr := x.remove(); removeErr != nil {
		return errors.Join(err, removeErr)
	}
	if err = x.set(value); err != nil {
		return errors.Join(err, x.set(old[:size]))
	}
	return nil
}

// RemoveXattr removes an extended attribute. An attribute that is absent is no error.
func (c Cgroup) RemoveXattr(name string) error {
	err := c.changeXattrs(func(fd int) error { return unix.Fremovexattr(fd, name) })
	if errors.Is(err, unix.ENODATA) {
		err = nil
	}
	return c.xattrError("remove", name, err)
}

// changeXattrs gives the owner the right to write to the directory, as long as the change takes, if that is all
// that is missing. The root of cgroupfs has the mode 0555, so without CAP_DAC_OVERRIDE, as in the DaemonSet, even
// its owner root can change no attribute of it.
//
// Source: kernfs_create_root in fs/kernfs/dir.c, and xattr_permission in fs/xattr.c.
func (c Cgroup) changeXattrs(change func(fd int) error) error {
	return c.withDir(func(fd int) error {
		err := change(fd)
		if !errors.Is(err, unix.EACCES) {
			return err
		}
		var st unix.Stat_t
		if statErr := unix.Fstat(fd, &st); statErr != nil || st.Mode&unix.S_IWUSR != 0 {
			return errors.Join(err, statErr)
		}
		mode := st.Mode & 0o7777
		if chmodErr := unix.Fchmod(fd, mode|unix.S_IWUSR); chmodErr != nil {
			return errors.Join(err, fmt.Errorf("set its mode: %w", chmodErr))
		}
		return errors.Join(change(fd), unix.Fchmod(fd, mode))
	})
}

// xattrError does without the data: a record is long and no help.
func (c Cgroup) xattrError(op, name string, err error) error {
	if err == nil {
		return nil
	}
	return c.fileError(op+" xattr", name, "", err)
}

func (c Cgroup) withDir(fn func(fd int) error) error {
	fd, err := c.h.open(c.path, unix.O_RDONLY|unix.O_DIRECTORY)
	if err != nil {
		return err
	}
	defer unix.Close(fd)
	return fn(fd)
}

// xattrSize is enough for most records.
const xattrSize = 1024

// getxattr returns nil where there is no such attribute. It uses buf if that is
// long enough.
func getxattr(buf []byte, get func(buf []byte) (int, error)) ([]byte, error) {
	for ; ; buf = make([]byte, 4*len(buf)) {
		n, err := get(buf)
		switch {
		case err == nil:
			return buf[:n], nil
		case errors.Is(err, unix.ENODATA):
			return nil, nil
		case !errors.Is(err, unix.ERANGE) || len(buf) > 1<<20:
			return nil, fmt.Errorf("get: %w", err)
		}
	}
}

// listXattrs returns the sorted names of the attributes that are xattr or xattr.NAME, where
// NAME can be that of a directory. It uses buf if that is long enough.
func listXattrs(buf []byte, xattr string, list func(buf []byte) (int, error)) ([]string, error) {
	data, err := getxattr(buf, list)
	var names []string
	for name := range bytes.SplitSeq(data, []byte{0}) {
		rest, ok := bytes.CutPrefix(name, []byte(xattr))
		if child, hasChild := bytes.CutPrefix(rest, []byte(".")); ok && (len(rest) == 0 || hasChild && isChild(string(child))) {
			names = append(names, string(name))
		}
	}
	slices.Sort(names)
	return names, err
}

// isChild reports whether a directory's entry can have the name. Names of attributes can
// have any byte but 0, and would lead to other directories otherwise.
func isChild(name string) bool {
	return name != "" && name != "." && name != ".." && !strings.Contains(name, "/")
}

// ReplaceIOMaxBelow replaces values of io.max in the children of c. With the systemd driver
// crun runs the processes of a container in a child of the container's cgroup, and writes
// the limits of the OCI spec there. The smallest limit on the path to the root holds.
// Values that are not to be replaced stay, since a container may run a cgroup manager
// itself.
func (c Cgroup) ReplaceIOMaxBelow(replacements []blkio.Replacement) error {
	if len(replacements) == 0 {
		return nil
	}
	children, err := c.Children()
	errs := []error{err}
	for _, child := range children {
		actual, err := child.ReadIOMax()
		if err != nil {
			continue // no io controller there, so no limits; or it was removed
		}
		for _, r := range replacements {
			if r.File() == blkio.IOMax && actual[r.Dev][r.Key] == r.From {
				for _, line := range blkio.Lines([]blkio.Value{{Address: r.Address, Amount: r.To}}) {
					errs = append(errs, child.Write(line))
				}
			}
		}
	}
	return errors.Join(errs...)
}
