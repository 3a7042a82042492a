package mailbox

import (
	"bytes"
	"crypto/sha256"
	"encoding/json"
	"errors"
	"fmt"
	"path/filepath"
	"regexp"
	"strings"

	kjson "sigs.k8s.io/json"

	"github.com/nri-blkio/nri-blkio/blkio/hostfs"
	"github.com/nri-blkio/nri-blkio/policy/quote"
)

// Format is the form of the documents of a directory, with their bounds. A document has one form, and a reader takes no
// other one.
type Format[T any] struct {
	Version  int // the value of the field "version"
	MaxSize  int // bytes of a file
	MaxFiles int // names in the directory, and documents that a reader knows
	// MaxKept bounds the memory in bytes that a receiver needs for all documents, and the bytes of the files that one look
	// reads.
	MaxKept int
	// Of returns the pod of a document.
	Of func(*T) (uid, namespace string)
	// Size returns the memory in bytes of what a receiver keeps of a document.
	Size func(*T) int
	// Validate returns why a document may be neither written nor read. It is called for decoded documents of any content.
	Validate func(*T) error
}

// ErrVersion is the error of a document of another version.
var ErrVersion = errors.New("unknown version")

const suffix = ".json"

// uid matches the UIDs of pods: UUIDs, and for static pods the kubelet's MD5 sums.
var uid = regexp.MustCompile(`^[0-9a-f]{8}(-[0-9a-f]{4}){3}-[0-9a-f]{12}$|^[0-9a-f]{32}$`)

// IsUID reports whether s has the form of a pod's UID. As such it can be the name of a file.
func IsUID(s string) bool { return uid.MatchString(s) }

// FileName returns the name of the document of a pod with a valid UID.
func FileName(uid string) string { return uid + suffix }

// uidOf returns the UID of the pod whose document has this name. It returns false for all other files, such as one that is
// not complete yet.
func uidOf(fileName string) (uid string, ok bool) {
	uid, ok = strings.CutSuffix(fileName, suffix)
	return uid, ok && IsUID(uid)
}

// JSON returns a value with sorted keys, in one line: the same bytes for the same value.
func JSON(v any) ([]byte, error) {
	var out bytes.Buffer
	e := json.NewEncoder(&out)
	e.SetEscapeHTML(false) // "<" would take six bytes
	if err := e.Encode(v); err != nil {
		return nil, err
	}
	return out.Bytes(), nil
}

// Encode returns the bytes of a document: the same for the same document. A document that [Format.Decode] would reject is
// an error.
func (f Format[T]) Encode(d *T) ([]byte, error) {
	if err := f.Validate(d); err != nil {
		return nil, err
	}
	data, err := JSON(d)
	if err != nil {
		return nil, err
	}
	if err := f.checkSize(data); err != nil {
		return nil, err
	}
	return data, nil
}

// Decode decodes a document strictly. It takes the bytes of [Format.Encode] and no others: an unknown, misspelled or
// repeated field, another order or notation, and what exceeds a bound are errors.
func (f Format[T]) Decode(data []byte) (*T, error) {
	if err := f.checkSize(data); err != nil {
		return nil, err
	}
	if err := f.checkVersion(data); err != nil {
		return nil, err
	}
	d := new(T)
	if strict, err := kjson.UnmarshalStrict(data, d); err != nil || len(strict) > 0 {
		return nil, errors.Join(append(strict, err)...)
	}
	same, err := JSON(d)
	if err != nil {
		return nil, err
	}
	if !bytes.Equal(same, data) {
		return nil, errors.New("not in the form in which it is written")
	}
	if err := f.Validate(d); err != nil {
		return nil, err
	}
	return d, nil
}

// Read reads the document of a pod. The error wraps [io/fs.ErrNotExist] if there is none, and [ErrVersion] if another
// version of the program has written it.
func (f Format[T]) Read(dir, uid string) (*T, error) {
	if !IsUID(uid) {
		return nil, invalidUID(uid)
	}
	file := filepath.Join(dir, FileName(uid))
	data, err := hostfs.ReadShared(file, f.MaxSize)
	if err != nil {
		return nil, err
	}
	d, err := f.Decode(data)
	if err != nil {
		return nil, fmt.Errorf("read %s: %w", file, err)
	}
	if of, _ := f.Of(d); of != uid {
		return nil, fmt.Errorf("read %s: %w", file, invalidUID(of))
	}
	return d, nil
}

func (f Format[T]) checkSize(data []byte) error {
	if len(data) > f.MaxSize {
		return fmt.Errorf("%d bytes (maximum %d)", len(data), f.MaxSize)
	}
	return nil
}

// checkVersion comes before the fields, which another version may have changed.
func (f Format[T]) checkVersion(data []byte) error {
	var header struct {
		Version int `json:"version"`
	}
	if err := json.Unmarshal(data, &header); err != nil {
		return err
	}
	if header.Version != f.Version {
		return fmt.Errorf("%w %d (this program knows %d)", ErrVersion, header.Version, f.Version)
	}
	return nil
}

func invalidUID(uid string) error { return fmt.Errorf("uid: invalid value %s", quote.Text(uid)) }

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
