package podevent

import (
	"encoding/hex"
	"errors"
	"fmt"
	"slices"
	"strings"

	"github.com/nri-blkio/nri-blkio/plugin/mailbox"
	"github.com/nri-blkio/nri-blkio/policy/quote"
)

// Format returns the form of the documents in the events directory.
func Format() mailbox.Format[Document] {
	return mailbox.Format[Document]{
		Version: Version, MaxSize: MaxSize, MaxFiles: 2 * MaxPods, MaxKept: maxKept,
		Of:       func(d *Document) (uid, namespace string) { return d.UID, d.Namespace },
		Size:     (*Document).size,
		Validate: (*Document).validate,
	}
}

const (
	// maxKept bounds the memory in bytes of all documents of a node. MaxTotal events with the longest notes have less than
	// half of it.
	maxKept = 16 << 20
	// entrySize is the memory in bytes that a document or an event takes, with the name of its object and without its note.
	entrySize = 512
)

// size returns the memory in bytes of what a receiver keeps of a document.
func (d *Document) size() int {
	size := entrySize
	for i := range d.Events {
		size += entrySize + len(d.Events[i].Note)
	}
	return size
}

func (d *Document) validate() error {
	switch {
	case d.Version != Version:
		return fmt.Errorf("%w %d", mailbox.ErrVersion, d.Version)
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
		if first := d.Find(e.Reason, e.Key); first != i {
			return fmt.Errorf("events: %d: the same as %d", i, first)
		}
	}
	return nil
}

func (e *Event) validate() error {
	switch {
	case e.Reason.Facts() == (Facts{}):
		return fmt.Errorf("reason: invalid value %s", quote.Text(string(e.Reason)))
	case !isKey(e.Key):
		return fmt.Errorf("key: invalid value %s", quote.Text(string(e.Key)))
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

func isKey(k Key) bool {
	sum, err := hex.DecodeString(string(k))
	return err == nil && len(sum) == 8 && hex.EncodeToString(sum) == string(k)
}

// Find returns the index of the event with a reason and a key, or -1.
func (d *Document) Find(reason Reason, key Key) int {
	return slices.IndexFunc(d.Events, func(e Event) bool { return e.Reason == reason && e.Key == key })
}
