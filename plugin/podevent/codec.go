package podevent

import (
	"errors"
	"fmt"
	"path/filepath"
	"strings"

	"github.com/nri-blkio/nri-blkio/blkio/hostfs"
	"github.com/nri-blkio/nri-blkio/plugin/poddoc"
	"github.com/nri-blkio/nri-blkio/plugin/strictjson"
	"github.com/nri-blkio/nri-blkio/policy/annotation"
	"github.com/nri-blkio/nri-blkio/policy/quote"
)

// Encode returns the bytes of a document: the same for the same document. A document that [Decode] would reject is an error.
func Encode(d *Document) ([]byte, error) {
	return strictjson.EncodeValid(d, MaxSize, d.validate)
}

// Decode decodes a document strictly. It takes the bytes of [Encode] and no others.
func Decode(data []byte) (*Document, error) {
	var d Document
	if err := strictjson.DecodeValid(data, Version, MaxSize, &d, d.validate); err != nil {
		return nil, err
	}
	return &d, nil
}

func (d *Document) validate() error {
	switch {
	case d.Version != Version:
		return fmt.Errorf("%w %d", strictjson.ErrVersion, d.Version)
	case !d.IsValid():
		return fmt.Errorf("pod: invalid value %s", quote.Text(d.UID+" "+d.Namespace+"/"+d.Name))
	case len(d.Events) == 0 || len(d.Events) > MaxEvents:
		return fmt.Errorf("events: %d of them (minimum 1, maximum %d)", len(d.Events), MaxEvents)
	}
	for i := range d.Events {
		e := &d.Events[i]
		if err := e.validate(); err != nil {
			return fmt.Errorf("events: %d: %w", i, err)
		}
		if first := find(d.Events, e.Reason, e.Note); first != i {
			return fmt.Errorf("events: %d: the same as %d", i, first)
		}
	}
	return nil
}

func (e *Event) validate() error {
	_, known := e.Reason.facts()
	switch {
	case !known:
		return fmt.Errorf("reason: invalid value %s", quote.Text(string(e.Reason)))
	case !isNote(e.Note):
		return fmt.Errorf("note: invalid value %s", quote.Text(e.Note))
	case e.Count < 1:
		return fmt.Errorf("count: invalid value %d", e.Count)
	case e.First != Time(e.First) || e.Last != Time(e.Last) || e.First.IsZero() || e.Last.IsZero():
		return errors.New("first or last: invalid value")
	}
	return nil
}

func isNote(s string) bool {
	return s != "" && len(s) <= MaxNote && !strings.ContainsFunc(s, func(r rune) bool { return r < ' ' || r > '~' })
}

// Find returns the index of the event with a reason and a note, or -1. Notes that differ in amounts only are the same, see
// [annotation.WithoutAmounts].
func (d *Document) Find(reason Reason, note string) int { return find(d.Events, reason, note) }

func find(events []Event, reason Reason, note string) int {
	key := annotation.WithoutAmounts(note)
	for i := range events {
		if events[i].Reason == reason && (events[i].Note == note || annotation.WithoutAmounts(events[i].Note) == key) {
			return i
		}
	}
	return -1
}

// Read reads the document of a pod. The error wraps [io/fs.ErrNotExist] if there is none, and [strictjson.ErrVersion] if
// another version of the program has written it.
func Read(dir, uid string) (*Document, error) {
	file := filepath.Join(dir, poddoc.FileName(uid))
	data, err := hostfs.ReadShared(file, MaxSize)
	if err != nil {
		return nil, err
	}
	d, err := Decode(data)
	switch {
	case err != nil:
		return nil, fmt.Errorf("read %s: %w", file, err)
	case d.UID != uid:
		return nil, fmt.Errorf("read %s: uid: invalid value %s", file, quote.Text(d.UID))
	}
	return d, nil
}
