package hostfs

import (
	"encoding/json"
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
func ShareDir(dir string, gid int) error { return makeFor(dir, gid, 0o770) }

// OfferDir makes a directory as ShareDir does, which the group may read and not write.
func OfferDir(dir string, gid int) error { return makeFor(dir, gid, 0o750) }

func makeFor(dir string, gid int, mode os.FileMode) error {
	if err := os.MkdirAll(dir, 0o755); err != nil {
		return err
	}
	d, err := os.OpenFile(dir, unix.O_DIRECTORY|unix.O_NOFOLLOW, 0)
	if err != nil {
		return err
	}
	defer d.Close()
	var st unix.Stat_t
	if err := unix.Fstat(int(d.Fd()), &st); err != nil {
		return &os.PathError{Op: "fstat", Path: dir, Err: err}
	}
	if int(st.Gid) == gid && st.Mode&0o7777 == uint32(mode) {
		return nil // its time would change, by which its reader finds changes
	}
	if err := d.Chown(-1, gid); err != nil {
		return err
	}
	return d.Chmod(mode) // not by MkdirAll, because of the umask
}

// ReplaceFile replaces a file of an existing directory. A reader sees either the old or the new
// content as a whole. The owner's group can read the file, as the limits part does those of the cluster
// part, and no other user can.
func ReplaceFile(file string, data []byte) error { return replace(file, data, 0o640) }

// ReplaceOffered is ReplaceFile for a directory of [OfferDir]: each user that may enter the directory can read the file.
func ReplaceOffered(file string, data []byte) error { return replace(file, data, 0o644) }

func replace(file string, data []byte, mode os.FileMode) error {
	next := file + NextSuffix
	if err := os.WriteFile(next, data, mode); err != nil {
		return err
	}
	if err := os.Chmod(next, mode); err != nil { // not by WriteFile, because of the umask
		return err
	}
	return os.Rename(next, file)
}

// NextSuffix is the end of the name of a file of [ReplaceFile] that is not complete yet.
const NextSuffix = ".new"

// ReadShared reads a regular file of at most limit bytes. It does not follow a symlink, or wait
// for the writer of a FIFO. If the file does not exist, the error wraps [fs.ErrNotExist].
func ReadShared(file string, limit int) ([]byte, error) {
	f, err := os.OpenFile(file, unix.O_NOFOLLOW|unix.O_NONBLOCK|unix.O_NOCTTY, 0)
	if err != nil {
		return nil, err
	}
	defer f.Close()
	return readShared(f, file, limit)
}

// ReadSharedBelow is ReadShared for a file whose path below a directory another process may have made, such as the
// directories in it. It follows no symlink out of the directory.
func ReadSharedBelow(dir, path string, limit int) ([]byte, error) {
	root, err := os.OpenRoot(dir)
	if err != nil {
		return nil, err
	}
	defer root.Close()
	f, err := root.OpenFile(path, unix.O_NONBLOCK|unix.O_NOCTTY, 0)
	if err != nil {
		return nil, err
	}
	defer f.Close()
	return readShared(f, filepath.Join(dir, path), limit)
}

func readShared(f *os.File, file string, limit int) ([]byte, error) {
	info, err := f.Stat()
	if err != nil {
		return nil, err
	}
	if !info.Mode().IsRegular() {
		return nil, fmt.Errorf("read %s: not a regular file", file)
	}
	return readAtMost(f, file, limit)
}

func readAtMost(f io.Reader, file string, limit int) ([]byte, error) {
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

// RemoveIn removes a file from a directory. The name has no slash, so the file cannot be in another
// directory. A file that does not exist is not an error.
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

// MakeDir makes a directory that only its owner may enter, and those above it, unless it
// exists.
func MakeDir(dir string) error { return os.MkdirAll(dir, 0o700) }

// FindDir returns an error if a directory does not exist.
func FindDir(dir string) error {
	_, err := os.Stat(dir)
	return err
}

// maxJSON bounds a file before it is decoded.
const maxJSON = 4 << 20

// WriteJSON replaces a file by the JSON of v, see [ReplaceFile]. The file's directory is created
// if it is absent.
func WriteJSON(file string, v any) error {
	data, err := json.Marshal(v)
	if err != nil {
		return err
	}
	if err := os.MkdirAll(filepath.Dir(file), 0o755); err != nil {
		return err
	}
	return ReplaceFile(file, data)
}

// ReadJSON decodes a file into v, see [ReadShared]. It returns false without an error if the file
// does not exist.
func ReadJSON(file string, v any) (found bool, err error) {
	return decodeJSON(v, file, func() ([]byte, error) { return ReadShared(file, maxJSON) })
}

// ReadJSONBelow is ReadJSON for a file of at most limit bytes that another process writes, see [ReadSharedBelow].
func ReadJSONBelow(dir, path string, limit int, v any) (found bool, err error) {
	return decodeJSON(v, filepath.Join(dir, path), func() ([]byte, error) { return ReadSharedBelow(dir, path, limit) })
}

func decodeJSON(v any, file string, read func() ([]byte, error)) (found bool, err error) {
	data, err := read()
	if errors.Is(err, os.ErrNotExist) {
		return false, nil
	}
	if err != nil {
		return false, err
	}
	if err := json.Unmarshal(data, v); err != nil {
		return false, fmt.Errorf("read %s: %w", file, err)
	}
	return true, nil
}

// Remove removes a file.
func Remove(file string) error { return os.Remove(file) }
