// Package hostfs accesses files of the node: the configuration and the directories of other
// programs, and the small files by which processes of this program share data.
package hostfs

import (
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path"
	"path/filepath"
	"slices"
	"strings"
	"time"

	securejoin "github.com/cyphar/filepath-securejoin"
	"github.com/prometheus/procfs"
	"golang.org/x/sys/unix"
)

// Root is the directory at which the node's root filesystem is mounted, such as "/" or, in
// a container, "/host". Its methods take paths of the node, with or without the leading
// slash. So a Root is also an [fs.FS].
//
// Open, ReadFile, Stat, Exists, IsDir and Resolve follow symlinks as the node does. With
// os.DirFS, absolute links would lead to the root of this process; os.Root refuses them.
// The other methods do not resolve symlinks in the node's root. Their callers pass paths
// without symlinks.
type Root string

// Open opens a file for reading.
func (r Root) Open(name string) (fs.File, error) {
	file, err := r.Resolve(name)
	if err != nil {
		return nil, err
	}
	return os.Open(file)
}

// Resolve returns the path at which this process finds a path of the node.
func (r Root) Resolve(name string) (string, error) {
	file, err := securejoin.SecureJoin(string(r), "/"+Name(name))
	if err != nil {
		return "", &fs.PathError{Op: "open", Path: name, Err: err}
	}
	return file, nil
}

// MaxFile is the largest size of a configuration file, in bytes. Those of runtimes have
// some KiB.
const MaxFile = 1 << 20

// ReadFile reads a file of at most 1 MiB.
func (r Root) ReadFile(name string) ([]byte, error) {
	f, err := r.Open(name)
	if err != nil {
		return nil, err
	}
	defer f.Close()
	return readAtMost(f, name, MaxFile)
}

// IsDir reports whether the path leads to a directory.
func (r Root) IsDir(name string) bool {
	info, err := r.Stat(name)
	return err == nil && info.IsDir()
}

// Exists reports whether there is a file of any kind at the path.
func (r Root) Exists(name string) bool {
	_, err := r.Stat(name)
	return err == nil
}

// Stat returns the status of a file without opening it, so it works for sockets.
func (r Root) Stat(name string) (fs.FileInfo, error) {
	file, err := r.Resolve(name)
	if err != nil {
		return nil, err
	}
	return os.Stat(file)
}

// Names returns the sorted names in a directory. It returns none if the directory does not exist, or if the
// path does not lead to a directory. It does not read the types of the entries. A filesystem that does not
// store types in directories would look each entry up for that, and the lookup of a mountpoint can hang.
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

// ModTime returns the time of the last change of a directory's entries. It returns false if
// the path is not that of a directory.
func (r Root) ModTime(dir string) (time.Time, bool) {
	info, err := os.Lstat(r.path(dir))
	if err != nil || !info.IsDir() {
		return time.Time{}, false
	}
	return info.ModTime(), true
}

// ChangeTime returns the ctime of a file. No system call sets a ctime to a chosen time.
func (r Root) ChangeTime(name string) (time.Time, error) {
	version, err := VersionOf(r.path(name))
	return version.Changed, err
}

func (r Root) path(name string) string { return filepath.Join(string(r), name) }

// Name returns a path of the node in the form of package fs, without the leading slash.
func Name(p string) string { return strings.TrimPrefix(path.Clean("/"+p), "/") }

// BootTime returns the time at which the node was booted. It returns the current time if
// the clock cannot be read.
func BootTime() time.Time { return time.Now().Add(-SinceBoot()) }

// SinceBoot returns the time since the node was booted, which is the same for all processes, and does
// not depend on the node's clock. It returns 0 if it cannot be read.
func SinceBoot() time.Duration {
	var up unix.Timespec
	if err := unix.ClockGettime(unix.CLOCK_BOOTTIME, &up); err != nil {
		return 0
	}
	return time.Duration(up.Nano())
}

// MemTotal returns the node's memory in bytes, from the line MemTotal of /proc/meminfo. It returns
// 0 if the node has no such file.
func (r Root) MemTotal() (uint64, error) {
	var info procfs.Meminfo
	proc, err := procfs.NewFS(r.path("/proc"))
	if err == nil {
		info, err = proc.Meminfo()
	}
	switch {
	case errors.Is(err, fs.ErrNotExist):
		return 0, nil
	case err != nil:
		return 0, fmt.Errorf("read %s: %w", r.path("/proc/meminfo"), err)
	case info.MemTotalBytes == nil:
		return 0, fmt.Errorf("read %s: missing line MemTotal", r.path("/proc/meminfo"))
	}
	return *info.MemTotalBytes, nil
}

// userHZ is the number of clock ticks of a second in procfs. The kernel's interface has this value on each architecture
// that this program runs on.
const userHZ = 100

// SinceStart returns the time since the kernel started this process, which is before the initialization of the program.
func SinceStart() (time.Duration, error) {
	self, err := procfs.Self()
	if err != nil {
		return 0, err
	}
	stat, err := self.Stat()
	return SinceBoot() - time.Duration(stat.Starttime)*time.Second/userHZ, err
}
