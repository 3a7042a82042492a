package mailbox

import (
	"errors"
	"fmt"
	"io/fs"
	"maps"
	"slices"
	"strings"
	"sync/atomic"
	"time"

	"github.com/nri-blkio/nri-blkio/blkio/hostfs"
	"github.com/nri-blkio/nri-blkio/plugin/reminder"
)

const (
	// Resync is the time after which the files are compared although the directory has not changed.
	Resync = 30 * time.Second
	// settling is the time for which another change can have the same time as the last one. The kernel's clock for files
	// has steps of up to 10 ms.
	settling = time.Second
	// maxError bounds the bytes of an error, which has text of the writer.
	maxError = 512
)

// Config is the configuration of a Reader.
type Config[T any] struct {
	Dir    string
	Format Format[T]
	// Changed is called with the document of a pod that is new or has changed, and with nil for one that was removed or has
	// given way to those of other namespaces. The document must not be changed.
	Changed func(uid string, d *T)
	// Warn logs an error. It is called when a problem is new, and again while it lasts.
	Warn func(err error)
	// Share makes the directory, and shares it with the writer. It is called before the files are compared, because the
	// directory may have been removed. It may be nil.
	Share func()
}

// Reader reads a directory again and again. What cannot be read stays as it was: a document that is unreadable, and all of
// them while the directory is missing. Where all documents need more memory than their bound, each namespace has an equal
// part that others cannot take. One goroutine uses a reader, but Counts is safe for concurrent use.
type Reader[T any] struct {
	Config[T]
	known   map[string]*file // by UID
	kept    int              // bytes of all documents that were reported
	used    map[string]int   // the same by namespace
	place   place
	problem reminder.Reminder
	logged  time.Time // when a problem was last logged
	counts  counts
}

// place is how far the reader has come.
type place struct {
	dir      hostfs.Version
	shared   time.Time // when the directory was last shared
	compared time.Time // when the files were last compared
	next     string    // the UID at which the last look stopped, because it had read enough; "" if it did not
}

// counts are numbers for metrics.
type counts struct{ usable, unreadable atomic.Int64 }

// file is a file of the directory as it was last read.
type file struct {
	version   hostfs.Version
	namespace string // of the document that was reported
	size      int    // of the document that was reported, in bytes; 0 without one
	reported  bool   // Changed was called with a document
	err       error  // why this version cannot be used
}

// NewReader returns a reader that has read nothing.
func NewReader[T any](c Config[T]) *Reader[T] {
	return &Reader[T]{Config: c, known: map[string]*file{}, used: map[string]int{}}
}

// Counts returns the number of documents that are in use, and of files that cannot be used. A file that cannot be used
// counts twice if an earlier version of it is in use.
func (r *Reader[T]) Counts() (usable, unreadable int64) {
	return r.counts.usable.Load(), r.counts.unreadable.Load()
}

// Read reports what has changed since the last call. While the directory is unchanged, it reads the time of the last change
// only. The writer decides how often errors change, so they are logged once in some time.
func (r *Reader[T]) Read(now time.Time) {
	err := r.read(now)
	if err != nil && now.Sub(r.logged) < Resync {
		return
	}
	if r.problem.Due(now, err) {
		r.logged = now
		r.Warn(err)
	}
}

func (r *Reader[T]) read(now time.Time) error {
	if r.Share != nil && now.Sub(r.place.shared).Abs() >= Resync {
		r.Share()
		r.place.shared = now
	}
	dir, err := hostfs.VersionOf(r.Dir)
	switch {
	case errors.Is(err, fs.ErrNotExist):
		return nil // there is no other part, or it is being installed
	case err != nil:
		return err
	case dir == r.place.dir && now.Sub(dir.Changed).Abs() > settling && now.Sub(r.place.compared).Abs() < Resync:
		return r.unusable()
	}
	files, more, err := hostfs.SharedFiles(r.Dir, r.Format.MaxFiles)
	if err != nil {
		return err
	}
	there := make(map[string]hostfs.Version, len(files))
	for _, f := range files {
		if uid, ok := uidOf(f.Name); ok {
			there[uid] = f.Version
		}
	}
	if !more { // otherwise some are not listed
		r.forgetExcept(there)
	}
	if r.takeAll(there) {
		r.place.dir, r.place.compared = dir, now
	}
	if err := r.unusable(); err != nil || !more {
		return err
	}
	return tooManyFiles(r.Dir)
}

// takeAll reads the documents that are new. It returns false if some are left for the next call, which begins with them:
// files that cannot be read, and are read again each time, must not keep others from being read.
func (r *Reader[T]) takeAll(there map[string]hostfs.Version) (done bool) {
	var read int64
	uids := slices.Sorted(maps.Keys(there))
	at, _ := slices.BinarySearch(uids, r.place.next)
	for _, uid := range slices.Concat(uids[at:], uids[:at]) {
		f, version := r.known[uid], there[uid]
		switch {
		case f != nil && f.version == version && f.err == nil: // an error may have ended
			continue
		case read > int64(r.Format.MaxKept):
			r.place.next = uid
			return false
		case f == nil && len(r.known) >= r.Format.MaxFiles: // those that are not listed are kept
			continue
		}
		read += min(version.Size, int64(r.Format.MaxSize))
		r.take(uid, version)
	}
	return true
}

func (r *Reader[T]) take(uid string, version hostfs.Version) {
	d, err := r.Format.Read(r.Dir, uid)
	if errors.Is(err, fs.ErrNotExist) {
		return // it was removed meanwhile, which changes the directory
	}
	f := r.known[uid]
	if f == nil {
		f = &file{}
		r.known[uid] = f
	}
	f.version, f.err = version, bounded(err)
	if err != nil {
		return
	}
	if _, namespace := r.Format.Of(d); !r.makeRoom(uid, namespace, r.Format.Size(d)) {
		f.err = r.noRoom(uid)
		return
	}
	f.reported = true
	r.Changed(uid, d)
}

// noRoom returns the error of a document that has given way to others.
func (r *Reader[T]) noRoom(uid string) error {
	return fmt.Errorf("read %s of %s: the documents have more than %d bytes together", FileName(uid), r.Dir, r.Format.MaxKept)
}

// bounded returns an error with at most maxError bytes of the text of err.
func bounded(err error) error {
	if err == nil || len(err.Error()) <= maxError {
		return err
	}
	return errors.New(strings.ToValidUTF8(err.Error()[:maxError], "") + "...")
}

func (r *Reader[T]) forgetExcept(there map[string]hostfs.Version) {
	for uid, f := range r.known {
		if _, found := there[uid]; found {
			continue
		}
		delete(r.known, uid)
		r.count(f, f.namespace, 0)
		if f.reported {
			r.Changed(uid, nil)
		}
	}
}

// unusable counts the documents, and returns an error with one of those that cannot be used: the same until another one
// appears or goes.
func (r *Reader[T]) unusable() error {
	var first string
	count, read := 0, 0
	for uid, f := range r.known {
		if f.reported {
			read++
		}
		if f.err == nil {
			continue
		}
		if count++; first == "" || uid < first {
			first = uid
		}
	}
	r.counts.usable.Store(int64(read))
	r.counts.unreadable.Store(int64(count))
	switch count {
	case 0:
		return nil
	case 1:
		return r.known[first].err
	}
	return fmt.Errorf("%w, and %d others", r.known[first].err, count-1)
}

// makeRoom counts a document of a namespace in place of the one before, and returns false if there is no room for it. The
// largest document of the namespace with the most gives way, and the new one counts as one of them. So a namespace with no
// more than its equal part of the memory keeps all its documents, however many those of other namespaces are. No document
// gives way in vain.
func (r *Reader[T]) makeRoom(uid, namespace string, size int) bool {
	own := r.known[uid]
	before := *own
	r.count(own, namespace, size)
	displaced := map[string]int{} // their sizes
	for r.kept > r.Format.MaxKept {
		largest := r.largest(uid, r.most(namespace))
		f := r.known[largest]
		if largest == uid {
			for other, size := range displaced {
				r.count(r.known[other], r.known[other].namespace, size)
			}
			r.count(own, before.namespace, before.size)
			return false
		}
		displaced[largest] = f.size
		r.count(f, f.namespace, 0)
	}
	for other := range displaced { // the file is read again when the files are compared next
		f := r.known[other]
		f.reported, f.err = false, r.noRoom(other)
		r.Changed(other, nil)
	}
	return true
}

// count counts a document in place of the one that was reported of a file.
func (r *Reader[T]) count(f *file, namespace string, size int) {
	r.kept += size - f.size
	if r.used[f.namespace] -= f.size; r.used[f.namespace] == 0 {
		delete(r.used, f.namespace)
	}
	if size > 0 {
		r.used[namespace] += size
	}
	f.namespace, f.size = namespace, size
}

// most returns the namespace whose documents need the most memory: of several ones this one, or the first by name.
func (r *Reader[T]) most(namespace string) string {
	most, size := namespace, r.used[namespace]
	for other, n := range r.used {
		if n > size || n == size && most != namespace && other < most {
			most, size = other, n
		}
	}
	return most
}

// largest returns the UID of the largest document of a namespace: of several ones this one, or the first by UID.
func (r *Reader[T]) largest(uid, namespace string) string {
	largest, size := "", 0
	for other, f := range r.known {
		if f.namespace != namespace || f.size == 0 || f.size < size {
			continue
		}
		if f.size > size || other == uid || largest != uid && other < largest {
			largest, size = other, f.size
		}
	}
	return largest
}
