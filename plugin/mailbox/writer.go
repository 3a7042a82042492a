package mailbox

import (
	"bytes"
	"crypto/sha256"
	"errors"
	"fmt"
	"path/filepath"
	"strings"

	"github.com/nri-blkio/nri-blkio/blkio/hostfs"
)

// Writer writes the documents of a directory. One goroutine uses it.
type Writer[T any] struct {
	dir     string
	format  Format[T]
	replace func(file string, data []byte) error
	written map[string][sha256.Size]byte // the sum of each document that is there, by UID
}

// NewWriter returns a writer that has written nothing. replace is [hostfs.ReplaceFile] or [hostfs.ReplaceOffered].
func NewWriter[T any](dir string, f Format[T], replace func(file string, data []byte) error) *Writer[T] {
	return &Writer[T]{dir, f, replace, map[string][sha256.Size]byte{}}
}

// Documents returns the number of documents that were written, or were found unchanged, and not removed.
func (w *Writer[T]) Documents() int { return len(w.written) }

// Read reads a document that is there, also from before a restart, see [Format.Read].
func (w *Writer[T]) Read(uid string) (*T, error) { return w.format.Read(w.dir, uid) }

// Write writes an encoded document unless it is there with the same bytes, also from before a restart.
func (w *Writer[T]) Write(uid string, data []byte) (written bool, err error) {
	sum := sha256.Sum256(data)
	if w.written[uid] == sum {
		return false, nil
	}
	file := filepath.Join(w.dir, FileName(uid))
	if _, known := w.written[uid]; !known {
		if old, err := hostfs.ReadShared(file, w.format.MaxSize); err == nil && bytes.Equal(old, data) {
			w.written[uid] = sum
			return false, nil
		}
	}
	if err := w.replace(file, data); err != nil {
		delete(w.written, uid) // whatever is there now
		return false, err
	}
	w.written[uid] = sum
	return true, nil
}

// Remove removes the document of a pod, if there is one.
func (w *Writer[T]) Remove(uid string) error {
	delete(w.written, uid)
	return hostfs.RemoveIn(w.dir, FileName(uid))
}

// Clean removes the documents for which keep returns false, and files that were never completed. It returns the UIDs of
// documents that were written and are missing.
func (w *Writer[T]) Clean(keep func(uid string) bool) (missing []string, err error) {
	names, more, err := hostfs.SharedNames(w.dir, w.format.MaxFiles)
	if err != nil {
		return nil, err
	}
	var errs []error
	found := map[string]bool{}
	for _, name := range names {
		uid, isDocument := uidOf(strings.TrimSuffix(name, hostfs.NextSuffix))
		switch {
		case !isDocument:
		case FileName(uid) != name:
			errs = append(errs, hostfs.RemoveIn(w.dir, name))
		case keep(uid):
			found[uid] = true
		default:
			errs = append(errs, w.Remove(uid))
		}
	}
	for uid := range w.written {
		if !found[uid] && !more {
			delete(w.written, uid)
			missing = append(missing, uid)
		}
	}
	if more {
		errs = append(errs, tooManyFiles(w.dir))
	}
	return missing, errors.Join(errs...)
}

func tooManyFiles(dir string) error {
	return fmt.Errorf("read %s: the directory has too many files", dir)
}
