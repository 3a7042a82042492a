package exchange

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"maps"
	"slices"
	"strings"
	"sync/atomic"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/sirupsen/logrus"

	"github.com/nri-blkio/nri-blkio/blkio/hostfs"
	"github.com/nri-blkio/nri-blkio/plugin/poddoc"
	"github.com/nri-blkio/nri-blkio/plugin/recovery"
	"github.com/nri-blkio/nri-blkio/plugin/reminder"
)

const (
	// Interval is the time between two looks at the directory. A look reads the time of its last change only.
	Interval = 200 * time.Millisecond
	// resync is the time after which the files are compared although the directory has not changed.
	resync = 30 * time.Second
	// settling is the time for which another change can have the same time as the last one. The kernel's clock for files
	// has steps of up to 10 ms.
	settling = time.Second
	// maxKept bounds the memory in bytes that a receiver needs for all documents. 250 pods with the longest annotations and
	// labels, 60 of both and of the labels of namespaces, and with 20 KiB of claims have less. It also bounds the bytes of the
	// files that one look reads.
	maxKept = 22 << 20
	// entrySize is the memory in bytes that an annotation, a label or a part of a claim takes, without its text.
	entrySize = 96
	// rest is the time between two looks as a multiple of the time that the last one took. A writer of many files must not
	// take the CPU time that the limits of containers need.
	rest = 4
	// maxError bounds the bytes of an error, which has text of the writer.
	maxError = 512
)

// Config is the configuration of a Reader.
type Config struct {
	Dir   string
	Every time.Duration // 0 is Interval
	// Changed is called with the document of a pod that is new or has changed, and with nil for one that was removed. The
	// document must not be changed.
	Changed func(uid string, d *poddoc.Document)
	Log     logrus.FieldLogger
	// Share makes the directory, and shares it with the writer. It is called before the files are compared, because the
	// directory may have been removed. It may be nil.
	Share func()
	// Recovery counts panics. It may be nil.
	Recovery *recovery.Recovery
}

// Reader reads a directory again and again. What cannot be read stays as it was: a document that is unreadable, and all of
// them while the directory is missing.
type Reader struct {
	Config
	known   map[string]*file // by UID
	kept    int              // bytes of all documents that were reported
	place   place
	problem reminder.Reminder
	logged  time.Time // when a problem was last logged
	counts
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
	version  hostfs.Version
	size     int   // of the document that was reported, in bytes; 0 without one
	reported bool  // Changed was called with a document
	err      error // why this version cannot be used
}

// New returns a reader that has read nothing.
func New(c Config) *Reader {
	if c.Every == 0 {
		c.Every = Interval
	}
	return &Reader{Config: c, known: map[string]*file{}}
}

// Run reads until ctx ends.
func (r *Reader) Run(ctx context.Context) {
	next := time.NewTimer(r.Every)
	defer next.Stop()
	for {
		select {
		case <-ctx.Done():
			return
		case <-next.C:
			began := time.Now()
			r.Recovery.Step("read documents", r.Read)
			next.Reset(max(r.Every, rest*time.Since(began)))
		}
	}
}

// Read reports what has changed since the last call. An error is logged, and again while it lasts. The writer decides how
// often errors change, so they are logged once in some time.
func (r *Reader) Read() {
	now := time.Now()
	err := r.read(now)
	if err != nil && now.Sub(r.logged) < resync {
		return
	}
	if r.problem.Due(now, err) {
		r.logged = now
		r.Log.WithError(err).WithField("dir", r.Dir).Warn("Some documents of pods cannot be read: what is in force for these pods stays")
	}
}

func (r *Reader) read(now time.Time) error {
	if r.Share != nil && now.Sub(r.place.shared).Abs() >= resync {
		r.Share()
		r.place.shared = now
	}
	dir, err := hostfs.VersionOf(r.Dir)
	switch {
	case errors.Is(err, fs.ErrNotExist):
		return nil // there is no cluster part, or it is being installed
	case err != nil:
		return err
	case dir == r.place.dir && now.Sub(dir.Changed).Abs() > settling && now.Sub(r.place.compared).Abs() < resync:
		return r.unusable()
	}
	files, more, err := hostfs.SharedFiles(r.Dir, poddoc.MaxDocuments)
	if err != nil {
		return err
	}
	there := make(map[string]hostfs.Version, len(files))
	for _, f := range files {
		if uid, ok := poddoc.UIDOf(f.Name); ok {
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
	return fmt.Errorf("read %s: the exchange directory has too many files", r.Dir)
}

// takeAll reads the documents that are new. It returns false if some are left for the next call, which begins with them:
// files that cannot be read, and are read again each time, must not keep others from being read.
func (r *Reader) takeAll(there map[string]hostfs.Version) (done bool) {
	var read int64
	uids := slices.Sorted(maps.Keys(there))
	at, _ := slices.BinarySearch(uids, r.place.next)
	for _, uid := range slices.Concat(uids[at:], uids[:at]) {
		f, version := r.known[uid], there[uid]
		switch {
		case f != nil && f.version == version && f.err == nil: // an error may have ended
			continue
		case read > maxKept:
			r.place.next = uid
			return false
		case f == nil && len(r.known) >= poddoc.MaxDocuments: // those that are not listed are kept
			continue
		}
		read += min(version.Size, poddoc.MaxSize)
		r.take(uid, version)
	}
	return true
}

// take reads the document of a pod.
func (r *Reader) take(uid string, version hostfs.Version) {
	f := r.known[uid]
	if f == nil {
		f = &file{}
		r.known[uid] = f
	}
	f.version = version
	var d *poddoc.Document
	if d, f.err = poddoc.Read(r.Dir, uid); f.err != nil {
		if text := f.err.Error(); len(text) > maxError {
			f.err = errors.New(strings.ToValidUTF8(text[:maxError], "") + "...")
		}
		return
	}
	size := sizeOf(d)
	if r.kept-f.size+size > maxKept {
		f.err = fmt.Errorf("read %s of %s: the documents have more than %d bytes together", poddoc.FileName(uid), r.Dir, maxKept)
		return
	}
	r.kept += size - f.size
	f.size, f.reported = size, true
	r.Changed(uid, d)
}

// sizeOf returns the memory in bytes of what a receiver keeps of a document.
func sizeOf(d *poddoc.Document) (size int) {
	for _, m := range []map[string]string{d.Annotations, d.Labels, d.NamespaceLabels, d.ContainerKinds} {
		for key, value := range m {
			size += entrySize + len(key) + len(value)
		}
	}
	for i := range d.Volumes {
		size += sizeOfVolume(&d.Volumes[i])
	}
	return size
}

func sizeOfVolume(v *poddoc.Volume) int {
	size := entrySize + len(v.Name) + len(v.Claim)
	if v.Limits != nil {
		size += len(*v.Limits)
	}
	for _, m := range v.Mounts {
		size += entrySize + len(m.Container) + len(m.Path)
	}
	if c := v.Class; c != nil {
		size += entrySize + len(c.Name)
		for key, value := range c.Rates {
			size += entrySize + len(key) + len(value)
		}
	}
	return size
}

func (r *Reader) forgetExcept(there map[string]hostfs.Version) {
	for uid, f := range r.known {
		if _, found := there[uid]; found {
			continue
		}
		delete(r.known, uid)
		r.kept -= f.size
		if f.reported {
			r.Changed(uid, nil)
		}
	}
}

// unusable counts the documents, and returns an error with one of those that cannot be used: the same until another one
// appears or goes.
func (r *Reader) unusable() error {
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
	r.usable.Store(int64(read))
	r.unreadable.Store(int64(count))
	switch count {
	case 0:
		return nil
	case 1:
		return r.known[first].err
	}
	return fmt.Errorf("%w, and %d others", r.known[first].err, count-1)
}

var documentsDesc = prometheus.NewDesc("nri_blkio_pod_documents", "Documents of the cluster part, by whether the limits part can use them. For one that it cannot use, an earlier version counts.", []string{"state"}, nil)

var _ prometheus.Collector = (*Reader)(nil)

// Describe implements prometheus.Collector.
func (r *Reader) Describe(out chan<- *prometheus.Desc) { out <- documentsDesc }

// Collect implements prometheus.Collector.
func (r *Reader) Collect(out chan<- prometheus.Metric) {
	out <- prometheus.MustNewConstMetric(documentsDesc, prometheus.GaugeValue, float64(r.usable.Load()), "read")
	out <- prometheus.MustNewConstMetric(documentsDesc, prometheus.GaugeValue, float64(r.unreadable.Load()), "unreadable")
}
