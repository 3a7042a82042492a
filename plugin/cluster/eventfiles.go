package cluster

import (
	"errors"
	"fmt"
	"io/fs"
	"time"

	"github.com/nri-blkio/nri-blkio/blkio/hostfs"
	"github.com/nri-blkio/nri-blkio/plugin/poddoc"
	"github.com/nri-blkio/nri-blkio/plugin/podevent"
)

// eventFiles are the documents in the events directory, which the limits part writes. One goroutine uses it.
type eventFiles struct {
	dir      string
	known    map[string]*eventFile // by UID
	version  hostfs.Version        // of the directory when the files were last compared
	compared time.Time
}

// eventFile is a document as it was last read.
type eventFile struct {
	version hostfs.Version
	*podevent.Document
	names []string // of the objects for its events
}

const (
	// settling is the time for which another change of the directory can have the same time as the last one.
	settling = time.Second
	// compareEvery is the time after which the files are compared although the directory has not changed.
	compareEvery = 30 * time.Second
)

func newEventFiles(dir string) *eventFiles {
	return &eventFiles{dir: dir, known: map[string]*eventFile{}}
}

// read reads the documents that have changed. What cannot be read stays as it was. A directory that is missing has no
// documents: no limits part has written any.
func (f *eventFiles) read(now time.Time) error {
	version, err := hostfs.VersionOf(f.dir)
	switch {
	case errors.Is(err, fs.ErrNotExist):
		return nil
	case err != nil:
		return err
	case version == f.version && now.Sub(version.Changed).Abs() > settling && now.Sub(f.compared).Abs() < compareEvery:
		return nil
	}
	files, more, err := hostfs.SharedFiles(f.dir, 2*podevent.MaxPods)
	if err != nil {
		return err
	}
	there, errs := map[string]bool{}, []error(nil)
	for _, file := range files {
		uid, ok := poddoc.UIDOf(file.Name)
		if !ok {
			continue
		}
		there[uid] = true
		if err := f.readOne(uid, file.Version); err != nil {
			errs = append(errs, err)
		}
	}
	for uid := range f.known {
		if !there[uid] && !more {
			delete(f.known, uid)
		}
	}
	f.version, f.compared = version, now
	switch len(errs) {
	case 0:
		return nil
	case 1:
		return errs[0]
	}
	return fmt.Errorf("%w, and %d others", errs[0], len(errs)-1)
}

func (f *eventFiles) readOne(uid string, version hostfs.Version) error {
	known := f.known[uid]
	if known != nil && known.version == version || known == nil && len(f.known) >= podevent.MaxPods {
		return nil
	}
	d, err := podevent.Read(f.dir, uid)
	if errors.Is(err, fs.ErrNotExist) {
		return nil // it was removed meanwhile
	}
	if err != nil {
		return err
	}
	fresh := &eventFile{version: version, Document: d}
	for i := range d.Events {
		fresh.names = append(fresh.names, d.ObjectName(&d.Events[i]))
	}
	f.known[uid] = fresh
	return nil
}
