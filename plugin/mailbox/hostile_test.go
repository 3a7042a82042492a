package mailbox_test

import (
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"github.com/nri-blkio/nri-blkio/blkio/hostfs"
	"github.com/nri-blkio/nri-blkio/plugin/mailbox"
	"github.com/nri-blkio/nri-blkio/plugin/poddoc"
	"github.com/nri-blkio/nri-blkio/plugin/podevent"
	"github.com/nri-blkio/nri-blkio/plugin/podfacts"
)

// TestHostile verifies for the documents of each direction that a writer that has been taken over can do no harm.
func TestHostile(t *testing.T) {
	t.Run("to the limits part", func(t *testing.T) {
		hostile(t, poddoc.Format(), func(uid, text string) *poddoc.Document {
			d := &poddoc.Document{UID: uid, Facts: podfacts.Facts{Namespace: "prod", Name: "db-0", Labels: map[string]string{"text": text}}}
			d.Bound()
			return d
		})
	})
	t.Run("to the cluster part", func(t *testing.T) {
		hostile(t, podevent.Format(), func(uid, text string) *podevent.Document {
			now := podevent.Time(time.Now())
			return &podevent.Document{
				Version: podevent.Version, Pod: podevent.Pod{UID: uid, Namespace: "prod", Name: "db-0"},
				Events: []podevent.Event{{Reason: podevent.Changed, Key: podevent.KeyOf("a"), Note: text, Count: 1, First: now, Last: now}},
			}
		})
	})
}

func hostile[T any](t *testing.T, format mailbox.Format[T], document func(uid, text string) *T) {
	for name, test := range map[string]func(*victim[T]){
		"files": (*victim[T]).files, "names": (*victim[T]).names, "errors": (*victim[T]).errors, "starve": (*victim[T]).starve, "race": (*victim[T]).race,
	} {
		t.Run(name, func(t *testing.T) {
			v := &victim[T]{T: t, format: format, document: document, dir: t.TempDir(), kept: map[string]*T{}}
			v.Reader = mailbox.NewReader(mailbox.Config[T]{Dir: v.dir, Format: format, Warn: func(err error) { v.warned = append(v.warned, err) }, Changed: func(uid string, d *T) {
				if v.kept[uid] = d; d == nil {
					delete(v.kept, uid)
				}
			}})
			test(v)
		})
	}
}

// victim is a reader of a directory of a hostile writer.
type victim[T any] struct {
	*testing.T
	*mailbox.Reader[T]
	format   mailbox.Format[T]
	document func(uid, text string) *T
	dir      string
	kept     map[string]*T // the documents that were reported
	warned   []error
}

func uid(n int) string { return fmt.Sprintf("%08d-7a4e-4b0c-9f52-8d1d5f1c2b3a", n) }

func (v *victim[T]) file(n int) string { return filepath.Join(v.dir, mailbox.FileName(uid(n))) }

func (v *victim[T]) must(err error) {
	v.Helper()
	if err != nil {
		v.Fatal(err)
	}
}

func (v *victim[T]) valid(n int) []byte {
	v.Helper()
	data, err := v.format.Encode(v.document(uid(n), "a"))
	v.must(err)
	return data
}

func (v *victim[T]) put(n int, data []byte) {
	v.Helper()
	v.must(hostfs.ReplaceFile(v.file(n), data))
}

// files has one file of each kind that is no document. The valid one is read, and no other.
func (v *victim[T]) files() {
	outside := filepath.Join(v.TempDir(), mailbox.FileName(uid(1)))
	v.must(os.WriteFile(outside, v.valid(1), 0o600))
	v.must(os.Symlink(outside, v.file(1)))
	v.must(unix.Mkfifo(v.file(2), 0o600))
	v.must(os.Mkdir(v.file(3), 0o700))
	v.must(os.Symlink("/dev/zero", v.file(4)))
	v.must(os.WriteFile(v.file(5), nil, 0o600))
	v.must(os.Truncate(v.file(5), 1<<40))
	v.must(os.Link(outside, v.file(6))) // of another pod
	v.must(os.WriteFile(v.file(7), []byte(`{"version":2}`), 0o600))
	v.must(os.Symlink(mailbox.FileName(uid(8)), v.file(8)))
	v.must(os.WriteFile(v.file(9)+hostfs.NextSuffix, v.valid(9), 0o600))
	v.must(os.WriteFile(filepath.Join(v.dir, "\xff\n.json"), v.valid(9), 0o600))
	v.put(10, v.valid(10))
	v.Read(time.Now())
	if len(v.kept) != 1 || v.kept[uid(10)] == nil {
		v.Errorf("%d documents are in use", len(v.kept))
	}
	if usable, unreadable := v.Counts(); usable != 1 || unreadable != 8 {
		v.Errorf("%d documents are in use and %d unreadable", usable, unreadable)
	}
}

// names replaces all of too many files again and again, so that the reader, or its receiver, keeps more and more.
func (v *victim[T]) names() {
	more := v.format.MaxFiles + 1
	for round := range 3 {
		for i := range more {
			v.put(round*more+i, v.valid(round*more+i))
			if round > 0 {
				v.must(os.Remove(v.file((round-1)*more + i)))
			}
		}
		v.Read(time.Now())
		usable, unreadable := v.Counts()
		if usable+unreadable > int64(v.format.MaxFiles) || len(v.kept) > v.format.MaxFiles {
			v.Fatalf("round %d: the reader knows %d documents and %d other files, the receiver keeps %d", round, usable, unreadable, len(v.kept))
		}
	}
	if len(v.kept) == 0 {
		v.Error("no document was read")
	}
	if len(v.warned) == 0 || !strings.Contains(v.warned[0].Error(), "too many files") {
		v.Errorf("warned of %v", v.warned)
	}
}

// errors has files with as much text as there can be in an error.
func (v *victim[T]) errors() {
	v.put(1, fmt.Appendf(nil, `{"version":1,%q:1}`, strings.Repeat("\u0444", v.format.MaxSize/3)))
	var many strings.Builder
	for i := range 3000 {
		fmt.Fprintf(&many, `,"k%d":1`, i)
	}
	v.put(2, []byte(`{"version":1`+many.String()+"}"))
	for _, n := range []int{1, 2} {
		v.warned = nil
		v.Read(time.Now().Add(time.Duration(n) * time.Hour))
		if len(v.warned) != 1 || len(v.warned[0].Error()) > 600 || !strings.Contains(v.warned[0].Error(), "unknown field") {
			v.Errorf("warned of %.1000v", v.warned)
		}
		v.must(os.Remove(v.file(n)))
	}
}

// starve has so many large files that cannot be read that no look reads all of them. The first names are read again with
// each look.
func (v *victim[T]) starve() {
	long := fmt.Appendf(nil, "%*s", v.format.MaxSize, "x")
	for i := range min(v.format.MaxKept/v.format.MaxSize+10, v.format.MaxFiles-1) {
		v.put(i, long)
	}
	const last = 99999999
	v.put(last, v.valid(last))
	for range 10 {
		v.Read(time.Now())
	}
	if v.kept[uid(last)] == nil {
		v.Error("a document that can be read is never read")
	}
}

// race replaces a document by other files while it is read: what is in use is a document of the pod at each time.
func (v *victim[T]) race() {
	outside := filepath.Join(v.TempDir(), "outside")
	v.must(os.WriteFile(outside, v.valid(2), 0o600))
	done := make(chan struct{})
	defer func() { <-done }()
	stop := make(chan struct{})
	defer close(stop)
	valid, other := v.valid(1), v.valid(2)
	go func() {
		defer close(done)
		for i := 0; ; i++ {
			select {
			case <-stop:
				return
			default:
			}
			next := v.file(1) + ".race"
			_ = os.RemoveAll(next)
			switch i % 5 {
			case 0:
				_ = os.Symlink(outside, next)
			case 1:
				_ = unix.Mkfifo(next, 0o600)
			case 2:
				_ = os.WriteFile(next, other, 0o600)
			default:
				_ = os.WriteFile(next, valid, 0o600)
			}
			_ = os.Rename(next, v.file(1))
		}
	}()
	for range 300 {
		v.Read(time.Now())
	}
	for of, d := range v.kept {
		if got, _ := v.format.Of(d); of != uid(1) || got != of {
			v.Errorf("the document of %s is in use for %s", got, of)
		}
	}
}
