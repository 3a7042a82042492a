package podevent

import (
	"crypto/sha256"
	"encoding/hex"
	"errors"
	"fmt"
	"maps"
	"slices"
	"strings"
	"time"

	"github.com/nri-blkio/nri-blkio/plugin/mailbox"
	"github.com/nri-blkio/nri-blkio/plugin/poddoc"
	"github.com/nri-blkio/nri-blkio/policy/annotation"
	"github.com/nri-blkio/nri-blkio/policy/quote"
)

// Version is the version of the documents that this package writes.
const Version = 1

// Bounds of documents. A node has at most a few hundred pods, and a pod a few events.
const (
	MaxPods   = 1024     // documents in a directory
	MaxTotal  = 4096     // events of all pods
	MaxEvents = 16       // of a pod
	MaxNote   = 1024     // bytes of a note, which is the bound of Kubernetes
	MaxSize   = 40 << 10 // bytes of a file: each character of a note can take two
)

// Reason is the kind of an event, as Kubernetes shows it.
type Reason string

// The reasons.
const (
	Refused        Reason = "BlkioRefused"        // a container was rejected
	NotInForce     Reason = "BlkioNotInForce"     // limits have no effect: an error is ignored, or they could not be decided or written for some time
	Observed       Reason = "BlkioObserved"       // mode observe: limits were decided, and not written
	Changed        Reason = "BlkioChanged"        // edited annotations or labels of a running pod, limits of its claims, or labels of its namespace were applied
	ChangeRejected Reason = "BlkioChangeRejected" // edited annotations, labels or limits of claims were not applied
	NoMemoryLimit  Reason = "BlkioNoMemoryLimit"  // a write limit without a memory limit
	ContestedFile  Reason = "BlkioContestedFile"  // writers with different limits keep writing a file
)

// Types of events in Kubernetes.
const (
	Normal  = "Normal"
	Warning = "Warning"
)

// Facts has what is the same for all events of a reason.
type Facts struct {
	Type   string // Normal or Warning
	Action string // that was taken or failed, for the field of Kubernetes' Events
	// IsFact is true if the event is about a fact that lasts, and does not occur again.
	IsFact bool
}

// facts has the facts of each reason.
var facts = map[Reason]Facts{ // constant
	Refused:        {Warning, "CreateContainer", false},
	NotInForce:     {Warning, "WriteLimits", false},
	Observed:       {Normal, "DecideLimits", true},
	Changed:        {Normal, "ChangeLimits", false},
	ChangeRejected: {Warning, "ChangeLimits", false},
	NoMemoryLimit:  {Warning, "DecideLimits", true},
	ContestedFile:  {Warning, "AssignWriteback", false},
}

// Reasons returns all reasons, sorted.
func Reasons() []Reason { return slices.Sorted(maps.Keys(facts)) }

// Facts returns the facts of a reason, the zero value for an unknown one.
func (r Reason) Facts() Facts { return facts[r] }

// Pod names a pod.
type Pod struct {
	UID       string `json:"uid"` // as the runtime knows it: for a static pod not the one of the API server
	Namespace string `json:"namespace"`
	Name      string `json:"name"`
}

// IsValid reports whether the API server can have such a pod.
func (p *Pod) IsValid() bool {
	return mailbox.IsUID(p.UID) && annotation.IsLabel(p.Namespace) && poddoc.IsName(p.Name)
}

// Document has the events of one pod.
type Document struct {
	Version int `json:"version"`
	Pod
	// Events are in the order in which they first occurred. Each has another reason or key.
	Events []Event `json:"events"`
}

// Key identifies what an event is about, within its pod and reason: 16 hexadecimal digits. Its note is the sentence for people, and
// may have other amounts each time.
type Key string

// KeyOf returns a key that depends on all of the parts.
func KeyOf(parts ...string) Key {
	sum := sha256.Sum256(fmt.Appendf(nil, "%q", parts))
	return Key(hex.EncodeToString(sum[:8]))
}

// Event is what has happened once or more often.
type Event struct {
	Reason Reason `json:"reason"`
	Key    Key    `json:"key"`
	Note   string `json:"note"` // see Text
	Count  int    `json:"count"`
	// First and Last are in UTC, in whole microseconds. Last may be before First if the clock was set.
	First time.Time `json:"first"`
	Last  time.Time `json:"last"`
}

// Text returns a note: one line of printable ASCII, at most [MaxNote] bytes. Other characters are escaped, as in the errors
// that reject containers.
func Text(s string) string {
	// Each byte takes at least one.
	return quote.Clip(quote.ASCII(s[:min(len(s), 2*MaxNote)]), MaxNote)
}

// Time returns a time in the form of a document.
func Time(t time.Time) time.Time { return t.UTC().Truncate(time.Microsecond).Round(0) }

// maxName is the size of the longest name of an object.
const maxName = 253

// ObjectName returns the name of the Kubernetes object for an event of the pod: the same for the same reason and key. So a process
// finds the object that an earlier one has created.
func (p *Pod) ObjectName(e *Event) string {
	sum := sha256.Sum256([]byte(p.UID + "\x00" + string(e.Reason) + "\x00" + string(e.Key)))
	suffix := "." + hex.EncodeToString(sum[:8])
	return strings.TrimRight(p.Name[:min(len(p.Name), maxName-len(suffix))], ".-") + suffix
}

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
