package cluster

import (
	"bytes"
	"crypto/sha256"
	"errors"
	"path/filepath"
	"strings"

	"github.com/nri-blkio/nri-blkio/blkio/hostfs"
	"github.com/nri-blkio/nri-blkio/plugin/poddoc"
)

// files are the documents in the exchange directory. One goroutine uses it.
type files struct {
	dir     string
	written map[string][sha256.Size]byte // the sum of each document that is there, by UID
}

func newFiles(dir string) *files { return &files{dir, map[string][sha256.Size]byte{}} }

// write writes a document unless it is there with the same bytes, also from before a restart.
func (f *files) write(uid string, data []byte) (written bool, err error) {
	sum := sha256.Sum256(data)
	if f.written[uid] == sum {
		return false, nil
	}
	file := filepath.Join(f.dir, poddoc.FileName(uid))
	if _, known := f.written[uid]; !known {
		if old, err := hostfs.ReadShared(file, poddoc.MaxSize); err == nil && bytes.Equal(old, data) {
			f.written[uid] = sum
			return false, nil
		}
	}
	if err := hostfs.ReplaceFile(file, data); err != nil {
		delete(f.written, uid) // whatever is there now
		return false, err
	}
	f.written[uid] = sum
	return true, nil
}

func (f *files) remove(uid string) error {
	delete(f.written, uid)
	return hostfs.RemoveIn(f.dir, poddoc.FileName(uid))
}

// compare compares the directory with what was written. It removes the documents of pods that do not
// exist, and files that were never completed, and returns the UIDs of documents that are missing.
func (f *files) compare(exists func(uid string) bool) (missing []string, err error) {
	names, more, err := hostfs.SharedNames(f.dir, poddoc.MaxDocuments)
	if err != nil {
		return nil, err
	}
	var errs []error
	found := map[string]bool{}
	for _, name := range names {
		uid, isDocument := poddoc.UIDOf(strings.TrimSuffix(name, hostfs.NextSuffix))
		switch {
		case !isDocument:
		case poddoc.FileName(uid) != name:
			errs = append(errs, hostfs.RemoveIn(f.dir, name))
		case exists(uid):
			found[uid] = true
		default:
			errs = append(errs, f.remove(uid))
		}
	}
	for uid := range f.written {
		if !found[uid] && !more {
			delete(f.written, uid)
			missing = append(missing, uid)
		}
	}
	if more {
		errs = append(errs, errors.New("the exchange directory has too many files"))
	}
	return missing, errors.Join(errs...)
}
