package hostfs

import (
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"slices"
	"time"

	"golang.org/x/sys/unix"
)

// The functions of this file access a directory that a process with fewer privileges writes. What
// they find there is not trusted: a name can be that of a symlink, of a FIFO that blocks its
// reader, or of a file without end, and there can be any number of names.

// ShareDir makes a directory that a group may write, and no other user may enter. The caller has to
// be its owner, and a member of the group or capable of CAP_CHOWN. The directory above it has to
// exist, or is made for its owner alone to write.
func ShareDir(dir string, gid int) error {
	if err := os.MkdirAll(dir, 0o755); err != nil {
		return err
	}
	d, err := os.OpenFile(dir, unix.O_DIRECTORY|unix.O_NOFOLLOW, 0)
	if err != nil {
		return err
	}
	defer d.Close()
	if err := d.Chown(-1, gid); err != nil {
		return err
	}
	return d.Chmod(0o770) // not by MkdirAll, because of the umask
}

// ReplaceFile replaces a file of an existing directory. A reader sees either the old or the new
// content as a whole. The owner's group can read the file.
func ReplaceFile(file string, data []byte) error {
	next := file + NextSuffix
	if err := os.WriteFile(next, data, 0o640); err != nil {
		return err
	}
	return os.Rename(next, file)
}

// NextSuffix is the end of the name of a file of [ReplaceFile] that is not complete yet.
const NextSuffix = ".new"

// ReadShared reads a regular file of at most limit bytes. It follows no symlink, and does not wait
// for the writer of a FIFO. The error wraps [fs.ErrNotExist] if there is no file.
func ReadShared(file string, limit int) ([]byte, error) {
	f, err := os.OpenFile(file, unix.O_NOFOLLOW|unix.O_NONBLOCK|unix.O_NOCTTY, 0)
	if err != nil {
		return nil, err
	}
	defer f.Close()
	info, err := f.Stat()
	if err != nil {
		return nil, err
	}
	if !info.Mode().IsRegular() {
		return nil, fmt.Errorf("read %s: not a regular file", file)
	}
	data, err := io.ReadAll(io.LimitReader(f, int64(limit)+1))
	if err != nil {
		return nil, err
	}
	if len(data) > limit {
		return nil, fmt.Errorf("read %s: larger than %d bytes", file, limit)
	}
	return data, nil
}

// SharedNames returns the sorted names in a directory, at most limit of them. If there are more,
// it returns those that it read first and true.
func SharedNames(dir string, limit int) (names []string, more bool, err error) {
	d, err := os.Open(dir)
	if err != nil {
		return nil, false, err
	}
	defer d.Close()
	names, err = d.Readdirnames(limit + 1)
	if err != nil && !errors.Is(err, io.EOF) {
		return nil, false, err
	}
	if more = len(names) > limit; more {
		names = names[:limit]
	}
	slices.Sort(names)
	return names, more, nil
}

// RemoveIn removes a file of a directory, which must not be in a directory below it. It is no error
// if there is none.
func RemoveIn(dir, name string) error {
	if name != filepath.Base(name) {
		return fmt.Errorf("remove %s of %s: not a name", name, dir)
	}
	return ignoreAbsent(os.Remove(filepath.Join(dir, name)))
}

// Version changes when a file is replaced or changed, or when an entry of a directory is. A program without privileges
// cannot set the time in it.
type Version struct {
	Changed time.Time // ctime
	Inode   uint64
	Size    int64
}

// SharedFile is a name in a directory, with the version of what it leads to.
type SharedFile struct {
	Name    string
	Version Version
}

// SharedFiles returns the files of a directory as SharedNames returns their names. It leaves out those that are removed
// meanwhile.
func SharedFiles(dir string, limit int) (files []SharedFile, more bool, err error) {
	names, more, err := SharedNames(dir, limit)
	for _, name := range names {
		version, err := VersionOf(filepath.Join(dir, name))
		switch {
		case errors.Is(err, os.ErrNotExist):
		case err != nil:
			return nil, false, err
		default:
			files = append(files, SharedFile{name, version})
		}
	}
	return files, more, err
}

// VersionOf returns the version of a file or directory, of a symlink itself.
func VersionOf(file string) (Version, error) {
	var st unix.Stat_t
	if err := unix.Lstat(file, &st); err != nil {
		return Version{}, &os.PathError{Op: "lstat", Path: file, Err: err}
	}
	return Version{time.Unix(st.Ctim.Unix()), st.Ino, st.Size}, nil
}
