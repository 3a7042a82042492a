package hostfs

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
	"time"

	securejoin "github.com/cyphar/filepath-securejoin"
	"golang.org/x/sys/unix"
)

// Root is the directory where the node's root filesystem is mounted: "/", or another one in a
// container. Its methods take paths of the node, with or without the slash in front, so that it
// is an [fs.FS] as well.
//
// Open, ReadFile, Stat and Resolve follow symlinks as the node does, absolute ones included: os.DirFS
// would follow those to the root of this process, and os.Root refuses them. The other methods
// follow no symlink of the node, and their callers give them paths that have none.
type Root string

// Open opens a file.
func (r Root) Open(name string) (fs.File, error) {
	file, err := r.Resolve(name)
	if err != nil {
		return nil, err
	}
	return os.Open(file)
}

// Resolve returns where this process finds a path of the node.
func (r Root) Resolve(name string) (string, error) {
	file, err := securejoin.SecureJoin(string(r), "/"+Name(name))
	if err != nil {
		return "", &fs.PathError{Op: "open", Path: name, Err: err}
	}
	return file, nil
}

// MaxFile bounds a configuration file. Those of runtimes have some KiB.
const MaxFile = 1 << 20

// ReadFile reads a file of at most 1 MiB.
func (r Root) ReadFile(name string) ([]byte, error) {
	f, err := r.Open(name)
	if err != nil {
		return nil, err
	}
	defer f.Close()
	data, err := io.ReadAll(io.LimitReader(f, MaxFile+1))
	if err != nil {
		return nil, err
	}
	if len(data) > MaxFile {
		return nil, fmt.Errorf("read %s: larger than %d bytes", name, MaxFile)
	}
	return data, nil
}

// IsDir reports whether a path is that of a directory.
func (r Root) IsDir(name string) bool {
	info, err := r.Stat(name)
	return err == nil && info.IsDir()
}

// Exists reports whether there is a file of any kind.
func (r Root) Exists(name string) bool {
	_, err := r.Stat(name)
	return err == nil
}

// Stat opens nothing: a socket cannot be opened.
func (r Root) Stat(name string) (fs.FileInfo, error) {
	file, err := r.Resolve(name)
	if err != nil {
		return nil, err
	}
	return os.Stat(file)
}

// Names lists a directory, sorted; nothing if it does not exist or is no directory. It does not
// ask for the types of the entries. A filesystem that does not keep types in directories would
// look each entry up for that, and the lookup of a mountpoint can hang.
func (r Root) Names(dir string) ([]string, error) {
	f, err := os.Open(r.path(dir))
	if err != nil {
		return nil, ignoreAbsent(err)
	}
	defer f.Close()
	names, err := f.Readdirnames(-1)
	if err != nil {
		return nil, ignoreAbsent(err)
	}
	slices.Sort(names)
	return names, nil
}

func ignoreAbsent(err error) error {
	if errors.Is(err, fs.ErrNotExist) || errors.Is(err, unix.ENOTDIR) {
		return nil
	}
	return err
}

// ModTime returns when the entries of a directory changed last; false if the path is not that
// of a directory.
func (r Root) ModTime(dir string) (time.Time, bool) {
	info, err := os.Lstat(r.path(dir))
	if err != nil || !info.IsDir() {
		return time.Time{}, false
	}
	return info.ModTime(), true
}

// ChangeTime returns the ctime of a file, which no program can set back.
func (r Root) ChangeTime(name string) (time.Time, error) {
	var st unix.Stat_t
	if err := unix.Lstat(r.path(name), &st); err != nil {
		return time.Time{}, &fs.PathError{Op: "lstat", Path: name, Err: err}
	}
	return time.Unix(st.Ctim.Unix()), nil
}

func (r Root) path(name string) string { return filepath.Join(string(r), name) }

// Name makes a path of the node a name as package fs has it, without the slash in front.
func Name(p string) string { return strings.TrimPrefix(path.Clean("/"+p), "/") }

// BootTime returns when the node started. Without a clock it is now, so that nothing seems to
// have run since.
func BootTime() time.Time {
	var up unix.Timespec
	if err := unix.ClockGettime(unix.CLOCK_BOOTTIME, &up); err != nil {
		return time.Now()
	}
	return time.Now().Add(-time.Duration(up.Nano()))
}
